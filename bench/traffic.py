"""What the engines of one P and one D record of a transfer, and streams of many transfers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final, NamedTuple

from bench.rings import D_ENGINE, D_SCHEDULER, D_WORKER, ORIGINS, P_ENGINE, P_SCHEDULER, P_WORKER
from pushscope.telemetry import events as ev

MS: Final = 1_000_000
NUM_BLOCKS: Final = 32
NUM_TOKENS: Final = 1_000

Make = Callable[[int, str, str], ev.Event]
"""An event of (time in ns, P's request id, D's request id)."""


class Moment(NamedTuple):
    """One event of a transfer: who records it, and how long after the transfer's begin."""

    origin: ev.Origin
    after_ms: float
    make: Make


TRANSFER: Final[tuple[Moment, ...]] = (
    Moment(P_SCHEDULER, 0, lambda t, p, _: ev.RequestArrived(t, p, "prefill")),
    Moment(P_SCHEDULER, 1, lambda t, p, _: ev.PrefillScheduled(t, p, NUM_TOKENS)),
    Moment(D_SCHEDULER, 1, lambda t, _, d: ev.RequestArrived(t, d, "decode", P_ENGINE, d[:-9])),
    Moment(
        D_SCHEDULER,
        2,
        lambda t, _, d: ev.RegistrationStaged(
            t, d, P_ENGINE, "10.0.0.17", 5600, 1, 1, NUM_TOKENS, NUM_BLOCKS
        ),
    ),
    Moment(D_WORKER, 2.5, lambda t, _, d: ev.RegistrationHandedOff(t, d)),
    Moment(D_WORKER, 3, lambda t, _, d: ev.RegistrationSent(t, d, 0, 0, P_WORKER.nixl_agent)),
    Moment(
        P_WORKER,
        5,
        lambda t, _, d: ev.RegistrationDrained(
            t, d, D_ENGINE, "10.0.0.18", 5700, 1, NUM_BLOCKS, D_WORKER.nixl_agent
        ),
    ),
    Moment(P_SCHEDULER, 80, lambda t, p, _: ev.BlocksStaged(t, p, NUM_BLOCKS, NUM_TOKENS, 30.0)),
    Moment(P_SCHEDULER, 80, lambda t, p, _: ev.RequestEnded(t, p, "finished_length_capped")),
    Moment(P_WORKER, 81, lambda t, p, _: ev.BlocksHandedOff(t, p, NUM_BLOCKS)),
    Moment(P_WORKER, 81.1, lambda t, p, _: ev.LeaseSet(t, p, 29.9)),
    Moment(P_WORKER, 81.2, lambda t, p, _: ev.BlocksPickedUp(t, p)),
    Moment(P_WORKER, 81.3, lambda t, p, d: ev.Matched(t, p, d, False, "base_id", D_ENGINE)),
    Moment(P_WORKER, 81.4, lambda t, p, d: ev.DescriptorsStarted(t, p, 7, 0, D_ENGINE, d)),
    Moment(P_WORKER, 82, lambda t, p, _: ev.DescriptorsBuilt(t, p, 7, 2 * NUM_BLOCKS)),
    Moment(P_WORKER, 82.1, lambda t, p, _: ev.SubmitStarted(t, p, 7)),
    Moment(P_WORKER, 82.5, lambda t, p, _: ev.Submitted(t, p, 7, "PROC")),
    Moment(D_WORKER, 88, lambda t, _, d: ev.NotificationDrained(t, d, P_WORKER.nixl_agent, 1)),
    Moment(D_WORKER, 89, lambda t, _, d: ev.NotificationCounted(t, d, 1, 1, 1)),
    Moment(D_WORKER, 89.1, lambda t, _, d: ev.ReceiveDone(t, d)),
    Moment(D_SCHEDULER, 90, lambda t, _, d: ev.ReceiveFinished(t, d)),
    Moment(D_SCHEDULER, 91, lambda t, _, d: ev.DecodeScheduled(t, d)),
    Moment(P_WORKER, 92, lambda t, p, _: ev.TransferDone(t, p, 7, 4 << 20, NUM_BLOCKS, 210, 5900)),
    Moment(P_SCHEDULER, 93, lambda t, p, _: ev.SendFinished(t, p)),
    Moment(D_SCHEDULER, 400, lambda t, _, d: ev.RequestEnded(t, d, "finished_length_capped")),
)
"""One transfer from the arrival of its request to the last decoded token, D's registration first."""

SUBMITTED: Final = TRANSFER[:17]
"""The same, up to blocks that are on the wire."""

Said = tuple[int, int, bytes]
"""(time in ns, index of its ring in ``ORIGINS``, encoded event)"""


def stream(
    num_transfers: int, begin_ns: int, per_s: float, *, moments: Sequence[Moment] = TRANSFER, seed: int = 0
) -> list[Said]:
    """Transfers that begin ``per_s`` a second, each with ids of its own, in the order of their times."""
    said = [each for n in range(num_transfers) for each in _transfer(n, begin_ns, per_s, moments, seed)]
    said.sort(key=lambda each: each[0])
    return said


def _transfer(
    number: int, begin_ns: int, per_s: float, moments: Sequence[Moment], seed: int
) -> Iterator[Said]:
    draw = Random(f"{seed}/{number}")
    base = f"cmpl-{uuid.UUID(int=draw.getrandbits(128))}-0"
    p, d = f"{base}-{draw.getrandbits(32):08x}", f"{base}-{draw.getrandbits(32):08x}"
    begin = begin_ns + int(number / per_s * 1e9)
    for origin, after_ms, make in moments:
        yield _said(origin, begin + int(after_ms * MS), make, p, d)


def _said(origin: ev.Origin, t: int, make: Make, p: str, d: str) -> Said:
    return t, ORIGINS.index(origin), ev.encode(make(t, p, d))
