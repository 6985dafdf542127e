"""*Recent*: what has ended, the slowest first; one key goes round the outcomes."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.transfer import OPEN_OUTCOMES, Outcome
from pushscope.telemetry.units import count
from pushscope.tui.query import Query, Term
from pushscope.tui.table import SnapshotTable
from pushscope.tui.tables import ENDED
from pushscope.tui.views.view import View

_OUTCOMES: Final = ("", *(outcome.value for outcome in Outcome if outcome not in OPEN_OUTCOMES))


class RecentView(View):
    NAME = "recent-view"
    TITLE = "Recent"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("o", "outcome", "Outcome")]

    def __init__(self) -> None:
        super().__init__()
        self._outcome = ""
        self._last: tuple[Snapshot, Query] | None = None

    def compose(self) -> ComposeResult:
        yield SnapshotTable(ENDED, id="ended", takes_the_rest=True)

    def show(self, snapshot: Snapshot, query: Query) -> None:
        self._last = snapshot, query
        if self._outcome:
            term = Term("outcome", self._outcome)
            query = Query(f"{query.text} outcome:{self._outcome}".strip(), (*query.terms, term))
        super().show(snapshot, query)

    def action_outcome(self) -> None:
        """Only those that ended in the next way, of the ways that any did."""
        if self._last is None:
            return
        there = {t.outcome.value for t in self._last[0].recent}
        ways = [way for way in _OUTCOMES if not way or way in there or way == self._outcome]
        self._outcome = ways[(ways.index(self._outcome) + 1) % len(ways)]
        self.show(*self._last)
        self.notify(f"only {self._outcome}" if self._outcome else "all outcomes", timeout=2)

    @staticmethod
    def count(snapshot: Snapshot) -> str:
        return count(len(snapshot.recent))
