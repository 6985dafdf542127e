"""The overlay behind ``enter`` on a diagnosis: the whole sentence, the evidence, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from pushscope.telemetry import units
from pushscope.telemetry.diagnosis.model import Diagnosis
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.stuck import Row
from pushscope.telemetry.transfer import rank_name
from pushscope.tui.severity import severity_cell
from pushscope.tui.stuck_view import costs, engines, lasting, subject
from pushscope.tui.themes import tones_of
from pushscope.tui.tones import COLOURED, Tones


class DetailScreen(ModalScreen[None]):
    """One diagnosis as it was when it was opened."""

    BINDINGS = [Binding("escape,enter,q", "dismiss", "Close")]  # noqa: RUF012

    def __init__(self, row: Row, snapshot: Snapshot) -> None:
        super().__init__()
        self._row = row
        self._snapshot = snapshot

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="detail"):
            yield Static(detail_page(self._row, self._snapshot, tones=tones_of(self.app)))


def detail_page(
    row: Row, snapshot: Snapshot, *, tones: Tones = COLOURED, hint: str = "esc closes this page"
) -> Group:
    """The page, as wide as it is given room; ``hint`` says which key goes on from here."""
    return Group(*_parts(row, snapshot, tones), Text(hint, "dim"))


def _parts(row: Row, snapshot: Snapshot, tones: Tones) -> Iterator[RenderableType]:
    diagnosis = row.diagnosis
    cell = severity_cell(diagnosis.severity)
    yield Text.assemble((cell.text, tones[cell.tone]), "  ", (diagnosis.code, "bold"))
    route = engines(row, snapshot)
    yield Text("  ".join(filter(None, (subject(row, snapshot), route, f"since {lasting(row, snapshot)}"))))
    yield Text()
    yield Text(units.clean(diagnosis.sentence))
    if its_costs := costs(diagnosis):
        yield Text(its_costs)
    if not diagnosis.certain:
        yield Text("Likely, not certain.", "italic")
    if diagnosis.evidence:
        yield Text()
        yield Text("Evidence", "bold underline")
        yield _evidence(diagnosis, snapshot)
    if diagnosis.remedy:
        yield Text()
        yield Text("What to do", "bold underline")
        yield Text(units.clean(diagnosis.remedy))
    yield Text()
    yield Text(diagnosis.runbook)
    if diagnosis.attempt:
        yield Text(f"The whole story: pushscope why {units.clean(diagnosis.subject)}")


def _evidence(diagnosis: Diagnosis, snapshot: Snapshot) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for e in sorted(diagnosis.evidence, key=lambda e: e.t_ns):
        place = "scheduler" if e.rank is None else rank_name(e.rank)
        ago = units.age(max(0, snapshot.taken_ns - e.t_ns) / 1e9)
        where = f"{snapshot.engine_name(e.engine)} {place}"
        table.add_row(Text(f"{ago} ago"), Text(units.clean(where)), Text(units.clean(e.what)))
    return table
