"""Draws the pictures of the README and the guides from a real run: ``make pictures``."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from pushscope.lab.faults.ground import ground
from pushscope.lab.faults.sight import Sight
from pushscope.lab.faults.table import FAULTS
from pushscope.lab.folders import lab_dir
from pushscope.lab.load import LoadPlan, ServerTarget, run_load
from pushscope.lab.spec import prefill_decode
from pushscope.lab.up import LabPlan, lab
from pushscope.telemetry.live import snapshots
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.where import Where
from pushscope.tui.app import TopApp

IMAGES = Path(__file__).parent / "images"
SIZE = (118, 32)
LOAD = LoadPlan(duration_s=12, concurrency=10, prompt_tokens=(500, 4000), output_tokens=(16, 64), seed=1)
WRONG = ("lost-prefill", "different-ids", "abort-registered")


async def _draw(name: str, router_url: str, rings: Path, score: Callable[[Snapshot], int]) -> None:
    """Let ``top`` watch a load, and keep the moment that scores most."""
    load = asyncio.create_task(run_load(LOAD, ServerTarget(router_url)))
    with snapshots(Where(rings=rings)) as source:
        app = TopApp(source, 0.25, "1P1D, vLLM and NIXL on CPU")
        async with app.run_test(size=SIZE) as pilot:
            best = 0
            while not load.done():
                await pilot.pause(0.25)
                shown = app._newest
                if shown and shown.totals.outcomes and score(shown) > best:
                    best = score(shown)
                    (IMAGES / f"{name}.svg").write_text(app.export_screenshot(title="pushscope top"))
    await load


def _busy(shown: Snapshot) -> int:
    """Something waits and something moves."""
    return 10 * min(3, len(shown.in_flight)) + min(5, len(shown.waiting))


def _wrong(shown: Snapshot) -> int:
    return 100 * len(shown.diagnoses) + _busy(shown)


async def _draw_all(router_url: str, rings: Path) -> None:
    await _draw("top", router_url, rings, _busy)
    with Sight(rings) as sight:
        async with ground(lab_dir(), sight) as at, AsyncExitStack() as faults:
            for name in WRONG:
                await faults.enter_async_context(FAULTS[name].make(at))
            await _draw("stuck", router_url, rings, _wrong)


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as rings:
        plan = LabPlan(directory=lab_dir(), specs=prefill_decode(), ring_dir=Path(rings))
        with lab(plan) as deployment:
            asyncio.run(_draw_all(deployment.router_url, Path(rings)))


if __name__ == "__main__":
    main()
