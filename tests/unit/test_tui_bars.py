"""Figures as characters: what a stage bar, a line of the last seconds and a distribution's shape look like."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushscope.telemetry.transfer import PUSH_STAGES, Stage, StageTime, Transfer
from pushscope.tui.bars import LETTERS, shape, spark, stage_bar

from . import samples
from .samples import MS, NOW


def with_stages(*lengths: tuple[Stage, int]) -> Transfer:
    """An ended transfer whose stages, one after the other, took so many nanoseconds."""
    at, stages = NOW - 10 * samples.S, []
    for stage, length in lengths:
        stages.append(StageTime(stage, at, at + length, (0, 0), (0, 0)))
        at += length
    return msgspec.structs.replace(samples.delivered(1), stages=tuple(stages))


def test_each_stage_has_a_letter_of_its_own() -> None:
    assert set(LETTERS) == set(Stage)
    assert len(set(LETTERS.values())) == len(Stage)
    assert all(len(letter) == 1 and letter.isascii() for letter in LETTERS.values())


@given(
    lengths=st.lists(st.integers(1, 10**12), min_size=1, max_size=len(Stage)),
    width=st.integers(len(Stage), 60),
)
def test_a_bar_is_as_wide_as_asked_and_each_stage_with_time_has_a_cell(
    lengths: list[int], width: int
) -> None:
    spent = tuple(zip(Stage, lengths, strict=False))
    bar = stage_bar(with_stages(*spent), NOW, width)
    assert len(bar.text) == width
    assert sum(cells for _, cells in bar.runs) == width
    assert [stage for stage, _ in bar.runs] == [stage.value for stage, _ in spent]
    assert bar.text == "".join(LETTERS[Stage(stage)] * cells for stage, cells in bar.runs)


@given(lengths=st.lists(st.integers(1, 10**12), min_size=1, max_size=len(Stage)), width=st.integers(1, 60))
def test_where_there_are_fewer_cells_than_stages_the_width_still_holds(
    lengths: list[int], width: int
) -> None:
    bar = stage_bar(with_stages(*zip(Stage, lengths, strict=False)), NOW, width)
    assert len(bar.text) == width


def test_cells_are_shared_as_the_time_is() -> None:
    bar = stage_bar(with_stages((Stage.RENDEZVOUS, 75 * MS), (Stage.WIRE, 25 * MS)), NOW, 12)
    assert bar.text == "R" * 9 + "W" * 3


def test_a_stage_without_time_has_no_cell() -> None:
    bar = stage_bar(with_stages((Stage.RENDEZVOUS, 0), (Stage.WIRE, MS)), NOW, 12)
    assert bar.text == "W" * 12


def test_an_open_stage_has_taken_what_it_has_until_now() -> None:
    transfer = samples.in_flight(1, Stage.WIRE, age_ns=100 * samples.S)
    assert stage_bar(transfer, NOW, 20).text.count("W") > 10
    assert stage_bar(transfer, transfer.since_ns, 20).text.count("W") == 0


def test_of_several_ranks_the_slowest_counts() -> None:
    begin = NOW - samples.S
    stages = (
        StageTime(Stage.RENDEZVOUS, begin, begin + 30 * MS, (0, 0), (0, 0)),
        StageTime(Stage.WIRE, begin, begin + 10 * MS, (0, 0), (0, 0)),
        StageTime(Stage.WIRE, begin, begin + 30 * MS, (0, 1), (0, 1)),
    )
    transfer = msgspec.structs.replace(samples.delivered(1), stages=stages)
    assert stage_bar(transfer, NOW, 10).text == "RRRRRWWWWW"


@pytest.mark.parametrize("width", [0, -3])
def test_without_room_there_is_no_bar(width: int) -> None:
    assert stage_bar(samples.delivered(1), NOW, width).text == ""


def test_without_stages_there_is_no_bar() -> None:
    assert stage_bar(with_stages(), NOW, 12).text == ""


def test_all_stages_of_a_push_are_in_the_letters_of_a_bar() -> None:
    seen = stage_bar(samples.delivered(1), NOW, 48).text
    assert {LETTERS[stage] for stage in PUSH_STAGES} & set(seen) == set(seen)


def test_a_line_ends_with_the_newest_and_reaches_from_zero_to_its_maximum() -> None:
    assert spark([9, 0, 4, 8], 3) == "▁▅█"
    assert spark([0, 8], 4) == "  ▁█"
    assert spark([0, 0], 2) == "▁▁"
    assert spark([], 3) == "   "


def test_what_is_more_than_nothing_does_not_look_like_nothing() -> None:
    assert spark([0, 1, 1_000_000], 3) == "▁▂█"
    assert shape([0, 1, 1_000_000], 3) == " ▂█"


@given(counts=st.lists(st.integers(0, 10**9), max_size=40), width=st.integers(1, 40))
def test_a_shape_fits_its_width_and_shows_each_bucket_that_has_any(counts: list[int], width: int) -> None:
    drawn = shape(counts, width)
    assert len(drawn) <= width
    assert bool(drawn.strip()) == any(counts)


def test_neighbours_are_added_up_where_there_is_less_room() -> None:
    assert shape([1, 1, 0, 0, 2, 2], 3) == "▅ █"
    assert shape([], 3) == shape([1], 0) == ""
