"""Where an event comes from, as figures see it: one connector instance, and how far it was counted."""

from __future__ import annotations

from typing import Final

import msgspec

from pushscope.telemetry import events as ev
from pushscope.telemetry.metrics import catalogue as m
from pushscope.telemetry.metrics.family import PARTS, Kind, Of
from pushscope.telemetry.metrics.figures import EngineFigures
from pushscope.telemetry.source import RingState
from pushscope.telemetry.transfer import rank_name

_ROLES: Final = {"kv_producer": ("P",), "kv_consumer": ("D",)}
_ZEROED: Final = tuple(f for f in m.FAMILIES if f.kind is Kind.COUNTER and f.of is Of.ENGINE)


class Mark(msgspec.Struct, array_like=True):
    """How far one instance was counted when the figures were saved."""

    number: int
    """Of its last event that was counted: by the ring, from 1."""
    unrecorded: int = 0
    """Events that it said it could not record, of those that were counted."""


def parts_of(kv_role: str) -> tuple[str, ...]:
    """What an engine can be: ``P``, ``D``, or both."""
    return _ROLES.get(kv_role, PARTS)


class Place:
    """One connector instance whose engine's figures are kept."""

    def __init__(self, ring: RingState, figures: EngineFigures, mark: Mark | None, since_ns: int):
        """``mark``: how far it was counted before, which is up to ``since_ns`` and a little later; None: not at all."""
        origin = self.origin = ring.origin
        self.figures, self.own, self.mode = figures, figures.own, origin.mode
        self.parts = parts_of(origin.kv_role)
        worker = origin.connector_role == "worker"
        self.rank = rank_name((origin.pp_rank, origin.tp_rank)) if worker else "scheduler"
        self.mark = mark or Mark(0)
        self.since_ns = since_ns if mark else 0
        """What is older, and said again, was counted before."""
        self.behind = mark is not None
        """It is read again up to where it was counted."""
        self.read = 0
        """Events read by this process, with those that were counted before."""
        self.known = 0
        """Those of them."""
        self.tables: ev.Tables | None = None
        """The newest."""
        self._told = 0
        self._ring: RingState | None = None
        self._lost_before = 0
        self._lost = self._torn = 0
        self._begin(ring, worker=worker)

    def _begin(self, ring: RingState, *, worker: bool) -> None:
        for family in _ZEROED:
            for labels in family.known(self.parts, self.mode):
                self.own.add(family, labels, 0)
        self.own.add(m.CONNECTOR_SECONDS, (self.rank,), 0)
        self.own.add(m.CONNECTOR_CALLS, (self.rank,), 0)
        if worker and ("P" if self.mode == "push" else "D") in self.parts:
            self.own.add(m.RANK_BYTES, (self.mode, self.rank), 0)
        if self.behind:
            self.own.add(m.EVENTS_LOST, ("overwritten",), max(0, ring.forgotten - self.mark.number))

    def unix_s(self, t_ns: int) -> float:
        """Wall time, by the engine's own host."""
        return (t_ns + self.origin.anchor_unix_ns - self.origin.anchor_monotonic_ns) / 1e9

    def counted_before(self, ring: RingState) -> bool:
        """Of one that is ``behind``: whether the event that was just read was counted before.

        Its number in the ring follows from what was read and missed so far. Where events were lost in the middle of
        a poll it is too low: what is not certain to be new is not counted twice.
        """
        if ring is not self._ring:
            self._lost_before = self._ring.lost if self._ring else 0
            self._ring = ring
        number = ring.forgotten + ring.torn + self._lost_before + self.read
        if number > self.mark.number:
            self.behind = False
            # Damage was met before, unless nothing that was counted is left in the ring.
            met_before = ring.forgotten < self.mark.number
            self._lost, self._torn = self._lost_before, ring.torn if met_before else 0
        else:
            self.known += 1
        return self.behind

    def says_sizes(self, tables: ev.Tables) -> None:
        """The sizes of its tables, which may be those that are known."""
        if self.tables is None or tables.t > self.tables.t:
            self.tables = tables

    def settle(self, ring: RingState) -> None:
        """Count what was read and missed, once a poll is done, and note how far it was counted."""
        passed = ring.forgotten + ring.lost + ring.torn + self.read
        if not self.behind:
            self.own.add(m.EVENTS_LOST, ("overwritten",), ring.lost - self._lost)
            self.own.add(m.EVENTS_LOST, ("damaged",), ring.torn - self._torn)
            self._lost, self._torn = ring.lost, ring.torn
        elif passed > self.mark.number:
            # Events were overwritten while they were read again, so that of none it was certain that it is new. These
            # many are, and their contents were passed over.
            self.own.add(m.EVENTS_LOST, ("overwritten",), passed - self.mark.number)
            self.behind = False
            self._lost, self._torn = ring.lost, ring.torn
        news = self.read - self.known
        self.own.add(m.EVENTS_READ, (), news - self._told)
        self._told = news
        self.mark.number = max(self.mark.number, passed)
