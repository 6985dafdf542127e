"""What an engine did apart from moving prompts: handshakes, tables, heartbeats, exceptions, restarts.

A fold whose result does not depend on how rings interleave, in bounded memory: of each kind of event an instance
keeps the newest few that are distinct, of its table sizes also the least of every half minute. To keep the newest
of a set is commutative and idempotent, so what is said again is no news. All else is computed from that when asked.

An *instance* is one connector of one process: the scheduler, or the worker of one rank. An engine that was
restarted under its old id has several of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec

from pushscope.telemetry import events as ev
from pushscope.telemetry.newest import Newest
from pushscope.telemetry.source import RingState
from pushscope.telemetry.transfer import Rank, Transfer

E = TypeVar("E", bound=ev.Event)

KEPT: Final[Mapping[type[ev.Event], int]] = {
    ev.EngineUp: 1,
    ev.EngineDown: 1,
    ev.RecordingSwitched: 4,
    ev.EventsDropped: 1,
    ev.ConnectorRaised: 4,
    ev.WriterException: 32,
    ev.ListenerDead: 2,
    ev.SideChannelServed: 8,
    ev.Loop: 60,
    ev.Tables: 60,
    ev.HeartbeatSent: 64,
    ev.HeartbeatDrained: 64,
    ev.HandshakeQueued: 256,
    ev.HandshakeStarted: 256,
    ev.HandshakeEnded: 256,
    ev.PeerRank: 1024,
    ev.NothingToReceive: 2048,
    ev.TransferFailed: 64,
}
"""How many of each kind an instance keeps. Of requests' events only those that an engine is to be judged by."""
FLOOR_NS: Final = 30_000_000_000
MAX_FLOORS: Final = 120
MAX_ENDED: Final = 4096
NO_TELEMETRY: Final = "telemetry:"
"""How the text of a failure begins that only says that NIXL's figures could not be had."""


def _whole(event: ev.Event) -> tuple[Any, ...]:
    return msgspec.structs.astuple(event)  # its time comes first


# -- what is told ---------------------------------------------------------------------------------------


class Heartbeats(NamedTuple):
    """What became of the heartbeats that came lately, over the ids that they named."""

    applied: int = 0
    ignored: int = 0
    """Ids that no lease goes by. With concurrent dispatch that is all of them, and means nothing by itself."""
    example: str = ""
    """An id that was ignored."""


class Trend(NamedTuple):
    """By how many entries a table has grown that never went away again, and in which time."""

    rise: int = 0
    span_ns: int = 0


