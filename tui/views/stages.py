"""*Stages*: how long each stage takes, push beside pull, and each rank beside the others of its engine."""

from __future__ import annotations

from textual.app import ComposeResult

from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.units import count
from pushscope.tui.stage_tables import RANKS, STAGES
from pushscope.tui.table import SnapshotTable
from pushscope.tui.views.view import View


class StagesView(View):
    NAME = "stages-view"
    TITLE = "Stages"

    def compose(self) -> ComposeResult:
        yield SnapshotTable(STAGES, id="stages")
        yield SnapshotTable(RANKS, id="ranks", takes_the_rest=True)

    @staticmethod
    def count(snapshot: Snapshot) -> str:
        slow = sum(rank.outlier for rank in snapshot.pace.ranks)
        return f"{count(slow)} slow" if slow else ""
