"""Draws the pictures of the README from a real run: ``make pictures``."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from pushscope.lab.folders import lab_dir
from pushscope.lab.load import LoadPlan, ServerTarget, run_load
from pushscope.lab.spec import prefill_decode
from pushscope.lab.up import LabPlan, lab
from pushscope.telemetry.live import snapshots
from pushscope.telemetry.where import Where
from pushscope.tui.app import TopApp

IMAGES = Path(__file__).parent / "images"
SIZE = (118, 32)
LOAD = LoadPlan(duration_s=12, concurrency=10, prompt_tokens=(500, 4000), output_tokens=(16, 64), seed=1)


async def _draw(router_url: str, rings: Path) -> None:
    load = asyncio.create_task(run_load(LOAD, ServerTarget(router_url)))
    with snapshots(Where(rings=rings)) as source:
        app = TopApp(source, 0.25, "1P1D, vLLM and NIXL on CPU")
        async with app.run_test(size=SIZE) as pilot:
            # The moment that shows most: something waits and something moves.
            best = 0
            while not load.done():
                await pilot.pause(0.25)
                shown = app._newest
                busy = 10 * min(3, len(shown.in_flight)) + min(5, len(shown.waiting)) if shown else 0
                if shown and shown.totals.outcomes and busy > best:
                    best = busy
                    (IMAGES / "top.svg").write_text(app.export_screenshot(title="pushscope top"))
    await load


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as rings:
        plan = LabPlan(directory=lab_dir(), specs=prefill_decode(), ring_dir=Path(rings))
        with lab(plan) as deployment:
            asyncio.run(_draw(deployment.router_url, Path(rings)))


if __name__ == "__main__":
    main()
