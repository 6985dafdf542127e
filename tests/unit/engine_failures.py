"""Failures of engines as event lists: the pieces, and for each row of the failure modes a list that yields its code.

Times are milliseconds, as in :mod:`.scenario`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pushscope.telemetry import events as ev

from .named_after import Course
from .scenario import (
    D_ENGINE,
    D_SCHEDULER,
    D_WORKER,
    ORIGINS,
    P_ENGINE,
    P_SCHEDULER,
    P_WORKER,
    Said,
    delivered,
    ms,
    only,
    until,
)

S = 1000.0
Origins = tuple[ev.Origin, ...]


def at(o: ev.Origin, **changes: object) -> ev.Origin:
    return msgspec.structs.replace(o, **changes)


def again(o: ev.Origin, t: float, **changes: object) -> ev.Origin:
    """The instance that has the place of another since ``t``."""
    agent = f"{o.nixl_agent}-{t}" if o.nixl_agent else ""
    begun = {"instance": f"{o.instance}-{t}", "anchor_monotonic_ns": ms(t), "nixl_agent": agent, "pid": 300}
    return at(o, **(begun | changes))


def waiting(base: str = "cmpl-w", t: float = 0.0) -> Said:
    """D has registered, P has the registration and no prefill."""
    return [x for x in until(delivered(base, t), ev.BlocksStaged) if x[0] is not P_SCHEDULER]


def unclaimed(base: str = "cmpl-u", t: float = 0.0) -> Said:
    """P has finished a prefill, nobody registers."""
    return [
        x for x in only(delivered(base, t), P_SCHEDULER, P_WORKER) if x[1].t < ms(t + 23) and _is_p_s(x[1])
    ]


def _is_p_s(event: ev.Event) -> bool:
    return not isinstance(event, ev.RegistrationDrained)


def sizes(o: ev.Origin, until_s: int, **tables: int) -> Said:
    """A table's size, said once a second."""
    return [(o, ev.Tables(ms(n * S), **tables)) for n in range(until_s + 1)]


BROKEN = (
    P_WORKER,
    ev.WriterException(ms(100), "_do_start_push_kv", "cmpl-w-aaaaaaaa", 0, "KeyError('a bug')"),
)


def matched() -> Said:
    return until(delivered("cmpl-w"), ev.DescriptorsStarted)


DEAD = (P_SCHEDULER, ev.ListenerDead(ms(1000), "KeyError((0, 7))"))
HERE = at(P_SCHEDULER, side_channel="10.0.0.1:5600")
D2_WORKER = at(D_WORKER, engine_id="engine-d2", instance="engine-d2-worker", nixl_agent="agent-d2", pid=201)
D2_SCHEDULER = at(D_SCHEDULER, engine_id="engine-d2", instance="engine-d2-scheduler", pid=201)


def handshake(
    peer: str, queued: float, started: float | None = None, ended: float | None = None, error=""
) -> Said:
    said: Said = [(D_WORKER, ev.HandshakeQueued(ms(queued), peer, f"host-of-{peer}", 5600))]
    if started is not None:
        said.append((D_WORKER, ev.HandshakeStarted(ms(started), peer)))
    if ended is not None:
        kind = error.partition("(")[0]
        ranks = 0 if error else 1
        said.append((D_WORKER, ev.HandshakeEnded(ms(ended), peer, ms(started or 0), ranks, 0.0, kind, error)))
    return said


TIMED_OUT = "Again('Resource temporarily unavailable')"
KNOWN = (D_WORKER, ev.PeerRank(ms(5), P_ENGINE, 0, 0, P_WORKER.nixl_agent))
RESTARTED = (*ORIGINS, again(P_SCHEDULER, 10 * S), again(P_WORKER, 10 * S))


def ended(base: str, t: float) -> Said:
    return [(D_SCHEDULER, ev.RequestEnded(ms(t), f"{base}-bbbbbbbb", "finished_aborted"))]


def rejected(count: int, every: float = 1.0) -> Said:
    """D ends requests, one every so many milliseconds, before it schedules them."""
    said: Said = []
    for n in range(count):
        r, t = f"r{n}-bbbbbbbb", n * every
        said += [
            (D_SCHEDULER, ev.RequestArrived(ms(t), r, "decode", P_ENGINE)),
            (D_SCHEDULER, ev.NothingToReceive(ms(t), r, "not_scheduled")),
            (D_SCHEDULER, ev.RequestEnded(ms(t), r, "finished_aborted")),
        ]
    return said


def steps(o: ev.Origin, until_s: int, *, has_work: bool = True) -> Said:
    """What an engine says once a second as long as it makes steps."""
    return [(o, ev.Loop(ms(n * S), 30, 1000, 100, has_work)) for n in range(until_s + 1)]


def growing(o: ev.Origin, until_s: int, table: str, by: float, most: int) -> Said:
    return [(o, ev.Tables(ms(n * S), **{table: min(most, int(n * by))})) for n in range(until_s + 1)]


def died(where: str, error: str, o: ev.Origin = D_SCHEDULER) -> Said:
    return [(o, ev.ConnectorRaised(ms(1000), where, error))]


WRONG = "RuntimeError('Remote NIXL agent engine ID mismatch. Expected {},received {}.')"


