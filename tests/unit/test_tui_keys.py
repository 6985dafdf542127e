"""What each key of ``pushscope top`` does, pressed in a running app."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import Input, Static

from pushscope.telemetry.snapshot import Snapshot
from pushscope.tui.app import SnapshotTaken, SourceFailed, TopApp
from pushscope.tui.help import HelpScreen
from pushscope.tui.table import SnapshotTable
from pushscope.tui.transfer_screen import TransferScreen

from . import samples

NEVER_S = 3600.0


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def running(
    source: Callable[[], Snapshot] = samples.busy,
    size: tuple[int, int] = (120, 40),
    clock: Clock | None = None,
) -> AsyncIterator[tuple[TopApp, Pilot[None]]]:
    """An app that has drawn its first snapshot and takes no other by itself."""
    app = TopApp(source, NEVER_S, clock=clock or Clock())
    async with app.run_test(size=size) as pilot:
        for _ in range(200):
            await pilot.pause(0.01)
            if app.shows_something:
                break
        await pilot.pause()
        yield app, pilot


async def page_drawn(pilot: Pilot[None]) -> None:
    """Wait until the page of a transfer, if one is opened, has been laid out and drawn."""
    for _ in range(200):
        await pilot.pause(0.01)
        screen = pilot.app.screen
        if not isinstance(screen, TransferScreen):
            break
        if screen.is_mounted and str(screen.query_one("#transfer-page", Static).content):
            break
    await pilot.pause()


def words(app: TopApp, selector: str) -> str:
    content = app.screen_stack[0].query_one(selector, Static).content
    return content.plain if isinstance(content, Text) else str(content)


def table(app: TopApp, name: str = "in-flight") -> SnapshotTable:
    return app.screen_stack[0].query_one(f"#{name}", SnapshotTable)


def lines(widget: SnapshotTable) -> list[str]:
    return [widget.render_line(y).text.rstrip() for y in range(widget.size.height)]


async def take(app: TopApp, pilot: Pilot[None], snapshot: Snapshot) -> None:
    app.post_message(SnapshotTaken(snapshot))
    await pilot.pause()


def with_transfers(number: int) -> Snapshot:
    snapshot = samples.busy()
    return msgspec.structs.replace(
        snapshot,
        totals=msgspec.structs.replace(snapshot.totals, transfers=snapshot.totals.transfers + number),
    )


async def test_the_screen_shows_totals_engines_and_the_three_tables() -> None:
    async with running() as (app, _):
        assert "12.3 transfers/s" in words(app, "#totals")
        assert "delivered 1,240" in words(app, "#totals")
        assert "P1 prefill node-a/4101+1 alive" in words(app, "#engine-lines")
        assert lines(table(app))[0].startswith("━━ In flight 11 · by age")
        assert "P waits for D's registration" in lines(table(app, "waiting"))[2]
        assert "delivered" in lines(table(app, "recent"))[2]
        assert words(app, "#state").endswith("live")


@pytest.mark.parametrize("keys", [["q"], ["ctrl+c"], ["slash", "ctrl+c"], ["question_mark", "ctrl+c"]])
async def test_q_and_ctrl_c_quit(keys: list[str]) -> None:
    async with running() as (app, pilot):
        await pilot.press(*keys)
        await pilot.pause()
        assert not app.is_running


async def test_space_holds_the_screen_and_tells_how_much_is_new_and_how_old_it_is() -> None:
    clock = Clock()
    async with running(clock=clock) as (app, pilot):
        await pilot.press("space")
        clock.now += 7
        await take(app, pilot, msgspec.structs.replace(with_transfers(3), in_flight=()))
        assert words(app, "#state").endswith("PAUSED, 3 new, shown is 7 s old")
        assert table(app).selection.total == 11

        await pilot.press("space")
        assert words(app, "#state").endswith("live")
        assert table(app).selection.total == 0


async def test_question_mark_opens_help_and_escape_closes_it() -> None:
    async with running() as (app, pilot):
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        await take(app, pilot, samples.engine_gone())  # what goes on behind it doesn't disturb it
        await pilot.press("escape")
        assert not isinstance(app.screen, HelpScreen)


async def test_q_in_help_closes_only_the_help() -> None:
    async with running() as (app, pilot):
        await pilot.press("question_mark", "q")
        assert app.is_running
        assert not isinstance(app.screen, HelpScreen)


async def test_tab_goes_round_the_tables() -> None:
    async with running() as (app, pilot):
        visited = [app.focused.id if app.focused else None]
        for _ in range(3):
            await pilot.press("tab")
            visited.append(app.focused.id if app.focused else None)
        assert visited == ["in-flight", "waiting", "recent", "in-flight"]
        await pilot.press("shift+tab")
        assert app.focused is table(app, "recent")


@pytest.mark.parametrize(("down", "up"), [("j", "k"), ("down", "up")])
async def test_the_cursor_moves_and_stays_on_its_transfer(down: str, up: str) -> None:
    async with running() as (app, pilot):
        await pilot.press(down, down, down, up)
        third = samples.busy().in_flight[2]
        assert table(app).cursor_row == third
        assert lines(table(app))[4].startswith("> ")

        snapshot = samples.busy()
        await take(app, pilot, msgspec.structs.replace(snapshot, in_flight=snapshot.in_flight[1:]))
        assert table(app).cursor_row == third
        assert lines(table(app))[3].startswith("> ")


async def test_a_cursor_on_the_first_row_stays_on_the_first_row() -> None:
    async with running() as (app, pilot):
        snapshot = samples.busy()
        await take(app, pilot, msgspec.structs.replace(snapshot, in_flight=snapshot.in_flight[1:]))
        assert table(app).cursor_row == snapshot.in_flight[1]


async def test_the_cursor_survives_its_transfer_and_an_empty_table() -> None:
    async with running() as (app, pilot):
        await pilot.press("G")
        assert table(app).cursor_row == samples.busy().in_flight[-1]
        snapshot = samples.busy()
        await take(app, pilot, msgspec.structs.replace(snapshot, in_flight=snapshot.in_flight[:4]))
        assert table(app).cursor_row == snapshot.in_flight[3]
        await take(app, pilot, msgspec.structs.replace(snapshot, in_flight=()))
        await pilot.press("j", "G", "g", "k")
        assert table(app).cursor_row is None
        assert lines(table(app))[2].strip() == "nothing in flight"


async def test_moving_down_scrolls_and_moving_home_scrolls_back() -> None:
    async with running(size=(80, 24)) as (app, pilot):
        widget = table(app)
        await pilot.press(*["j"] * 9)
        assert widget.scroll_offset.y > 0
        assert any(line.startswith("> ") for line in lines(widget))
        await pilot.press("pageup", "pageup", "pageup")
        assert widget.cursor_row == samples.busy().in_flight[0]
        await pilot.press("pagedown")
        assert widget.cursor_row == samples.busy().in_flight[widget.size.height - 2]
        await pilot.press("home")
        assert widget.scroll_offset.y == 0


async def test_a_click_puts_the_cursor_on_a_row() -> None:
    async with running() as (app, pilot):
        await pilot.click("#waiting", offset=(10, 3))
        assert app.focused is table(app, "waiting")
        assert table(app, "waiting").cursor_row == samples.busy().waiting[1]


async def test_slash_filters_by_request_id_and_escape_clears() -> None:
    async with running() as (app, pilot):
        wanted = samples.busy().in_flight[3].base_id
        await pilot.press("slash")
        assert isinstance(app.focused, Input)
        await pilot.press(*wanted[:13].upper())  # case doesn't matter
        assert [t.base_id for t in table(app).selection.rows] == [wanted]
        assert "1 of 11 match" in lines(table(app))[0]
        assert lines(table(app, "waiting"))[2].strip() == "nothing matches the filter"

        await pilot.press("enter")
        assert app.focused is table(app)
        assert table(app).selection.matching == 1

        await pilot.press("escape")
        assert table(app).selection.matching == 11
        assert not app.screen.has_class("filtering")


async def test_keys_are_text_while_the_filter_is_typed() -> None:
    async with running() as (app, pilot):
        await pilot.press("slash", "q", "s", "space", "j")
        assert app.is_running
        assert app.query_one("#filter", Input).value == "qs j"
        await pilot.press("escape")
        assert app.focused is table(app)


async def test_filter_finds_engines_by_name_and_by_the_start_of_their_id() -> None:
    async with running() as (app, pilot):
        of_p2 = [t for t in samples.busy().in_flight if t.p_engine == samples.P2]
        for text in ("P2", samples.P2[:8]):
            await pilot.press("slash", *text)
            assert list(table(app).selection.rows) == of_p2
            await pilot.press("escape")


async def test_s_sorts_the_focused_table_only() -> None:
    async with running() as (app, pilot):
        await pilot.press("tab", "tab", "s")
        recent = table(app, "recent")
        assert recent.selection.sort == "longest exposed"
        exposed = [t.exposed_ns for t in recent.selection.rows]
        known = [e for e in exposed if e is not None]
        assert known == sorted(known, reverse=True)
        assert exposed[: len(known)] == known  # what is not known comes last
        assert table(app).selection.sort == "age"


async def test_sorting_starts_again_at_the_top() -> None:
    async with running(size=(80, 24)) as (app, pilot):
        await pilot.press("G", "s")
        widget = table(app)
        assert widget.cursor_row == widget.selection.rows[0]
        assert widget.scroll_offset.y == 0


async def test_s_comes_round_to_the_first_order() -> None:
    async with running() as (app, pilot):
        names = []
        for _ in table(app).kind.sorts:
            await pilot.press("s")
            names.append(table(app).selection.sort)
        assert names == ["most bytes", "stage", "engines", "request", "age"]


async def test_a_source_error_keeps_the_last_snapshot_and_says_so() -> None:
    async with running() as (app, pilot):
        app.post_message(SourceFailed("OSError: ring is gone"))
        await pilot.pause()
        assert "SOURCE ERROR" in words(app, "#state")
        assert "OSError: ring is gone" in words(app, "#notices")
        assert table(app).selection.total == 11
        await take(app, pilot, samples.busy())
        assert words(app, "#state").endswith("live")
        assert not app.screen.has_class("noticed")


async def test_a_source_that_never_worked_fills_the_page_with_its_error() -> None:
    def broken() -> Snapshot:
        raise PermissionError("the folder is owned by uid 1001, expected 1000")

    async with running(broken) as (app, _):
        assert "owned by uid 1001" in words(app, "#page")
        assert not app.query_one("#view").display


async def test_a_silent_source_is_stale_before_long() -> None:
    clock = Clock()
    app = TopApp(samples.busy, 0.5, clock=clock)
    app._feed.stop()
    async with app.run_test() as pilot:
        await take(app, pilot, samples.busy())
        clock.now += 4
        app._draw_state()
        assert words(app, "#state").endswith("live")
        clock.now += 8
        app._draw_state()
        assert words(app, "#state").endswith("STALE: nothing from the source for 12 s")


async def test_no_engines_says_what_to_check() -> None:
    async with running(samples.nothing_found, size=(80, 24)) as (app, pilot):
        page = words(app, "#page")
        for hint in ("kv_connector_module_path", "pushscope.connector", "PUSHSCOPE_DIR", "same user"):
            assert hint in page
        assert not app.query_one("#view").display
        await take(app, pilot, samples.busy())  # an engine comes up: the tables appear
        assert app.query_one("#view").display


async def test_too_small_says_how_large_and_recovers() -> None:
    async with running(samples.engine_gone, size=(59, 16)) as (app, pilot):
        assert "59x16" in words(app, "#small")
        assert [w.id for w in app.screen.children if w.display] == ["small"]
        await pilot.resize_terminal(60, 16)
        await pilot.pause()
        assert table(app).display
        assert not app.query_one("#small").display


async def test_few_lines_cut_the_header_not_the_tables() -> None:
    async with running(samples.engine_gone, size=(60, 16)) as (app, _):
        assert app.query_one("#totals").size.height == 2
        assert app.query_one("#engines").size.height == 1
        assert all(table(app, name).size.height >= 3 for name in ("in-flight", "waiting"))
        assert not table(app, "recent").size.height, "it has a view of its own"


async def test_a_gone_engine_comes_first_and_lost_events_are_told() -> None:
    async with running(samples.engine_gone, size=(80, 24)) as (app, _):
        assert words(app, "#engine-lines").startswith("D1 decode node-b/5101+1 GONE")
        assert "EVENTS LOST 1,532 of 48,213" in words(app, "#totals")
        assert words(app, "#notices").startswith("! D1 ended 4.2 s ago")


async def test_many_notices_end_in_a_number_and_help_has_them_all() -> None:
    notices = tuple(f"notice {i}" for i in range(9))
    async with running(lambda: samples.busy(notices=notices), size=(80, 24)) as (app, pilot):
        assert words(app, "#notices").splitlines() == ["! notice 0", "! notice 1 (+7 more: press ?)"]
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)


async def test_ten_thousand_in_flight_draw_two_hundred_rows_and_a_number() -> None:
    async with running(lambda: samples.crowd(10_000), size=(80, 24)) as (app, pilot):
        widget = table(app)
        assert len(widget.selection.rows) == 200
        assert "In flight 10,000, first 200 shown" in lines(widget)[0]
        await pilot.press("G")
        assert "… and 9,800 more, sorted by age" in "\n".join(lines(widget))


async def test_one_sided_transfers_are_marked_in_words() -> None:
    async with running() as (app, _):
        text = "\n".join(lines(table(app, "recent")))
        assert "P only" in text
        assert "D only" in text


async def test_without_colour_no_cell_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with running(samples.engine_gone) as (app, _):
        widget = table(app, "recent")
        plain = {widget.rich_style.color}
        for y in range(widget.size.height):
            assert {s.style.color for s in widget.render_line(y) if s.style} <= plain
        for selector in ("#engine-lines", "#totals", "#notices"):
            content = app.query_one(selector, Static).content
            assert isinstance(content, Text)
            assert all(getattr(span.style, "color", None) is None for span in content.spans)


async def test_a_table_asks_for_no_more_lines_than_it_ever_needed() -> None:
    few = samples.busy(in_flight=samples.busy().in_flight[:3], waiting=())
    async with running(lambda: few, size=(120, 40)) as (app, pilot):
        heights = [table(app, name).size.height for name in ("in-flight", "waiting")]
        assert heights == [6, 4]  # title, column titles, the rows or the word for none, and a blank line
        room = table(app, "recent").size.height

        await take(app, pilot, samples.busy())
        assert table(app, "recent").size.height < room
        grown = table(app).size.height
        await take(app, pilot, few)
        assert table(app).size.height == grown  # not asked back: the tables don't jump about


@pytest.mark.parametrize(("size", "lines_for_them"), [((80, 24), 1), ((80, 40), 2)])
async def test_many_engines_scroll_within_a_line_or_two(size: tuple[int, int], lines_for_them: int) -> None:
    engines = tuple(samples.engine(f"P{i}", f"{i}" * 36, "P", 4000 + i) for i in range(24))
    async with running(lambda: samples.busy(engines=engines), size=size) as (app, _):
        area = app.query_one("#engines")
        assert area.size.height == lines_for_them
        assert area.max_scroll_y > 0
