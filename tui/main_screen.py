"""The screen of ``pushscope top``: a header, the view that is seen, a filter, and what keys and clicks do to them."""

from __future__ import annotations

from typing import Final

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Footer, Input, Static

from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.stuck import Row
from pushscope.telemetry.transfer import Transfer
from pushscope.tui import header, pages
from pushscope.tui.conditions import conditions
from pushscope.tui.detail import DetailScreen
from pushscope.tui.frame import Frame
from pushscope.tui.query import EVERYTHING, Query, QueryError, parse
from pushscope.tui.table import SnapshotTable
from pushscope.tui.themes import tones_of
from pushscope.tui.views.engines import EnginesView
from pushscope.tui.views.live import LiveView
from pushscope.tui.views.recent import RecentView
from pushscope.tui.views.stages import StagesView
from pushscope.tui.views.stuck import StuckView
from pushscope.tui.views.view import View

VIEWS: Final[tuple[type[View], ...]] = (LiveView, StuckView, RecentView, StagesView, EnginesView)
_SHORT, _TALL = 22, 30
"""Lines below which the header is cut, and from which on more than two notices have room, and what is stuck has
room beside what waits."""


class MainScreen(Screen[None]):
    """The five views. It keeps nothing of its own but the frame that it draws, the filter, cursors and sorts."""

    BINDINGS = [  # noqa: RUF012
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort", "Sort"),
        Binding("S", "turn_round", show=False),
        Binding("n", "next_stuck", "Next stuck"),
        Binding("e", "app.export", "Export"),
        Binding("r", "app.record", "Record"),
        Binding("question_mark", "app.help", "Help", key_display="?"),
        Binding("escape", "clear_filter", show=False),
        *(Binding(str(n), f"view('{view.NAME}')", show=False) for n, view in enumerate(VIEWS, 1)),
        Binding("right_square_bracket,l", "turn(1)", show=False),
        Binding("left_square_bracket,h", "turn(-1)", show=False),
    ]

    class TransferChosen(Message):
        """A transfer is to be looked at alone."""

        def __init__(self, transfer: Transfer, snapshot: Snapshot) -> None:
            super().__init__()
            self.transfer = transfer
            self.snapshot = snapshot

    def __init__(self) -> None:
        super().__init__()
        self._frame = Frame()
        self._seen = LiveView.NAME
        self._ready = False
        """Its widgets are there."""
        self._query = EVERYTHING

    def compose(self) -> ComposeResult:
        yield Static(id="state")
        yield Static(id="views")
        yield Static(id="conditions")
        yield Static(id="totals")
        with VerticalScroll(id="engines", can_focus=False):
            yield Static(id="engine-lines")
        yield Static(id="notices")
        yield Static(id="page")
        yield Static(id="small")
        with ContentSwitcher(id="view", initial=LiveView.NAME):
            for view in VIEWS:
                yield view()
        yield Static(id="filter-error")
        with Horizontal(id="filter-line"):
            yield Static("filter (enter keeps, esc clears):", markup=False)
            yield Input(placeholder="request id or engine, stage:wire age>5s !outcome:delivered", id="filter")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._ready = True
        self.view.first.focus()
        self.show(self._frame)

    @property
    def view(self) -> View:
        """The view that is seen."""
        return self.query_one(f"#{self._seen}", View)

    # --- keys

    def action_view(self, name: str) -> None:
        self._seen = self.query_one("#view", ContentSwitcher).current = name
        self.show(self._frame)
        self.view.first.focus()

    def action_turn(self, step: int) -> None:
        names = [view.NAME for view in VIEWS]
        self.action_view(names[(names.index(self.view.NAME) + step) % len(names)])

    def action_sort(self) -> None:
        if isinstance(self.focused, SnapshotTable):
            self.focused.next_sort()

    def action_turn_round(self) -> None:
        if isinstance(self.focused, SnapshotTable):
            self.focused.turn_round()

    def action_next_stuck(self) -> None:
        """To what is stuck, then round it: on *Live* its table there, else the view of its own."""
        if self._frame.snapshot is None or not self._frame.snapshot.diagnoses:
            return
        if not isinstance(self.view, LiveView | StuckView):
            self.action_view(StuckView.NAME)
            return
        stuck = self.query_one("#stuck" if isinstance(self.view, LiveView) else "#diagnoses", SnapshotTable)
        if self.focused is stuck:
            stuck.go_round()
        else:
            stuck.focus()

    @on(SnapshotTable.Chosen)
    def row_chosen(self, message: SnapshotTable.Chosen) -> None:
        row, snapshot = message.row, self._frame.snapshot
        if snapshot is None:
            return
        if isinstance(row, Row) and row.transfer is None:
            self.app.push_screen(DetailScreen(row, snapshot))
        elif transfer := row.transfer if isinstance(row, Row) else row if isinstance(row, Transfer) else None:
            self.post_message(self.TransferChosen(transfer, snapshot))

    def action_filter(self) -> None:
        self.add_class("filtering")
        self.query_one("#filter", Input).focus()

    def action_clear_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.value = ""
        self.remove_class("filtering")
        if field.has_focus or self.focused is None:
            self.view.first.focus()

    @on(Input.Changed, "#filter")
    def filter_changed(self, changed: Input.Changed) -> None:
        try:
            self.filter(parse(changed.value))
        except QueryError as e:
            self._put("#filter-error", Text(f"! {e}", tones_of(self.app)["bad"]))
            self.add_class("misread")

    def filter(self, query: Query) -> None:
        """Show only what fits."""
        self._query = query
        self.remove_class("misread")
        self._draw_view()

    @on(Input.Submitted, "#filter")
    def filter_kept(self) -> None:
        self.set_class(bool(self.query_one("#filter", Input).value), "filtering")
        self.view.first.focus()

    def on_resize(self, _: events.Resize) -> None:
        # Later: Textual's own handler, which comes after this one, sets the new size.
        self.call_later(lambda: self.show(self._frame))

    # --- drawing

    def show(self, frame: Frame) -> None:
        """Draw everything."""
        self._frame = frame
        if not self._ready:
            return  # it will be drawn then
        width, height = self.app.size
        small = width < pages.MIN_WIDTH or height < pages.MIN_HEIGHT
        self.set_class(small, "small")
        self.set_class(height < _SHORT, "short")
        self.set_class(height < _TALL, "tight")
        if small:
            self._put("#small", pages.too_small(width, height))
            return
        page = _page(frame)
        self.set_class(page is not None, "page")
        if page is not None:
            self._put("#page", page)
        self.show_state(frame)
        self._draw_header(width, height)
        self._draw_view()
        if page is None and self.focused is None:
            self.view.first.focus()  # a page of words in its place had taken it

    def show_state(self, frame: Frame) -> None:
        """Draw the first line alone: what is shown is the same."""
        self._frame = frame
        if not self._ready:
            return
        line = header.state_line(frame.source, frame.state, self.app.size.width, tones=tones_of(self.app))
        self._put("#state", line)

    def _draw_header(self, width: int, height: int) -> None:
        snapshot, notices, tones = self._frame.snapshot, self._frame.notices, tones_of(self.app)
        self.set_class(isinstance(self.view, EnginesView), "of-engines")
        if snapshot is not None:
            titles = [(view.NAME, view.TITLE, view.count(snapshot)) for view in VIEWS]
            self._put("#views", header.views_line(titles, self.view.NAME, width))
            told = conditions(snapshot)
            self.set_class(bool(told), "conditioned")
            self._put("#conditions", header.flow(told, width, tones=tones))
            totals = [
                *header.totals_pieces(snapshot.totals, snapshot.diagnoses),
                *header.mark_pieces(snapshot.marks, snapshot.taken_unix_s),
            ]
            self._put("#totals", header.flow(totals, width, tones=tones))
            engines = [
                *header.engine_pieces(snapshot.engines, snapshot.taken_ns),
                *header.clock_pieces(snapshot.clocks),
            ]
            # One column less: the scrollbar, if the engines need one.
            self._put("#engine-lines", header.flow(engines, width - 1, tones=tones))
        self.set_class(bool(notices), "noticed")
        if notices:
            limit = 4 if height >= _TALL else 2
            self._put("#notices", header.notice_lines(notices, width, limit, tones=tones))

    def _draw_view(self) -> None:
        if self._frame.snapshot is not None:
            self.view.show(self._frame.snapshot, self._query)

    def _put(self, selector: str, text: Text) -> None:
        for widget in self.query(selector).results(Static):  # none any more, when the app is ending
            widget.update(text)


def _page(frame: Frame) -> Text | None:
    """Words in place of the tables, where there is nothing to draw."""
    if frame.snapshot is None:
        return pages.source_failed(frame.error) if frame.error else pages.starting(frame.source)
    return pages.no_engines(frame.source) if pages.is_empty(frame.snapshot) else None