def refused(error: str, host: str = "10.0.0.1", peer: str = P_ENGINE, t: float = 1000) -> Said:
    kind = error.partition("(")[0]
    return [
        (D_WORKER, ev.HandshakeQueued(ms(t - 10), peer, host, 5600)),
        (D_WORKER, ev.HandshakeStarted(ms(t - 9), peer)),
        (D_WORKER, ev.HandshakeEnded(ms(t), peer, ms(t - 9), 0, 0.0, kind, error)),
    ]


HASHES = "RuntimeError('NIXL compatibility hash mismatch. Local: 8f2, Remote: 77a. Prefill and decode"
BLOCKS = "AssertionError('Local block size 32 is not divisible by remote block size 128 or vice versa.')"


def late_by(base: str, t: float, wait: float) -> Said:
    """P has finished, D registers ``wait`` ms later."""
    whole = delivered(base, t, blocks_first=True)
    after = {ev.RequestArrived, ev.PrefillScheduled, ev.BlocksStaged, ev.BlocksHandedOff, ev.BlocksPickedUp}
    return [
        (
            o,
            e
            if type(e) in after and o in ORIGINS[:2]
            else msgspec.structs.replace(e, t=e.t + int(wait * 1e6)),
        )
        for o, e in whole
    ]


def slow_at(base: str, t: float, kind: type[ev.Event], by_ms: float, num_bytes: int = 4096) -> Said:
    """A transfer that takes so much longer from an event of ``kind`` on."""
    whole = delivered(base, t)
    begin = min(e.t for _, e in whole if isinstance(e, kind))
    return [
        (
            o,
            msgspec.structs.replace(
                e,
                **({"t": e.t + int(by_ms * 1e6)} if e.t >= begin else {}),
                **({"num_bytes": num_bytes} if isinstance(e, ev.TransferDone) else {}),
            ),
        )
        for o, e in whole
    ]


MIB = 1 << 20


# -- the table ------------------------------------------------------------------------------------------


def each_of(count: int, piece: Callable[[int], Said]) -> Said:
    return [x for n in range(count) for x in piece(n)]


BATCH_LOST = (
    P_WORKER,
    ev.WriterException(ms(100), "_handle_push_reg_notif", "other", 2, "AssertionError()"),
)
P_RESTARTED = tuple(o.instance for o in ORIGINS[:2])
PILE = {"begins_s": 20.0, "lease": "pile"}

ENGINE_FAILURES: dict[str, Course] = {
    "A8": Course(
        "writer_exception",
        [
            *until(waiting("cmpl-1"), ev.RegistrationDrained),
            *until(waiting("cmpl-2"), ev.RegistrationDrained),
            BATCH_LOST,
        ],
    ),
    "A14": Course("handshake_listener_dead", [*delivered(), DEAD]),
    "A16": Course(
        "handshake_queue_blocked",
        [
            *handshake("dead", 0, 1, 5001, TIMED_OUT),
            *handshake("dead", 6000, 6001),
            *handshake(P_ENGINE, 6002),
            (D_SCHEDULER, ev.RegistrationStaged(ms(5990), "r-bbbbbbbb", P_ENGINE, "h", 5600)),
        ],
    ),
    "A17": Course(
        "stale_agent_after_restart",
        [KNOWN, *until(waiting(t=11 * S), ev.RegistrationDrained)],
        begins_s=10.0,
        origins=RESTARTED,
        gone=P_RESTARTED,
    ),
    "B1": Course("aborted_requests_pin_blocks", [*waiting("a"), *ended("a", 3 * S)]),
    "B5": Course(
        "notify_only_entries_leak",
        [*rejected(100, S), *growing(D_WORKER, 60, "receiving", 1, 100)],
        **PILE,
    ),
    "B6": Course(
        "stale_registrations_pile_up",
        [
            *each_of(60, lambda n: delivered(f"r{n}", n * S, blocks_first=True)),
            *growing(P_WORKER, 60, "unmatched_registrations", 1, 100),
        ],
        **PILE,
    ),
    "B13": Course(
        "polling_for_unmatched",
        unclaimed() + sizes(P_WORKER, 40, unmatched_blocks=1),
        lease="half",
    ),
    "D1": Course(
        "incomplete_transfer_params",
        died("update_state_after_alloc", "KeyError('remote_engine_id')"),
        gone=(D_ENGINE,),
    ),
    "D2": Course(
        "engine_main_thread_exception",
        died("start_load_kv", "AssertionError('num_decode_blocks 4 > 3')"),
        gone=(D_ENGINE,),
    ),
    "D3": Course(
        "engine_main_thread_exception",
        died("get_transfer_results", "ValueError('not enough values to unpack (expected 2, got 1)')"),
        gone=(D_ENGINE,),
    ),
    "F1": Course("serial_router", each_of(20, lambda n: late_by(f"r{n}", n * 100, 20 + n)), begins_s=0.0),
    "F5": Course(
        "writer_busy", each_of(40, lambda n: slow_at(f"r{n}", n * 250, ev.Submitted, 220)), begins_s=0.0
    ),
}
"""By row."""

OF_NO_ROW = (
    Course("peer_unreachable", [*refused(TIMED_OUT), *until(waiting(), ev.RegistrationSent)]),
    Course("engine_stopped", waiting(), stopped=(P_ENGINE,)),
    Course("engine_silent", [*waiting(), *steps(D_SCHEDULER, 0)]),
)
