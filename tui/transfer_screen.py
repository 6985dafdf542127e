"""The screen behind ``enter`` on a transfer: its page, which goes on while the transfer does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.transfer import Transfer
from pushscope.telemetry.units import clean
from pushscope.telemetry.why.account import Attempt
from pushscope.tui import header
from pushscope.tui.frame import Frame
from pushscope.tui.tables import identity
from pushscope.tui.themes import tones_of
from pushscope.tui.transfer_page import Told, ids_of, transfer_page

Explain = Callable[[Transfer, Callable[[Attempt | None], None]], None]
"""Asks for the events of a transfer, and calls back with them."""

GONE: Final = "It is not followed any more: this is how it was seen last."


class TransferScreen(Screen[None]):
    """One transfer, followed as long as snapshots have it."""

    BINDINGS = [  # noqa: RUF012
        Binding("escape,q,enter,backspace", "close", "Back", key_display="esc"),
        Binding("space", "app.pause", "Pause"),
        Binding("j,down", "scroll(1)", show=False),
        Binding("k,up", "scroll(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("g,home", "ends(0)", show=False),
        Binding("G,end", "ends(1)", show=False),
        Binding("y", "copy('y')", "Copy id"),
        *(Binding(key, f"copy('{key}')", show=False) for key in "DPuvt"),
        Binding("e", "app.export", "Export"),
        Binding("question_mark", "app.help", "Help", key_display="?"),
    ]

    def __init__(self, transfer: Transfer, frame: Frame, explain: Explain) -> None:
        super().__init__()
        assert frame.snapshot is not None  # it was chosen there
        self._explain = explain
        self._key = identity(transfer)
        self._frame = frame
        self._ready = False
        """Its widgets are there."""
        self.told = Told(transfer, frame.snapshot)

    def compose(self) -> ComposeResult:
        yield Static(id="transfer-state")
        with VerticalScroll(id="transfer"):
            yield Static(id="transfer-page")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._ready = True
        self.query_one("#transfer").focus()
        self._explain(self.told.transfer, self._explained)
        self.show_state(self._frame)
        self._draw()

    def show(self, frame: Frame) -> None:
        """Draw the transfer as a later snapshot has it."""
        self.show_state(frame)
        if (snapshot := frame.snapshot) is None or not self._ready:
            return
        found = _in(snapshot, self._key, self.told.transfer)
        if found is None:
            self.told = self.told._replace(note=GONE)
        else:
            # Matched meanwhile, it has another identity than when it was chosen.
            self._key = identity(found)
            changed = found != self.told.transfer
            self.told = Told(found, snapshot, self.told.attempt)
            if changed:
                self._explain(found, self._explained)
        self._draw()

    def show_state(self, frame: Frame) -> None:
        """Draw the first line, which is the same as behind this screen."""
        self._frame = frame
        if not self._ready:
            return  # it will be drawn then
        width, tones = self.app.size.width, tones_of(self.app)
        line = header.state_line(frame.source, frame.state, width, tones=tones)
        self.query_one("#transfer-state", Static).update(line)

    def on_resize(self, _: events.Resize) -> None:
        self.call_later(self._draw)

    def action_close(self) -> None:
        self.dismiss()

    def action_scroll(self, lines: int) -> None:
        self.query_one("#transfer").scroll_relative(y=lines, animate=False)

    def action_page(self, direction: int) -> None:
        page = self.query_one("#transfer")
        page.scroll_relative(y=direction * max(1, page.size.height - 1), animate=False)

    def action_ends(self, end: int) -> None:
        page = self.query_one("#transfer")
        page.scroll_to(y=page.max_scroll_y if end else 0, animate=False)

    def action_copy(self, key: str) -> None:
        for each in ids_of(self.told):
            if each.key == key:
                self.app.copy_to_clipboard(each.value)
                self.notify(clean(f"copied the id of {each.what}: {each.value}", 90), markup=False)
                return
        self.notify("that id is not known yet", severity="warning")

    def _explained(self, attempt: Attempt | None) -> None:
        if attempt is not None and self.is_attached:
            self.told = self.told._replace(attempt=attempt)
            self._draw()

    def _draw(self) -> None:
        if not (self._ready and self.is_attached):
            return
        width = self.query_one("#transfer").scrollable_content_region.width
        if width < 1:
            return
        lines = transfer_page(self.told, width, tones_of(self.app))
        self.query_one("#transfer-page", Static).update(Text("\n").join(lines))


def _in(snapshot: Snapshot, key: tuple[str | None, str | None, int], before: Transfer) -> Transfer | None:
    """The transfer in a snapshot; where D became known meanwhile, by P's request."""
    shown = (*snapshot.in_flight, *snapshot.waiting, *snapshot.recent)
    for t in shown:
        if identity(t) == key:
            return t
    p = before.p_engine, before.p_request
    return next((t for t in shown if before.p_request and (t.p_engine, t.p_request) == p), None)
