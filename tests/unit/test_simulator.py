"""Simulated engines: the same again for the same seed, all that is meant to happen happens, nothing is left open."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing

import pytest

from pushscope.lab.simulator.mix import SOAK, plain
from pushscope.lab.simulator.rings import RealTimeRings
from pushscope.lab.simulator.simulation import Simulation, VirtualSource, readings
from pushscope.telemetry import events as ev
from pushscope.telemetry.source import Reading, RingsSource
from pushscope.telemetry.transfer import Outcome, Transfer
from pushscope.telemetry.watch import Watcher

EVERY_NS = 500_000_000


def said(seed: int, num_requests: int = 200) -> list[tuple[int, bytes]]:
    source = VirtualSource(Simulation(SOAK, seed), num_requests, EVERY_NS)
    return [each for reading in readings(source) for each in reading.events]


class Played:
    """A simulation from beginning to end, watched."""

    def __init__(self, simulation: Simulation, num_requests: int) -> None:
        self.simulation = simulation
        self.kinds: Counter[type[ev.Event]] = Counter()
        self.transfers: list[Transfer] = []
        source = VirtualSource(simulation, num_requests, EVERY_NS)
        take = source.poll

        def poll() -> Reading | None:
            if (reading := take()) is not None:
                self.kinds.update(type(ev.decode(payload)) for _, payload in reading.events)
            return reading

        source.poll = poll  # type: ignore[method-assign]
        watcher = Watcher(source, on_closed=self.transfers.append)
        watcher.run_to_end()
        self.transfers += watcher.assembler.open_transfers()


@pytest.fixture(scope="module")
def played() -> Played:
    return Played(Simulation(SOAK, 1), 4_000)


def test_the_same_seed_gives_the_same_events():
    assert said(3) == said(3)
    assert said(3) != said(4)


def test_everything_that_may_happen_happens(played):
    never = {
        # Of engines that are ill, that end, or whose recording is disturbed.
        ev.WatchdogFired, ev.RegistrationFailed, ev.NotificationUnrecognised, ev.ReceiveFailed, ev.TransferFailed,
        ev.NothingToPush, ev.WriterException, ev.ListenerDead, ev.EngineDown, ev.EventsDropped, ev.RecordingSwitched,
        ev.ConnectorRaised,
        # Of clients that trace, and of pull mode.
        ev.TraceContext, ev.ReadStaged, ev.NotificationSent, ev.ReadHandedOff,
    }  # fmt: skip
    assert set(ev.KINDS) - played.kinds.keys() - {ev.LeaseExtended} == never


def test_all_that_was_sent_ends(played):
    outcomes = Counter(t.outcome for t in played.transfers)
    assert outcomes.keys() - {Outcome.EXPIRED} == {
        Outcome.DELIVERED,
        Outcome.NOTHING_TO_RECEIVE,
        Outcome.ABORTED,
    }
    assert outcomes[Outcome.DELIVERED] > 0.9 * played.simulation.sent >= 3_600
    assert not played.simulation.world.wrongs


@pytest.mark.parametrize(("p_tp", "d_tp", "ranks"), [(1, 1, 1), (2, 1, 2), (1, 2, 2), (4, 2, 4)])
def test_every_rank_has_its_part(p_tp, d_tp, ranks):
    played = Played(Simulation(plain(20.0, p_tp=p_tp, d_tp=d_tp)), 20)
    assert {(t.ranks_done, t.ranks, t.outcome) for t in played.transfers} == {
        (ranks, ranks, Outcome.DELIVERED)
    }


def test_more_d_ranks_than_p_ranks_leave_registrations_behind():
    source = VirtualSource(Simulation(plain(20.0, d_tp=2)), 50, EVERY_NS)
    events = [ev.decode(payload) for reading in readings(source) for _, payload in reading.events]
    assert any(isinstance(e, ev.RegistrationDrained) and e.surplus for e in events)
    assert any(isinstance(e, ev.Tables) and e.unmatched_registrations for e in events)


@pytest.mark.parametrize("serial", [True, False])
def test_heartbeats_renew_a_lease_only_if_the_router_knows_the_id(serial):
    simulation = Simulation(plain(1.0))
    (clients,) = simulation.pools
    r = clients._request()
    r.full_hit, r.told_id = True, r.p_id if serial else r.told_id
    r.p.arrive(r)
    simulation.advance(simulation.now_ns + 5_000_000_000)
    clients.d[0]._free = 0  # no blocks for it, for as long as it takes
    r.d.arrive(r)
    events = [ev.decode(payload) for _, payload in simulation.advance(simulation.now_ns + 60_000_000_000)]
    assert any(isinstance(e, ev.LeaseExtended) for e in events) is serial
    assert any(isinstance(e, ev.LeaseExpired) for e in events) is not serial
    assert bool(simulation.world.wrongs) is not serial


def test_a_long_wait_is_said_again_with_its_first_time():
    simulation = Simulation(plain(1.0))
    (clients,) = simulation.pools
    clients.d[0].arrive(clients._request())
    events = [ev.decode(payload) for _, payload in simulation.advance(simulation.now_ns + 35_000_000_000)]
    staged = [e for e in events if isinstance(e, ev.RegistrationStaged)]
    assert len(staged) >= 3
    assert len(set(staged)) == 1


def test_rings_in_real_time_are_those_of_live_engines(tmp_path):
    with (
        RealTimeRings(tmp_path / "rings", plain(200.0)) as rings,
        closing(RingsSource(tmp_path / "rings")) as source,
    ):
        watcher = Watcher(source)
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            rings.write_until(time.monotonic_ns())
            watcher.poll()
            time.sleep(0.02)
        snapshot = watcher.snapshot()
    assert all(engine.alive for engine in snapshot.engines)
    assert [engine.side for engine in snapshot.engines] == ["P", "D"]
    assert snapshot.totals.events == rings.written
    assert snapshot.totals.events_lost == 0
    assert snapshot.totals.transfers > 100
