"""What is known of one request on one engine: a set of events, folded so that order and repetition don't matter.

For each (kind, rank, detail) the first event is kept (of a lease's extension the last). That makes the fold
commutative and idempotent: rings may be read in any interleaving, and what is said again is no news.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from operator import attrgetter
from typing import Any, Final, TypeGuard, TypeVar, cast

from pushscope.telemetry import events as ev
from pushscope.telemetry.ids import base_id
from pushscope.telemetry.transfer import Rank

E = TypeVar("E", bound=ev.Event)

Key = tuple[type[ev.Event], Rank, Any]

_DETAIL: Final[dict[type[ev.Event], Callable[[Any], Any]]] = {
    ev.RegistrationSent: lambda e: (e.peer_pp, e.peer_tp),
    ev.RegistrationFailed: lambda e: (e.to_rank, e.peer_pp, e.peer_tp),
    ev.RegistrationDrained: lambda e: e.agent,
    ev.TraceContext: lambda e: e.peer_engine,
    ev.NotificationDrained: lambda e: e.agent,
    ev.NotificationCounted: lambda e: e.n,
    ev.Matched: lambda e: e.peer_request_id,
    ev.NothingToReceive: lambda e: e.reason,
    **{
        kind: (lambda e: e.number)
        for kind in (
            ev.DescriptorsStarted,
            ev.DescriptorsBuilt,
            ev.SubmitStarted,
            ev.Submitted,
            ev.TransferDone,
            ev.TransferFailed,
        )
    },
    **{
        kind: (lambda e: e.t)
        for kind in (
            ev.RequestPreempted,
            ev.WatchdogFired,
            ev.NotificationUnrecognised,
            ev.TransferDeferred,
            ev.TransferResumed,
            ev.Evicted,
            ev.WriterException,
        )
    },
}
_DECODE_KINDS: Final = frozenset(
    {
        ev.RegistrationStaged,
        ev.NothingToReceive,
        ev.RegistrationHandedOff,
        ev.RegistrationSent,
        ev.RegistrationFailed,
        ev.RegistrationDrained,
        ev.ReadStaged,
        ev.ReadHandedOff,
        ev.ReceiveDone,
        ev.ReceiveFailed,
        ev.ReceiveFinished,
        ev.DecodeScheduled,
    }
)
_KEEP_LAST: Final = frozenset({ev.LeaseExtended})
_P_OVER: Final = frozenset({ev.SendFinished, ev.PrefillNotProcessed, ev.LeaseExpired})
_ASKS: Final = frozenset(
    {
        ev.RegistrationStaged,
        ev.RegistrationHandedOff,
        ev.RegistrationSent,
        ev.RegistrationDrained,
        ev.ReadStaged,
    }
)
_D_OVER: Final = frozenset({ev.RequestEnded, ev.ReceiveFailed, ev.ReceiveFinished})
_D_HAS: Final = frozenset({ev.ReceiveFinished, ev.DecodeScheduled})

Identity = tuple[str, str]
"""(engine, request id)."""


def heard_of_d(event: ev.Event) -> TypeGuard[ev.RegistrationDrained | ev.TraceContext]:
    """Whether P says this of D's request: a fact of D's half, seen from a P rank."""
    return isinstance(event, ev.RegistrationDrained) or (
        isinstance(event, ev.TraceContext) and bool(event.peer_engine)
    )


class Half:
    """The events of one request as one engine saw it, and (:func:`heard_of_d`) as a peer heard of it."""

    __slots__ = (
        "base",
        "decodes",
        "engine",
        "events",
        "first_t",
        "heard_ns",
        "last_t",
        "request_id",
        "spoke_ns",
    )

    def __init__(self, engine: str, request_id: str, base: str | None = None):
        self.engine = engine
        self.request_id = request_id
        self.base = base_id(request_id) if base is None else base
        self.events: dict[Key, ev.Event] = {}
        self.first_t = 0
        self.last_t = 0
        self.decodes = False
        """This is D's half: some event says so."""
        self.heard_ns = 0
        """When an event of it was read last, be it one that was only said again."""
        self.spoke_ns = 0
        """The same, of what its own engine said: a peer goes on to speak of what it merely heard."""

    @property
    def identity(self) -> Identity:
        return self.engine, self.request_id

    @property
    def asks(self) -> bool:
        """This is D's half, and it wants blocks."""
        return any(kind in _ASKS for kind, _, _ in self.events)

    @property
    def awaits(self) -> bool:
        """This is D's half, and its engine holds blocks for it, which nobody has filled. That it ended is no matter."""
        return self.asks and not any(kind in _D_HAS for kind, _, _ in self.events)

    @property
    def named(self) -> str:
        """The P request that D was told of by the router; empty if this is not D's half, or not known."""
        arrived = (e for e in self.events.values() if isinstance(e, ev.RequestArrived))
        return next((e.peer_request_id for e in arrived), "")

    @property
    def over_ns(self) -> int | None:
        """When this side was done with its part, or gave it up; None while it is at it."""
        kinds = _D_OVER if self.decodes else _P_OVER
        return min((e.t for (kind, _, _), e in self.events.items() if kind in kinds), default=None)

    @property
    def pins(self) -> ev.BlocksStaged | None:
        """P's: the blocks that it has staged, and neither sent nor given up."""
        if self.decodes:
            return None
        staged: Key | None = None
        for key in self.events:
            if key[0] in _P_OVER:
                return None
            if key[0] is ev.BlocksStaged:
                staged = key
        return cast("ev.BlocksStaged", self.events[staged]) if staged is not None else None

    def add(self, rank: Rank, event: ev.Event) -> bool:
        """Fold an event in; False if it was no news."""
        kind = type(event)
        detail = _DETAIL.get(kind)
        key = (kind, rank, detail(event) if detail else None)
        known = self.events.get(key)
        if known is not None and (event.t <= known.t if kind in _KEEP_LAST else event.t >= known.t):
            return False
        self.events[key] = event
        t = event.t
        if not self.first_t or t < self.first_t:
            self.first_t = t
        if t > self.last_t:
            self.last_t = t
        if not self.decodes and (
            kind in _DECODE_KINDS or (isinstance(event, ev.RequestArrived) and event.leg == "decode")
        ):
            self.decodes = True
        return True

    def has(self, *kinds: type[ev.Event]) -> bool:
        for kind, _, _ in self.events:  # noqa: SIM110 - asked very often, and any() takes twice as long
            if kind in kinds:
                return True
        return False

    def by_kind(self) -> Facts:
        """The events, for looking up: by kind, each with the rank that recorded it."""
        found: dict[type[ev.Event], list[tuple[Rank, Any]]] = {}
        for (kind, rank, _), event in self.events.items():
            found.setdefault(kind, []).append((rank, event))
        return Facts(found)


