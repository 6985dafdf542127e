"""Keys of views, of a transfer and of a recording; the mouse; the palette; and that the help knows them all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.binding import Binding
from textual.pilot import Pilot
from textual.widgets import Static

from pushscope.telemetry.marks import Mark
from pushscope.telemetry.playback import PlayState
from pushscope.telemetry.snapshot import RecordingState, Snapshot
from pushscope.telemetry.transfer import Transfer
from pushscope.tui.app import TopApp
from pushscope.tui.detail import DetailScreen
from pushscope.tui.help import KEYS, OF_A_RECORDING, ON_A_TRANSFER
from pushscope.tui.main_screen import VIEWS, MainScreen
from pushscope.tui.table import SnapshotTable
from pushscope.tui.transfer_screen import GONE, TransferScreen
from pushscope.tui.views.recent import RecentView

from . import samples
from .test_tui_keys import NEVER_S, Clock, lines, running, table, take, words


@dataclass
class FakePlayer:
    """A player that notes what it is told."""

    speed: float = 1.0
    playing: bool = True
    told: list[Any] = field(default_factory=list)

    def state(self) -> PlayState:
        return PlayState(position_s=100.0, duration_s=600.0, playing=self.playing, speed=self.speed)

    def play(self) -> None:
        self.playing = True

    def pause(self) -> None:
        self.playing = False

    def seek(self, position_s: float) -> None:
        self.told.append(position_s)

    def step(self, by: int = 1) -> None:
        self.told.append("step")


@dataclass
class FakeControls:
    """A session that notes what it is asked for."""

    player: Any = None
    is_behind: bool = False
    asked: list[Any] = field(default_factory=list)

    def explain(self, transfer: Transfer) -> None:
        self.asked.append(transfer.base_id)

    def record(self, path: Path | None = None) -> Path:
        self.asked.append("record")
        return path or Path("run.psr")

    def stop_recording(self) -> None:
        self.asked.append("stop")

    def mark(self, label: str) -> Mark:
        self.asked.append(f"mark {label}")
        return Mark(0.0, label, "top")


@asynccontextmanager
async def controlled(
    controls: FakeControls, snapshot: Callable[[], Snapshot] = samples.watched
) -> AsyncIterator[tuple[TopApp, Pilot[None]]]:
    app = TopApp(snapshot, NEVER_S, controls=controls, clock=Clock())
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.shows_something)
        yield app, pilot


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    for _ in range(300):
        await pilot.pause(0.01)
        if holds():
            await pilot.pause()
            return
    raise AssertionError("it did not come to hold")


def seen(app: TopApp) -> str:
    main = app.screen_stack[0]
    assert isinstance(main, MainScreen)
    return main.view.NAME


def page(app: TopApp) -> str:
    return str(app.screen.query_one("#transfer-page", Static).content)


def notes(app: TopApp) -> list[str]:
    return [n.message for n in app._notifications]


# -- views ---------------------------------------------------------------------------------------------


async def test_a_number_goes_to_each_view_and_brackets_and_letters_go_round() -> None:
    names = [view.NAME for view in VIEWS]
    async with running(samples.watched) as (app, pilot):
        for number, name in enumerate(names, 1):
            await pilot.press(str(number))
            assert seen(app) == name
        for on, back in (("]", "["), ("l", "h"), ("right", "left")):
            await pilot.press("1", on)
            assert seen(app) == names[1]
            await pilot.press(back, back)
            assert seen(app) == names[-1]


async def test_a_click_on_a_views_name_goes_there() -> None:
    async with running(samples.watched) as (app, pilot):
        at = words(app, "#views").index("Stages")
        await pilot.click("#views", offset=(at, 0))
        assert seen(app) == "stages-view"


async def test_a_click_on_a_title_sorts_and_again_backwards() -> None:
    async with running() as (app, pilot):
        widget = table(app)
        at = lines(widget)[1].index("bytes")
        for sort in ("most bytes", "most bytes, backwards", "most bytes"):
            await pilot.click(widget, offset=(at, 1))
            assert widget.selection.sort == sort


async def test_a_double_click_opens_a_transfer() -> None:
    async with running() as (app, pilot):
        await pilot.click(table(app), offset=(10, 3), times=2)
        await pilot.pause()
        assert isinstance(app.screen, TransferScreen)
        assert app.screen.told.transfer == samples.busy().in_flight[1]


async def test_shift_s_turns_the_order_round() -> None:
    async with running() as (app, pilot):
        await pilot.press("S")
        assert table(app).selection.rows == samples.busy().in_flight[::-1]
        await pilot.press("S")
        assert table(app).selection.rows == samples.busy().in_flight


async def test_o_goes_round_the_outcomes_there_are() -> None:
    async with running() as (app, pilot):
        await pilot.press("3")
        ended = app.screen.query_one("#ended", SnapshotTable)
        assert isinstance(app.screen.query_one("#recent-view"), RecentView)
        outcomes = {t.outcome for t in samples.busy().recent}
        shown = []
        for _ in outcomes:
            await pilot.press("o")
            (outcome,) = {t.outcome for t in ended.selection.rows}
            shown.append(outcome)
        assert set(shown) == outcomes
        await pilot.press("o")
        assert ended.selection.matching == len(samples.busy().recent)


async def test_n_goes_to_what_is_stuck_and_round_it() -> None:
    async with running(samples.watched) as (app, pilot):
        await pilot.press("3", "n")
        assert seen(app) == "stuck-view"
        rows = app.screen.query_one("#diagnoses", SnapshotTable)
        first = rows.cursor_row
        await pilot.press("n")
        assert rows.cursor_row != first
        await pilot.press("enter")
        assert isinstance(app.screen, TransferScreen | DetailScreen)


async def test_the_palette_lists_views_and_themes() -> None:
    async with running() as (app, pilot):
        titles = [command.title for command in app.get_system_commands(app.screen)]
        assert {f"View: {view.TITLE}" for view in VIEWS} <= set(titles)
        assert "Theme" in titles
        assert "colour-blind" in app.available_themes
        await pilot.press("ctrl+p")
        assert type(app.screen).__name__ == "CommandPalette"


# -- what a session can do -----------------------------------------------------------------------------


async def test_m_marks_with_a_label_and_escape_does_not() -> None:
    controls = FakeControls()
    async with controlled(controls) as (app, pilot):
        await pilot.press("m", "escape", "m", *"8/s", "enter")
        await until(pilot, lambda: any("marked: 8/s" in note for note in notes(app)))
        assert controls.asked == ["mark 8/s"]


async def test_r_records_and_again_ends_it() -> None:
    controls = FakeControls()
    async with controlled(controls) as (app, pilot):
        await pilot.press("r")
        await until(pilot, lambda: any("recording to run.psr" in note for note in notes(app)))
        made = RecordingState(path="run.psr", seconds=1.0, num_events=1, num_bytes=1)
        await take(app, pilot, samples.watched(recording=made))
        await pilot.press("r")
        await until(pilot, lambda: any("recorded: run.psr" in note for note in notes(app)))
        assert controls.asked == ["record", "stop"]


async def test_r_on_a_recording_says_that_it_is_one() -> None:
    async with controlled(FakeControls(FakePlayer())) as (app, pilot):
        await pilot.press("r")
        assert any("is a recording already" in note for note in notes(app))


async def test_keys_of_a_recording() -> None:
    player = FakePlayer()
    async with controlled(FakeControls(player)) as (_, pilot):
        await pilot.press("space")
        await until(pilot, lambda: not player.playing)
        await pilot.press("space")
        await until(pilot, lambda: player.playing)
        keys = ("right", "left", "shift+right", "shift+left", "b", "full_stop")
        await pilot.press(*keys)
        await until(pilot, lambda: len(player.told) == len(keys))
        assert player.told == [105.0, 95.0, 160.0, 40.0, 0.0, "step"]
        await pilot.press("greater_than_sign", "greater_than_sign", "less_than_sign")
        await until(pilot, lambda: player.speed == 2.0)
        await pilot.press(*["less_than_sign"] * 9)
        await until(pilot, lambda: player.speed == 0.1)


# -- a transfer ----------------------------------------------------------------------------------------


async def test_a_transfers_page_copies_its_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    async with running() as (app, pilot):
        monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
        await pilot.press("enter", "y", "D", "P", "u", "v")
        t = samples.busy().in_flight[0]
        assert copied == [t.base_id, t.d_request, t.p_request, t.d_engine, t.p_engine]
        await pilot.press("escape")
        assert isinstance(app.screen, MainScreen)


async def test_an_id_that_is_not_known_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    only_p = samples.busy(in_flight=(samples.waiting(1, "P"),))
    async with running(lambda: only_p) as (app, pilot):
        monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
        await pilot.press("enter", "D", "u")
        assert not copied
        assert any("not known yet" in note for note in notes(app))


async def test_the_page_follows_its_transfer_and_keeps_the_last_of_it() -> None:
    async with running() as (app, pilot):
        first = samples.busy().in_flight[0]
        await pilot.press("enter")
        assert first.base_id in page(app)
        ended = msgspec.structs.replace(samples.delivered(1, base=first.base_id), p_engine=first.p_engine)
        await take(app, pilot, samples.busy(in_flight=(), recent=(ended,)))
        assert "delivered" in page(app)
        await take(app, pilot, samples.busy(in_flight=(), recent=()))
        assert GONE in page(app)
        assert first.base_id in page(app)


async def test_the_events_of_a_transfer_are_asked_for() -> None:
    controls = FakeControls()
    async with controlled(controls) as (_, pilot):
        await pilot.press("1", "enter")
        await until(pilot, lambda: bool(controls.asked))


# -- the help ------------------------------------------------------------------------------------------

_IN_WORDS = {
    "slash": "/", "left_square_bracket": "[", "right_square_bracket": "]", "question_mark": "?", "escape": "esc",
    "greater_than_sign": ">", "less_than_sign": "<", "full_stop": ".", "pageup": "pgup", "pagedown": "pgdn",
}  # fmt: skip
_UNTOLD = {"home", "end", "backspace", "shift+right", "shift+left", "pgup", "pgdn"}
"""Second names of keys that are told, or told in words."""


def bound(*owners: Any) -> set[str]:
    keys = (
        key for owner in owners for b in owner.BINDINGS if isinstance(b, Binding) for key in b.key.split(",")
    )
    return {_IN_WORDS.get(key, key) for key in keys}


def told_keys(*tables: tuple[tuple[str, str], ...]) -> set[str]:
    return {
        key
        for rows in tables
        for names, _ in rows
        for key in names.replace("1 to 5", "1, 2, 3, 4, 5").split(", ")
    }


def test_each_key_that_is_bound_is_in_the_help_and_the_other_way_round() -> None:
    told = told_keys(KEYS, ON_A_TRANSFER, OF_A_RECORDING)
    keys = bound(TopApp, MainScreen, RecentView, SnapshotTable, TransferScreen)
    assert keys - told <= _UNTOLD
    assert told - keys == {"tab", "shift+tab", "ctrl+p"}, "those are Textual's own"
