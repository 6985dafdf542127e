"""Colours only repeat what the words say: themes for every eye, and none at all."""

from __future__ import annotations

import pytest
from textual.color import Color
from textual.widgets import Static

from pushscope.tui.app import TopApp
from pushscope.tui.table import SnapshotTable
from pushscope.tui.themes import COLOUR_BLIND, known, tones_of
from pushscope.tui.tones import PLAIN, STAGE_COLOURS

from . import samples
from .test_tui_keys import NEVER_S, Clock, running

# How eyes without one kind of cone see linear RGB (Viénot, Brettel and Mollon 1999): protan and deutan.
_EYES = {
    "protan": ((0.1121, 0.8853, -0.0005), (0.1127, 0.8897, -0.0001), (0.0045, 0.0000, 1.0019)),
    "deutan": ((0.2920, 0.7054, -0.0003), (0.2934, 0.7089, 0.0000), (-0.0210, 0.0256, 1.0019)),
    "usual": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
}


def seen_by(eye: str, colour: str) -> tuple[float, ...]:
    linear = [(channel / 255) ** 2.2 for channel in Color.parse(colour).rgb]
    rows = _EYES[eye]
    mixed = [sum(m * c for m, c in zip(row, linear, strict=True)) for row in rows]
    return tuple(255 * max(0.0, min(1.0, value)) ** (1 / 2.2) for value in mixed)


@pytest.mark.parametrize("eye", _EYES)
def test_no_two_states_of_the_colour_blind_theme_look_alike(eye: str) -> None:
    states = [COLOUR_BLIND.success, COLOUR_BLIND.warning, COLOUR_BLIND.error]
    seen = [seen_by(eye, colour) for colour in states if colour]
    assert len(seen) == 3
    for n, one in enumerate(seen):
        for other in seen[n + 1 :]:
            assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5 > 60


def test_every_stage_has_a_colour_and_dark_letters_can_be_read_on_it() -> None:
    assert len(set(STAGE_COLOURS)) == 12
    for colour in STAGE_COLOURS.values():
        assert Color.parse(colour).brightness > 0.35


@pytest.mark.parametrize("theme", ["colour-blind", "textual-light", "ansi-dark"])
async def test_a_theme_is_taken_and_can_be_changed_while_it_runs(theme: str) -> None:
    assert theme in known()
    app = TopApp(samples.watched, NEVER_S, theme=theme, clock=Clock())
    async with app.run_test(size=(120, 40)) as pilot:
        assert app.theme == theme
        before = tones_of(app)["bad"]
        app.theme = "nord"
        await pilot.pause()
        assert tones_of(app)["bad"] != before


@pytest.mark.parametrize("view", "12345")
async def test_without_colour_no_view_has_one(view: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with running(samples.watched, size=(120, 40)) as (app, pilot):
        await pilot.press(view)
        await pilot.pause()
        assert tones_of(app) is PLAIN
        for widget in app.screen.query(SnapshotTable):
            if widget.size.height:
                plain = widget.rich_style
                for y in range(widget.size.height):
                    for segment in widget.render_line(y):
                        assert segment.style is None or segment.style.color == plain.color
                        assert segment.style is None or segment.style.bgcolor == plain.bgcolor
        for static in app.screen.query(Static):
            spans = getattr(static.content, "spans", ())
            assert all(getattr(span.style, "color", None) is None for span in spans), static.id
            assert all(getattr(span.style, "bgcolor", None) is None for span in spans), static.id


async def test_the_page_of_a_transfer_scrolls_by_arrows_and_vim_keys() -> None:
    async with running(samples.watched, size=(80, 16)) as (app, pilot):
        await pilot.press("2", "j", "enter")
        await pilot.pause()
        page = app.screen.query_one("#transfer")
        assert page.max_scroll_y > 3
        places = []
        for key in ("j", "down", "k", "up", "G", "g", "pagedown", "pageup"):
            await pilot.press(key)
            await pilot.pause()
            places.append(int(page.scroll_offset.y))
        assert places[:4] == [1, 2, 1, 0]
        assert places[4:6] == [page.max_scroll_y, 0]
        assert places[6] > 0
        assert places[7] == 0
