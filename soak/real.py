"""Real engines under full load, watched all the time by the watcher that all views have."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from pushscope.lab.deployment import Deployment
from pushscope.lab.launch import Launcher
from pushscope.lab.legs import DirectTarget, Order
from pushscope.lab.load import LoadPlan, run_load
from pushscope.lab.results import RequestResult
from pushscope.lab.spec import EngineSpec, prefill_decode
from pushscope.lab.up import LabPlan, lab
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.source import RingsSource
from pushscope.telemetry.watch import Watcher
from soak.clients import Clients
from soak.display import OnProgress
from soak.result import Part
from soak.tally import Tally

EVERY_S = 0.25
_SETTLED_S = 45.0
"""After the load: leases of full hits and of those who left have to run out."""
_QUIET_S = 1.0


@dataclass(frozen=True, slots=True)
class Layout:
    """Engines, and the order in which both legs of a request are sent to them."""

    name: str
    share: float
    """Of all transfers."""
    decodes: int = 1
    decode_tp: int = 1
    order: Order = "both"
    concurrency: int = 12
    leaves: float = 0.0
    """Of all clients, in serial order: only then P's leg does not end with D's."""

    def specs(self) -> list[EngineSpec]:
        specs = prefill_decode(1, self.decodes)
        return [replace(s, tensor_parallel_size=self.decode_tp) if s.role == "decode" else s for s in specs]


LAYOUTS = (
    Layout("1 P, 1 D, both legs at once", 0.3),
    Layout("1 P, 2 D, both legs at once", 0.3, decodes=2),
    Layout("1 P, 1 D, one leg after the other", 0.25, order="p-first", leaves=0.04),
    Layout("1 P, 1 D of two ranks, both legs at once", 0.15, decode_tp=2, concurrency=6),
)


def run(
    num_transfers: int, directory: Path, launcher: Launcher, progress: Callable[[str, int], OnProgress]
) -> list[Part]:
    """A lab for each layout, one after the other, each with its share of the transfers.

    ``progress(name, total)`` gives what is told the transfers and errors so far.
    """
    parts = []
    for number, layout in enumerate(LAYOUTS):
        share = max(1, round(num_transfers * layout.share))
        folder = directory / str(number)
        plan = LabPlan(directory=folder, specs=layout.specs(), router=None, ring_dir=folder / "rings")
        with lab(plan, launcher=launcher) as deployment:
            on_progress = progress(layout.name, share)
            parts.append(asyncio.run(soaked(layout, share, deployment, folder / "rings", on_progress)))
    return parts


async def soaked(
    layout: Layout, num_transfers: int, deployment: Deployment, rings: Path, on_progress: OnProgress
) -> Part:
    """Send the load of a layout to its engines, and watch until all has settled."""
    direct = DirectTarget(deployment.urls("prefill"), deployment.urls("decode"), order=layout.order)
    clients = Clients(direct, full_hits=0.02, leaves=layout.leaves)
    plan = LoadPlan(
        num_requests=num_transfers,
        concurrency=layout.concurrency,
        prompt_tokens=(16, 900),
        output_tokens=(1, 24),
    )
    tally, results = Tally(layout.name, simulated=False), list[RequestResult]()
    with closing(RingsSource(rings)) as source:
        watcher = Watcher(source)
        load = asyncio.create_task(run_load(plan, clients, on_result=results.append))
        settled_at, quiet_since = float("inf"), float("inf")
        while (now := time.monotonic()) < settled_at and now - quiet_since < _QUIET_S:
            snapshot = await asyncio.to_thread(_look, watcher)  # the load goes on meanwhile
            tally.take(snapshot, len(results) / num_transfers)
            on_progress(len(results), tally.error_count)
            if load.done():
                settled_at = min(settled_at, now + _SETTLED_S)
                is_open = any(t.is_open for t in watcher.assembler.open_transfers())
                quiet_since = float("inf") if is_open else min(quiet_since, now)
            await asyncio.sleep(EVERY_S)
        await load
    refused = Counter(r.error for r in results if r.error and r.index not in clients.left)
    return tally.part(dict(refused))


def _look(watcher: Watcher) -> Snapshot:
    watcher.poll()
    return watcher.snapshot()
