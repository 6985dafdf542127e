"""A world, watched while it runs: what is diagnosed of it, and how long after it began."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from pushscope.telemetry.diagnosis.model import Diagnosis, Severity
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.source import Reading, RingsSource
from pushscope.telemetry.watch import Watcher
from tests.vllm.fake.seen import at_world_time
from tests.vllm.fake.world import World


class WorldSource:
    """The rings of a world, at the world's time."""

    label = "a world"
    ends = False

    def __init__(self, world: World) -> None:
        self._world = world
        self._rings = RingsSource(world.folder)

    def poll(self) -> Reading:
        return msgspec.structs.replace(at_world_time(self._rings.poll()), t_ns=self._world.clock.ns)

    def settle(self) -> None:
        self._rings.settle()

    def close(self) -> None:
        self._rings.close()


def of_transfers(snapshot: Snapshot) -> list[Diagnosis]:
    """What is wrong with transfers; engines have tests of their own."""
    return [found for found in snapshot.diagnoses if found.attempt]


@dataclass
class Lookout:
    """Looks after every turn of a world."""

    world: World
    watcher: Watcher
    first: dict[str, tuple[int, Diagnosis]] = field(default_factory=dict)
    """Code -> when it was first said (of a severity that is its worst), and what."""

    def look(self) -> Snapshot:
        self.watcher.poll()
        snapshot = self.watcher.snapshot()
        for found in of_transfers(snapshot):
            self.first.setdefault(found.code, (self.world.clock.ns, found))
        return snapshot

    @property
    def now(self) -> list[str]:
        """The codes of what is wrong now, worst first, each once."""
        return list(dict.fromkeys(found.code for found in of_transfers(self.look())))

    @property
    def errors(self) -> list[Diagnosis]:
        """Whatever was at any time said to be an error."""
        return [found for found in self._ever if found.severity is Severity.ERROR]

    @property
    def _ever(self) -> list[Diagnosis]:
        return [found for _, found in self.first.values()]


@contextlib.contextmanager
def watched(world: World) -> Iterator[Lookout]:
    """Look at the rings after every turn while this is open."""
    source = WorldSource(world)
    lookout = Lookout(world, Watcher(source))
    turn = world.turn

    def turn_and_look(*args: object, **kwargs: object) -> None:
        turn(*args, **kwargs)  # type: ignore[arg-type]
        lookout.look()

    world.turn = turn_and_look  # type: ignore[method-assign]
    with contextlib.closing(source):
        yield lookout
