"""The stages of a transfer on one time axis: in order, within the width, open ones as such."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style

from pushscope.telemetry.report import Window, exposed_window
from pushscope.telemetry.transfer import PUSH_STAGES, Stage, StageTime, Transfer
from pushscope.tui.bars import LETTERS
from pushscope.tui.waterfall import axis_of, waterfall

from . import samples
from .samples import MS, NOW

NAMES = ("P1", "D1")


def drawn(
    stages: tuple[StageTime, ...],
    width: int = 100,
    *,
    names: tuple[str, str] = NAMES,
    now_ns: int | None = None,
    window: Window | None = None,
) -> list[str]:
    axis = axis_of(stages, min(s.start_ns for s in stages), now_ns)
    lines = waterfall(stages, axis, names, width, lambda s: (LETTERS[s], Style()), window=window)
    return [line.plain for line in lines]


def of(transfer: Transfer, width: int = 100) -> list[str]:
    return drawn(
        transfer.stages, width, now_ns=NOW if transfer.is_open else None, window=exposed_window(transfer)
    )


def test_a_line_for_each_stage_and_rank_in_the_order_of_time() -> None:
    _, _, *lines = of(samples.delivered(1))
    starts = {s.stage.value: s.start_ns for s in samples.delivered(1).stages}
    told = [line.split()[0] for line in lines]
    assert sorted(told) == sorted(starts)
    assert [starts[stage] for stage in told] == sorted(starts.values())
    _, *lines = of(samples.two_by_two(1))
    assert sum("P1/tp1 - D1/tp1" in line or "P1/tp0 - D1/tp0" in line for line in lines) >= 8


def test_the_ruler_goes_from_zero_to_the_end() -> None:
    ruler, *_ = drawn((StageTime(Stage.WIRE, NOW - 40 * MS, NOW, (0, 0), (0, 0)),))
    assert ruler.split()[0] == "0"
    assert ruler.endswith("40.0 ms")


def test_bars_stand_where_their_time_is() -> None:
    begin = NOW - 100 * MS
    first = StageTime(Stage.RENDEZVOUS, begin, begin + 50 * MS, (0, 0), (0, 0))
    second = StageTime(Stage.WIRE, begin + 50 * MS, NOW, (0, 0), (0, 0))
    _, upper, lower = drawn((second, first))
    assert upper.rstrip().endswith("R")
    assert lower.index("W") in (len(upper.rstrip()), len(upper.rstrip()) - 1)
    assert abs(upper.count("R") - lower.count("W")) <= 1


def test_an_open_stage_goes_on_and_says_so() -> None:
    *_, wire = of(samples.in_flight(1, Stage.WIRE, age_ns=3 * samples.S))
    assert wire.startswith("wire")
    assert "3.00 s …" in wire
    assert wire.endswith("W>")


def test_a_stage_that_never_ended_in_an_ended_transfer_has_no_arrow() -> None:
    _, line = drawn((StageTime(Stage.WIRE, NOW - MS, None, (0, 0), (0, 0)),))
    assert "no end" in line
    assert not line.endswith(">")


def test_an_upper_bound_is_marked() -> None:
    *_, line = drawn((StageTime(Stage.WIRE, NOW - MS, NOW, (0, 0), (0, 0), upper_bound=True),))
    assert "≤1.00 ms" in line


def test_the_exposed_time_stands_below_the_ruler() -> None:
    transfer = samples.delivered(1)
    window = exposed_window(transfer)
    assert window is not None
    line = of(transfer, 160)[1]
    assert "exposed " in line
    assert line.count("|") == 2


@pytest.mark.parametrize("name", ["東京のとても長い名前のエンジン", "[red]x[/red]\x1b[2J", "P" * 200])
def test_names_of_any_kind_leave_the_bars_in_line(name: str) -> None:
    stages = samples.delivered(1).stages
    axis = axis_of(stages, NOW - samples.S, None)
    paint = lambda s: (LETTERS[s], Style())  # noqa: E731
    lines = [line.plain for line in waterfall(stages, axis, (name, "D1"), 120, paint)]
    assert all(cell_len(line) <= 120 for line in lines)
    assert not any("\x1b" in line for line in lines)


_SPANS = st.lists(
    st.tuples(st.sampled_from(PUSH_STAGES), st.integers(0, 10**10), st.none() | st.integers(0, 10**10)),
    min_size=1,
    max_size=12,
)


@given(
    spans=_SPANS,
    width=st.integers(40, 200),
    is_open=st.booleans(),
    ranked=st.booleans(),
    names=st.sampled_from([NAMES, ("prefill-engine-of-rack-7", "decode-engine-of-rack-9")]),
    begin=st.floats(0, 1),
    end=st.floats(0, 1),
)
def test_nothing_is_wider_than_its_room(
    spans: list[tuple[Stage, int, int | None]],
    width: int,
    is_open: bool,
    ranked: bool,
    names: tuple[str, str],
    begin: float,
    end: float,
) -> None:
    rank = (0, 0) if ranked else None
    stages = tuple(
        StageTime(stage, NOW + at, None if took is None else NOW + at + took, rank, rank)
        for stage, at, took in spans
    )
    last = max(s.end_ns or s.start_ns for s in stages)
    whole = last - NOW
    window = NOW + round(whole * min(begin, end)), NOW + round(whole * max(begin, end))
    lines = drawn(stages, width, names=names, now_ns=last if is_open else None, window=window)
    assert len(lines) == len(stages) + 2
    assert all(cell_len(line) <= width for line in lines), lines
    assert "exposed " in lines[1]
