"""The widget that draws one table of a snapshot, line by line: its work is bounded by what is visible."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.units import count
from pushscope.tui.columns import GAP, Cell, Fitted, fit, put
from pushscope.tui.query import EVERYTHING, Query
from pushscope.tui.selection import ROW_LIMIT, Selection, select
from pushscope.tui.table_kind import TableKind
from pushscope.tui.themes import tones_of
from pushscope.tui.tones import Tones

HEAD_LINES = 2
"""The title and the column titles, which don't scroll."""
MARK = 2
"""Cells at the left that mark the row of the cursor."""


class SnapshotTable(ScrollView, can_focus=True):
    """A table with a cursor that stays on its row while the rows move.

    It asks for no more lines than it ever needed, unless it ``takes_the_rest`` of the screen.
    """

    BINDINGS = [  # noqa: RUF012 (Textual declares it so)
        Binding("down,j", "move(1)", "down", show=False),
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("home,g", "first", "first", show=False),
        Binding("end,G", "last", "last", show=False),
        Binding("enter", "choose", "choose", show=False),
    ]

    class Chosen(Message):
        """Enter was pressed on a row, or it was clicked twice."""

        def __init__(self, row: object) -> None:
            super().__init__()
            self.row = row

    class Moved(Message):
        """The cursor was moved to another row."""

    def __init__(self, kind: TableKind[Any], *, id: str, takes_the_rest: bool = False) -> None:  # noqa: A002
        super().__init__(id=id)
        self._takes_the_rest = takes_the_rest
        self._tallest = 0
        """The most lines it ever had. Room beyond that goes to the other tables, and is not asked back when
        the rows become fewer, so that the tables don't jump about."""
        self.kind = kind
        self.selection: Selection[Any] = Selection()
        self._snapshot: Snapshot | None = None
        self._query = EVERYTHING
        self._sort = 0
        self._backwards = False
        self._cursor = 0
        self._held: Hashable = None
        """The identity of the row under a moved cursor; None while it rests on the first row, whichever that is."""
        self._fitted: tuple[Fitted[Any], ...] = ()
        self._fitted_width = -1

    # --- what the app calls

    def show(self, snapshot: Snapshot, query: Query = EVERYTHING) -> None:
        """Draw a snapshot, filtered by ``query``."""
        self._snapshot = snapshot
        self._query = query
        self.selection = self.selected(snapshot)
        self._follow()
        height = HEAD_LINES + len(self.selection.rows) + bool(self.selection.more)
        if self.virtual_size.height != height:
            self.virtual_size = Size(0, height)
        if height > self._tallest:
            self._tallest = height
            if not self._takes_the_rest:
                self.styles.max_height = max(height, HEAD_LINES + 1) + 1
        self.refresh()

    @property
    def query_text(self) -> str:
        """The filter as it could be typed."""
        return self._query.text

    def selected(self, snapshot: Snapshot, limit: int = ROW_LIMIT) -> Selection[Any]:
        """The rows of a snapshot, filtered and sorted as this table is."""
        sort = self.kind.sorts[self._sort]
        return select(self.kind, snapshot, sort, self._query, limit, backwards=self._backwards)

    def next_sort(self) -> None:
        """Sort by the next order, and start again at the top."""
        self._sort_by((self._sort + 1) % len(self.kind.sorts))

    def turn_round(self) -> None:
        """The same order, the last row first."""
        self._sort_by(self._sort, backwards=not self._backwards)

    def _sort_by(self, sort: int, *, backwards: bool = False) -> None:
        self._sort, self._backwards = sort, backwards
        self._held = None
        self._cursor = 0
        self.scroll_to(y=0, animate=False)
        if self._snapshot is not None:
            self.show(self._snapshot, self._query)

    @property
    def cursor_row(self) -> Any:
        """What is under the cursor; None if the table is empty."""
        rows = self.selection.rows
        return rows[self._cursor] if self._cursor < len(rows) else None

    # --- the cursor

    def action_move(self, step: int) -> None:
        self._move_to(self._cursor + step)

    def action_page(self, direction: int) -> None:
        self._move_to(self._cursor + direction * max(self._page, 1))

    def action_first(self) -> None:
        self._move_to(0)

    def action_last(self) -> None:
        self._move_to(len(self.selection.rows) - 1)

    def action_choose(self) -> None:
        if self.cursor_row is not None:
            self.post_message(self.Chosen(self.cursor_row))

    def go_round(self) -> None:
        """Move the cursor to the next row, from the last to the first."""
        self._move_to((self._cursor + 1) % max(len(self.selection.rows), 1))

    def on_click(self, event: events.Click) -> None:
        row = event.y - HEAD_LINES + self.scroll_offset.y
        if event.y == HEAD_LINES - 1:
            self._column_clicked(event.x - MARK)
        elif event.y >= HEAD_LINES and row < len(self.selection.rows):
            self._move_to(row)
            if event.chain > 1:
                self.action_choose()

    def _column_clicked(self, x: int) -> None:
        for fitted in self._fitted:
            if 0 <= x < fitted.width + GAP:
                for number, sort in enumerate(self.kind.sorts):
                    if sort.column == fitted.column.title:
                        again = number == self._sort and not self._backwards
                        self._sort_by(number, backwards=again)
                return
            x -= fitted.width + GAP

    @property
    def _page(self) -> int:
        return self.size.height - HEAD_LINES

    def _move_to(self, row: int) -> None:
        rows = self.selection.rows
        self._cursor = max(0, min(row, len(rows) - 1))
        self._held = self.kind.identity(rows[self._cursor]) if self._cursor else None
        self._reveal()
        self.refresh()
        self.post_message(self.Moved())

    def _follow(self) -> None:
        rows = self.selection.rows
        if self._held is None:
            self._cursor = 0
            return
        for position, row in enumerate(rows):
            if self.kind.identity(row) == self._held:
                moved = position != self._cursor
                self._cursor = position
                if moved:
                    self._reveal()
                return
        # It left the table: the cursor stays where it was, on whatever stands there now.
        self._cursor = max(0, min(self._cursor, len(rows) - 1))
        self._held = self.kind.identity(rows[self._cursor]) if self._cursor else None

    def _reveal(self) -> None:
        top = self.scroll_offset.y
        last = self._cursor == len(self.selection.rows) - 1
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False, force=True)
        elif self._cursor >= top + self._page:
            # With the last row, show the line below it too.
            below = bool(self.selection.more) and last
            self.scroll_to(y=self._cursor - self._page + 1 + below, animate=False, force=True)

    # --- drawing

    def render_line(self, y: int) -> Strip:
        """One visible line: title, column titles, a row, or the line that says how many more there are."""
        width = self.scrollable_content_region.width  # without the scrollbar
        if width != self._fitted_width:
            self._fitted = fit(self.kind.columns, width - MARK)
            self._fitted_width = width
        base = self.rich_style
        if y == 0:
            return self._title_line(width, base)
        if y == 1:
            return self._column_titles(width, base)
        row = y - HEAD_LINES + self.scroll_offset.y
        if row < len(self.selection.rows):
            return self._row_line(row, width, base)
        if row == len(self.selection.rows) and (words := self._last_words()):
            return _strip([Segment(" " * MARK + words, base + Style(italic=True))], width, base)
        return Strip.blank(width, base)

    def _last_words(self) -> str:
        if self.selection.rows:
            return self.selection.more
        if self._snapshot is None:
            return ""
        return "nothing matches the filter" if self.selection.total else self.kind.empty

    def _title_line(self, width: int, base: Style) -> Strip:
        selection = self.selection
        number = count(selection.total)
        if self._query:
            number = f"{count(selection.matching)} of {number} match"
        shown = f", first {len(selection.rows)} shown" if selection.more else ""
        words = f" {self.kind.title} {number}{shown} · by {selection.sort or self.kind.sorts[0].name} "
        rule = "━" if self.has_focus else "─"
        style = base + Style(bold=self.has_focus)
        line = rule * MARK + words
        return _strip([Segment(line + rule * max(0, width - len(line)), style)], width, style)

    def _column_titles(self, width: int, base: Style) -> Strip:
        titles = (" " * GAP).join(put(f.column.title, f.width, right=f.column.right) for f in self._fitted)
        style = base + Style(dim=True)
        return _strip([Segment(" " * MARK + titles, style)], width, style)

    def _row_line(self, row: int, width: int, base: Style) -> Strip:
        shown = self.selection.rows[row]
        snapshot = self._snapshot
        assert snapshot is not None  # there are no rows before the first snapshot
        at_cursor = self.has_focus and row == self._cursor
        if at_cursor:
            base = base + Style(reverse=True)
        tones = tones_of(self.app)
        segments = [Segment("> " if at_cursor else "  ", base)]
        for position, fitted in enumerate(self._fitted):
            cell = fitted.column.cell(shown, snapshot, fitted.width)
            gap = " " * GAP if position < len(self._fitted) - 1 else ""
            text = put(cell.text, fitted.width, right=fitted.column.right)
            # Reversed, a tone would paint the cell's background.
            if at_cursor:
                segments.append(Segment(text + gap, base))
            elif cell.runs and cell.text == text.rstrip():
                segments += _in_runs(cell, base, tones)
                segments.append(Segment(" " * (len(text) - len(cell.text)) + gap, base))
            else:
                segments.append(Segment(text + gap, base + tones[cell.tone]))
        return _strip(segments, width, base)


def _in_runs(cell: Cell, base: Style, tones: Tones) -> Iterator[Segment]:
    at = 0
    for tone, num_cells in cell.runs:
        yield Segment(cell.text[at : at + num_cells], base + tones[tone])
        at += num_cells


def _strip(segments: list[Segment], width: int, base: Style) -> Strip:
    return Strip(segments).adjust_cell_length(width, base)
