"""What faults on real engines showed, as event lists."""

from __future__ import annotations

from pushscope.telemetry import events as ev

from .failures import D, P, S, diagnosed, prefills, registers, stepping
from .scenario import D_ENGINE, D_SCHEDULER, P_ENGINE, P_SCHEDULER, assembled, ms


def codes(said, at_s, **more):
    return [d.code for d in diagnosed(said, at_s, **more)]


ENDED_IN_THE_QUEUE = [
    (D_SCHEDULER, ev.RequestArrived(ms(5), D, "decode", P_ENGINE, "cmpl-r")),
    *prefills(),
    (D_SCHEDULER, ev.NothingToReceive(ms(500), D, "not_scheduled")),
    (D_SCHEDULER, ev.RequestEnded(ms(500), D, "finished_aborted")),
]


def test_a_prefill_whose_decode_leg_ended_in_the_queue_is_unclaimed():
    (found,) = diagnosed(ENDED_IN_THE_QUEUE, 16)
    assert found.code == "prefill_unclaimed"
    assert "D's request was ended before it asked for them" in found.sentence
    assert codes(ENDED_IN_THE_QUEUE, 14) == []


COMPUTING = [*registers(), (P_SCHEDULER, ev.RequestArrived(ms(20), P, "prefill"))]


def test_a_p_that_is_silent_while_it_computes_is_waited_for_no_longer_than_others():
    assert codes(COMPUTING, 2.9) == []
    assert codes(COMPUTING, 4) == ["waiting"]


def test_a_p_that_steps_may_compute_for_longer():
    assert codes([*COMPUTING, *stepping(20)], 21) == []


def test_what_only_a_gone_engine_had_is_over():
    assembler = assembled(registers(), gone=(D_ENGINE,))
    assembler.close_ended(ms(2 * S), ms(2 * S))
    assert assembler.open_transfers() == []
    assert len(assembler.recent) == 1


def test_what_a_survivor_waits_for_is_not_over():
    assembler = assembled(registers(), gone=(P_ENGINE,))
    assembler.close_ended(ms(2 * S), ms(2 * S))
    assert len(assembler.open_transfers()) == 1