class PeerStory(msgspec.Struct, frozen=True, kw_only=True):
    """How one instance stands with a peer engine."""

    engine: str
    host: str = ""
    port: int = 0
    queued_ns: int = 0
    started_ns: int = 0
    ended: tuple[ev.HandshakeEnded, ...] = ()
    """Oldest first."""
    ranks: tuple[ev.PeerRank, ...] = ()
    """The newest of each rank of the peer."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}" if self.host else "an address not seen"

    @property
    def failures(self) -> tuple[ev.HandshakeEnded, ...]:
        """Handshakes that failed since the last that went well."""
        well = max((i for i, e in enumerate(self.ended) if not e.error_type), default=-1)
        return self.ended[well + 1 :]

    @property
    def pending_ns(self) -> int | None:
        """Since when a handshake is queued or under way; None if none is."""
        ended = self.ended[-1].t if self.ended else 0
        return self.queued_ns if self.queued_ns > ended else None

    @property
    def running_ns(self) -> int | None:
        """Since when the one thread for handshakes is at it; None if it is not."""
        ended = self.ended[-1].t if self.ended else 0
        return self.started_ns if self.started_ns > ended else None


class InstanceStory(msgspec.Struct, frozen=True, kw_only=True):
    """One connector instance."""

    origin: ev.Origin
    alive: bool = True
    stopped: bool = False
    """Its process is there and stopped."""
    unheard: bool = False
    """Its silence says nothing: whoever reads its ring is out of reach, or behind."""
    lost: int = 0
    """Events of it that this reader missed."""
    told: dict[type[ev.Event], tuple[Any, ...]] = {}
    """Its newest events by kind, oldest first."""
    floors: tuple[ev.Tables, ...] = ()
    """For each half minute in which sizes were said, the least of each table; ``t`` is when it began."""

    @property
    def rank(self) -> Rank | None:
        """None for the scheduler."""
        return (
            None if self.origin.connector_role == "scheduler" else (self.origin.pp_rank, self.origin.tp_rank)
        )

    def all(self, kind: type[E]) -> tuple[E, ...]:
        return self.told.get(kind, ())

    def last(self, kind: type[E]) -> E | None:
        found = self.all(kind)
        return found[-1] if found else None

    @property
    def loop_share(self) -> float | None:
        """The part of the engine's main thread that the connector took in the last minute it ran."""
        loops = self.all(ev.Loop)
        span_ns = loops[-1].t - loops[0].t if len(loops) > 1 else 0
        return sum(e.total_ns for e in loops[1:]) / span_ns if span_ns else None

    @property
    def recording(self) -> bool:
        """Whether recording is on, as far as it said."""
        switched = self.last(ev.RecordingSwitched)
        return switched is None or switched.on

    @property
    def last_loop_ns(self) -> int:
        """When it said last that it makes steps, which it does every second as long as it does; 0 if never."""
        loop = self.last(ev.Loop)
        return loop.t if loop else 0

    @property
    def at_work(self) -> bool:
        """Whether requests were on their way through it when it said so last."""
        loop = self.last(ev.Loop)
        return loop is not None and loop.has_work

    @property
    def heartbeats(self) -> Heartbeats:
        drained = self.all(ev.HeartbeatDrained)
        example = next((e.first_ignored for e in reversed(drained) if e.first_ignored), "")
        return Heartbeats(sum(e.applied for e in drained), sum(e.ignored for e in drained), example)

    def trend(self, table: str) -> Trend:
        """How the floor of a table has risen since the lowest half minute that is known."""
        whole = self.floors[:-1]  # the newest half minute is not over
        if not whole:
            return Trend()
        lowest = min(whole, key=lambda floor: (getattr(floor, table), -floor.t))
        return Trend(getattr(whole[-1], table) - getattr(lowest, table), whole[-1].t - lowest.t)

    def peers(self) -> dict[str, PeerStory]:
        """The engines that it shook hands with, or tried to."""
        queued = {e.peer_engine: e for e in self.all(ev.HandshakeQueued)}
        started = {e.peer_engine: e.t for e in self.all(ev.HandshakeStarted)}
        ended: dict[str, list[ev.HandshakeEnded]] = {}
        for e in self.all(ev.HandshakeEnded):
            ended.setdefault(e.peer_engine, []).append(e)
        ranks: dict[str, dict[Rank, ev.PeerRank]] = {}
        for rank in self.all(ev.PeerRank):
            ranks.setdefault(rank.peer_engine, {})[rank.peer_pp, rank.peer_tp] = rank
        return {
            engine: PeerStory(
                engine=engine,
                host=queued[engine].peer_host if engine in queued else "",
                port=queued[engine].peer_port if engine in queued else 0,
                queued_ns=queued[engine].t if engine in queued else 0,
                started_ns=started.get(engine, 0),
                ended=tuple(ended.get(engine, ())),
                ranks=tuple(ranks.get(engine, {}).values()),
            )
            for engine in sorted({*queued, *started, *ended, *ranks})
        }


class Ended(NamedTuple):
    """A transfer that is over: when an engine had it."""

    closed_ns: int
    opened_ns: int
    base_id: str


class EngineStory(msgspec.Struct, frozen=True, kw_only=True):
    """One engine: all its instances that are known, the older ones first."""

    engine_id: str
    instances: tuple[InstanceStory, ...]
    ended: tuple[Ended, ...] = ()
    """The newest of its transfers that were closed."""

    @property
    def current(self) -> tuple[InstanceStory, ...]:
        """The newest instance in each place: what the engine consists of now."""
        newest = {place(instance.origin): instance for instance in self.instances}
        return tuple(newest.values())

    @property
    def workers(self) -> tuple[InstanceStory, ...]:
        return tuple(i for i in self.current if i.rank is not None)

    @property
    def origin(self) -> ev.Origin:
        """Of its newest instance: what all of them have in common."""
        return self.instances[-1].origin

    @property
    def alive(self) -> bool:
        return all(instance.alive for instance in self.current)

    @property
    def started_ns(self) -> int:
        """When what is there now began."""
        return min(i.origin.anchor_monotonic_ns for i in self.current)

    @property
    def restarted_ns(self) -> int | None:
        """When it was started again under its old id; None if it was not."""
        places = [place(i.origin) for i in self.instances]
        again = [i for i in self.current if places.count(place(i.origin)) > 1]
        return min((i.origin.anchor_monotonic_ns for i in again), default=None)

    @property
    def address(self) -> str:
        """The side channel that it advertises; empty if its scheduler is not observed."""
        return next((i.origin.side_channel for i in reversed(self.instances) if i.origin.side_channel), "")

    @property
    def side(self) -> str:
        return {"kv_producer": "P", "kv_consumer": "D"}.get(self.origin.kv_role, "PD")

    @property
    def lost(self) -> int:
        return sum(instance.lost for instance in self.instances)


