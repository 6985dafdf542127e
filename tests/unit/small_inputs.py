"""The small inputs that public reports come down to, by their numbers in ``diagnoses.rows.INPUTS``."""

from __future__ import annotations

import msgspec

from pushscope.telemetry import events as ev

from .engine_failures import growing, late_by, rejected
from .failures import (
    D2,
    D_SIDE,
    D_TP2,
    MET,
    P_TP2,
    READ,
    TP2,
    D,
    P,
    S,
    aborted,
    done,
    expires,
    fails,
    heard,
    matches,
    other_hosts,
    posts,
    prefills,
    pull,
    received,
    registers,
)
from .named_after import Course
from .scenario import D_ENGINE, D_SCHEDULER, D_WORKER, ORIGINS, P_ENGINE, P_WORKER, Said, ms

U_P, U_D = "chatcmpl-U-aaaaaaaa", "chatcmpl-U-bbbbbbbb"
D_ALONE = D_TP2[2:]
PULLING = tuple(msgspec.structs.replace(o, mode="pull") for o in ORIGINS)


def queued_past_the_lease() -> Said:
    beats: Said = [(D_WORKER, ev.HeartbeatSent(ms(5 * S * n), "agent", 1, "chatcmpl-U")) for n in range(1, 9)]
    arrived = (D_SCHEDULER, ev.RequestArrived(ms(30), U_D, "decode", P_ENGINE, "chatcmpl-U"))
    return [
        *prefills(p=U_P),
        arrived,
        *beats,
        *expires(30 * S + 21, p=U_P),
        *registers(42 * S, d=U_D)[1:],
    ]


def one_rank_cannot_post() -> Said:
    said = registers(ranks=(2, 1), by=TP2[0]) + heard(13, by=TP2[1])
    said += prefills(by=TP2[0]) + prefills(by=TP2[1])[4:] + matches(by=TP2[0]) + matches(by=TP2[1])
    said += posts(by=TP2[0]) + done(40, by=TP2[0])
    said += posts(by=TP2[1])[:1] + fails(27, "transfer_setup_failed", "NIXL_ERR", number=1, by=TP2[1])
    said += [(D_WORKER, ev.NotificationDrained(ms(35), D, TP2[0].nixl_agent, 2))]
    return [*said, (D_WORKER, ev.NotificationCounted(ms(36), D, 1, 2, 1))]


def handshake_outlasts_the_lease() -> Said:
    said = registers(200) + prefills(220) + matches(1 * S)
    said += [(P_WORKER, ev.TransferDeferred(ms(1 * S + 1), P, D_ENGINE))]
    return [*said, *expires(31 * S), (P_WORKER, ev.TransferResumed(ms(45 * S), P)), *posts(45 * S)]


def a_stage_is_missing() -> Said:
    said = [x for rank in D2 for x in registers(ranks=(2, 2), drained=False, worker=rank)]
    return [*said, *((rank, ev.NotificationCounted(ms(40), D, 1, 2, 2)) for rank in D2)]


def the_stage_comes() -> Said:
    """Ten seconds later."""
    said: Said = [(rank, ev.NotificationCounted(ms(10 * S), D, 2, 2, 2)) for rank in D2]
    said += [(rank, ev.ReceiveDone(ms(10 * S + 1), D)) for rank in D2]
    said += [(D_ALONE[0], ev.ReceiveFinished(ms(10 * S + 2), D))]
    return [*said, (D_ALONE[0], ev.DecodeScheduled(ms(10 * S + 3), D))]


def sent_to_localhost(answered: str) -> Said:
    error = f"RuntimeError('Remote NIXL agent engine ID mismatch. Expected engine-p,received {answered}.')"
    failed = ev.RegistrationFailed(ms(60), D, 0, 0, False, "push_reg_handshake_failed", error)
    return [*registers(host="localhost", drained=False)[:3], (D_WORKER, failed)]


def a_partial_hit() -> Said:
    """P has ten blocks, D registers four. Which of P's are written is in no event."""
    return [*registers(), *prefills(tokens=300), *matches(), *posts(), *done(28), *received(30)]


def no_telemetry() -> Said:
    failed = fails(60, "transfer_exception", "telemetry: no", number=1, by=D_WORKER, request=D)
    return pull(*READ, *failed, (D_WORKER, ev.ReceiveFailed(ms(61), D)))


SMALL_INPUTS: dict[int, Course] = {
    1: Course("heartbeat_id_mismatch", queued_past_the_lease(), begins_s=0.03, lease="whole"),
    2: Course(
        "aborted_requests_pin_blocks",
        registers(blocks=211, drained=False) + aborted(3 * S),
        origins=D_SIDE,
    ),
    3: Course("write_not_posted", one_rank_cannot_post(), origins=P_TP2),
    5: Course("write_after_lease", handshake_outlasts_the_lease()),
    6: Course(
        "notify_only_entries_leak",
        rejected(1000, 10) + growing(D_WORKER, 200, "receiving", 100, 1000),
        begins_s=0.2,
        lease="pile",
    ),
    8: Course("notifications_missing", a_stage_is_missing(), origins=D_ALONE),
    9: Course(
        "serial_router",
        [x for n in range(20) for x in late_by(f"r{n}", n * 100, 20 + n * 1.5)],
        begins_s=0.0,
    ),
    10: Course("loopback_side_channel", sent_to_localhost(D_ENGINE), origins=D_SIDE),
    11: Course(
        "block_sizes_differ",
        MET + fails(60, "push_handshake_failed", "AssertionError()"),
        origins=other_hosts(d="host", block_size=(32, 16)),
    ),
    17: Course("telemetry_missing", no_telemetry(), origins=PULLING),
}
"""All but one, which no event tells."""
