"""Whole transfers, and failed ones, to make spans of: what both engines say, what is read of it, what is local."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.model import Diagnosis
from pushscope.telemetry.source import RingState
from pushscope.telemetry.spans.make import spans_of
from pushscope.telemetry.spans.model import Span
from pushscope.telemetry.spans.resource import origins_of

from .failures import (
    D2,
    D_TP2,
    FAILURES,
    MET,
    P_TP2,
    READ,
    TP2,
    D,
    P,
    aborted,
    done,
    expires,
    fails,
    heard,
    matches,
    posts,
    prefills,
    pull,
    received,
    registers,
)
from .scenario import (
    D_ENGINE,
    D_SCHEDULER,
    D_WORKER,
    ORIGINS,
    P_ENGINE,
    P_SCHEDULER,
    P_WORKER,
    Said,
    assembled,
    delivered,
    ms,
)

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = CALLER[:-2] + "00"
BOTH = frozenset({P_ENGINE, D_ENGINE})
AHEAD_NS = 1_700_000_000_000_000_000
Scene = tuple[Said, tuple[ev.Origin, ...]]


def arrives(
    at: float, *, n: int = 1, by: ev.Origin = D_WORKER, of: ev.Origin = P_WORKER, size: int = 1
) -> Said:
    """D's rank has a completion notification, and counts it."""
    return [
        (by, ev.NotificationDrained(ms(at), D, of.nixl_agent, size)),
        (by, ev.NotificationCounted(ms(at + 1), D, n, size, 1)),
    ]


def sent_on(at: float, *, p: str = P) -> Said:
    return [(P_SCHEDULER, ev.SendFinished(ms(at), p))]


def traced(said: Said, *, d: str = CALLER, p: str = "", told: bool = True) -> Said:
    """The same with the callers' traceparent, told to P by D's registration."""
    extra: Said = [(D_SCHEDULER, ev.TraceContext(ms(1), D, d))] if d else []
    extra += [(P_SCHEDULER, ev.TraceContext(ms(0), P, p))] if p else []
    for o, e in said:
        if isinstance(e, ev.RegistrationDrained) and told and d:
            extra.append((o, ev.TraceContext(e.t, e.request_id, d, "", D_ENGINE)))
    return said + extra


def two_to_one() -> Scene:
    p0, p1 = TP2
    said = registers(ranks=(2, 1), by=p0)
    said += [(D_WORKER, ev.RegistrationSent(ms(12), D, 0, 1, p1.nixl_agent)), *heard(13.5, by=p1)]
    said += prefills(by=p0) + prefills(by=p1)
    for n, rank in enumerate(TP2):
        said += matches(23 + n, by=rank) + posts(25 + n, by=rank)
        said += arrives(32 + n, n=n + 1, of=rank, size=2) + done(34 + n, by=rank)
    return said + received(36) + sent_on(38), P_TP2


def one_to_two() -> Scene:
    d0, d1 = D2
    said = [*registers(worker=d0), (d1, ev.RegistrationSent(ms(11.2), D, 0, 0, P_WORKER.nixl_agent))]
    said += prefills() + matches()
    said += posts(25, number=1, to=0) + posts(30, number=2, to=1)
    said += arrives(36, by=d0) + arrives(37, by=d1) + done(38, number=1) + done(39, number=2)
    said += [(d1, ev.ReceiveDone(ms(39.5), D)), (d0, ev.ReceiveDone(ms(39.6), D))]
    return said + received(40)[1:] + sent_on(42), D_TP2


def read() -> Scene:
    said = pull(*READ, *done(55, by=D_WORKER, request=D), *received(56))
    said += [
        (P_WORKER, ev.NotificationDrained(ms(54), P, D_WORKER.nixl_agent, 1)),
        (P_WORKER, ev.NotificationCounted(ms(54.5), P, 1, 1, 1)),
    ]
    return in_its_mode(said + sent_on(55), ORIGINS)


