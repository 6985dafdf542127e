"""The simulator writes what the real connector writes: the same kinds of events, ring by ring and in order."""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from pushscope.lab.simulator.chances import Between
from pushscope.lab.simulator.mix import Mix, Times, plain
from pushscope.lab.simulator.request import Phase, Request
from pushscope.lab.simulator.simulation import Simulation
from pushscope.telemetry import events as ev
from pushscope.telemetry.source import RingsSource
from tests.vllm.fake.layout import Layout
from tests.vllm.fake.scenarios import SCENARIOS, blocks_first, registration_first
from tests.vllm.fake.world import World

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]  # vLLM's and torch's own

BY_THE_CLOCK = (ev.Loop, ev.Tables, ev.HeartbeatSent, ev.HeartbeatDrained)
Kinds = dict[tuple[str, str, int, str], list[str]]
"""(P or D, scheduler or worker, rank, "requests" or "engine") -> the kinds of its events.

Requests go on in the writer thread while the handshake thread does its part: which is first is chance.
"""


def kinds_of(said: list[tuple[ev.Origin, bytes]]) -> Kinds:
    found: Kinds = defaultdict(list)
    for origin, payload in dict.fromkeys(said):  # what is said again is no news
        event = ev.decode(payload)
        if not isinstance(event, BY_THE_CLOCK):
            side = "P" if origin.kv_role == "kv_producer" else "D"
            about = "requests" if isinstance(event, ev.RequestEvent) else "engine"
            found[side, origin.connector_role, origin.tp_rank, about].append(type(event).__name__)
    return dict(found)


def real(folder: Path, p_tp: int, d_tp: int, play) -> Kinds:
    with World(folder, instrumented=True) as world:
        world.engine("P", Layout(tp=p_tp))
        world.engine("D", Layout(tp=d_tp))
        play(world)
        with closing(RingsSource(folder)) as source:
            reading = source.poll()
        return kinds_of([(reading.rings[n].origin, payload) for n, payload in reading.events])


class Simulated:
    """One request between one P and one D; whoever plays says what happens when."""

    def __init__(self, mix: Mix, *, full_hit: bool = False) -> None:
        at_once = msgspec.structs.replace(mix, times=Times(handshake=Between(0.05, 0.06)))
        self.simulation = Simulation(at_once)
        (self.clients,) = self.simulation.pools
        self.p, self.d = self.clients.p[0], self.clients.d[0]
        self.r = Request(self.p, self.d, "a", ("1" * 8, "2" * 8), tokens=100, blocks=4, full_hit=full_hit)
        self._said: list[tuple[ev.Origin, bytes]] = []

    def wait(self, seconds: float) -> None:
        said = self.simulation.advance(self.simulation.now_ns + int(seconds * 1e9))
        self._said += [(self.simulation.origins[n], payload) for n, payload in said]

    def kinds(self) -> Kinds:
        self.wait(200)
        assert self.simulation.is_idle
        return kinds_of(self._said)


@pytest.mark.parametrize(("p_tp", "d_tp"), [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("first", ["registration", "blocks"])
def test_a_transfer_between_engines_that_meet_for_the_first_time(p_tp, d_tp, first, tmp_path):
    simulated = Simulated(plain(1.0, p_tp=p_tp, d_tp=d_tp))
    legs = [simulated.d.arrive, simulated.p.arrive]
    for leg in legs if first == "registration" else reversed(legs):
        leg(simulated.r)
        simulated.wait(2)
    play = registration_first if first == "registration" else blocks_first
    assert simulated.kinds() == real(tmp_path / "rings", p_tp, d_tp, play)


def test_a_full_hit(tmp_path):
    simulated = Simulated(plain(1.0), full_hit=True)
    simulated.p.arrive(simulated.r)
    simulated.wait(2)
    simulated.d.arrive(simulated.r)
    assert of_requests(simulated.kinds()) == of_requests(
        real(tmp_path / "rings", 1, 1, SCENARIOS["D needs nothing"].play)
    )


def test_a_client_that_leaves_while_d_has_it_queued(tmp_path):
    simulated = Simulated(plain(1.0))
    simulated.p.arrive(simulated.r)
    simulated.wait(2)
    simulated.d.arrive(simulated.r)
    simulated.d.abort(simulated.r)
    assert simulated.r.d_phase is Phase.ENDED
    scenario = SCENARIOS["D aborts before it is scheduled"]
    assert of_requests(simulated.kinds()) == of_requests(real(tmp_path / "rings", 1, 1, scenario.play))


def test_a_client_that_leaves_while_d_waits(tmp_path):
    simulated = Simulated(plain(1.0))
    simulated.d.arrive(simulated.r)
    simulated.wait(2)
    simulated.d.abort(simulated.r)
    simulated.p.arrive(simulated.r)
    scenario = SCENARIOS["D aborts while it waits"]
    assert of_requests(simulated.kinds()) == of_requests(real(tmp_path / "rings", 1, 1, scenario.play))


def of_requests(kinds: Kinds) -> Kinds:
    """Without handshakes, which a heartbeat may begin."""
    return {place: found for place, found in kinds.items() if place[-1] == "requests"}
