"""How the screens look, as pictures: narrow, usual and wide.

After a wanted change: ``pytest tests/unit/test_tui_screens.py --snapshot-update``, and look at the new SVGs.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pytest_textual_snapshot import SVGImageExtension
from textual.pilot import Pilot

from pushscope.telemetry.snapshot import Snapshot
from pushscope.tui.app import SnapshotTaken, SourceFailed, TopApp

from . import samples
from .test_tui_keys import NEVER_S, Clock, page_drawn, with_transfers

# pytest-textual-snapshot 1.0 sets this by the name that syrupy 4 had for it; later ones would write ``.raw``.
SVGImageExtension.file_extension = "svg"

SIZES = [(80, 24), (120, 40), (200, 60)]
Compare = Callable[..., bool]


@pytest.fixture(autouse=True)
def same_terminal_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("TEXTUAL_THEME", raising=False)
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")


def app_showing(source: Callable[[], Snapshot], clock: Clock | None = None) -> TopApp:
    return TopApp(source, NEVER_S, clock=clock or Clock())


async def settled(pilot: Pilot[None]) -> None:
    app = pilot.app
    assert isinstance(app, TopApp)
    for _ in range(200):
        await pilot.pause(0.01)
        if app.shows_something:
            break
    await pilot.pause()


SCENES: dict[str, Callable[[], Snapshot]] = {
    "busy": samples.busy,
    "no-engines": samples.nothing_found,
    "engine-gone": samples.engine_gone,
    "hostile": samples.hostile,
}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("scene", SCENES)
def test_screen(snap_compare: Compare, scene: str, size: tuple[int, int]) -> None:
    assert snap_compare(app_showing(SCENES[scene]), terminal_size=size, run_before=settled)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_paused(snap_compare: Compare, size: tuple[int, int]) -> None:
    clock = Clock()

    async def pause(pilot: Pilot[None]) -> None:
        await settled(pilot)
        await pilot.press("space")
        clock.now += 42
        pilot.app.post_message(SnapshotTaken(with_transfers(37)))
        await pilot.pause()

    assert snap_compare(app_showing(samples.busy, clock), terminal_size=size, run_before=pause)


def test_filtered_with_the_cursor_moved(snap_compare: Compare) -> None:
    async def keys(pilot: Pilot[None]) -> None:
        await settled(pilot)
        await pilot.press("slash", "P", "2", "enter", "j", "j")

    assert snap_compare(app_showing(samples.busy), terminal_size=(100, 30), run_before=keys)


def test_help(snap_compare: Compare) -> None:
    async def keys(pilot: Pilot[None]) -> None:
        await settled(pilot)
        await pilot.press("question_mark")

    assert snap_compare(app_showing(samples.engine_gone), terminal_size=(80, 24), run_before=keys)


def test_source_error(snap_compare: Compare) -> None:
    async def fail(pilot: Pilot[None]) -> None:
        await settled(pilot)
        pilot.app.post_message(SourceFailed("PermissionError: the folder belongs to uid 1001, not to 1000"))
        await pilot.pause()

    assert snap_compare(app_showing(samples.busy), terminal_size=(80, 24), run_before=fail)


def test_ten_thousand_in_flight(snap_compare: Compare) -> None:
    async def keys(pilot: Pilot[None]) -> None:
        await settled(pilot)
        await pilot.press("G")

    assert snap_compare(app_showing(lambda: samples.crowd(10_000)), terminal_size=(80, 24), run_before=keys)


def test_too_small(snap_compare: Compare) -> None:
    assert snap_compare(app_showing(samples.busy), terminal_size=(50, 12), run_before=settled)


def test_no_colour(snap_compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(app_showing(samples.engine_gone), terminal_size=(80, 24), run_before=settled)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_stuck(snap_compare: Compare, size: tuple[int, int]) -> None:
    async def keys(pilot: Pilot[None]) -> None:
        await settled(pilot)
        await pilot.press("n", "n")

    assert snap_compare(app_showing(samples.stuck), terminal_size=size, run_before=keys)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_a_whole_diagnosis(snap_compare: Compare, size: tuple[int, int]) -> None:
    async def keys(pilot: Pilot[None]) -> None:
        await settled(pilot)
        await pilot.press("n", "n", "enter")
        await page_drawn(pilot)

    assert snap_compare(app_showing(samples.stuck), terminal_size=size, run_before=keys)


def test_stuck_without_colour(snap_compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(app_showing(samples.stuck), terminal_size=(80, 24), run_before=settled)
