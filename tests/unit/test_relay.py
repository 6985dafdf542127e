"""A session that watches two agents over a network that is hard on its connections."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from pushscope.lab.simulator.chances import Between
from pushscope.lab.simulator.mix import plain
from pushscope.lab.simulator.network import Hardships, Relay
from pushscope.lab.simulator.rings import RealTimeRings
from pushscope.telemetry.joined import JoinedSource
from pushscope.telemetry.recording import RecordingSource
from pushscope.telemetry.session import Session
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.source import RingsSource, Source
from pushscope.telemetry.transfer import Transfer
from pushscope.telemetry.watch import Watcher
from pushscope.telemetry.where import Where

from .agents import serving, until

HARD = Hardships(delay_s=0.2, reset_every=200_000, calm=Between(1.0, 4.0), stall=Between(0.5, 2.0))
WRITTEN_S = 10.0
RING_BYTES = 4 << 20  # none of them turns over


def by_ring(source: Source) -> dict[str, list[bytes]]:
    """All events that a source has, in the order in which it gives those of a ring."""
    events: dict[str, list[bytes]] = {}
    with closing(source):
        while reading := source.poll():
            for index, payload in reading.events:
                events.setdefault(reading.rings[index].origin.instance, []).append(payload)
            if not source.ends:
                break
    return events


def ended(source: Source) -> list[Transfer]:
    transfers: list[Transfer] = []
    with closing(source):
        watcher = Watcher(source, on_closed=transfers.append)
        watcher.read_all()
        watcher.assembler.close_all()
    return transfers


def test_nothing_is_lost_or_counted_twice_over_a_hard_network(tmp_path: Path) -> None:
    p, d, recorded = tmp_path / "p", tmp_path / "d", tmp_path / "watched.psr"
    rings = RealTimeRings(p, plain(40.0), 1, d_folder=d, num_bytes=RING_BYTES)
    with rings, serving(p) as of_p, serving(d) as of_d:
        relays = [Relay(agent.port, HARD, seed=2 + n) for n, agent in enumerate((of_p, of_d))]
        session = Session(Where(connect=tuple(relay.url for relay in relays)))
        session.record(recorded)
        said: Counter[str] = Counter()

        def at_home() -> Source:
            return JoinedSource([RingsSource(p), RingsSource(d)])

        def look() -> Snapshot:
            snapshot = session.snapshot()
            said.update(relay.url for relay in relays for n in snapshot.unread if is_cut(relay, n))
            return snapshot

        with rings.running():
            end_s = time.monotonic() + WRITTEN_S
            while time.monotonic() < end_s:
                look()
                time.sleep(0.1)
        until(lambda: look().totals.events >= rings.written, 60.0)
        until(lambda: not any((snapshot := look()).in_flight + snapshot.waiting))
        last = look()
        session.close()
        for relay in relays:
            relay.close()
        assert by_ring(RecordingSource(recorded)) == by_ring(at_home())
        here, away = ended(at_home()), ended(RecordingSource(recorded))
    for relay in relays:
        assert relay.stalls
        assert relay.resets
        assert relay.connections > 1
        assert said[relay.url], "who is out of reach is told"
    assert last.totals.events == rings.written
    assert last.totals.events_lost == 0
    assert last.totals.outcomes == {"delivered": rings.simulation.sent}
    assert {t.base_id: t.stages for t in away} == {t.base_id: t.stages for t in here}
    assert len(away) == len(here) == rings.simulation.sent


def is_cut(relay: Relay, notice: str) -> bool:
    return notice.startswith(f"{relay.url}: disconnected since")
