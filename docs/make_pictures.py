"""Draws the pictures of the README and the guides from a real run: ``make pictures``.

``python docs/make_pictures.py [NAME…]``: those of ``top``, ``stuck`` and ``trace`` that are named, or all.
"""

from __future__ import annotations

import asyncio
import io
import sys
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from pushscope.lab.deployment import Deployment
from pushscope.lab.faults.ground import ground
from pushscope.lab.faults.sight import Sight
from pushscope.lab.faults.table import FAULTS
from pushscope.lab.folders import lab_dir
from pushscope.lab.load import LoadPlan, ServerTarget, run_load
from pushscope.lab.otlp import Otlp
from pushscope.lab.spec import prefill_decode
from pushscope.lab.tracing import roots_to
from pushscope.lab.up import LabPlan, lab
from pushscope.telemetry.live import watched
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.spans.model import Kind, Span
from pushscope.telemetry.spans.tree import tree_lines
from pushscope.telemetry.where import Where
from pushscope.tui.app import TopApp

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.otlp_sink import OtlpSink, SunkSpan

IMAGES = Path(__file__).parent / "images"
SIZE = (118, 32)
LOAD = LoadPlan(duration_s=12, concurrency=10, prompt_tokens=(500, 4000), output_tokens=(16, 64), seed=1)
TRACED = LoadPlan(num_requests=3, prompt_tokens=1500, output_tokens=16, seed=2)
WRONG = ("lost-prefill", "different-ids", "abort-registered")


async def _draw(name: str, router_url: str, rings: Path, score: Callable[[Snapshot], int]) -> None:
    """Let ``top`` watch a load, and keep the moment that scores most."""
    load = asyncio.create_task(run_load(LOAD, ServerTarget(router_url)))
    with watched(Where(rings=rings)) as (source, session):
        app = TopApp(source, 0.25, "1P1D, vLLM and NIXL on CPU", controls=session)
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


async def _draw_stuck(router_url: str, rings: Path) -> None:
    with Sight(rings) as sight:
        async with ground(lab_dir(), sight) as at, AsyncExitStack() as faults:
            for name in WRONG:
                await faults.enter_async_context(FAULTS[name].make(at))
            await _draw("stuck", router_url, rings, _wrong)


def _draw_trace(deployment: Deployment, sink: OtlpSink) -> None:
    """The last of some requests, as it was exported: the client's span, vLLM's, and ours."""
    with roots_to(Otlp(sink.grpc_endpoint)) as roots:
        *_, last = asyncio.run(run_load(TRACED, ServerTarget(deployment.router_url, tracing=roots)))

    def of_last(spans: list[SunkSpan]) -> list[SunkSpan]:
        return [span for span in spans if span.trace_id == last.trace_id]

    def whole(spans: list[SunkSpan]) -> bool:
        return {"client", "server", "consumer", "producer"} <= {span.kind for span in of_last(spans)}

    pids = {str(deployment.pid(name)): name for name in deployment.specs}
    spans = [_span(span, pids) for span in of_last(sink.wait_for(whole, 60))]
    lines = list(tree_lines(spans, {"vllm-prefill": "P1", "vllm-decode": "D1"}))
    console = Console(record=True, width=max(map(len, lines)), file=io.StringIO())
    for line in lines:
        console.print(Text(line), soft_wrap=True)
    console.save_svg(str(IMAGES / "trace.svg"), title="one request: client, vLLM, and the KV hop")


def _span(sunk: SunkSpan, pids: dict[str, str]) -> Span:
    """As exported, back in our form. Of vLLM's own spans the process says whose they are."""
    kind = Kind(sunk.kind) if sunk.kind in set(Kind) else Kind.CONSUMER  # the tree tells stages from the rest
    by_pid = pids.get(str(sunk.resource.get("vllm.process_id")), "")
    return Span(
        name=sunk.name,
        kind=kind,
        trace_id=int(sunk.trace_id, 16),
        span_id=int(sunk.span_id, 16),
        parent_span_id=int(sunk.parent_span_id, 16) if sunk.parent_span_id else None,
        start_unix_ns=sunk.start_ns,
        end_unix_ns=sunk.end_ns,
        attributes=sunk.attributes,
        engine_id=by_pid or ("" if sunk.kind == "client" else sunk.resource["service.name"]),
    )


def main() -> None:
    wanted = sys.argv[1:] or ["top", "stuck", "trace"]
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, OtlpSink() as sink:
        rings = Path(folder)
        specs = prefill_decode()
        if "trace" in wanted:
            specs = [replace(spec, agent=True, otlp=Otlp(sink.grpc_endpoint)) for spec in specs]
        with lab(LabPlan(directory=lab_dir(), specs=specs, ring_dir=rings)) as deployment:
            if "trace" in wanted:
                _draw_trace(deployment, sink)
            if "top" in wanted:
                asyncio.run(_draw("top", deployment.router_url, rings, _busy))
            if "stuck" in wanted:
                asyncio.run(_draw_stuck(deployment.router_url, rings))


if __name__ == "__main__":
    main()
