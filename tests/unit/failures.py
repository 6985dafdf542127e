"""Failures of transfers as short event lists: for each code one that yields it, and one that nearly does.

Times are milliseconds, as in :mod:`.scenario`; ``at_s`` is when somebody looks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from faults.result import Wait

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.model import Diagnosis
from pushscope.telemetry.watch import Watcher

from .named_after import Course, at_their_places
from .scenario import (
    D_ENGINE,
    D_SCHEDULER,
    D_WORKER,
    ORIGINS,
    P_ENGINE,
    P_SCHEDULER,
    P_WORKER,
    ListSource,
    Said,
    delivered,
    ms,
    only,
    origin,
    reading,
    until,
)

P, D = "cmpl-r-aaaaaaaa", "cmpl-r-bbbbbbbb"
S = 1000.0
P_SIDE, D_SIDE = (P_SCHEDULER, P_WORKER), (D_SCHEDULER, D_WORKER)


def diagnosed(
    said: Said,
    at_s: float,
    origins: tuple[ev.Origin, ...] = ORIGINS,
    *,
    gone: tuple[str, ...] = (),
    usual: int = 0,
) -> tuple[Diagnosis, ...]:
    """What a watcher of all this says of transfers at ``at_s``; ``origins``: the engines as they are to be."""
    said, before = at_their_places(said, origins), as_usual(usual)
    readings = [reading(before, -30_000), reading(said, at_s * 1000, origins, gone=gone)]
    watcher = Watcher(ListSource(readings if usual else readings[1:]))
    watcher.run_to_end()
    return tuple(d for d in watcher.snapshot().diagnoses if d.attempt)


def as_usual(count: int) -> Said:
    """So many transfers were delivered a minute before, each in some milliseconds."""
    return [each for n in range(count) for each in delivered(f"usual-{n}", -60_000)]


# -- pieces -------------------------------------------------------------------------------------------


def stepping(until_s: float, *, at_p: bool = True) -> Said:
    """An engine at work says something once a second."""
    worker = P_WORKER if at_p else D_WORKER
    return [(worker, ev.Loop(ms(t * 1000), 10, 1000, 100, True)) for t in range(1, int(until_s) + 1)]


def registers(
    at: float = 10.0,
    *,
    d: str = D,
    named: str = "cmpl-r",
    host: str = "10.0.0.7",
    tokens: int = 100,
    blocks: int = 4,
    ranks: tuple[int, int] = (1, 1),
    drained: bool = True,
    worker: ev.Origin = D_WORKER,
    by: ev.Origin = P_WORKER,
) -> Said:
    """D registers with P's rank 0; ``ranks`` is P's tensor- and pipeline-parallel size."""
    said: Said = [
        (D_SCHEDULER, ev.RequestArrived(ms(at - 5), d, "decode", P_ENGINE, named)),
        (D_SCHEDULER, ev.RegistrationStaged(ms(at), d, P_ENGINE, host, 5600, *ranks, tokens, blocks)),
        (worker, ev.RegistrationHandedOff(ms(at + 0.5), d)),
        (worker, ev.RegistrationSent(ms(at + 1), d, by.pp_rank, by.tp_rank, by.nixl_agent)),
    ]
    return said + heard(at + 3, d=d, host=host, worker=worker, by=by) if drained else said


def heard(
    at: float,
    *,
    d: str = D,
    host: str = "10.0.0.7",
    worker: ev.Origin = D_WORKER,
    by: ev.Origin = P_WORKER,
) -> Said:
    """A P rank drains D's registration."""
    drained = ev.RegistrationDrained(ms(at), d, D_ENGINE, host, 5700, worker.tp_size, 4, worker.nixl_agent)
    return [(by, drained)]


def prefills(
    at: float = 20.0, *, p: str = P, tokens: int = 100, lease_s: float = 30.0, by: ev.Origin = P_WORKER
) -> Said:
    """P computes, and its writer has the blocks."""
    return [
        (P_SCHEDULER, ev.RequestArrived(ms(at - 15), p, "prefill")),
        (P_SCHEDULER, ev.PrefillScheduled(ms(at - 10), p, tokens)),
        (P_SCHEDULER, ev.BlocksStaged(ms(at), p, 4, tokens, lease_s)),
        (P_SCHEDULER, ev.RequestEnded(ms(at), p, "finished_length_capped")),
        (by, ev.BlocksHandedOff(ms(at + 1), p, 4)),
        (by, ev.LeaseSet(ms(at + 1), p, lease_s)),
        (by, ev.BlocksPickedUp(ms(at + 2), p)),
    ]


