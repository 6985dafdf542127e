"""Which columns fit, and how wide they become."""

from __future__ import annotations

import msgspec
import pytest
from rich.cells import cell_len

from pushscope.telemetry.transfer import Outcome
from pushscope.tui.columns import GAP, Cell, Column, fit, put
from pushscope.tui.tables import KINDS, RECENT, TableKind

from . import samples


def column(title: str, width: int, *, drop: int = 0, most: int = 0) -> Column:
    return Column(title, lambda *_: Cell(""), width=width, drop=drop, most=most)


def test_the_least_important_columns_go_first() -> None:
    columns = [column("a", 10), column("b", 10, drop=2), column("c", 10, drop=1)]
    assert [f.column.title for f in fit(columns, 34)] == ["a", "b", "c"]
    assert [f.column.title for f in fit(columns, 33)] == ["a", "c"]
    assert [f.column.title for f in fit(columns, 21)] == ["a"]
    assert [f.column.title for f in fit(columns, 3)] == ["a"]


def test_what_is_left_over_goes_to_columns_that_may_grow() -> None:
    assert [f.width for f in fit([column("a", 10, most=14), column("b", 10, most=99)], 40)] == [14, 24]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
@pytest.mark.parametrize("width", range(58, 240))
def test_a_table_never_exceeds_its_width(kind: TableKind, width: int) -> None:
    fitted = fit(kind.columns, width)
    assert sum(f.width for f in fitted) + GAP * (len(fitted) - 1) <= width


def test_eighty_columns_tell_outcome_and_exposed_time_and_two_hundred_every_stage() -> None:
    narrow = [f.column.title for f in fit(RECENT.columns, 77)]
    assert narrow == ["request", "P -> D", "outcome", "seen", "exposed", "wire"]
    wide = [f.column.title for f in fit(RECENT.columns, 197)]
    assert wide[6:-1] == [
        "regist.", "flight", "handoff", "rendez.", "handsh.", "descr.", "submit", "wire", "notif.", "wake",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("attempt", "p_attempt", "mark"),
    [(1, 1, ""), (1, None, ""), (2, 2, " #2"), (2, None, " #2"), (1, 2, " #1←2")],
)
def test_a_request_names_its_attempt_and_that_of_the_blocks_it_got(attempt, p_attempt, mark) -> None:
    snapshot = samples.busy()
    t = msgspec.structs.replace(snapshot.recent[0], base_id="cmpl-x", attempt=attempt, p_attempt=p_attempt)
    request = RECENT.columns[0]
    assert request.cell(t, snapshot, 20).text == f"cmpl-x{mark}"
    cut = request.cell(msgspec.structs.replace(t, base_id="cmpl-" + "x" * 40), snapshot, 16).text
    assert cut.endswith(mark)
    assert cell_len(cut) <= 16


def test_an_outcome_says_how_the_pair_came_about() -> None:
    snapshot = samples.busy()
    crossed = msgspec.structs.replace(snapshot.recent[0], outcome=Outcome.ABORTED, error="why", pairing="how")
    (outcome,) = [c for c in RECENT.columns if c.title == "outcome"]
    assert outcome.cell(crossed, snapshot, 40).text == "aborted: why; how"


@pytest.mark.parametrize("text", ["", "abc", "東京東京", "a\tb\x1b[0m", "long text that has to be cut"])
@pytest.mark.parametrize("right", [False, True])
def test_put_fills_exactly_its_width(text: str, right: bool) -> None:
    for width in range(1, 12):
        assert cell_len(put(text, width, right=right)) == width
