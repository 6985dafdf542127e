"""*Live*: what is in flight, who waits for whom, what is stuck; above it the last seconds as lines."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Static

from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.units import count
from pushscope.tui.query import Query
from pushscope.tui.sparks import legend, spark_line
from pushscope.tui.stuck_table import STUCK
from pushscope.tui.table import SnapshotTable
from pushscope.tui.tables import IN_FLIGHT, RECENT, WAITING
from pushscope.tui.themes import tones_of
from pushscope.tui.views.view import View


class LiveView(View):
    NAME = "live"
    TITLE = "Live"

    def compose(self) -> ComposeResult:
        yield Static(id="sparks")
        yield SnapshotTable(IN_FLIGHT, id="in-flight")
        yield Static(id="legend")
        yield SnapshotTable(WAITING, id="waiting")
        yield SnapshotTable(STUCK, id="stuck")
        yield SnapshotTable(RECENT, id="recent", takes_the_rest=True)

    def show(self, snapshot: Snapshot, query: Query) -> None:
        for table in self.tables:
            table.show(snapshot, query)
        self.set_class(bool(snapshot.diagnoses), "with-stuck")
        self.set_class(bool(snapshot.history), "with-history")
        tones = tones_of(self.app)
        self.put("#sparks", spark_line(snapshot, self.app.size.width, tones))
        self.put("#legend", legend(snapshot, self.app.size.width, tones))

    @staticmethod
    def count(snapshot: Snapshot) -> str:
        return count(snapshot.totals.in_flight + snapshot.totals.waiting)
