"""How soon each cause is named, as event lists; and the small inputs of public reports."""

from __future__ import annotations

import dataclasses

import pytest
from diagnoses.rows import INPUTS

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.catalogue import CATALOGUE, NOT_FROM_EVENTS, About
from pushscope.telemetry.diagnosis.model import Severity

from .engine_failures import ENGINE_FAILURES, OF_NO_ROW
from .failures import D_SIDE, FAILURES, P_TP2, S, diagnosed, prefills
from .named_after import Course, named_after
from .scenario import D_SCHEDULER, D_WORKER, P_ENGINE, delivered, ms
from .small_inputs import (
    D_ALONE,
    SMALL_INPUTS,
    U_D,
    U_P,
    a_partial_hit,
    a_stage_is_missing,
    no_telemetry,
    one_rank_cannot_post,
    sent_to_localhost,
    the_stage_comes,
)

COURSES = {f"{code}, of a transfer": ("", f.course(code)) for code, f in FAILURES.items()}
COURSES |= {f"{row} {course.code}, of an engine": (row, course) for row, course in ENGINE_FAILURES.items()}
COURSES |= {f"{course.code}, of an engine": ("", course) for course in OF_NO_ROW}


@pytest.mark.parametrize("how", COURSES)
def test_is_named_within_seconds(how, reproduced):
    row, course = COURSES[how]
    reproduced(named_after(course), how, row=row or None)


def test_every_code_of_an_engine_is_among_them():
    engines = {course.code for course in (*ENGINE_FAILURES.values(), *OF_NO_ROW)}
    assert engines == {entry.code for entry in CATALOGUE.values() if entry.about is About.ENGINE}


class TestTheMeasure:
    """Seconds are measured, not told."""

    WAITS = Course("registration_without_prefill", FAILURES["registration_without_prefill"].said)

    def test_of_a_wait_it_is_the_floor(self):
        assert named_after(self.WAITS).named_s == 3.0

    def test_a_begin_that_is_said_to_be_earlier_makes_it_later(self):
        earlier = dataclasses.replace(self.WAITS, begins_s=-5.0)
        assert named_after(earlier).named_s == 8.25

    def test_what_is_never_named_has_no_seconds_and_says_what_was_named(self):
        named = named_after(Course("nothing_to_push", self.WAITS.said))
        assert named.named_s is None
        assert not named.in_time
        assert "registration_without_prefill" in named.besides

    def test_what_was_delivered_is_not_named(self):
        assert named_after(Course("waiting", delivered())).besides == ()


# -- small inputs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", SMALL_INPUTS)
def test_a_small_input_yields_its_diagnosis(number, reproduced):
    reproduced(named_after(SMALL_INPUTS[number]), f"small input {number}", number=number)


def test_no_small_input_is_left_out_but_the_one_that_no_event_tells():
    assert INPUTS.keys() - SMALL_INPUTS.keys() == {7}
    assert INPUTS[7].row in NOT_FROM_EVENTS
    assert diagnosed(a_partial_hit(), 10) == ()


def test_vllm_53095_the_lease_ends_while_d_is_queued():
    first, *_ = diagnosed(SMALL_INPUTS[1].said, 43)
    assert (first.code, first.severity) == ("heartbeat_id_mismatch", Severity.ERROR)
    assert "ended 30 s after the prefill, D registered 12 s later" in first.sentence
    assert "'chatcmpl-U'" in first.sentence
    assert f"'{U_P}'" in first.sentence
    arrived = (D_SCHEDULER, ev.RequestArrived(ms(30), U_D, "decode", P_ENGINE, "chatcmpl-U"))
    beats = [(D_WORKER, ev.HeartbeatSent(ms(5 * S * n), "agent", 1, "chatcmpl-U")) for n in range(1, 4)]
    early, *_ = diagnosed([*prefills(p=U_P), arrived, *beats], 20)
    assert (early.code, early.severity) == ("heartbeat_id_mismatch", Severity.WARNING)
    assert "which ends in 10 s" in early.sentence


def test_vllm_46283_an_aborted_request_keeps_its_blocks():
    named = named_after(SMALL_INPUTS[2])
    assert named.sentence.startswith("211 blocks of D1's KV cache are held by 1 request")


def test_vllm_50754_one_write_cannot_be_posted():
    (found,) = diagnosed(one_rank_cannot_post(), 10, P_TP2)
    assert found.sentence.startswith("1 of 2 WRITEs of P could not be posted (tp1: ")
    assert [e.rank for e in found.evidence] == [(0, 1)]


def test_vllm_55470_the_handshake_outlasts_the_lease():
    first, *_ = diagnosed(SMALL_INPUTS[5].said, 49)
    assert first.code == "write_after_lease"
    assert "14 s after its lease had ended" in first.sentence


def test_vllm_45880_a_pipeline_stage_is_missing_until_it_comes():
    (found,) = diagnosed(a_stage_is_missing(), 20, D_ALONE)
    assert found.code == "notifications_missing"
    assert "D's tp0 has 1 of 2, D's tp1 has 1 of 2" in found.sentence
    assert diagnosed(a_stage_is_missing() + the_stage_comes(), 20, D_ALONE) == ()


def test_vllm_27083_a_loopback_address_reaches_oneself_or_another():
    (found,) = diagnosed(sent_to_localhost("engine-y"), 2, D_SIDE)
    assert found.code == "engine_id_mismatch"


def test_vllm_42895_block_sizes_differ():
    (found,) = diagnosed(SMALL_INPUTS[11].said, 2, SMALL_INPUTS[11].origins)
    assert "P has blocks of 32 tokens, D of 16" in found.sentence


def test_vllm_58038_no_telemetry_is_no_fault_of_the_network():
    (found,) = diagnosed(no_telemetry(), 1)
    assert (found.code, found.severity) == ("telemetry_missing", Severity.ERROR)
