"""One fault, one name: what has been misnamed, or named twice, on real engines."""

from __future__ import annotations

import msgspec
import pytest

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.model import Diagnosis
from pushscope.telemetry.stuck import causes
from pushscope.telemetry.watch import Watcher

from .failures import (
    D,
    S,
    aborted,
    done,
    expires,
    fails,
    matches,
    posts,
    prefills,
    received,
    registers,
    stepping,
)
from .scenario import (
    D_ENGINE,
    D_SCHEDULER,
    D_WORKER,
    ORIGINS,
    P_ENGINE,
    P_WORKER,
    ListSource,
    Said,
    ms,
    reading,
)

D2, P2 = "cmpl-r-dddddddd", "cmpl-r-cccccccc"


def seen(
    *looks: tuple[Said, float], origins: tuple[ev.Origin, ...] = ORIGINS, gone: tuple[str, ...] = ()
) -> tuple[Diagnosis, ...]:
    """What a watcher says at the end, of transfers and engines: (what was said, seconds)."""
    readings = [reading(said, at_s * S, origins) for said, at_s in looks[:-1]]
    readings.append(reading(looks[-1][0], looks[-1][1] * S, origins, gone=gone))
    watcher = Watcher(ListSource(readings))
    watcher.run_to_end()
    return watcher.snapshot().diagnoses


def codes(diagnoses: tuple[Diagnosis, ...]) -> list[str]:
    """What an operator is told."""
    return [d.code for d in causes(diagnoses)]


# -- a retry whose decode leg comes late ----------------------------------------------------------------

OLDER_GOT_THEM = [
    *registers(),
    *aborted(2 * S),
    *prefills(3 * S, p=P2),
    *matches(3 * S + 10, p=P2),
    *posts(3 * S + 11, p=P2),
    (D_WORKER, ev.NotificationDrained(ms(3 * S + 20), "cmpl-r-bbbbbbbb", P_WORKER.nixl_agent, 1)),
    (D_WORKER, ev.NotificationCounted(ms(3 * S + 21), "cmpl-r-bbbbbbbb", 1, 1, 1)),
    *received(3 * S + 22)[:2],
    *done(3 * S + 25, request=P2),
    (ORIGINS[0], ev.SendFinished(ms(3 * S + 30), P2)),
]


@pytest.mark.parametrize("at_s", [3.1, 5.0], ids=["while it is followed", "when it is closed"])
def test_the_blocks_of_a_late_decode_leg_went_to_an_older_registration(at_s):
    late = registers(at_s * S, d=D2)
    (found,) = seen((OLDER_GOT_THEM, at_s), (late + stepping(12), 12.0))
    assert (found.code, found.attempt) == ("retry_met_older_registration", 2)
    assert found.sentence.startswith("P pushed the blocks of attempt 2 to attempt 1 of its id")


def test_what_was_lost_after_that_is_lost():
    """The second try was given up too, and the prefill of the third never came."""
    late = registers(5 * S, d=D2) + aborted(6 * S, d=D2)
    third = registers(8 * S, d="cmpl-r-ffffffff")
    found = seen((OLDER_GOT_THEM, 3.5), (late, 7.0), (third + stepping(21), 21.0))
    assert [(d.code, d.attempt) for d in found if d.severity == "error"] == [
        ("registration_without_prefill", 3)
    ]


# -- whose prefill it is --------------------------------------------------------------------------------


def alone(*names: str) -> Said:
    return [each for name in names for each in prefills(p=f"cmpl-{name}-aaaaaaaa")]


def test_one_prefill_and_one_d_that_miss_each_other_are_one_error():
    found = seen((registers(d="cmpl-x-bbbbbbbb") + alone("y") + stepping(20), 20.0))
    assert [(d.code, d.subject, d.severity, d.certain) for d in found if d.attempt] == [
        ("request_ids_differ", "cmpl-x", "error", True),
        ("request_ids_differ", "cmpl-y", "warning", True),
    ]


def test_of_several_prefills_that_d_could_wait_for_none_is_an_error():
    found = seen((registers(d="cmpl-x-bbbbbbbb") + alone("a", "b", "c", "d") + stepping(20), 20.0))
    (error,) = [d for d in found if d.severity == "error"]
    assert (error.code, error.subject, error.certain) == ("request_ids_differ", "cmpl-x", False)
    assert "4 unclaimed prefills of as many tokens (100) under other ids: " in error.sentence
    assert "'cmpl-a-aaaaaaaa'" in error.sentence
    assert "and 1 more." in error.sentence
    others = {(d.code, d.severity) for d in found if d.attempt and d is not error}
    assert others == {("prefill_unclaimed", "warning")}


def test_of_several_requests_that_could_wait_for_a_prefill_each_is_told_that_it_is_not_sure():
    waiting = [
        each for n in range(3) for each in registers(10 + n, d=f"cmpl-x{n}-bbbbbbbb", named=f"cmpl-x{n}")
    ]
    found = seen((waiting + alone("y") + stepping(20), 20.0))
    errors = [d for d in found if d.severity == "error"]
    assert [(d.code, d.certain) for d in errors] == [("request_ids_differ", False)] * 3
    assert all("for which 2 other requests of D could wait as well" in d.sentence for d in errors)
    assert [d.code for d in found if d.subject == "cmpl-y"] == ["prefill_unclaimed"]


# -- a late decode leg that can't name P's request ------------------------------------------------------

UNCLAIMED = prefills() + expires(30 * S + 20)


