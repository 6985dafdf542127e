"""*Stuck*: what is wrong and with whom, the oldest first; below it what the cursor's row means and what to do."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.stuck import rows_of
from pushscope.telemetry.units import count
from pushscope.tui.detail import detail_page
from pushscope.tui.query import Query
from pushscope.tui.stuck_table import OLDEST
from pushscope.tui.table import SnapshotTable
from pushscope.tui.tables import WAITING
from pushscope.tui.themes import tones_of
from pushscope.tui.views.view import View


class StuckView(View):
    NAME = "stuck-view"
    TITLE = "Stuck"

    def compose(self) -> ComposeResult:
        yield SnapshotTable(OLDEST, id="diagnoses", takes_the_rest=True)
        with VerticalScroll(id="explained", can_focus=False):
            yield Static(id="explanation")
        yield SnapshotTable(WAITING, id="entries")

    def show(self, snapshot: Snapshot, query: Query) -> None:
        super().show(snapshot, query)
        self._explain(snapshot)
        self._snapshot = snapshot

    def on_snapshot_table_moved(self) -> None:
        self._explain(self._snapshot)

    def _explain(self, snapshot: Snapshot) -> None:
        row = self.query_one("#diagnoses", SnapshotTable).cursor_row
        self.set_class(row is not None, "explains")
        if row is not None:
            hint = "enter: the transfer, its time and events" if row.transfer else "enter: this page alone"
            self.put("#explanation", detail_page(row, snapshot, tones=tones_of(self.app), hint=hint))

    @staticmethod
    def count(snapshot: Snapshot) -> str:
        return count(len(rows_of(snapshot))) if snapshot.diagnoses else ""
