"""The committed table of what is diagnosed: whole, within the limits, and of this catalogue."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from diagnoses import result
from diagnoses.judge import differs, incomplete, wrong_with
from diagnoses.page import lines_of, page_of
from diagnoses.result import Level, Reproduction, merged
from diagnoses.rows import INPUTS, ROWS
from diagnoses.session import Session

from pushscope.telemetry.diagnosis.catalogue import CATALOGUE

RUN = result.read()
ALL = RUN.all()
ROOT = Path(__file__).parents[2]
HANGS = Reproduction(
    row="A4",
    code="write_never_finished",
    level=Level.EVENTS,
    how="it hangs",
    named_s=3.0,
    test="tests/unit/test_diagnosis_seconds.py",
)


def but(each: Reproduction, **changes: object) -> Reproduction:
    return msgspec.structs.replace(each, **changes)


# -- what is committed ------------------------------------------------------------------------------------


def test_no_row_no_code_and_no_small_input_is_left_out():
    assert list(incomplete(ALL)) == []


@pytest.mark.parametrize("each", ALL, ids=lambda each: f"{each.level}, {each.how}")
def test_each_was_named_in_time_as_the_catalogue_says(each):
    assert list(wrong_with(each)) == []


def test_the_page_is_that_of_the_run():
    assert result.PAGE.read_text() == page_of(RUN)


def test_the_tests_that_made_it_are_there():
    for test in {each.test for each in RUN.reproductions}:
        assert "reproduced" in (ROOT / test).read_text()


def test_no_two_of_a_level_are_made_the_same_way():
    assert len({each.key for each in ALL}) == len(ALL)


def test_no_row_is_unknown():
    assert {row for entry in CATALOGUE.values() for row in entry.rows} <= ROWS.keys()


# -- what a table is held against ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"code": "no_such_code"}, "expected a code of the catalogue, found no_such_code"),
        ({"code": "write_failed"}, "expected a code that the catalogue has for this row, found write_failed"),
        ({"row": ""}, "expected a code that the catalogue has for this row"),
        ({"named_s": 10.5}, "expected write_never_finished within 10 s, was named after 10.5 s"),
        ({"named_s": 3.5, "lease": "whole"}, "within 3 s after whole, was named after 3.5 s"),
        ({"named_s": None, "besides": ("waiting",)}, "expected write_never_finished, was named waiting"),
    ],
)
def test_what_is_wrong_with_one(changes, sentence):
    assert list(wrong_with(HANGS)) == []
    (found,) = wrong_with(but(HANGS, **changes))
    assert sentence in found


def test_one_that_the_committed_table_knows_otherwise():
    committed = {HANGS.key: HANGS}
    assert list(differs(but(HANGS, named_s=4.0), committed)) == []
    (found,) = differs(but(HANGS, code="waiting", row=""), committed)
    assert "the committed table says A4 write_never_finished, this run no row waiting" in found
    (found,) = differs(but(HANGS, how="otherwise"), committed)
    assert "run `make table`" in found


@pytest.mark.parametrize(
    ("left_out", "sentence"),
    [
        (lambda each: each.row == "A4", "A4: expected either a reproduction or the reason"),
        (
            lambda each: each.code == "waiting" and each.level is Level.EVENTS,
            "waiting: expected an event list",
        ),
        (lambda each: each.row == "F2" and each.level is Level.CLASSES, "many_descriptors: expected it on"),
        (lambda each: each.input == 9, "small input 9: expected F1, found nothing"),
    ],
)
def test_what_is_left_out_is_said(left_out, sentence):
    found = list(incomplete([each for each in ALL if not left_out(each)]))
    assert any(sentence in each for each in found)


def test_a_reason_for_what_is_reproduced_is_none():
    found = list(incomplete([*ALL, but(HANGS, row="C4")]))
    assert found == ["C4: expected either a reproduction or the reason why events can't tell, found both"]


# -- a run of tests -----------------------------------------------------------------------------------------


def test_what_a_whole_test_file_no_longer_makes_is_missed():
    session = Session(writes=False)
    made = [each for each in RUN.reproductions if each.level is Level.EVENTS]
    for each in made[1:]:
        assert session.note(each) == []
    (missed,) = session.missing({made[0].test})
    assert made[0].how in missed
    assert session.missing(set()) == []


def test_a_later_run_replaces_what_its_test_files_made_before():
    old, other = but(HANGS, how="old"), but(HANGS, how="other", test="tests/vllm/fake/test_diagnosis.py")
    assert merged([old, other], [HANGS], {HANGS.test}) == (HANGS, other)
    assert merged([old, other], [HANGS], set()) == (HANGS, old, other)
    assert merged([HANGS], [but(HANGS, named_s=1.0)], set()) == (but(HANGS, named_s=1.0),)


def test_a_terminal_is_told_of_what_was_made_beside_what_is_known():
    a4 = next(each for each in RUN.reproductions if each.row == "A4" and each.level is Level.EVENTS)
    one = next(each for each in RUN.reproductions if each.input == 5)
    line, of_input = lines_of(ALL, [a4, one])
    assert line.startswith("A4   write_never_finished")
    assert "–" not in line
    assert of_input.startswith(f"small input  5 ({INPUTS[5].report}): C3 `write_after_lease`")
