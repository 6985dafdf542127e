"""A session on two agents far away, over a network that is hard on connections: does it count what there was?

One agent has the rings of all P, the other those of all D. A watcher on the engines' own host counts beside it.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import httpx
from bench.agent_process import AgentProcess

from pushscope.lab.simulator.chances import Between
from pushscope.lab.simulator.mix import plain
from pushscope.lab.simulator.network import Hardships, Relay
from pushscope.lab.simulator.rings import RealTimeRings
from pushscope.telemetry.joined import JoinedSource
from pushscope.telemetry.session import Session
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.source import RingsSource
from pushscope.telemetry.watch import Watcher, rest_the_collector
from pushscope.telemetry.where import Where
from soak.display import OnProgress
from soak.result import Relayed
from soak.tally import Tally

PER_S: Final = 100.0
"""Transfers, over all engines."""
HARD: Final = Hardships(delay_s=0.2, reset_every=1_500_000, calm=Between(5.0, 40.0), stall=Between(0.5, 14.0))
"""At this rate a connection is reset about every twenty seconds. Some stalls are longer than the silence after which
an agent is taken for gone."""
EVERY_S: Final = 0.5
RING_BYTES: Final = 32 << 20
"""Holds what is written in a minute and more, so that nothing need be lost."""
_SETTLE_S: Final = 90.0
"""After the last request: to catch up, through whatever the network still does."""


def run(
    seconds: float,
    folder: Path,
    on_progress: OnProgress,
    *,
    per_s: float = PER_S,
    hardships: Hardships = HARD,
    seed: int = 0,
) -> Relayed:
    """Engines that write for so long, and then everything that has to be caught up with."""
    rest_the_collector()  # as the command does
    p, d = folder / "p", folder / "d"
    rings = RealTimeRings(p, plain(per_s, pairs=2), seed, d_folder=d, num_bytes=RING_BYTES)
    with ExitStack() as stack:
        stack.enter_context(rings)
        agents = [stack.enter_context(AgentProcess(of, "")) for of in (p, d)]
        ports = [httpx.URL(agent.url).port or 80 for agent in agents]
        relays = [Relay(port, hardships, seed=seed + n) for n, port in enumerate(ports)]
        for relay in relays:
            stack.callback(relay.close)
        session = Session(Where(connect=tuple(relay.url for relay in relays)))
        stack.callback(session.close)
        source = stack.enter_context(closing(JoinedSource([RingsSource(p), RingsSource(d)])))
        at_home = Watcher(source)
        tally, cuts, silent_s = Tally("two agents, far away", simulated=True), set[str](), 0.0

        def look(done: float) -> Snapshot:
            at_home.poll()
            snapshot = session.snapshot()
            tally.take(snapshot, done)
            cuts.update(notice for notice in snapshot.unread if "disconnected since" in notice)
            on_progress(rings.simulation.sent, tally.error_count)
            return snapshot

        with rings.running():
            begun_s = time.monotonic()
            while (passed_s := time.monotonic() - begun_s) < seconds:
                silent_s = max(silent_s, _age_of_news_s(look(passed_s / seconds)))
                time.sleep(EVERY_S)
        give_up_s = time.monotonic() + _SETTLE_S
        while time.monotonic() < give_up_s:
            if _is_caught_up(look(1.0), rings.written) and _is_caught_up(at_home.snapshot(), rings.written):
                break
            time.sleep(EVERY_S)
        return Relayed(
            watched=tally.part({}),
            written=rings.written,
            at_home=at_home.snapshot().totals.outcomes,
            delay_s=hardships.delay_s,
            resets=sum(relay.resets for relay in relays),
            stalls=sum(relay.stalls for relay in relays),
            reconnects=sum(relay.connections - 1 for relay in relays),
            cuts_told=len(cuts),
            silent_s=round(silent_s, 1),
        )


def _age_of_news_s(snapshot: Snapshot) -> float:
    """How long ago the last event was of the engine that was heard least lately."""
    last = [max(process.last_event_ns or 0 for process in engine.processes) for engine in snapshot.engines]
    return (snapshot.taken_ns - min(last)) / 1e9 if all(last) and last else 0.0


def _is_caught_up(snapshot: Snapshot, written: int) -> bool:
    totals = snapshot.totals
    return not totals.in_flight + totals.waiting and totals.events + totals.events_lost >= written