def handshake() -> Scene:
    waits: Said = [
        (P_WORKER, ev.TransferDeferred(ms(24), P, D_ENGINE)),
        (P_WORKER, ev.TransferResumed(ms(124), P)),
    ]
    return MET + waits + posts(125) + arrives(140) + done(141) + received(142) + sent_on(143), ORIGINS


def retried() -> Scene:
    """The same X-Request-Id again, under the same caller."""
    first = traced(MET + aborted(60) + expires(30_000))
    p, d = "cmpl-r-cccccccc", "cmpl-r-dddddddd"
    second = (
        registers(31_000, d=d) + prefills(31_010, p=p) + matches(31_013, p=p, d=d) + posts(31_015, p=p, d=d)
    )
    second += [(D_SCHEDULER, ev.TraceContext(ms(30_990), d, CALLER))]
    second += [(P_WORKER, ev.TraceContext(ms(31_003), d, CALLER, "", D_ENGINE))]
    return first + second + done(31_022, request=p) + received(31_030, d=d) + sent_on(31_031, p=p), ORIGINS


def places(said: Said, origins: tuple[ev.Origin, ...]) -> Said:
    """Said by the engines as they are to be."""
    known = {(o.engine_id, o.connector_role, o.pp_rank, o.tp_rank): o for o in origins}
    return [(known[o.engine_id, o.connector_role, o.pp_rank, o.tp_rank], e) for o, e in said]


def in_its_mode(said: Said, origins: tuple[ev.Origin, ...]) -> Scene:
    """Engines of which D reads are in pull mode."""
    pulls = any(isinstance(e, ev.ReadStaged) for _, e in said)
    return said, tuple(msgspec.structs.replace(o, mode="pull") for o in origins) if pulls else origins


SCENES: dict[str, Scene] = {
    "delivered, D early": (delivered(), ORIGINS),
    "delivered, P early": (delivered(blocks_first=True), ORIGINS),
    "under a caller": (traced(MET + posts() + arrives(30) + done(31) + received(32) + sent_on(33)), ORIGINS),
    "TP 2 to 1": two_to_one(),
    "TP 1 to 2": one_to_two(),
    "pull": read(),
    "after a handshake": handshake(),
    "tried again": retried(),
    "failed": (MET + posts() + fails(28, "transfer_failed", "gone", number=1) + expires(30_000), ORIGINS),
    "expired": (prefills() + expires(30_000), ORIGINS),
    "aborted": (registers() + aborted(5_000), ORIGINS),
    "a write that never ended": (MET + posts() + aborted(9_000) + expires(30_000), ORIGINS),
    **{code: in_its_mode(f.said, f.origins) for code, f in FAILURES.items()},
    **{f"near {code}": in_its_mode(f.near, f.near_origins or f.origins) for code, f in FAILURES.items()},
}


def made(
    said: Said,
    origins: tuple[ev.Origin, ...] = ORIGINS,
    *,
    seen: Collection[str] = BOTH,
    local: Collection[str] | None = None,
    diagnoses: tuple[Diagnosis, ...] = (),
    gone: tuple[str, ...] = (),
    ahead_ns: int = AHEAD_NS,
    **how: object,
) -> list[Span]:
    """The spans of all transfers, as far as the engines in ``seen`` tell; of the engines in ``local`` (all seen)."""
    read_rings = tuple(o for o in origins if o.engine_id in seen)
    heard_of = [(o, e) for o, e in places(said, origins) if o in read_rings]
    assembler = assembled(heard_of, read_rings, gone=gone)
    known = origins_of(RingState(o) for o in read_rings)
    spans: list[Span] = []
    for transfer in assembler.open_transfers():
        sides = assembler.sides_of(transfer)
        assert sides is not None
        spans += spans_of(
            transfer,
            sides,
            diagnoses,
            to_unix=lambda t: t + ahead_ns,
            local=seen if local is None else local,
            origins=known,
            **how,  # type: ignore[arg-type]
        )
    return spans


__all__ = ["BOTH", "CALLER", "SCENES", "UNSAMPLED", "made", "traced"]
