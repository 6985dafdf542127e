"""``pushscope top``: the app. It receives snapshots, keeps one of them on the screen, and does what keys ask for."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.message import Message
from textual.screen import Screen

from pushscope.telemetry import units
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.playback import SPEEDS, Player
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.transfer import Transfer
from pushscope.telemetry.why.account import Attempt
from pushscope.tui import export
from pushscope.tui.feed import Controls, Feed, SnapshotSource
from pushscope.tui.frame import Frame
from pushscope.tui.help import HelpScreen
from pushscope.tui.main_screen import VIEWS, MainScreen
from pushscope.tui.prompts import ExportScreen, MarkScreen
from pushscope.tui.state import Freshness, Held, state_cell
from pushscope.tui.table import SnapshotTable
from pushscope.tui.themes import DEFAULT, OWN
from pushscope.tui.transfer_screen import TransferScreen

STALE_AFTER_S = 5.0
"""Without a snapshot for so long (and ten refreshes), the screen says that what it shows is old."""
_ALL_ROWS: Final = 1 << 40


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


class Answered(Message):
    """What was asked for in the feed's thread is done: ``tell`` says or draws what came of it."""

    def __init__(self, tell: Callable[[], object]) -> None:
        super().__init__()
        self.tell = tell


class TopApp(App[None]):
    """Every transfer in flight, who waits for whom, what is stuck and why, and what ended lately.

    ``snapshots`` is called every ``refresh_s`` seconds in a thread of its own. ``controls`` is what can be done beside
    looking; None: nothing. ``clock`` tells the seconds by which the age of a held screen is measured; tests give their
    own.
    """

    CSS_PATH = "top.tcss"
    TITLE = "pushscope top"
    BINDINGS = [  # noqa: RUF012
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("space", "pause", "Pause"),
        Binding("m", "mark", show=False),
        Binding("right", "along(5)", show=False),
        Binding("left", "along(-5)", show=False),
        Binding("shift+right", "seek(60)", show=False),
        Binding("shift+left", "seek(-60)", show=False),
        Binding("b", "begin", show=False),
        Binding("greater_than_sign", "speed(2)", show=False),
        Binding("less_than_sign", "speed(0.5)", show=False),
        Binding("full_stop", "step", show=False),
    ]

    def __init__(
        self,
        snapshots: SnapshotSource,
        refresh_s: float = 0.5,
        source_label: str = "",
        *,
        controls: Controls | None = None,
        theme: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        for own in OWN:
            self.register_theme(own)
        self.theme = theme or self.theme or DEFAULT
        self._refresh_s = refresh_s
        self._source_label = source_label
        self._controls = controls
        self._clock = clock
        self._feed = Feed(
            snapshots,
            refresh_s,
            on_snapshot=lambda snapshot: self._tell(SnapshotTaken(snapshot)),
            on_error=lambda error: self._tell(SourceFailed(error)),
            hurries=lambda: controls is not None and controls.is_behind,
        )
        self._newest: Snapshot | None = None
        self._shown: Snapshot | None = None
        self._newest_at = clock()
        self._shown_at = clock()
        self._paused = False
        self._error = ""

    def get_default_screen(self) -> Screen[None]:
        return MainScreen()

    def on_mount(self) -> None:
        self._feed.start()
        self.set_interval(1.0, self._draw_state)
        self.theme_changed_signal.subscribe(self, lambda _: self._draw())

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

    def on_answered(self, message: Answered) -> None:
        message.tell()

    # --- drawing

    def _catch_up(self) -> None:
        self._shown = self._newest
        self._shown_at = self._newest_at
        self._draw()

    def _draw(self) -> None:
        self._drawn.show(self._frame())

    def _draw_state(self) -> None:
        self._drawn.show_state(self._frame())

    @property
    def _main(self) -> MainScreen:
        main = self.screen_stack[0]
        assert isinstance(main, MainScreen)
        return main

    @property
    def _drawn(self) -> MainScreen | TransferScreen:
        """The screen that is seen, maybe below a small one."""
        alone = (screen for screen in self.screen_stack if isinstance(screen, TransferScreen))
        return next(alone, None) or self._main

    def _frame(self) -> Frame:
        shown = self._shown
        play, recording = (shown.play, shown.recording) if shown is not None else (None, None)
        label = self._source_label or (shown.source if shown is not None else "")
        state = state_cell(self._freshness(), play, recording)
        return Frame(shown, units.clean(label), self._error, state)

    def _freshness(self) -> Freshness:
        now = self._clock()
        silent_s = now - self._newest_at
        held = None
        if self._paused:
            new = 0
            if self._newest is not None and self._shown is not None:
                new = max(0, self._newest.totals.transfers - self._shown.totals.transfers)
            held = Held(now - self._shown_at, new)
        return Freshness(
            started=self._shown is not None,
            held=held,
            error=bool(self._error),
            silent_s=silent_s if silent_s > max(STALE_AFTER_S, 10 * self._refresh_s) else 0.0,
        )

    def on_main_screen_transfer_chosen(self, message: MainScreen.TransferChosen) -> None:
        screen = TransferScreen(message.transfer, self._frame(), self._explain)
        self.push_screen(screen, lambda _: self._draw())

    # --- keys

    def action_pause(self) -> None:
        """Hold the screen, or go on; a recording is held itself."""
        if self._player is not None:
            self._play(lambda player: player.pause() if player.state().playing else player.play())
            return
        self._paused = not self._paused
        if self._paused:
            self._draw_state()
        else:
            self._catch_up()

    def action_help(self) -> None:
        self.push_screen(HelpScreen(self._frame().notices, plays=self._player is not None))

    def action_mark(self) -> None:
        if self._controls is not None:
            self.push_screen(MarkScreen(), self._mark)

    def _mark(self, label: str | None) -> None:
        if label and (controls := self._controls) is not None:
            self._ask(lambda: controls.mark(label), lambda mark: self._say(f"marked: {mark.label}"))

    def action_record(self) -> None:
        """Record from now on, or end the recording."""
        controls = self._controls
        if controls is None:
            return
        if self._player is not None:
            self._say("this is a recording already", failed=True)
        elif self._newest is not None and self._newest.recording is not None:
            path = self._newest.recording.path
            self._ask(controls.stop_recording, lambda _: self._say(f"recorded: {path}"))
        else:
            self._ask(controls.record, lambda path: self._say(f"recording to {path}; r ends it"))

    def action_export(self) -> None:
        if self._shown is not None:
            self.push_screen(ExportScreen(), self._exported)

    def _exported(self, kind: str | None) -> None:
        if kind:
            self.call_after_refresh(self._export, kind)  # when the question is gone from the picture

    def _export(self, kind: str) -> None:
        shown, main = self._shown, self._main
        assert shown is not None
        view, table = main.view, main.focused
        if not isinstance(table, SnapshotTable):
            table = view.first
        if kind == "svg":
            data = self.export_screenshot(title=self.TITLE).encode()
        elif kind == "csv":
            data = export.as_csv((table.kind, table.selected(shown, limit=_ALL_ROWS)), shown)
        else:
            tables = [(t.kind, t.selected(shown, limit=_ALL_ROWS)) for t in view.tables]
            data = export.as_json(view.TITLE.lower(), tables, shown, table.query_text)
        try:
            path = export.write(Path(), view.TITLE.lower(), kind, data)
        except PushscopeError as e:
            self._say(str(e), failed=True)
        else:
            self._say(f"written: {path.absolute()}")

    # --- keys of a recording

    @property
    def _player(self) -> Player | None:
        return self._controls.player if self._controls is not None else None

    def _play(self, control: Callable[[Player], object]) -> None:
        if (player := self._player) is not None:
            self._feed.ask(partial(control, player))

    def action_along(self, seconds: float) -> None:
        """Along the recording; without one to the next view."""
        if self._player is not None:
            self.action_seek(seconds)
        elif isinstance(self.screen, MainScreen):
            self.screen.action_turn(1 if seconds > 0 else -1)

    def action_seek(self, seconds: float) -> None:
        self._play(lambda player: player.seek(max(0.0, player.state().position_s + seconds)))

    def action_begin(self) -> None:
        self._play(lambda player: player.seek(0.0))

    def action_speed(self, factor: float) -> None:
        def change(player: Player) -> None:
            player.speed = min(max(player.speed * factor, SPEEDS[0]), SPEEDS[1])

        self._play(change)

    def action_step(self) -> None:
        self._play(lambda player: player.step())

    # --- the feed's thread

    def _ask(self, question: Callable[[], Any], answered: Callable[[Any], object]) -> None:
        """Have something done in the feed's thread, and its answer, or why there is none, told here."""

        def ask() -> None:
            try:
                answer = question()
            except PushscopeError as e:
                self._tell(Answered(partial(self._say, str(e), failed=True)))
            else:
                self._tell(Answered(partial(answered, answer)))

        self._feed.ask(ask)

    def _explain(self, transfer: Transfer, explained: Callable[[Attempt | None], None]) -> None:
        if (controls := self._controls) is not None:
            self._ask(lambda: controls.explain(transfer), explained)

    def _say(self, words: str, *, failed: bool = False) -> None:
        self.notify(units.clean(words), severity="error" if failed else "information", markup=False)

    # --- the palette

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        yield from super().get_system_commands(screen)
        main = self._main
        for number, view in enumerate(VIEWS, 1):
            go = partial(main.action_view, view.NAME)
            yield SystemCommand(f"View: {view.TITLE}", f"The same as key {number}", go)
        yield SystemCommand("Filter", "Rows that fit words and key:value terms", main.action_filter)
        yield SystemCommand("Pause", "Hold the screen, or go on", self.action_pause)
        yield SystemCommand("Export", "What is shown, as JSON, CSV or SVG", self.action_export)
        if self._controls is not None:
            yield SystemCommand("Record", "Record from now on, or end the recording", self.action_record)
            yield SystemCommand("Mark", "Give this moment a name", self.action_mark)


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
