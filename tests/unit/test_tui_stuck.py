"""The stuck pane of ``pushscope top``: when it is there, what it says, and what enter shows."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console

from pushscope.telemetry.diagnosis.model import Evidence, Severity
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.stuck import Row, rows_of
from pushscope.tui.detail import DetailScreen, detail_page
from pushscope.tui.once import render_snapshot
from pushscope.tui.table import SnapshotTable
from pushscope.tui.transfer_screen import TransferScreen

from . import samples
from .samples import NOW, S
from .test_tui_keys import lines, running, table, take, words


def well() -> Snapshot:
    return samples.stuck(diagnoses=())


def page(row: Row, snapshot: Snapshot, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(detail_page(row, snapshot))
    return out.getvalue()


async def test_it_is_there_only_while_something_is_stuck() -> None:
    async with running(well) as (app, pilot):
        assert not table(app, "stuck").display
        assert "stuck" not in words(app, "#totals")
        await take(app, pilot, samples.stuck())
        assert table(app, "stuck").display
        assert "stuck: 2 errors, 1 warning, 1 to know" in words(app, "#totals")
        await take(app, pilot, well())
        assert not table(app, "stuck").display


async def test_the_worst_and_oldest_come_first_in_words() -> None:
    async with running(samples.stuck, size=(160, 50)) as (app, _):
        title, _, *rows = lines(table(app, "stuck"))
        assert title.startswith("── Stuck 4 · by worst")
        assert [row.split()[:2] for row in rows[:4]] == [
            ["error", "handshake_listener_dead"],
            ["error", "registration_without_prefill"],
            ["warning", "prefill_unclaimed"],
            ["info", "full_hit_held_until_lease"],
        ]
        assert "P2 8d1e44a2" in rows[0]
        assert "1m35s" in rows[1]
        assert "P1 -> D1" in rows[1]
        assert "D1 has waited 1m35s" in rows[1]


@pytest.mark.parametrize(("size", "beside"), [((80, 24), False), ((120, 40), True)])
async def test_where_there_is_little_room_it_stands_instead_of_what_waits(
    size: tuple[int, int], beside: bool
) -> None:
    async with running(samples.stuck, size=size) as (app, _):
        assert table(app, "stuck").display
        assert table(app, "waiting").display is beside
        assert (
            any("registration_without_prefill" in line for line in lines(table(app, "stuck"))) or not beside
        )


async def test_eighty_columns_have_severity_code_subject_age_and_route() -> None:
    async with running(samples.stuck, size=(80, 24)) as (app, _):
        stuck = table(app, "stuck")
        for line in lines(stuck):
            assert cell_len(line) <= 80
        first = lines(stuck)[2]
        assert first.split()[:2] == ["error", "handshake_listener_dead"]


async def test_n_goes_to_what_is_stuck_and_round() -> None:
    async with running(samples.stuck) as (app, pilot):
        stuck = table(app, "stuck")
        await pilot.press("n")
        assert app.focused is stuck
        codes = []
        for _ in range(4):
            codes.append(stuck.cursor_row.diagnosis.code)
            await pilot.press("n")
        assert len(set(codes)) == 4
        assert stuck.cursor_row.diagnosis.code == codes[0]


async def test_n_does_nothing_where_nothing_is_stuck() -> None:
    async with running(well) as (app, pilot):
        await pilot.press("n")
        assert app.focused is table(app)


async def test_enter_on_an_engine_shows_sentence_evidence_and_remedy_and_escape_closes() -> None:
    async with running(samples.stuck) as (app, pilot):
        await pilot.press("n", "enter")
        assert isinstance(app.screen, DetailScreen)
        await take(app, pilot, well())  # what goes on behind it doesn't disturb it
        assert isinstance(app.screen, DetailScreen)
        await pilot.press("escape")
        assert not isinstance(app.screen, DetailScreen)


@pytest.mark.parametrize("name", ["in-flight", "waiting", "recent"])
async def test_enter_on_a_transfer_opens_its_page(name: str) -> None:
    async with running(samples.stuck) as (app, pilot):
        table(app, name).focus()
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, TransferScreen)
        assert app.screen.told.transfer == table(app, name).cursor_row


async def test_the_cursor_stays_on_its_diagnosis() -> None:
    async with running(samples.stuck) as (app, pilot):
        await pilot.press("n", "n")
        stuck = table(app, "stuck")
        assert stuck.cursor_row.diagnosis.code == "registration_without_prefill"
        older = samples.diagnosis("engine_gone", Severity.ERROR, samples.request(52), since_ns=NOW - 9000 * S)
        await take(app, pilot, samples.stuck(diagnoses=(*samples.stuck().diagnoses, older)))
        assert stuck.cursor_row.diagnosis.code == "registration_without_prefill"


async def test_focus_leaves_a_pane_that_goes() -> None:
    async with running(samples.stuck) as (app, pilot):
        await pilot.press("n")
        await take(app, pilot, well())
        await pilot.pause()
        assert app.focused is not table(app, "stuck")
        await pilot.press("tab", "j")
        assert isinstance(app.focused, SnapshotTable)


async def test_the_filter_finds_code_request_and_engine() -> None:
    async with running(samples.stuck) as (app, pilot):
        for text, number in (("prefill", 2), (samples.request(51)[:13], 1), ("p2", 2), ("nobody", 0)):
            await pilot.press("slash", *text)
            assert table(app, "stuck").selection.matching == number, text
            await pilot.press("escape")


def test_the_whole_diagnosis_on_a_page() -> None:
    _, registration, *_ = rows_of(samples.stuck())
    text = page(registration, samples.stuck())
    assert text.startswith("error  registration_without_prefill\n")
    for words_ in (
        samples.request(51),
        "P1 -> D1  since 1m35s",
        "D1 has waited 1m35s for a prefill that P1 gave up",
        "1m34s ago  P1 scheduler  the prefill leg ended without blocks: finished_aborted",
        "1m35s ago  D1 tp0        registration sent to P's tp0",
        "Abort the decode leg",
        "docs/runbooks.md#registration_without_prefill",
        f"pushscope why {samples.request(51)}",
    ):
        assert words_ in text
    assert "Likely" not in text


def test_what_is_not_certain_says_so_and_an_engine_has_no_story() -> None:
    listener, *_ = rows_of(samples.stuck())
    text = page(listener, samples.stuck())
    assert "Likely, not certain." in text
    assert f"Costs 2 transfers: {samples.request(52)}" in text
    assert f"{samples.request(53)} #2." in text.replace("\n", " ")
    assert "pushscope why" not in text
    assert "Evidence" not in text


def test_hostile_words_style_nothing() -> None:
    evil = samples.HOSTILE_IDS[0] + samples.HOSTILE_IDS[3]
    ill = samples.diagnosis(
        "waiting",
        Severity.ERROR,
        evil,
        sentence=evil,
        remedy=evil,
        evidence=(Evidence(NOW, evil, evil, None),),
    )
    snapshot = samples.stuck(diagnoses=(ill,))
    text = page(rows_of(snapshot)[0], snapshot, 200)
    assert "\x1b" not in text
    assert text.count("[bold red]INJECTED[/bold red]") >= 4


def test_once_has_the_table_first_and_only_if_something_is_stuck() -> None:
    def printed(snapshot: Snapshot) -> str:
        out = io.StringIO()
        render_snapshot(snapshot, Console(file=out, width=80))
        return out.getvalue()

    text = printed(samples.stuck())
    assert text.index("Stuck 4, by worst") < text.index("In flight 11, by age")
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    assert "Stuck" not in printed(well())


def test_thousands_of_diagnoses_are_bounded() -> None:
    many = tuple(
        samples.diagnosis("waiting", Severity.WARNING, f"cmpl-{i}", since_ns=NOW - i * S) for i in range(5000)
    )
    out = io.StringIO()
    render_snapshot(msgspec.structs.replace(samples.busy(), diagnoses=many), Console(file=out, width=80))
    assert "… and 4,950 more, sorted by worst" in out.getvalue()
