"""How each view looks, whole and in each state that limits its truth, narrow, usual and wide.

After a wanted change: ``pytest tests/unit/test_tui_views.py --snapshot-update``, and look at the new SVGs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from pytest_textual_snapshot import SVGImageExtension
from syrupy.assertion import SnapshotAssertion
from textual.pilot import Pilot

from pushscope.telemetry.clocks import ClockOffset
from pushscope.telemetry.playback import PlayState
from pushscope.telemetry.snapshot import Engine, RecordingState, Snapshot
from pushscope.tui.app import SourceFailed, TopApp
from pushscope.tui.table import SnapshotTable

from . import samples
from .test_tui_keys import Clock, lines, page_drawn, running, table, take, words

SVGImageExtension.file_extension = "svg"
SIZES = [(80, 24), (120, 40), (200, 60)]
SCREENS = {
    "live": ["1"],
    "stuck": ["2", "j"],
    "recent": ["3"],
    "stages": ["4"],
    "engines": ["5"],
    "transfer": ["2", "j", "enter"],
}
"""The keys that lead to each screen."""


@pytest.fixture(autouse=True)
def same_terminal_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("TEXTUAL_THEME", raising=False)
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")


def _unread(notice: str) -> Snapshot:
    return samples.watched(unread=(notice,), notices=(notice,))


def _one_sided() -> Snapshot:
    whole = samples.watched()
    notice = "one-sided: only P is observed, what D does is not known"
    engines = tuple(engine for engine in whole.engines if engine.side == "P")
    return msgspec.structs.replace(whole, engines=engines, notices=(notice,))


def _with_process(**changes: object) -> tuple[Engine, ...]:
    first, *rest = samples.watched().engines
    changed = msgspec.structs.replace(first.processes[0], **changes)
    return msgspec.structs.replace(first, processes=(changed, *first.processes[1:])), *rest


def _events_lost() -> Snapshot:
    whole = samples.watched(engines=_with_process(events_lost=1_532, lost_ns=samples.NOW - 4 * samples.S))
    return msgspec.structs.replace(
        whole, totals=msgspec.structs.replace(whole.totals, events=48_213, events_lost=1_532)
    )


def _recording_off() -> Snapshot:
    notice = "P1: recording is switched off, what happens now is not seen"
    return samples.watched(engines=_with_process(recording=False), notices=(notice,))


def _clocks_unsure() -> Snapshot:
    offset = ClockOffset("node-a", "node-b", 1_200_000_000, None)
    return samples.watched(clocks=(offset,), notices=(offset.notice,))


DEGRADED: dict[str, Callable[[], Snapshot]] = {
    "whole": samples.watched,
    "disconnected": lambda: _unread(
        "http://10.0.0.7:9479: disconnected since 12:34:56, what its engines do is not known: Connection refused; "
        "is `pushscope agent` running there?"
    ),
    "lagging": lambda: _unread(
        "http://10.0.0.7:9479: lagging, what is shown of its engines is more than 5 s old"
    ),
    "one-sided": _one_sided,
    "events-lost": _events_lost,
    "recording-off": _recording_off,
    "clocks-unsure": _clocks_unsure,
    "engine-gone": lambda: msgspec.structs.replace(
        samples.watched(), engines=samples.engine_gone().engines, notices=samples.engine_gone().notices
    ),
}
SAYS = {
    "disconnected": "DISCONNECTED from 10.0.0.7:9479",
    "lagging": "LAGGING: 10.0.0.7:9479",
    "one-sided": "ONE-SIDED: only P is observed",
    "events-lost": "EVENTS LOST: 1,532",
    "recording-off": "RECORDING OFF at P1",
    "clocks-unsure": "CLOCKS UNSURE: node-a/node-b",
}
"""What stands below the line of views, in words of its own."""


def _name(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


@asynccontextmanager
async def on_screen(
    screen: str,
    size: tuple[int, int],
    source: Callable[[], Snapshot] = samples.watched,
    clock: Clock | None = None,
) -> AsyncIterator[tuple[TopApp, Pilot[None]]]:
    async with running(source, size=size, clock=clock) as (app, pilot):
        for key in SCREENS[screen]:
            await pilot.press(key)
        await page_drawn(pilot)
        yield app, pilot


@pytest.mark.parametrize("size", SIZES, ids=_name)
@pytest.mark.parametrize("screen", SCREENS)
async def test_every_screen_in_every_state(
    snapshot: SnapshotAssertion, screen: str, size: tuple[int, int]
) -> None:
    pictures = snapshot.use_extension(SVGImageExtension)
    async with on_screen(screen, size) as (app, pilot):
        for state, scene in DEGRADED.items():
            await take(app, pilot, scene())
            await page_drawn(pilot)
            assert app.export_screenshot() == pictures(name=state)


@pytest.mark.parametrize("state", SAYS)
async def test_each_state_has_words_of_its_own(state: str) -> None:
    async with running(DEGRADED[state], size=(120, 40)) as (app, pilot):
        assert SAYS[state] in words(app, "#conditions")
        assert app.query_one("#conditions").display
        await take(app, pilot, samples.watched())
        assert not app.query_one("#conditions").display


def playing(**changes: object) -> Snapshot:
    state = PlayState(position_s=83.4, duration_s=600.0)
    return samples.watched(play=msgspec.structs.replace(state, **changes))


STATES: dict[str, tuple[Callable[[], Snapshot], str]] = {
    "playing": (playing, "PLAYING x1 1:23.4 of 10:00.0"),
    "fast": (lambda: playing(speed=64.0), "PLAYING x64 1:23.4 of 10:00.0"),
    "held": (lambda: playing(playing=False), "HELD 1:23.4 of 10:00.0"),
    "over": (lambda: playing(over=True), "OVER 1:23.4 of 10:00.0"),
    "seeking": (lambda: playing(seeking=0.43), "SEEKING 43% · 1:23.4 of 10:00.0"),
    "stepped": (lambda: playing(event="P1 tp0: write 7: given to NIXL"), "P1 tp0: write 7: given to NIXL"),
    "recording": (
        lambda: samples.watched(recording=RecordingState(path="run.psr", seconds=12.0, num_bytes=3 << 20)),
        "REC 12 s 3.00 MiB · live",
    ),
    "recording-failed": (
        lambda: samples.watched(
            recording=RecordingState(
                path="run.psr", error="cannot go on writing run.psr: No space left on device"
            )
        ),
        "RECORDING FAILED",
    ),
}


@pytest.mark.parametrize("state", STATES)
async def test_the_first_line_says_how_it_stands(snapshot: SnapshotAssertion, state: str) -> None:
    scene, says = STATES[state]
    async with running(scene, size=(120, 40)) as (app, _):
        text = " ".join(words(app, name) for name in ("#state", "#notices", "#conditions"))
        assert says in text
        assert app.export_screenshot() == snapshot.use_extension(SVGImageExtension)


@pytest.mark.parametrize("screen", SCREENS)
async def test_a_held_screen_says_how_old_it_is(snapshot: SnapshotAssertion, screen: str) -> None:
    clock = Clock()
    async with on_screen(screen, (120, 40), clock=clock) as (app, pilot):
        await pilot.press("space")
        clock.now += 42
        await take(app, pilot, samples.busy())
        assert app.export_screenshot() == snapshot.use_extension(SVGImageExtension)


@pytest.mark.parametrize("screen", SCREENS)
async def test_a_source_that_fails_says_so_on_every_screen(snapshot: SnapshotAssertion, screen: str) -> None:
    async with on_screen(screen, (120, 40)) as (app, pilot):
        app.post_message(SourceFailed("PermissionError: the folder belongs to uid 1001, not to 1000"))
        await pilot.pause()
        assert app.export_screenshot() == snapshot.use_extension(SVGImageExtension)


@pytest.mark.parametrize("size", [(60, 16), *SIZES], ids=_name)
@pytest.mark.parametrize("screen", SCREENS)
async def test_no_screen_is_broken_by_hostile_words(screen: str, size: tuple[int, int]) -> None:
    async with on_screen(screen, size) as (app, pilot):
        await take(app, pilot, samples.hostile())
        await pilot.pause()
        picture = app.export_screenshot()
        assert "\x1b" not in picture
        for widget in (*app.screen.children, *app.screen.query(SnapshotTable)):
            if widget.display and widget.size.width:
                assert widget.region.right <= size[0]
                assert widget.region.bottom <= size[1]


async def test_an_outlier_is_marked_in_words_and_comes_first() -> None:
    async with on_screen("stages", (120, 40)) as (app, _):
        first = lines(table(app, "ranks"))[2]
        assert first.split()[:4] == ["P1", "tp1", "wire", "SLOW"]
        assert "4 Stages 1 slow" in words(app, "#views")


async def test_push_stands_beside_pull() -> None:
    async with on_screen("stages", (120, 40)) as (app, _):
        (exposed,) = [line for line in lines(table(app, "stages")) if "exposed" in line]
        assert "26.0 ms" in exposed
        assert "71.0 ms" in exposed
        assert exposed.endswith("0.37")


async def test_engines_tell_what_they_hold_and_pairs_how_they_know_each_other() -> None:
    async with on_screen("engines", (200, 60)) as (app, _):
        engines, pairs = "\n".join(lines(table(app, "engine-table"))), "\n".join(lines(table(app, "pairs")))
        assert "2 FAILED, 1 pending, 1 done" in engines
        assert "412" in engines
        assert "failed: connection refused by 10.0.0.9:5600" in pairs


async def test_the_diagnosis_under_the_cursor_is_explained() -> None:
    async with running(samples.watched, size=(120, 40)) as (app, pilot):
        await pilot.press("2")
        seen = []
        for _ in range(3):
            await pilot.pause()
            seen.append(str(app.query_one("#explanation").render()))
            await pilot.press("j")
        assert len(set(seen)) == 3


async def test_the_last_mark_is_told_and_sparklines_have_two_minutes() -> None:
    async with running(samples.watched, size=(200, 60)) as (app, _):
        assert "mark 12 s ago: rate 8/s" in words(app, "#totals")
        assert "delivered/s" in words(app, "#sparks")
        assert "▁" in words(app, "#sparks")