def matches(
    at: float = 23.0, *, p: str = P, d: str = D, by: ev.Origin = P_WORKER, blocks_first: bool = False
) -> Said:
    return [(by, ev.Matched(ms(at), p, d, blocks_first, "base_id", D_ENGINE))]


def posts(
    at: float = 25.0, *, p: str = P, d: str = D, number: int = 1, to: int = 0, by: ev.Origin = P_WORKER
) -> Said:
    return [
        (by, ev.DescriptorsStarted(ms(at), p, number, to, D_ENGINE, d)),
        (by, ev.DescriptorsBuilt(ms(at + 1), p, number, 16)),
        (by, ev.SubmitStarted(ms(at + 2), p, number)),
        (by, ev.Submitted(ms(at + 3), p, number, "PROC")),
    ]


def fails(
    at: float,
    error_type: str,
    error: str = "",
    *,
    number: int = 0,
    by: ev.Origin = P_WORKER,
    request: str = P,
) -> Said:
    return [(by, ev.TransferFailed(ms(at), request, number, error_type, error))]


def done(at: float, *, number: int = 1, by: ev.Origin = P_WORKER, request: str = P) -> Said:
    return [(by, ev.TransferDone(ms(at), request, number, 4096, 4, 10, 20))]


def aborted(at: float, *, d: str = D) -> Said:
    return [(D_SCHEDULER, ev.RequestEnded(ms(at), d, "finished_aborted"))]


def expires(at: float, *, p: str = P, by: ev.Origin = P_WORKER) -> Said:
    return [(by, ev.LeaseExpired(ms(at), p)), (P_SCHEDULER, ev.SendFinished(ms(at + 1), p))]


def received(at: float, *, d: str = D) -> Said:
    return [
        (D_WORKER, ev.ReceiveDone(ms(at), d)),
        (D_SCHEDULER, ev.ReceiveFinished(ms(at), d)),
        (D_SCHEDULER, ev.DecodeScheduled(ms(at + 1), d)),
    ]


MET = registers() + prefills() + matches()
TP2 = tuple(origin(P_ENGINE, "worker", tp=tp, tp_size=2) for tp in (0, 1))
P_TP2 = (origin(P_ENGINE, "scheduler", tp_size=2), *TP2, *D_SIDE)
D2 = tuple(origin(D_ENGINE, "worker", tp=tp, tp_size=2) for tp in (0, 1))
D_TP2 = (*P_SIDE, origin(D_ENGINE, "scheduler", tp_size=2), *D2)


def pull(*said: tuple[ev.Origin, ev.Event]) -> Said:
    """Pull: P has the blocks, D reads; then what is given."""
    return [
        *prefills()[:4],
        (P_WORKER, ev.LeaseSet(ms(21), P, 30.0)),
        (D_SCHEDULER, ev.RequestArrived(ms(40), D, "decode", P_ENGINE, P)),
        (D_SCHEDULER, ev.ReadStaged(ms(45), D, P_ENGINE, 1, 1, 100, 4)),
        (D_WORKER, ev.ReadHandedOff(ms(46), D)),
        *said,
    ]


READ = posts(50, p=D, d=P, by=D_WORKER)


def other_hosts(
    *, d: str = "host-d", p: str = "host", block_size: tuple[int, int] = (0, 0)
) -> tuple[ev.Origin, ...]:
    """The same engines on two hosts, or with two block sizes."""
    hosts, sizes = {P_ENGINE: p, D_ENGINE: d}, dict(zip((P_ENGINE, D_ENGINE), block_size, strict=True))
    return tuple(
        msgspec.structs.replace(o, host=hosts[o.engine_id], block_size=sizes[o.engine_id]) for o in ORIGINS
    )


