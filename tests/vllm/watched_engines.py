"""Engines that push and engines that pull, what is asked of them, and what is done to them, while somebody watches."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import httpx
from bench.rings import P_WORKER
from msgspec.structs import replace as replace_struct

from pushscope.lab.completion import RequestError, complete
from pushscope.lab.deployment import Deployment
from pushscope.lab.legs import DirectTarget, Order, decode_leg
from pushscope.lab.load import LoadPlan, LoadRequest, run_load
from pushscope.lab.ports import free_ports
from pushscope.lab.prompts import make_prompt
from pushscope.lab.spec import EngineSpec
from pushscope.telemetry.events import Loop, encode
from pushscope.telemetry.ring import SLOT_BYTES, RingWriter

LEASE_S = 6.0
NOBODY = "nobody"
"""An engine id that no engine has."""
TOO_FAST, RING_BYTES = "too-fast", 256 << 10
PLAN = LoadPlan(num_requests=4, concurrency=2, prompt_tokens=(60, 600), output_tokens=4, timeout_s=30)


def specs(p_rings: Path, d_rings: Path) -> list[EngineSpec]:
    """P1 with two ranks pushes to D1; D2 pulls from P2."""
    common = {"extra_config": {"kv_lease_duration": LEASE_S}}
    at_p, at_d = ({"PUSHSCOPE_DIR": str(folder)} for folder in (p_rings, d_rings))
    pull = {"kv_connector": "NixlPullConnector", **common}
    return [
        EngineSpec("P1", "prefill", tensor_parallel_size=2, env=at_p, **common),
        EngineSpec("D1", "decode", env=at_d, **common),
        EngineSpec("P2", "prefill", env=at_p, **pull),
        EngineSpec("D2", "decode", env=at_d, **pull),
    ]


def pushing(deployment: Deployment) -> DirectTarget:
    """The pair that pushes, both legs at once."""
    return DirectTarget([deployment.specs["P1"].url], [deployment.specs["D1"].url])


class Traffic:
    """Requests in both modes, until the block ends."""

    def __init__(self, deployment: Deployment):
        self._targets = (
            pushing(deployment),
            DirectTarget([deployment.specs["P2"].url], [deployment.specs["D2"].url], order="p-first"),
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic")
        self.errors: list[str] = []

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        seed = 0
        while not self._over.is_set():
            seed += 1
            asyncio.run(self._round(replace(PLAN, seed=seed)))

    async def _round(self, plan: LoadPlan) -> None:
        for results in await asyncio.gather(*(run_load(plan, target) for target in self._targets)):
            self.errors += [result.error for result in results if result.error]


@contextmanager
def faults(push: DirectTarget) -> Iterator[None]:
    """Within the block D waits for prefills that never come, P for decodes, and D shakes hands with nobody."""
    over = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_faults(push, over)), name="faults")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def _faults(push: DirectTarget, over: threading.Event) -> None:
    (p_url,), (d_url,) = push.prefill_urls, push.decode_urls

    async def again(order: Order, number: int) -> None:
        target = DirectTarget([p_url], [d_url], order=order)
        while True:
            await run_load(replace(PLAN, num_requests=number, concurrency=number, timeout_s=20), target)
            await asyncio.sleep(1)

    async def with_nobody() -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            peer = await DirectTarget([p_url], [d_url]).learn(client, p_url, d_url)
            number = 0
            while True:
                number += 1
                request = LoadRequest(0, make_prompt(5, number, 100), 1)
                params = {
                    **peer.decode_params(f"nobody-{number}"),
                    "remote_engine_id": NOBODY,
                    "remote_port": free_ports(),
                }
                leg = decode_leg(d_url, request, f"nobody-{number}", params)
                with suppress(RequestError, httpx.HTTPError):
                    await complete(client, leg.url, leg.body, headers=leg.headers)
                await asyncio.sleep(1)

    tasks = [asyncio.create_task(each) for each in (again("only-d", 2), again("only-p", 3), with_nobody())]
    while not over.is_set():
        await asyncio.sleep(0.1)
        for task in tasks:
            if task.done():
                task.result()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def too_fast(rings: Path) -> Iterator[Callable[[], None]]:
    """An engine of which nothing is real but its ring, a small one; what it gives writes over it ten times at once."""
    writer = RingWriter(
        rings, replace_struct(P_WORKER, engine_id=TOO_FAST, instance=TOO_FAST), num_bytes=RING_BYTES
    )
    said = encode(Loop(time.monotonic_ns(), 1, 1_000))
    slots = RING_BYTES // SLOT_BYTES

    def burst() -> None:
        for _ in range(10 * slots):
            writer.write(said)

    writer.write(said)
    try:
        yield burst
    finally:
        writer.close()
