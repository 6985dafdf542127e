"""*Engines*: who is there and how it goes, which pairs have to do with each other, and their clocks."""

from __future__ import annotations

from textual.app import ComposeResult

from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.units import count
from pushscope.tui.engine_tables import CLOCKS, ENGINES, PAIRS
from pushscope.tui.table import SnapshotTable
from pushscope.tui.views.view import View


class EnginesView(View):
    NAME = "engines-view"
    TITLE = "Engines"

    def compose(self) -> ComposeResult:
        yield SnapshotTable(ENGINES, id="engine-table")
        yield SnapshotTable(PAIRS, id="pairs", takes_the_rest=True)
        yield SnapshotTable(CLOCKS, id="clocks")

    @staticmethod
    def count(snapshot: Snapshot) -> str:
        gone = sum(not engine.alive for engine in snapshot.engines)
        return count(len(snapshot.engines)) + (f", {count(gone)} gone" if gone else "")