# -- the table ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    said: Said
    at_s: float
    sentence: str
    """A part of what must be said."""
    near: Said
    """What looks like it and isn't."""
    near_s: float = 0.0
    """When somebody looks at that; 0: at the same time."""
    origins: tuple[ev.Origin, ...] = ORIGINS
    near_origins: tuple[ev.Origin, ...] = ()
    gone: tuple[str, ...] = ()
    certain: bool = True
    usual: int = 0
    """So many transfers were delivered before, each in some milliseconds."""
    after: tuple[str, ...] = field(default=())
    """The causes that are told before it."""
    begins_s: float | None = None
    """When it begins; None: with the last thing that happens."""
    lease: Wait = ""
    """What must have run out before it can be known."""

    def course(self, code: str) -> Course:
        """As it goes on, to be named ``code``."""
        said = as_usual(self.usual) + self.said
        return Course(code, said, self.begins_s, self.lease, self.origins, self.gone)


def _mismatch(received: str) -> str:
    return f"RuntimeError('Remote NIXL agent engine ID mismatch. Expected engine-x,received {received}.')"


FAILURES: dict[str, Failure] = {
    "registration_without_prefill": Failure(
        registers() + stepping(7),
        7,
        "P has had the registration for 7 s, and no prefill",
        # P has it queued
        [*registers(), (P_SCHEDULER, ev.RequestArrived(ms(8), P, "prefill")), *stepping(7)],
    ),
    "write_not_posted": Failure(
        MET + posts()[:1] + fails(26, "transfer_setup_failed", "NIXL_ERR_BACKEND", number=1),
        2,
        "1 of 1 WRITEs of P could not be posted (tp0: transfer_setup_failed: NIXL_ERR_BACKEND), and D has waited 2 s",
        MET + posts(),
    ),
    "reverse_handshake_failed": Failure(
        MET + fails(60, "push_handshake_failed", "Again('timed out')"),
        2,
        "P's handshake with D at 10.0.0.7:5700, which D advertises, failed on tp0 (Again('timed out'))",
        [*MET, (P_WORKER, ev.TransferDeferred(ms(60), P, D_ENGINE))],
    ),
    "handshake_failed": Failure(
        [
            *registers(drained=False)[:3],
            (D_WORKER, ev.RegistrationFailed(ms(60), D, 0, 0, False, "push_reg_handshake_failed", "Again()")),
            (D_WORKER, ev.ReceiveFailed(ms(61), D)),
            (D_SCHEDULER, ev.RequestEnded(ms(62), D, "finished_error")),
        ],
        1,
        "D's handshake with P at 10.0.0.7:5600, as the router named it, failed (Again()), so D could not register",
        registers(drained=False)[:3],
    ),
    "write_never_finished": Failure(
        MET + posts() + stepping(20) + stepping(20, at_p=False),
        20,
        "P posted a WRITE between P's tp0 and D's tp0 that neither ends nor fails: it has been in progress for 20 s",
        MET + posts() + done(28) + received(30),
    ),
    "write_failed": Failure(
        MET + posts() + fails(40, "transfer_failed", "NIXL reports ERR", number=1),
        1,
        "1 of 1 WRITEs of P failed on the way (tp0: transfer_failed: NIXL reports ERR)",
        # the poll failed, and D has its blocks all the same
        MET + posts() + fails(40, "transfer_exception", "poll", number=1) + received(50),
    ),
    "notifications_missing": Failure(
        [
            *registers(ranks=(2, 1), drained=False),
            (D_WORKER, ev.NotificationDrained(ms(40), D, TP2[0].nixl_agent, 2)),
            (D_WORKER, ev.NotificationCounted(ms(41), D, 1, 2, 1)),
        ],
        20,
        "D waits for 1 of 2 completions: D's tp0 has 1 of 2",
        [
            *registers(ranks=(2, 1), drained=False),
            (D_WORKER, ev.NotificationDrained(ms(40), D, TP2[0].nixl_agent, 2)),
            (D_WORKER, ev.NotificationCounted(ms(41), D, 1, 2, 1)),
            (D_WORKER, ev.NotificationCounted(ms(42), D, 2, 2, 1)),
            *received(43),
        ],
        origins=D_SIDE,
        certain=False,
    ),
    "early_notification_dropped": Failure(
        registers(worker=D2[0])
        + prefills()
        + matches()
        + posts()
        + posts(30, number=2, to=1)
        + [
            (D2[0], ev.NotificationCounted(ms(40), D, 1, 1, 1)),
            (D2[1], ev.NotificationUnrecognised(ms(40), D)),
            (D2[1], ev.RegistrationHandedOff(ms(45), D)),
        ],
        5,
        "D's tp1 threw away P's completion because it came before that rank had the request",
        [
            *registers(worker=D2[0]),
            (D2[1], ev.RegistrationHandedOff(ms(15), D)),
            (D2[1], ev.NotificationCounted(ms(40), D, 1, 1, 1)),
        ],
        origins=D_TP2,
    ),
    "registration_lost_to_rank": Failure(
        [
            *registers(ranks=(2, 1), by=TP2[0]),
            (D_WORKER, ev.RegistrationFailed(ms(12), D, 0, 1, True, "push_reg_notif_failed", "gone")),
        ],
        5,
        "D's registration could not be sent to P's tp1 (push_reg_notif_failed: gone)",
        registers(ranks=(2, 1), by=TP2[0]) + registers(ranks=(2, 1), by=TP2[1]),
        near_s=1,
        origins=P_TP2,
    ),
    "registration_lost": Failure(
        registers(drained=False) + stepping(7),
        7,
        "D sent its registration to P's tp0 7 s ago; it has not come out there: P has made steps since",
        registers(drained=False),  # an idle P drains nothing
        certain=False,
    ),
    "heartbeat_id_mismatch": Failure(
        [
            *prefills(lease_s=30.0),
            (D_SCHEDULER, ev.RequestArrived(ms(25), D, "decode", P_ENGINE, "cmpl-r")),
            *expires(30 * S + 20),
            *registers(42 * S)[1:],
        ],
        43,
        "P's lease on the blocks ended 30 s after the prefill, D registered 12 s later and waits for ever: its "
        "heartbeats could not renew the lease, since they name 'cmpl-r', as the router told D, and P knows the "
        "request as 'cmpl-r-aaaaaaaa'",
        # in time, whatever its heartbeats name
        [
            *prefills(),
            (D_SCHEDULER, ev.RequestArrived(ms(25), D, "decode", P_ENGINE, "cmpl-r")),
            *registers(10 * S)[1:],
            *matches(10 * S + 5),
            *posts(10 * S + 6),
            *received(10 * S + 20),
        ],
        begins_s=0.025,
        lease="whole",
    ),
    "lease_over_before_decode": Failure(
        prefills() + expires(30 * S + 20) + registers(42 * S, named=P),
        43,
        "P's lease on the blocks ended 30 s after the prefill, D registered 12 s later and waits for ever",
        prefills() + registers(20 * S, named=P),
        near_s=21,
    ),
    "request_ids_differ": Failure(
        registers(d="cmpl-x-bbbbbbbb") + prefills() + stepping(8),
        8,
        "The two legs have different ids: D waits for 'cmpl-x-bbbbbbbb', P for D's registration of 'cmpl-r-aaaaaaaa'",
        # of another prompt
        registers(d="cmpl-x-bbbbbbbb", tokens=77) + prefills() + stepping(8),
    ),
    "registered_again_after_preemption": Failure(
        [
            *prefills(),
            (D_SCHEDULER, ev.RequestArrived(ms(30), D, "decode", P_ENGINE, P)),
            (D_SCHEDULER, ev.NothingToReceive(ms(40), D, "no_external_tokens")),
            (D_SCHEDULER, ev.RequestPreempted(ms(20 * S), D)),
            *expires(31 * S),
            *registers(40 * S)[1:],
        ],
        42,
        "D had needed nothing from P, was preempted, and has registered for the prompt 2 s ago: it waits for ever. P "
        "released the blocks 11 s ago.",
        # P still has them
        [
            *prefills(),
            (D_SCHEDULER, ev.NothingToReceive(ms(40), D, "no_external_tokens")),
            *registers(10 * S)[1:],
        ],
        near_s=11,
    ),
    "nothing_to_push": Failure(
        [*MET, (P_WORKER, ev.NothingToPush(ms(30), P))],
        2,
        "P had no blocks left to write for this request, and D has waited 2 s for it",
        MET + posts(),
    ),
    "watchdog_fired": Failure(
        [*registers(drained=False), (D_SCHEDULER, ev.WatchdogFired(ms(8 * S), D))],
        10,
        "D's watchdog fired 2 s ago and changed nothing: D has waited 10 s.",
        [*registers(drained=False), (D_SCHEDULER, ev.WatchdogFired(ms(8 * S), D)), *received(9 * S)],
        origins=D_SIDE,
        certain=False,
    ),
    "unsupported_tp_pair": Failure(
        registers(worker=D2[0])
        + prefills()
        + matches()
        + fails(40, "push_handshake_failed", "AssertionError()"),
        2,
        "P has tensor-parallel size 1, D 2, which this model's KV heads don't allow",
        MET + fails(40, "push_handshake_failed", "AssertionError()"),
        origins=D_TP2,
        near_origins=ORIGINS,
    ),
    "push_abandoned": Failure(
        [*MET, (P_WORKER, ev.WriterException(ms(24), "_do_start_push_kv", P, 0, "KeyError('x')"))],
        4,
        "P's push writer failed on this push (_do_start_push_kv on tp0 raised KeyError('x'))",
        # of another request
        [
            *MET,
            (
                P_WORKER,
                ev.WriterException(ms(24), "_do_start_push_kv", "cmpl-o-cccccccc", 0, "KeyError('x')"),
            ),
        ],
    ),
    "prefill_unclaimed": Failure(
        prefills(),
        16,
        "P has held 4 blocks (100 tokens) for 16 s, and no decode has claimed them",
        [*prefills(), (D_SCHEDULER, ev.RequestArrived(ms(30), D, "decode", P_ENGINE, P))],  # queued at D
        lease="half",
    ),
    "heartbeats_keep_failed_push": Failure(
        [
            *MET,
            *fails(40, "push_handshake_failed", "x"),
            (P_WORKER, ev.LeaseExtended(ms(5 * S), P, 20.0)),
        ],
        6,
        "D's heartbeats keep P's blocks of a push that failed 6 s ago: they renewed the lease 1 s ago",
        [*MET, (P_WORKER, ev.LeaseExtended(ms(35), P, 20.0)), *fails(40, "push_handshake_failed", "x")],
        after=("reverse_handshake_failed",),
    ),
    "full_hit_held_until_lease": Failure(
        [*prefills(), (D_SCHEDULER, ev.NothingToReceive(ms(40), D, "no_external_tokens"))],
        6,
        "D needed none of P's 4 blocks; P, which push doesn't tell, has held them for 6 s",
        prefills(),
    ),
    "siblings_unclaimed": Failure(
        prefills(p="1_cmpl-r-aaaaaaaa"),
        16,
        "for 16 s, choice 1 of a request with n > 1, and no decode has claimed them",
        prefills(),
        lease="half",
    ),
    "expired_lease_not_reaped": Failure(
        prefills() + stepping(50),
        50,
        "P's lease ended 20 s ago; P makes steps and has not let the blocks go",
        prefills() + stepping(30),  # it has not stepped since
        near_s=50,
        after=("prefill_unclaimed",),
        begins_s=30.02,
    ),
    "finished_write_held_until_lease": Failure(
        MET + posts() + done(60) + received(70) + expires(30 * S + 20),
        31,
        "Every WRITE was done, the last 30 s before P's lease ended",
        MET + posts() + done(60) + received(70) + [(P_SCHEDULER, ev.SendFinished(ms(80), P))],
        lease="whole",
    ),
    "partial_post_untracked": Failure(
        registers(worker=D2[0])
        + prefills()
        + matches()
        + posts()
        + [
            (P_WORKER, ev.DescriptorsStarted(ms(30), P, 2, 1, D_ENGINE, D)),
            (P_WORKER, ev.WriterException(ms(31), "_xfer_blocks_for_req", P, 0, "KeyError(1)")),
        ],
        4,
        "1 WRITEs of P's tp0 are under way and tracked by nobody: _xfer_blocks_for_req raised KeyError(1)",
        registers(worker=D2[0]) + prefills() + matches() + posts() + posts(30, number=2, to=1),
        origins=D_TP2,
    ),
    "write_to_untracked_request": Failure(
        MET
        + posts()
        + aborted(40)
        + [(D_WORKER, ev.ReceiveFailed(ms(45), D)), (D_WORKER, ev.NotificationUnrecognised(ms(60), D))],
        2,
        "A WRITE of P landed on D's tp0 20.0 ms after D had done with the request",
        MET + posts() + [(D_WORKER, ev.NotificationCounted(ms(35), D, 1, 1, 1))] + aborted(40),
    ),
    "lease_ended_during_write": Failure(
        MET + posts() + expires(30 * S + 20) + done(33 * S) + received(32 * S),
        33.5,
        "P's tp0 let the blocks go 3 s before the WRITE from them was done",
        # D had its notification; only P's poll came late
        [
            *MET,
            *posts(),
            (D_WORKER, ev.NotificationDrained(ms(29 * S), D, P_WORKER.nixl_agent, 1)),
            *received(29 * S + 1),
            *expires(30 * S + 20),
            *done(33 * S),
        ],
        begins_s=0.028,
        lease="whole",
    ),
    "write_after_lease": Failure(
        [
            *MET,
            (P_WORKER, ev.TransferDeferred(ms(24), P, D_ENGINE)),
            *expires(31 * S),
            (P_WORKER, ev.TransferResumed(ms(45 * S), P)),
            *posts(45 * S),
        ],
        46,
        "P's tp0 posted a WRITE 14 s after its lease had ended",
        MET + posts() + done(28) + received(30),
    ),
    "retry_met_older_registration": Failure(
        registers()
        + aborted(1 * S)
        + registers(2 * S, d="cmpl-r-dddddddd")
        + prefills(2.5 * S, p="cmpl-r-cccccccc")
        + matches(2.6 * S, p="cmpl-r-cccccccc")
        + posts(2.7 * S, p="cmpl-r-cccccccc"),
        9,
        "P pushed the blocks of attempt 2 to attempt 1 of its id",
        # the retry met its own
        registers()
        + aborted(1 * S)
        + registers(2 * S, d="cmpl-r-dddddddd")
        + prefills(2.5 * S, p="cmpl-r-cccccccc")
        + matches(2.6 * S, p="cmpl-r-cccccccc", d="cmpl-r-dddddddd")
        + posts(2.7 * S, p="cmpl-r-cccccccc", d="cmpl-r-dddddddd"),
    ),
    "concurrent_requests_share_id": Failure(
        registers()
        + prefills()
        + matches()
        + posts()
        + registers(30, d="cmpl-r-dddddddd")
        + prefills(50, p="cmpl-r-cccccccc")
        + matches(60, p="cmpl-r-cccccccc", d="cmpl-r-dddddddd")
        + posts(65, p="cmpl-r-cccccccc", d="cmpl-r-dddddddd", number=2),
        5,
        "are under way at once and are one to P's matcher; so far they were paired in order",
        MET + posts(),
        after=("write_never_finished",),
    ),
    "read_after_lease": Failure(
        pull(*READ, *expires(31 * S), *done(32 * S, by=D_WORKER, request=D)),
        33,
        "P's lease ended and it let the blocks go; D's tp0 was still reading 1 s after that",
        pull(*READ, *done(20 * S, by=D_WORKER, request=D), *expires(31 * S)),
        begins_s=0.053,
        lease="whole",
    ),
    "failed_receive_served": Failure(
        pull(
            *READ,
            *fails(60, "transfer_failed", "NIXL reports ERR", number=1, by=D_WORKER, request=D),
            *received(70),
            (P_SCHEDULER, ev.SendFinished(ms(80), P)),
        ),
        1,
        "D's READ on tp0 failed (transfer_failed: NIXL reports ERR), that rank reported the blocks as received",
        pull(
            *READ,
            *fails(60, "transfer_failed", "NIXL reports ERR", number=1, by=D_WORKER, request=D),
            (D_WORKER, ev.ReceiveFailed(ms(70), D)),
        ),
    ),
    "lease_lost_on_arrival": Failure(
        [*prefills()[:5], (P_WORKER, ev.LeaseSet(ms(21), P, 2.0))],
        16,
        "P's tp0 holds the blocks for 2 s, where the scheduler set 30 s",
        [*prefills()[:5], (P_WORKER, ev.LeaseSet(ms(21), P, 29.9))],
        after=("prefill_unclaimed",),
    ),
    "computed_by_d": Failure(
        pull(
            *fails(60, "handshake_failed", "Again()", by=D_WORKER, request=D),
            (D_WORKER, ev.ReceiveFailed(ms(61), D)),
            (D_SCHEDULER, ev.RequestEnded(ms(900), D, "finished_length_capped")),
        ),
        1,
        "The receive failed (handshake_failed: Again()) and D went on: it computes the prompt itself",
        pull(
            *fails(60, "handshake_failed", "Again()", by=D_WORKER, request=D),
            (D_WORKER, ev.ReceiveFailed(ms(61), D)),
            (D_SCHEDULER, ev.RequestEnded(ms(62), D, "finished_error")),
        ),
        begins_s=0.061,
    ),
    "ranks_paired_differently": Failure(
        registers(ranks=(2, 1), by=TP2[0])
        + heard(15, by=TP2[1])
        + registers(20, ranks=(2, 1), d="cmpl-r-dddddddd", by=TP2[1])
        + heard(24, d="cmpl-r-dddddddd", by=TP2[0])
        + prefills(30, by=TP2[0])
        + prefills(30, by=TP2[1])[4:]
        + matches(40, by=TP2[0])
        + matches(40, d="cmpl-r-dddddddd", by=TP2[1]),
        5,
        "P's ranks pushed one prefill to different requests of this id",
        registers(ranks=(2, 1), by=TP2[0])
        + heard(15, by=TP2[1])
        + prefills(30, by=TP2[0])
        + prefills(30, by=TP2[1])[4:]
        + matches(40, by=TP2[0])
        + matches(40, by=TP2[1]),
        origins=P_TP2,
    ),
    "loopback_side_channel": Failure(
        registers(drained=False)
        + heard(13, host="localhost")
        + prefills()
        + matches()
        + fails(60, "push_handshake_failed", "Again()"),
        2,
        "A loopback address is no way to another host: P's handshake with D at localhost:5700",
        # on one host it is
        registers(drained=False)
        + heard(13, host="localhost")
        + prefills()
        + matches()
        + fails(60, "push_handshake_failed", "Again()"),
        origins=other_hosts(),
        near_origins=ORIGINS,
    ),
    "incompatible_engines": Failure(
        MET
        + fails(60, "push_handshake_failed", "RuntimeError('NIXL compatibility hash mismatch. Local: 1')"),
        2,
        "P and D differ in what must be alike",
        MET + fails(60, "push_handshake_failed", "RuntimeError('no')"),
    ),
    "engine_id_mismatch": Failure(
        [
            *registers(drained=False)[:3],
            (
                D_WORKER,
                ev.RegistrationFailed(
                    ms(60), D, 0, 0, False, "push_reg_handshake_failed", _mismatch("engine-y")
                ),
            ),
            (D_WORKER, ev.ReceiveFailed(ms(61), D)),
        ],
        1,
        "Another engine is there than the one that was named",
        # that of a loopback address is no other host's
        [
            *registers(drained=False, host="localhost")[:3],
            (
                D_WORKER,
                ev.RegistrationFailed(
                    ms(60), D, 0, 0, False, "push_reg_handshake_failed", _mismatch(D_ENGINE)
                ),
            ),
            (D_WORKER, ev.ReceiveFailed(ms(61), D)),
        ],
    ),
    "block_sizes_differ": Failure(
        MET + fails(60, "push_handshake_failed", "AssertionError()"),
        2,
        "P has blocks of 32 tokens, D of 16",
        MET + fails(60, "push_handshake_failed", "AssertionError()"),
        origins=other_hosts(d="host", block_size=(32, 16)),
        near_origins=other_hosts(d="host", block_size=(32, 32)),
    ),
    "telemetry_missing": Failure(
        pull(
            *READ,
            *fails(
                60, "transfer_exception", "telemetry: RuntimeError('no')", number=1, by=D_WORKER, request=D
            ),
            (D_WORKER, ev.ReceiveFailed(ms(61), D)),
        ),
        1,
        "this is no fault of the network, but D gives up a receive that went well",
        pull(
            *READ,
            *fails(60, "transfer_exception", "RuntimeError('no')", number=1, by=D_WORKER, request=D),
            (D_WORKER, ev.ReceiveFailed(ms(61), D)),
        ),
    ),
    "many_descriptors": Failure(
        [
            *MET,
            (P_WORKER, ev.DescriptorsStarted(ms(25), P, 1, 0, D_ENGINE, D)),
            (P_WORKER, ev.DescriptorsBuilt(ms(325), P, 1, 112_000)),
            (P_WORKER, ev.SubmitStarted(ms(325), P, 1)),
            (P_WORKER, ev.Submitted(ms(700), P, 1, "PROC")),
            (D_WORKER, ev.NotificationDrained(ms(900), D, P_WORKER.nixl_agent, 1)),
            (D_WORKER, ev.NotificationCounted(ms(901), D, 1, 1, 1)),
            *done(902),
            *received(905),
            (P_SCHEDULER, ev.SendFinished(ms(910), P)),
        ],
        2,
        "112,000 descriptors of 0 B took 675 ms to build and post",
        delivered(),
        begins_s=0.025,
    ),
    "cold_handshake": Failure(
        [*MET, (P_WORKER, ev.TransferDeferred(ms(24), P, D_ENGINE))],
        4,
        "P shakes hands with D for the first time and has been at it for 4 s",
        [
            *MET,
            (P_WORKER, ev.TransferDeferred(ms(24), P, D_ENGINE)),
            (P_WORKER, ev.TransferResumed(ms(124), P)),
            *posts(125),
        ],
    ),
    "handover_slow": Failure(
        prefills()
        + registers(9 * S)
        + matches(9 * S + 5, blocks_first=True)
        + posts(9 * S + 6)
        + [
            (D_WORKER, ev.NotificationDrained(ms(9 * S + 20), D, P_WORKER.nixl_agent, 1)),
            (D_WORKER, ev.NotificationCounted(ms(9 * S + 21), D, 1, 1, 1)),
        ]
        + done(9 * S + 22)
        + received(9 * S + 23)
        + [(P_SCHEDULER, ev.SendFinished(ms(9 * S + 30), P))],
        10,
        "went by in the stage rendezvous, where P waited for D",
        delivered(),
        begins_s=0.02,
    ),
    "slow_link": Failure(
        MET
        + posts()
        + [
            (D_WORKER, ev.NotificationDrained(ms(8 * S), D, P_WORKER.nixl_agent, 1)),
            (D_WORKER, ev.NotificationCounted(ms(8 * S + 1), D, 1, 1, 1)),
        ]
        + done(8 * S + 2)
        + received(8 * S + 3)
        + [(P_SCHEDULER, ev.SendFinished(ms(8 * S + 4), P))],
        10,
        "The blocks took 8 s on the wire",
        delivered(),
        usual=30,
        begins_s=0.028,
    ),
    "engine_gone": Failure(
        MET + posts(),
        5,
        "P is gone; D has waited",
        MET + posts(),
        near_s=1,
        gone=(P_ENGINE,),
        near_origins=ORIGINS,
    ),
    "waiting": Failure(
        [
            *MET,
            *posts(),
            (D_WORKER, ev.NotificationDrained(ms(30), D, P_WORKER.nixl_agent, 1)),
            (D_WORKER, ev.NotificationCounted(ms(31), D, 1, 1, 1)),
            (D_WORKER, ev.ReceiveDone(ms(32), D)),
            (D_SCHEDULER, ev.ReceiveFinished(ms(32), D)),
        ],
        9,
        "D has its blocks, and its scheduler has not run the request yet. It has been so for 9 s; P was last heard",
        [
            *MET,
            *posts(),
            (D_WORKER, ev.NotificationCounted(ms(31), D, 1, 1, 1)),
            *received(32),
        ],
    ),
}
"""By code."""

__all__ = ["D_SIDE", "FAILURES", "P_SIDE", "diagnosed", "only", "until"]
