"""A simulation: engines and clients of a mix, played in virtual time."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from operator import itemgetter
from random import Random
from typing import Final

from pushscope.lab.simulator.clients import Clients
from pushscope.lab.simulator.decode import DecodeEngine
from pushscope.lab.simulator.mix import Mix, Pool
from pushscope.lab.simulator.prefill import PrefillEngine
from pushscope.lab.simulator.recorder import Said
from pushscope.lab.simulator.timeline import Story
from pushscope.lab.simulator.world import Place, World
from pushscope.telemetry.events import Origin
from pushscope.telemetry.source import Reading, RingState

START_NS: Final = 1_000_000_000_000
START_UNIX_NS: Final = 1_800_000_000_000_000_000
_FIRST_PORT, _FIRST_PID = 5_600, 10_000


class Simulation:
    """The same for the same mix and seed. ``advance`` lets time pass; what was recorded meanwhile is taken with it."""

    def __init__(
        self, mix: Mix, seed: int = 0, *, start_ns: int = START_NS, start_unix_ns: int = START_UNIX_NS
    ):
        self.world = World(mix, seed, start_ns, start_unix_ns)
        self.pools = [self._pool(pool) for pool in mix.pools]
        self._begun = False

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Of each ring, in the order of their indices."""
        return tuple(self.world.origins)

    @property
    def now_ns(self) -> int:
        return self.world.now_ns

    @property
    def sent(self) -> int:
        """Requests that clients have sent so far."""
        return sum(clients.sent for clients in self.pools)

    @property
    def is_idle(self) -> bool:
        """Whether no engine has anything left to do."""
        return not any(engine.works for clients in self.pools for engine in (*clients.p, *clients.d))

    def begin(self) -> None:
        """Let the clients come, and ranks be slow at times."""
        self._begun = True
        for clients in self.pools:
            self.world.timeline.start(clients.come())
        self.world.timeline.start(self._slow_ranks())

    def stop(self) -> None:
        """Let no new requests come; those that are there go on to their end."""
        for clients in self.pools:
            clients.stopped = True

    def advance(self, until_ns: int) -> list[Said]:
        """Let time pass, and take what was recorded meanwhile, ring by ring as a reader of rings finds it."""
        self.world.timeline.run_until(until_ns)
        said = sorted(self.world.said, key=itemgetter(0))
        self.world.said.clear()
        return said

    def _pool(self, pool: Pool) -> Clients:
        p = [
            PrefillEngine(
                self.world, self._place(f"{pool.name}-p{n}", "kv_producer", pool.p_tp), pool.slots_p
            )
            for n in range(pool.num_p)
        ]
        d = [
            DecodeEngine(self.world, self._place(f"{pool.name}-d{n}", "kv_consumer", pool.d_tp), pool.slots_d)
            for n in range(pool.num_d)
        ]
        return Clients(self.world, pool, p, d)

    def _place(self, name: str, kv_role: str, tp_size: int) -> Place:
        at = len(self.world.origins)
        return Place(
            name=name,
            engine_id=str(uuid.UUID(int=self.world.random.getrandbits(128))),
            kv_role=kv_role,
            tp_size=tp_size,
            port=_FIRST_PORT + at,
            pid=_FIRST_PID + 10 * at,
        )

    def _slow_ranks(self) -> Story:
        """Now and then one rank takes longer than the others, for a while."""
        random, weather = Random(self.world.random.getrandbits(64)), self.world.mix.weather
        workers = [w for clients in self.pools for engine in (*clients.p, *clients.d) for w in engine.ranks]
        while True:
            yield weather.slow_rank_after.ns(random)
            worker = random.choice(workers)
            worker.slowness = weather.slow_rank_times
            yield weather.slow_rank_for.ns(random)
            worker.slowness = 1.0


class VirtualSource:
    """A simulation as a source for a watcher: each poll lets ``every_ns`` pass.

    Ends when ``num_requests`` were sent and the engines have nothing left to do.
    """

    label = "a simulation"
    ends = True

    def __init__(self, simulation: Simulation, num_requests: int, every_ns: int):
        self.simulation = simulation
        self._num_requests, self._every_ns = num_requests, every_ns
        self._rings = tuple(RingState(origin) for origin in simulation.origins)
        self._unix_offset_ns = START_UNIX_NS - START_NS
        simulation.begin()

    def poll(self) -> Reading | None:
        simulation = self.simulation
        if simulation.sent >= self._num_requests:
            simulation.stop()
            if simulation.is_idle and not simulation.world.said:
                return None
        t_ns = simulation.now_ns + self._every_ns
        said = simulation.advance(t_ns)
        return Reading(t_ns, t_ns + self._unix_offset_ns, self._rings, said)

    def settle(self) -> None:
        """All that was said by now can be polled."""

    def close(self) -> None: ...


def readings(source: VirtualSource) -> Iterator[Reading]:
    """All that it gives."""
    while (reading := source.poll()) is not None:
        yield reading
