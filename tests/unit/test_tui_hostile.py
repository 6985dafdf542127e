"""Ids, errors and names from outside are shown as they are spelled: they style and control nothing."""

from __future__ import annotations

import io
import unicodedata

import pytest
from rich.cells import cell_len
from rich.console import Console
from textual.widgets import Static

from pushscope.telemetry.snapshot import Snapshot
from pushscope.tui.app import TopApp
from pushscope.tui.help import help_page
from pushscope.tui.once import render_snapshot
from pushscope.tui.table import SnapshotTable
from pushscope.tui.tables import route

from . import samples
from .test_tui_keys import lines, running, words


def screen_text(app: TopApp) -> str:
    texts = [line for table in app.query(SnapshotTable) for line in lines(table)]
    texts += [str(widget.render()) for widget in app.query(Static)]
    return "\n".join(texts)


def controls(text: str) -> set[str]:
    return {char for char in text if char != "\n" and unicodedata.category(char).startswith("C")}


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_markup_is_shown_literally_and_controls_are_gone(size: tuple[int, int]) -> None:
    async with running(samples.hostile, size=size) as (app, _):
        text = screen_text(app)
        assert controls(text) == set()
        assert "[bold red]INJECTED[/bold red]" in words(app, "#notices")
        if size[0] >= 200:  # wide enough for the whole id
            waiting = "\n".join(lines(app.query_one("#waiting", SnapshotTable)))
            assert "[@click=app.quit]quit[/]" in waiting
            assert "clear-screen" in waiting


async def test_no_line_of_a_table_is_wider_than_the_screen() -> None:
    async with running(samples.hostile, size=(80, 24)) as (app, _):
        for table in app.query(SnapshotTable):
            for y in range(table.size.height):
                strip = table.render_line(y)
                assert cell_len(strip.text) == table.scrollable_content_region.width


async def test_a_markup_action_in_an_id_cannot_be_clicked() -> None:
    async with running(samples.hostile, size=(120, 40)) as (app, pilot):
        for y in range(2, 8):
            await pilot.click("#waiting", offset=(5, y))
        assert app.is_running


async def test_help_shows_hostile_notices_literally() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(help_page(samples.HOSTILE_IDS))
    assert controls(out.getvalue()) == set()
    assert "[@click=app.quit]quit[/]" in out.getvalue()


@pytest.mark.parametrize("width", [20, 80, 200])
def test_the_printed_snapshot_is_literal_too(width: int) -> None:
    out = io.StringIO()
    render_snapshot(samples.hostile(), Console(file=out, width=width))
    assert controls(out.getvalue()) == set()
    assert "[bold red]INJECTED[/bold red]" in out.getvalue()


def test_a_shortened_id_keeps_its_tail() -> None:
    out = io.StringIO()
    render_snapshot(samples.hostile(), Console(file=out, width=80))
    assert "-tail-9f8e" in out.getvalue()


def test_a_route_always_shows_both_ends() -> None:
    snapshot = Snapshot(taken_ns=0, taken_unix_s=0)
    assert route(samples.delivered(1), snapshot) == f"{samples.P1[:8]} -> {samples.D1[:8]}"
    for width in range(8, 24):
        cell = route(samples.delivered(1), snapshot, width)
        assert cell_len(cell) <= width
        assert " -> " in cell.strip()
        assert not cell.endswith("-> ")
