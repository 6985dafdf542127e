"""``pushscope top``: the app. It receives snapshots and keys, and tells the widgets what to draw."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable

from rich.text import Text
from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, Input, Static

from pushscope.telemetry import units
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.stuck import Row
from pushscope.tui import header, pages
from pushscope.tui.columns import Cell
from pushscope.tui.detail import DetailScreen
from pushscope.tui.feed import Feed, SnapshotSource
from pushscope.tui.help import HelpScreen
from pushscope.tui.stuck_table import STUCK
from pushscope.tui.table import SnapshotTable
from pushscope.tui.tables import IN_FLIGHT, RECENT, WAITING

STALE_AFTER_S = 5.0
"""Without a snapshot for so long (and ten refreshes), the screen says that what it shows is old."""

_SHORT, _TALL = 22, 30
"""Lines below which the header is cut, and from which on more than two notices have room, and what is stuck has
room beside what waits."""


class SnapshotTaken(Message):
    """The source gave a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        # If the screen falls behind, it draws the newest snapshot only.
        return isinstance(message, SnapshotTaken)


class SourceFailed(Message):
    """The source raised an error; it will be asked again."""

    def __init__(self, error: str) -> None:
        super().__init__()
        self.error = error


class TopApp(App[None]):
    """Every transfer in flight, who waits for whom, and what ended lately.

    ``snapshots`` is called every ``refresh_s`` seconds in a thread of its own. ``clock`` tells the seconds
    by which the age of a held screen is measured; tests give their own.
    """

    CSS_PATH = "top.tcss"
    TITLE = "pushscope top"
    BINDINGS = [  # noqa: RUF012
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("space", "pause", "Pause"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort", "Sort"),
        Binding("n", "next_stuck", "Next stuck"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("escape", "clear_filter", "Clear filter", show=False),
    ]

    def __init__(
        self,
        snapshots: SnapshotSource,
        refresh_s: float = 0.5,
        source_label: str = "",
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._refresh_s = refresh_s
        self._source_label = source_label
        self._clock = clock
        self._feed = Feed(
            snapshots,
            refresh_s,
            on_snapshot=lambda snapshot: self._tell(SnapshotTaken(snapshot)),
            on_error=lambda error: self._tell(SourceFailed(error)),
        )
        self._newest: Snapshot | None = None
        self._shown: Snapshot | None = None
        self._newest_at = clock()
        self._shown_at = clock()
        self._paused = False
        self._error = ""

    def compose(self) -> ComposeResult:
        yield Static(id="state")
        yield Static(id="totals")
        with VerticalScroll(id="engines", can_focus=False):
            yield Static(id="engine-lines")
        yield Static(id="notices")
        yield Static(id="page")
        yield Static(id="small")
        yield SnapshotTable(IN_FLIGHT, id="in-flight")
        yield SnapshotTable(WAITING, id="waiting")
        yield SnapshotTable(STUCK, id="stuck")
        yield SnapshotTable(RECENT, id="recent", takes_the_rest=True)
        with Horizontal(id="filter-line"):
            yield Static("filter (enter keeps, esc clears):", markup=False)
            yield Input(placeholder="request id or engine", id="filter")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one("#in-flight").focus()
        self._draw()
        self._feed.start()
        self.set_interval(1.0, self._draw_state)

    def on_unmount(self) -> None:
        self._feed.stop()

    @property
    def shows_something(self) -> bool:
        """Whether the source has answered, be it with an error."""
        return self._shown is not None or bool(self._error)

    # --- what comes in

    def _tell(self, message: Message) -> None:
        if self.is_running:
            self.post_message(message)

    def on_snapshot_taken(self, message: SnapshotTaken) -> None:
        self._newest = message.snapshot
        self._newest_at = self._clock()
        self._error = ""
        if self._paused:
            self._draw_state()
        else:
            self._catch_up()

    def on_source_failed(self, message: SourceFailed) -> None:
        self._error = message.error
        self._draw()

    def on_resize(self, _: events.Resize) -> None:
        # Later: Textual's own handler, which comes after this one, sets the new size.
        self.call_later(self._draw)

    # --- keys

    def action_pause(self) -> None:
        self._paused = not self._paused
        if self._paused:
            self._draw_state()
        else:
            self._catch_up()

    def action_help(self) -> None:
        self.push_screen(HelpScreen(self._notices()))

    def action_sort(self) -> None:
        if isinstance(self.focused, SnapshotTable):
            self.focused.next_sort()

    def action_next_stuck(self) -> None:
        stuck = self.query_one("#stuck", SnapshotTable)
        if self.focused is stuck:
            stuck.go_round()
        elif stuck.display:
            stuck.focus()

    @on(SnapshotTable.Chosen)
    def row_chosen(self, message: SnapshotTable.Chosen) -> None:
        if isinstance(message.row, Row) and self._shown is not None:
            self.push_screen(DetailScreen(message.row, self._shown))

    def action_filter(self) -> None:
        self._main.add_class("filtering")
        self.query_one("#filter", Input).focus()

    def action_clear_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.value = ""
        self._main.remove_class("filtering")
        if field.has_focus or self.focused is None:
            self.query_one("#in-flight").focus()

    @on(Input.Changed, "#filter")
    def filter_changed(self) -> None:
        self._draw_tables()

    @on(Input.Submitted, "#filter")
    def filter_kept(self) -> None:
        self._main.set_class(bool(self.query_one("#filter", Input).value), "filtering")
        self.query_one("#in-flight").focus()

    # --- drawing

    @property
    def _main(self) -> Screen[object]:
        # Not the top screen: the help overlay may lie above.
        return self.screen_stack[0]

    def _catch_up(self) -> None:
        self._shown = self._newest
        self._shown_at = self._newest_at
        self._draw()

    def _draw(self) -> None:
        """Draw everything from what is shown; the widgets keep nothing of their own but cursor and sort."""
        width, height = self.size
        small = width < pages.MIN_WIDTH or height < pages.MIN_HEIGHT
        self._main.set_class(small, "small")
        self._main.set_class(height < _SHORT, "short")
        self._main.set_class(height < _TALL, "tight")
        if small:
            self._put("#small", pages.too_small(width, height))
            return
        page = self._page()
        self._main.set_class(page is not None, "page")
        if page is not None:
            self._put("#page", page)
        self._draw_state()
        self._draw_header(width, height)
        self._draw_tables()

    def _page(self) -> Text | None:
        if self._shown is None:
            return pages.source_failed(self._error) if self._error else pages.starting(self._source_label)
        return pages.no_engines(self._source()) if pages.is_empty(self._shown) else None

    def _draw_state(self) -> None:
        colour = not self.no_color
        line = header.state_line(self._source(), self._state(), self.size.width, colour=colour)
        self._put("#state", line)

    def _state(self) -> Cell:
        now = self._clock()
        if self._paused:
            new = 0
            if self._newest is not None and self._shown is not None:
                new = max(0, self._newest.totals.transfers - self._shown.totals.transfers)
            shown = units.coarse_age(now - self._shown_at)
            return Cell(f"PAUSED, {units.count(new)} new, shown is {shown} old", "warn")
        if self._error:
            return Cell("SOURCE ERROR, trying again", "bad")
        silent_s = now - self._newest_at
        if silent_s > max(STALE_AFTER_S, 10 * self._refresh_s):
            return Cell(f"STALE: nothing from the source for {units.coarse_age(silent_s)}", "bad")
        return Cell("live" if self._shown is not None else "starting")

    def _draw_header(self, width: int, height: int) -> None:
        shown, colour = self._shown, not self.no_color
        if shown is not None:
            self._put(
                "#totals",
                header.flow(header.totals_pieces(shown.totals, shown.diagnoses), width, colour=colour),
            )
            # One column less: the scrollbar, if the engines need one.
            engines = [
                *header.engine_pieces(shown.engines, shown.taken_ns),
                *header.clock_pieces(shown.clocks),
            ]
            self._put("#engine-lines", header.flow(engines, width - 1, colour=colour))
        notices = self._notices()
        self._main.set_class(bool(notices), "noticed")
        if notices:
            limit = 4 if height >= _TALL else 2
            self._put("#notices", header.notice_lines(notices, width, limit, colour=colour))

    def _draw_tables(self) -> None:
        if self._shown is not None:
            self._main.set_class(bool(self._shown.diagnoses), "stuck")
            text = self._main.query_one("#filter", Input).value.strip()
            for table in self._main.query(SnapshotTable):
                table.show(self._shown, text)

    def _notices(self) -> tuple[str, ...]:
        if self._shown is None:
            return ()  # if the source failed, the whole page says so
        failed = (f"The source failed: {self._error}",) if self._error else ()
        return (*failed, *self._shown.notices)

    def _source(self) -> str:
        label = self._source_label or (self._shown.source if self._shown is not None else "")
        return units.clean(label)

    def _put(self, selector: str, text: Text) -> None:
        for widget in self._main.query(selector).results(Static):  # none any more, when the app is ending
            widget.update(text)


def run_screen(app: TopApp) -> int:
    """Run the app on the terminal and give its exit status: 0, or 143 after SIGTERM.

    A process that SIGTERM ends by itself would leave the terminal without echo, and its mouse switched on.
    """
    before = signal.getsignal(signal.SIGTERM)
    try:
        asyncio.run(_run_until_told(app))
    finally:
        signal.signal(signal.SIGTERM, before)
    return app.return_code or 0


async def _run_until_told(app: TopApp) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, app.exit, None, 128 + signal.SIGTERM)
    await app.run_async()
