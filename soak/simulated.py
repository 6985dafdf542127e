"""Simulated engines, watched in virtual time by the watcher that all views have."""

from __future__ import annotations

from pushscope.lab.simulator.mix import SOAK, Mix
from pushscope.lab.simulator.simulation import Simulation, VirtualSource
from pushscope.telemetry.watch import Watcher, rest_the_collector
from soak.display import OnProgress
from soak.result import Part
from soak.tally import Tally

EVERY_NS = 1_000_000_000
"""Virtual time from one snapshot to the next."""


def run(
    num_transfers: int, on_progress: OnProgress, *, seed: int = 0, mix: Mix = SOAK, every_ns: int = EVERY_NS
) -> Part:
    """Watch so many requests from the first to the end of the last lease."""
    rest_the_collector()  # as the command does
    simulation = Simulation(mix, seed)
    watcher = Watcher(VirtualSource(simulation, num_transfers, every_ns))
    tally = Tally(f"{len(mix.pools)} deployments", simulated=True)
    while watcher.poll():
        tally.take(watcher.snapshot(), simulation.sent / num_transfers)
        on_progress(simulation.sent, tally.error_count)
    return tally.part(dict(simulation.world.wrongs))