class Facts:
    """Events of one half by kind: what the views ask."""

    __slots__ = ("_found",)

    def __init__(self, found: dict[type[ev.Event], list[tuple[Rank, Any]]]):
        self._found = found

    def all(self, kind: type[E]) -> list[tuple[Rank, E]]:
        """(rank, event) for every event of a kind, in no particular order."""
        return self._found.get(kind, _NONE)

    def before(self, t: int) -> Facts:
        """What was known before a moment."""
        earlier = {kind: [(rank, e) for rank, e in found if e.t < t] for kind, found in self._found.items()}
        return Facts({kind: found for kind, found in earlier.items() if found})

    def first(self, kind: type[E]) -> E | None:
        """The earliest event of a kind, over all ranks."""
        found = self.all(kind)
        if len(found) < 2:  # with one rank a side, nearly always
            return found[0][1] if found else None
        return min((e for _, e in found), key=_time)

    def last(self, kind: type[E]) -> E | None:
        """The latest event of a kind, over all ranks."""
        found = self.all(kind)
        if len(found) < 2:
            return found[0][1] if found else None
        return max((e for _, e in found), key=_time)

    def has(self, *kinds: type[ev.Event]) -> bool:
        return not self._found.keys().isdisjoint(kinds)

    def kinds(self) -> Set[type[ev.Event]]:
        """The kinds that were seen."""
        return self._found.keys()


_NONE: Final[list[tuple[Rank, Any]]] = []
_time: Final = attrgetter("t")
NO_FACTS: Final = Facts({})