def place(origin: ev.Origin) -> tuple[str, int, int, int]:
    """What only one live instance of an engine can be."""
    return origin.connector_role, origin.dp_rank, origin.pp_rank, origin.tp_rank


def successor_of(story: EngineStory, stories: Iterable[EngineStory]) -> EngineStory | None:
    """The engine that came later under another id and has the same side channel; None if there is none."""
    if not story.address:
        return None
    later = [
        other
        for other in stories
        if other.engine_id != story.engine_id
        and (other.origin.host, other.address) == (story.origin.host, story.address)
        and other.started_ns > story.started_ns
    ]
    return max(later, key=attrgetter("started_ns"), default=None)


def is_loopback(host: str) -> bool:
    """Whether an address means something else on every host: loopback, or none at all."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


# -- the fold -------------------------------------------------------------------------------------------


class _Memory:
    """What is kept of one instance."""

    __slots__ = ("floors", "told")

    def __init__(self) -> None:
        self.told: dict[type[ev.Event], Newest[ev.Event]] = {}
        self.floors: dict[int, ev.Tables] = {}

    def add(self, event: ev.Event, limit: int) -> None:
        kind = type(event)
        if kind not in self.told:
            self.told[kind] = Newest(limit, _whole)
        self.told[kind].add(event)
        if isinstance(event, ev.Tables):
            begin = event.t - event.t % FLOOR_NS
            known = self.floors.get(begin, event)
            self.floors[begin] = ev.Tables(begin, *map(min, _whole(known)[1:], _whole(event)[1:]))
            if len(self.floors) > MAX_FLOORS:
                del self.floors[min(self.floors)]

    def story(self, state: RingState) -> InstanceStory:
        return InstanceStory(
            origin=state.origin,
            alive=state.alive,
            stopped=state.stopped,
            unheard=state.unheard,
            lost=state.lost + state.torn + sum(e.total for e in self._dropped()),
            told={kind: kept.all() for kind, kept in self.told.items()},
            floors=tuple(self.floors[begin] for begin in sorted(self.floors)),
        )

    def _dropped(self) -> tuple[ev.EventsDropped, ...]:
        kept = self.told.get(ev.EventsDropped)
        return cast("tuple[ev.EventsDropped, ...]", kept.all()) if kept else ()


class Stories:
    """Folds the events of all rings of a source; gives the story of every engine."""

    def __init__(self) -> None:
        self._memories: dict[str, _Memory] = {}
        self._ended: dict[str, Newest[Ended]] = {}
        self._rings: tuple[RingState, ...] = ()

    def rings(self, states: Iterable[RingState]) -> None:
        """Which rings there are now; what was kept of others is forgotten."""
        self._rings = tuple(states)
        here = {state.origin.instance for state in self._rings}
        engines = {state.origin.engine_id for state in self._rings}
        for instance in self._memories.keys() - here:
            del self._memories[instance]
        for engine in self._ended.keys() - engines:
            del self._ended[engine]

    def feed(self, origin: ev.Origin, event: ev.Event) -> None:
        """Fold one event in, whatever its order."""
        limit = KEPT.get(type(event))
        if limit is None or (
            isinstance(event, ev.TransferFailed) and not event.error.startswith(NO_TELEMETRY)
        ):
            return
        memory = self._memories.get(origin.instance)
        if memory is None:
            memory = self._memories[origin.instance] = _Memory()
        memory.add(event, limit)

    def closed(self, transfer: Transfer) -> None:
        """A transfer is over and will not be followed any more."""
        ended = Ended(transfer.closed_ns or transfer.since_ns, transfer.opened_ns, transfer.base_id)
        for engine in {transfer.p_engine, transfer.d_engine}:
            if engine is not None:
                self._ended.setdefault(engine, Newest(MAX_ENDED, tuple)).add(ended)

    def all(self) -> tuple[EngineStory, ...]:
        """Every engine of the rings that there are, the oldest first."""
        by_engine: dict[str, list[InstanceStory]] = {}
        nothing = _Memory()
        for state in sorted(self._rings, key=lambda s: (s.origin.anchor_monotonic_ns, s.origin.instance)):
            memory = self._memories.get(state.origin.instance, nothing)
            by_engine.setdefault(state.origin.engine_id, []).append(memory.story(state))
        none: Newest[Ended] = Newest(1, tuple)
        return tuple(
            EngineStory(
                engine_id=engine,
                instances=tuple(instances),
                ended=self._ended.get(engine, none).all(),
            )
            for engine, instances in by_engine.items()
        )
