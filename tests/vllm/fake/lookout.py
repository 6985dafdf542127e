"""A world, watched while it runs: what is diagnosed of it, and how long after it began."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
from faults.result import WITHIN_S, Named, Wait

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.leftovers import SPAN_NS
from pushscope.telemetry.diagnosis.model import Diagnosis, Severity
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.source import Reading, RingsSource
from pushscope.telemetry.watch import Watcher
from tests.vllm.fake.layout import Layout
from tests.vllm.fake.world import World

EVERY_S = 0.25
"""A watched world lets no more time pass between two turns."""
_OFTEN_S = 40.0
_SELDOM_S = 5.0
"""But what is longer than 40 s passes in pieces of 5 s from then on."""
_SHARES = {"half": 0.5, "whole": 1.0}


class WorldSource:
    """The rings of a world as a reader beside it would have them, at the world's time."""

    label = "a world"
    ends = False

    def __init__(self, world: World) -> None:
        self._world = world
        self._rings = RingsSource(world.folder)
        self._began: dict[str, int] = {}
        """When each instance was made: its first event says so, its ring has this machine's time."""
        self.leases: list[tuple[int, float]] = []
        """(when P had blocks for D, seconds that it will hold them), for each prefill."""

    def poll(self) -> Reading:
        self._rings._scan_due = 0  # look for new rings each time
        reading = self._rings.poll()
        for index, payload in reading.events:
            event = ev.decode(payload)
            self._began.setdefault(reading.rings[index].origin.instance, event.t)
            if isinstance(event, ev.BlocksStaged):
                self.leases.append((event.t, event.lease_s))
        rings = tuple(
            msgspec.structs.replace(state, origin=self._at_world_time(state.origin))
            for state in reading.rings
        )
        return msgspec.structs.replace(reading, rings=rings, t_ns=self._world.clock.ns)

    def _at_world_time(self, origin: ev.Origin) -> ev.Origin:
        began = self._began.get(origin.instance, self._world.clock.ns)
        return msgspec.structs.replace(origin, anchor_monotonic_ns=began)

    def settle(self) -> None:
        self._rings.settle()

    def close(self) -> None:
        self._rings.close()


class First(NamedTuple):
    """When a code was said for the first time."""

    t_ns: int
    diagnosis: Diagnosis
    besides: tuple[str, ...]
    """Other causes of severity error that were said then."""


@dataclass
class Lookout:
    """Looks after every turn of a world."""

    world: World
    source: WorldSource
    watcher: Watcher
    began_ns: int
    first: dict[str, First] = field(default_factory=dict)
    """By code."""
    often: bool = True
    """Whether a world that lets time pass has a turn, and a look, every 250 ms of it."""

    def begins(self) -> None:
        """What is to be named begins only now; nothing was named before."""
        self.look()
        self.began_ns = self.world.clock.ns
        self.first.clear()

    def look(self) -> Snapshot:
        self.watcher.poll()
        snapshot = self.watcher.snapshot()
        errors = {d.code for d in snapshot.diagnoses if d.severity is Severity.ERROR}
        for found in snapshot.diagnoses:
            besides = tuple(sorted(errors - {found.code}))
            self.first.setdefault(found.code, First(self.world.clock.ns, found, besides))
        return snapshot

    # -- what is wrong now -------------------------------------------------------------------------

    def transfers(self) -> list[str]:
        """The codes of what is wrong with transfers, worst first, each once."""
        return list(dict.fromkeys(found.code for found in self.look().diagnoses if found.attempt))

    def engines(self) -> list[Diagnosis]:
        """What is wrong with engines."""
        return [found for found in self.look().diagnoses if not found.attempt]

    def codes(self) -> list[str]:
        """The codes of what is wrong with engines."""
        return [found.code for found in self.engines()]

    def only(self, code: str) -> Diagnosis:
        """The one thing that is wrong with engines."""
        found = self.engines()
        assert [d.code for d in found] == [code], [d.sentence for d in found]
        return found[0]

    # -- since it began ----------------------------------------------------------------------------

    @property
    def errors(self) -> list[Diagnosis]:
        """What of transfers was said to be an error when it was said first."""
        ever = [first.diagnosis for first in self.first.values() if first.diagnosis.attempt]
        return [found for found in ever if found.severity is Severity.ERROR]

    def wait(self, seconds: float) -> None:
        """Let time pass in which no engine has a turn."""
        for piece in pieces(seconds):
            self.world.clock.advance(piece)
            self.look()

    def named(self, code: str, lease: Wait = "") -> Named:
        """When it was named; if it was not yet, time passes until it is, or it is too late."""
        while code not in self.first and self._since_s(self.world.clock.ns, lease) < 2 * WITHIN_S:
            self.world.pass_time(EVERY_S)
        if (first := self.first.get(code)) is None:
            return Named(code=code, lease=lease, named_s=None, besides=tuple(sorted(self.first)))
        found = first.diagnosis
        return Named(
            code=code,
            lease=lease,
            named_s=round(self._since_s(first.t_ns, lease), 2),
            severity=found.severity,
            sentence=found.sentence,
            besides=first.besides,
        )

    def _since_s(self, t_ns: int, lease: Wait) -> float:
        """Seconds since it could be named."""
        begun_ns = self.began_ns
        if lease == "pile":
            begun_ns += SPAN_NS
        elif lease:
            staged_ns, lease_s = self.source.leases[0]
            begun_ns = max(begun_ns, staged_ns + int(_SHARES[lease] * lease_s * 1e9))
        return (t_ns - begun_ns) / 1e9


def pieces(seconds: float) -> Iterator[float]:
    """Time in pieces between which somebody looks."""
    passed = 0.0
    while passed < seconds:
        piece = min(seconds - passed, EVERY_S if passed < _OFTEN_S else _SELDOM_S)
        passed += piece
        yield piece


@contextlib.contextmanager
def watched(
    folder: Path,
    p: Layout | None = None,
    d: Layout | None = None,
    mode: str = "Push",
    *,
    beside: Mapping[str, Sequence[str]] | None = None,
    observed: str = "PD",
) -> Iterator[tuple[World, Lookout]]:
    """A world with a P and a D, at whose rings somebody looks after every turn.

    ``observed``: the names of the engines that have rings.
    """
    with World(folder / "rings", instrumented=True, mode=mode, beside=beside) as world:
        for name, layout in (("P", p), ("D", d)):
            world.instrumented = name in observed
            world.engine(name, layout or Layout())
        source = WorldSource(world)
        lookout = Lookout(world, source, Watcher(source), world.clock.ns)
        turn, pass_at_once = world.turn, world.pass_time

        def turn_and_look(*args: object, **kwargs: object) -> None:
            turn(*args, **kwargs)  # type: ignore[arg-type]
            lookout.look()

        def pass_time(seconds: float, turns: int = 1) -> None:
            if not lookout.often:
                return pass_at_once(seconds, turns)
            for piece in pieces(seconds):
                world.clock.advance(piece)
                world.turn()
            return world.settle(turns - 1)

        world.turn, world.pass_time = turn_and_look, pass_time  # type: ignore[method-assign]
        with contextlib.closing(source):
            yield world, lookout