@pytest.mark.parametrize("at_s", [32.0, 75.0], ids=["while it is followed", "when it is closed"])
def test_p_had_let_the_blocks_go_when_d_came(at_s):
    def of_d(after_s: float) -> list[Diagnosis]:
        late = registers(at_s * S) + stepping(at_s + after_s)
        found = seen((UNCLAIMED, 31.0), ([], at_s), (late, at_s + after_s))
        return [d for d in found if d.attempt == 2]

    (error,) = of_d(13)
    assert error.severity == "error"
    assert (error.code, error.certain) == ("lease_over_before_decode", True)
    assert "P's lease on its prefill of this id ended " in error.sentence
    assert error.evidence[0].what == "lease ended, blocks released"
    assert of_d(2) == [], "its own prefill may come yet"
    assert [d.severity for d in of_d(4)] == ["warning"]


def test_a_prefill_that_comes_after_all_is_waited_for():
    late = [*registers(32 * S), (ORIGINS[0], ev.RequestArrived(ms(33 * S), P2, "prefill")), *stepping(40)]
    assert [d for d in seen((UNCLAIMED, 31.0), (late, 36.0)) if d.severity == "error"] == []


def test_what_another_p_had_is_no_reason():
    late = [
        (o, msgspec.structs.replace(e, peer_engine="engine-other") if hasattr(e, "peer_engine") else e)
        for o, e in registers(32 * S, drained=False)
    ]
    found = seen((UNCLAIMED, 31.0), (late + stepping(45), 45.0))
    assert "lease_over_before_decode" not in [d.code for d in found]


def test_what_was_claimed_later_is_no_reason():
    served = [*prefills(40 * S, p=P2), *matches(40 * S + 10, p=P2), *registers(39 * S), *received(41 * S)]
    served += [(ORIGINS[0], ev.SendFinished(ms(41 * S), P2))]
    late = registers(44 * S, d="cmpl-r-ffffffff") + stepping(57)
    found = seen((UNCLAIMED, 31.0), (served, 42.0), (late, 57.0))
    assert [(d.code, d.attempt) for d in found if d.severity == "error"] == [
        ("registration_without_prefill", 3)
    ]


# -- the cause, and what came of it ---------------------------------------------------------------------

FAILED_LATER = [
    *registers(),
    *prefills(5 * S),
    *matches(5 * S + 3),
    *posts(5 * S + 5)[:1],
    *fails(5 * S + 6, "transfer_setup_failed", "NIXL_ERR_REMOTE_DISCONNECT", number=1),
]


def test_a_write_that_cannot_be_posted_to_a_d_that_is_gone_is_that_ds_end():
    found = seen((registers(), 1.0), (FAILED_LATER, 6.0), gone=(D_ENGINE,))
    assert codes(found) == ["engine_gone"]
    assert {d.code for d in found} == {"engine_gone"}
    ((subject, severity),) = {(d.subject, d.severity) for d in found if not d.attempt}
    assert (subject, severity) == (D_ENGINE, "error")
    assert next(d for d in found if d.attempt).sentence.startswith("D is gone; transfer_setup_failed: ")


def test_one_that_could_not_be_posted_before_d_went_is_not():
    said = [*FAILED_LATER, (D_WORKER, ev.Loop(ms(7 * S), 1, 1, 1, True))]
    found = seen((said, 7.0), ([], 8.0), gone=(D_ENGINE,))
    assert "write_not_posted" in [d.code for d in found]


def handshake(error: str, *, host: str = "10.0.0.7", to: str = P_ENGINE) -> Said:
    """D's one handshake with P fails, for the engine and for the request."""
    asked = [
        (o, msgspec.structs.replace(e, peer_engine=to) if hasattr(e, "peer_engine") else e)
        for o, e in registers(drained=False, host=host)[:3]
    ]
    return [
        *asked,
        (D_WORKER, ev.HandshakeQueued(ms(20), to, host, 5600)),
        (D_WORKER, ev.HandshakeStarted(ms(21), to)),
        (D_WORKER, ev.HandshakeEnded(ms(60), to, ms(21), error_type="RuntimeError", error=error)),
        (D_WORKER, ev.RegistrationFailed(ms(60), D, 0, 0, False, "push_reg_handshake_failed", error)),
        (D_WORKER, ev.ReceiveFailed(ms(61), D)),
    ]


def mismatch(received: str) -> str:
    return f"RuntimeError('Remote NIXL agent engine ID mismatch. Expected engine-x,received {received}.')"


def ended(status: str) -> Said:
    return [(D_SCHEDULER, ev.RequestEnded(ms(900), D, status))]


def test_what_d_computes_itself_is_no_error_of_anybody():
    said = handshake(mismatch(P_ENGINE), to="nobody") + ended("finished_length_capped")
    found = seen((said, 1.0))
    assert {(d.code, bool(d.attempt), d.severity) for d in found} == {
        ("computed_by_d", True, "warning"),
        ("engine_id_mismatch", False, "warning"),
    }
    assert "D computed 1 prompt itself" in next(d for d in found if not d.attempt).sentence
    failed = seen((handshake(mismatch(P_ENGINE), to="nobody") + ended("finished_error"), 1.0))
    assert {(d.code, d.severity) for d in failed} == {("engine_id_mismatch", "error")}


def test_a_d_that_reaches_itself_is_named_alike_of_the_request_and_of_the_engine():
    found = seen((handshake(mismatch(D_ENGINE), host="localhost") + ended("finished_error"), 1.0))
    assert {(d.code, bool(d.attempt)) for d in found} == {
        ("loopback_side_channel", True),
        ("loopback_side_channel", False),
    }
    assert codes(found) == ["loopback_side_channel"], "of the engine; the request is its victim"
