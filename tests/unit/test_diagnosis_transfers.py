"""What transfers are diagnosed with: one event list for each code, and one that nearly yields it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.catalogue import CATALOGUE, About
from pushscope.telemetry.diagnosis.model import Severity

from .failures import (
    D2,
    D_SIDE,
    D_TP2,
    FAILURES,
    MET,
    P_SIDE,
    P_TP2,
    TP2,
    D,
    P,
    S,
    aborted,
    diagnosed,
    done,
    expires,
    fails,
    heard,
    matches,
    other_hosts,
    posts,
    prefills,
    pull,
    registers,
)
from .scenario import D_ENGINE, D_SCHEDULER, D_WORKER, P_WORKER, assembled, delivered, ms, only

CODES = {entry.code for entry in CATALOGUE.values() if entry.about is About.TRANSFER}


def test_every_code_of_a_transfer_is_shown_here():
    assert FAILURES.keys() == CODES


@pytest.mark.parametrize("code", FAILURES)
def test_is_named(code):
    f = FAILURES[code]
    found = diagnosed(f.said, f.at_s, f.origins, gone=f.gone, usual=f.usual)
    codes = [d.code for d in found]
    assert code in codes
    d = next(d for d in found if d.code == code)
    assert f.sentence in d.sentence
    assert d.certain == f.certain
    assert d.remedy == CATALOGUE[code].remedy
    assert all(a.t_ns <= b.t_ns for a, b in zip(d.evidence, d.evidence[1:], strict=False))
    assert set(codes[: codes.index(code)]) <= {*f.after, code}


@pytest.mark.parametrize("code", FAILURES)
def test_what_only_looks_like_it_is_not(code):
    f = FAILURES[code]
    found = diagnosed(f.near, f.near_s or f.at_s, f.near_origins or f.origins)
    assert code not in [d.code for d in found]


@pytest.mark.parametrize("code", FAILURES)
@settings(max_examples=5, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_reading_is_no_matter(code, rng: random.Random):
    f = FAILURES[code]
    shuffled = list(f.said)
    rng.shuffle(shuffled)
    whole = diagnosed(f.said, f.at_s, f.origins, gone=f.gone, usual=f.usual)
    assert diagnosed(shuffled, f.at_s, f.origins, gone=f.gone, usual=f.usual) == whole


class TestReports:
    """The small inputs that public reports come down to."""

    def test_vllm_53095_the_lease_ends_while_d_is_queued(self):
        p, d = "chatcmpl-U-aaaaaaaa", "chatcmpl-U-bbbbbbbb"
        beats = [(D_WORKER, ev.HeartbeatSent(ms(5 * S * n), "agent", 1, "chatcmpl-U")) for n in range(1, 9)]
        arrived = (D_SCHEDULER, ev.RequestArrived(ms(30), d, "decode", "engine-p", "chatcmpl-U"))
        said = [*prefills(p=p), arrived, *beats, *expires(30 * S + 21, p=p), *registers(42 * S, d=d)[1:]]
        first, *_ = diagnosed(said, 43)
        assert (first.code, first.severity) == ("heartbeat_id_mismatch", Severity.ERROR)
        assert "ended 30 s after the prefill, D registered 12 s later" in first.sentence
        assert "'chatcmpl-U'" in first.sentence
        assert f"'{p}'" in first.sentence
        early, *_ = diagnosed([*prefills(p=p), arrived, *beats[:3]], 20)
        assert (early.code, early.severity) == ("heartbeat_id_mismatch", Severity.WARNING)
        assert "which ends in 10 s" in early.sentence

    def test_vllm_46283_an_aborted_request_keeps_its_blocks(self):
        said = registers(blocks=211) + aborted(3 * S)
        (t,) = assembled(said).open_transfers()
        assert (t.d_engine, t.d_holds, t.num_blocks, t.closed_ns) == (D_ENGINE, True, 211, ms(3 * S))
        assert not any(t.d_holds for t in assembled(registers() + delivered()).open_transfers())

    def test_vllm_50754_one_write_cannot_be_posted(self):
        said = registers(ranks=(2, 1), by=TP2[0]) + heard(13, by=TP2[1])
        said += prefills(by=TP2[0]) + prefills(by=TP2[1])[4:] + matches(by=TP2[0]) + matches(by=TP2[1])
        said += posts(by=TP2[0]) + done(40, by=TP2[0])
        said += posts(by=TP2[1])[:1] + fails(27, "transfer_setup_failed", "NIXL_ERR", number=1, by=TP2[1])
        said += [(D_WORKER, ev.NotificationDrained(ms(35), D, TP2[0].nixl_agent, 2))]
        said += [(D_WORKER, ev.NotificationCounted(ms(36), D, 1, 2, 1))]
        (found,) = diagnosed(said, 10, P_TP2)
        assert found.code == "write_not_posted"
        assert found.sentence.startswith("1 of 2 WRITEs of P could not be posted (tp1: ")
        assert [e.rank for e in found.evidence] == [(0, 1)]

    def test_vllm_55470_the_handshake_outlasts_the_lease(self):
        said = registers(200) + prefills(220) + matches(1 * S)
        said += [(P_WORKER, ev.TransferDeferred(ms(1 * S + 1), P, D_ENGINE))]
        said += [*expires(31 * S), (P_WORKER, ev.TransferResumed(ms(45 * S), P)), *posts(45 * S)]
        first, *_ = diagnosed(said, 49)
        assert first.code == "write_after_lease"
        assert "14 s after its lease had ended" in first.sentence

    def test_vllm_45880_a_pipeline_stage_is_missing_until_it_comes(self):
        said = [(o, e) for rank in D2 for o, e in registers(ranks=(2, 2), drained=False, worker=rank)]
        said += [(rank, ev.NotificationCounted(ms(40), D, 1, 2, 2)) for rank in D2]
        d_alone = D_TP2[2:]
        (found,) = diagnosed(said, 20, d_alone)
        assert found.code == "notifications_missing"
        assert "D's tp0 has 1 of 2, D's tp1 has 1 of 2" in found.sentence
        said += [(rank, ev.NotificationCounted(ms(10 * S), D, 2, 2, 2)) for rank in D2]
        said += [(rank, ev.ReceiveDone(ms(10 * S + 1), D)) for rank in D2]
        said += [
            (D_TP2[2], ev.ReceiveFinished(ms(10 * S + 2), D)),
            (D_TP2[2], ev.DecodeScheduled(ms(10 * S + 3), D)),
        ]
        assert diagnosed(said, 20, d_alone) == ()

    @pytest.mark.parametrize(
        ("answered", "code"), [(D_ENGINE, "loopback_side_channel"), ("engine-y", "engine_id_mismatch")]
    )
    def test_vllm_27083_a_loopback_address_reaches_oneself(self, answered, code):
        error = (
            f"RuntimeError('Remote NIXL agent engine ID mismatch. Expected engine-p,received {answered}.')"
        )
        failed = ev.RegistrationFailed(ms(60), D, 0, 0, False, "push_reg_handshake_failed", error)
        said = [*registers(host="localhost", drained=False)[:3], (D_WORKER, failed)]
        (found,) = diagnosed(said, 2, D_SIDE)
        assert found.code == code

    def test_vllm_42895_block_sizes_differ(self):
        said = MET + fails(60, "push_handshake_failed", "AssertionError()")
        (found,) = diagnosed(said, 2, other_hosts(d="host", block_size=(32, 16)))
        assert found.code == "block_sizes_differ"
        assert "P has blocks of 32 tokens, D of 16" in found.sentence

    def test_vllm_58038_no_telemetry_is_no_fault_of_the_network(self):
        failed = fails(60, "transfer_exception", "telemetry: no", number=1, by=D_WORKER, request=D)
        said = pull(*posts(50, p=D, d=P, by=D_WORKER), *failed, (D_WORKER, ev.ReceiveFailed(ms(61), D)))
        (found,) = diagnosed(said, 1)
        assert (found.code, found.severity) == ("telemetry_missing", Severity.ERROR)


class TestOneSide:
    """What only one side was seen of is less than certain, and the sentence says so."""

    @pytest.mark.parametrize(
        "code",
        [
            "write_not_posted",
            "reverse_handshake_failed",
            "nothing_to_push",
            "push_abandoned",
            "write_failed",
            "write_never_finished",
        ],
    )
    def test_p_alone(self, code):
        f = FAILURES[code]
        found = {d.code: d for d in diagnosed(only(f.said, *P_SIDE), f.at_s, P_SIDE)}
        assert not found[code].certain
        assert found[code].sentence.endswith("D is not observed: what it did is not known.")

    @pytest.mark.parametrize(
        ("code", "instead"),
        [
            ("registration_without_prefill", "waiting"),
            ("registration_lost", "waiting"),
            ("request_ids_differ", "waiting"),
            ("watchdog_fired", "watchdog_fired"),
        ],
    )
    def test_d_alone(self, code, instead):
        f = FAILURES[code]
        said = only(f.said, *D_SIDE)
        (found,) = diagnosed(said, 10, D_SIDE)
        assert (found.code, found.certain) == (instead, False)
        assert found.sentence.endswith("P is not observed: what it did is not known.")
        assert diagnosed(said, 5, D_SIDE) == () or instead != "waiting", (
            "half the knowledge, twice the patience"
        )

    def test_what_d_saw_of_its_own_handshake_is_certain(self):
        f = FAILURES["handshake_failed"]
        (found,) = diagnosed(only(f.said, *D_SIDE), f.at_s, D_SIDE)
        assert found.certain
