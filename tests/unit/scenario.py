"""Short event lists to arrange, as a P and a D engine would record them.

Times are milliseconds in, nanoseconds out, from an arbitrary start.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pushscope.telemetry import events as ev
from pushscope.telemetry.assembler import Assembler
from pushscope.telemetry.clock import this_host
from pushscope.telemetry.source import Reading, RingState

START_NS = 1_000_000_000_000
P_ENGINE, D_ENGINE = "engine-p", "engine-d"


def ms(t: float) -> int:
    return START_NS + int(t * 1e6)


def origin(
    engine: str, role: str, *, pp: int = 0, tp: int = 0, tp_size: int = 1, pp_size: int = 1
) -> ev.Origin:
    return ev.Origin(
        host="host",
        boot_id=this_host().boot_id,
        time_namespace=this_host().time_namespace,
        pid=100 if engine == P_ENGINE else 200,
        connector_role=role,
        engine_id=engine,
        kv_role="kv_producer" if engine == P_ENGINE else "kv_consumer",
        mode="push",
        pp_rank=pp,
        tp_rank=tp,
        pp_size=pp_size,
        tp_size=tp_size,
        nixl_agent=f"agent-{engine}-{pp}.{tp}" if role == "worker" else "",
        anchor_monotonic_ns=START_NS,
        anchor_unix_ns=1_700_000_000_000_000_000,
        instance=f"{engine}-{role}-{pp}.{tp}",
    )


P_SCHEDULER, P_WORKER = origin(P_ENGINE, "scheduler"), origin(P_ENGINE, "worker")
D_SCHEDULER, D_WORKER = origin(D_ENGINE, "scheduler"), origin(D_ENGINE, "worker")
ORIGINS = (P_SCHEDULER, P_WORKER, D_SCHEDULER, D_WORKER)
Said = list[tuple[ev.Origin, ev.Event]]


def delivered(base: str = "cmpl-r", at: float = 0.0, *, blocks_first: bool = False) -> Said:
    """A whole transfer, one rank a side: registration first (D early) or blocks first (P early)."""
    p, d = f"{base}-aaaaaaaa", f"{base}-bbbbbbbb"
    staged = at + (30 if blocks_first else 10)
    finished = at + 20
    drained = max(staged + 3, at + 13)
    picked = finished + 2
    matched = max(drained, picked) + 1
    return [
        (P_SCHEDULER, ev.RequestArrived(ms(at), p, "prefill")),
        (P_SCHEDULER, ev.PrefillScheduled(ms(at + 1), p, 100)),
        (D_SCHEDULER, ev.RequestArrived(ms(at + 1), d, "decode", P_ENGINE, base)),
        (D_SCHEDULER, ev.RegistrationStaged(ms(staged), d, P_ENGINE, "127.0.0.1", 5600, 1, 1, 100, 4)),
        (D_WORKER, ev.RegistrationHandedOff(ms(staged + 0.5), d)),
        (D_WORKER, ev.RegistrationSent(ms(staged + 1), d, 0, 0, P_WORKER.nixl_agent)),
        (
            P_WORKER,
            ev.RegistrationDrained(ms(drained), d, D_ENGINE, "127.0.0.1", 5700, 1, 4, D_WORKER.nixl_agent),
        ),
        (P_SCHEDULER, ev.BlocksStaged(ms(finished), p, 4, 100, 30.0)),
        (P_SCHEDULER, ev.RequestEnded(ms(finished), p, "finished_length_capped")),
        (P_WORKER, ev.BlocksHandedOff(ms(finished + 1), p, 4)),
        (P_WORKER, ev.BlocksPickedUp(ms(picked), p)),
        (P_WORKER, ev.Matched(ms(matched), p, d, blocks_first, "base_id", D_ENGINE)),
        (P_WORKER, ev.DescriptorsStarted(ms(matched + 0.5), p, 1, 0, D_ENGINE, d)),
        (P_WORKER, ev.DescriptorsBuilt(ms(matched + 1), p, 1, 8)),
        (P_WORKER, ev.SubmitStarted(ms(matched + 2), p, 1)),
        (P_WORKER, ev.Submitted(ms(matched + 3), p, 1, "PROC")),
        (D_WORKER, ev.NotificationDrained(ms(matched + 7), d, P_WORKER.nixl_agent, 1)),
        (P_WORKER, ev.TransferDone(ms(matched + 9), p, 1, 4096, 2, 100, 900)),
        (P_SCHEDULER, ev.SendFinished(ms(matched + 10), p)),
        (D_WORKER, ev.NotificationCounted(ms(matched + 8), d, 1, 1, 1)),
        (D_WORKER, ev.ReceiveDone(ms(matched + 8.5), d)),
        (D_SCHEDULER, ev.ReceiveFinished(ms(matched + 9), d)),
        (D_SCHEDULER, ev.DecodeScheduled(ms(matched + 10), d)),
    ]


def only(said: Said, *origins: ev.Origin) -> Said:
    return [(o, e) for o, e in said if o in origins]


def until(said: Said, kind: type[ev.Event]) -> Said:
    """Everything said before the first event of ``kind``."""
    stop = min(e.t for _, e in said if isinstance(e, kind))
    return [(o, e) for o, e in said if e.t < stop]


def assembled(
    said: Said, origins: tuple[ev.Origin, ...] = ORIGINS, *, gone: tuple[str, ...] = ()
) -> Assembler:
    assembler = Assembler()
    assembler.rings(RingState(o, o.engine_id not in gone) for o in origins)
    for o, e in said:
        assembler.feed(o, e)
    return assembler


@dataclass
class ListSource:
    """A source that gives prepared readings."""

    readings: list[Reading] = field(default_factory=list)
    label: str = "a list"
    ends: bool = True

    def poll(self) -> Reading | None:
        return self.readings.pop(0) if self.readings else None

    def settle(self) -> None:
        pass

    def close(self) -> None:
        pass


def reading(
    said: Said, at: float, origins: tuple[ev.Origin, ...] = ORIGINS, *, gone: tuple[str, ...] = ()
) -> Reading:
    rings = tuple(RingState(o, o.engine_id not in gone) for o in origins)
    events = [(origins.index(o), ev.encode(e)) for o, e in said]
    return Reading(ms(at), 1_700_000_000_000_000_000 + int(at * 1e6), rings, events)
