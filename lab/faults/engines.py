"""Engines that were started wrongly, or break inside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from pushscope.lab.control import Changes
from pushscope.lab.engine.broken_nixl import post_fails_switch
from pushscope.lab.faults.fault import Fault, Made, fault
from pushscope.lab.faults.folder import faults_dir
from pushscope.lab.faults.ground import Ground, Side, now
from pushscope.lab.faults.queue import busy_decode

_SMALL_CACHE: Final = 2 << 20
"""Bytes: about 2,000 tokens of the tiny model."""


def _started_wrongly(name: str, code: str, side: Side, what: str, changes: Changes) -> Fault:
    """A fault in how an engine is started, which shows with the next request."""
    letter = "P" if side == "prefill" else "D"

    @fault(name, code, what=what, undone=f"{letter} is started again as before.")
    async def started_wrongly(ground: Ground) -> AsyncIterator[Made]:
        await ground.restart(side, changes=changes)
        if side == "prefill":
            await ground.learn()
        request, start = await ground.both_legs()
        yield Made(request.base_id, start)
        await ground.cure(side)

    return started_wrongly


block_sizes = _started_wrongly(
    "block-sizes",
    "block_sizes_differ",
    "decode",
    "D is started with blocks of 64 tokens, where P has 32.",
    Changes(block_size=64),
)
incompatible = _started_wrongly(
    "incompatible",
    "incompatible_engines",
    "decode",
    "D is started with another dtype than P.",
    Changes(args=("--dtype", "bfloat16")),
)
no_telemetry = _started_wrongly(
    "no-telemetry",
    "telemetry_missing",
    "prefill",
    "P is started with NIXL's telemetry off: it counts every push as failed.",
    Changes(env={"NIXL_TELEMETRY_ENABLE": "n"}),
)


@fault(
    "recompute",
    "computed_by_d",
    what="D is started with kv_load_failure_policy 'recompute', and cannot reach P.",
    undone="D is started again as before.",
)
async def recompute(ground: Ground) -> AsyncIterator[Made]:
    await ground.restart("decode", changes=Changes(kv_transfer={"kv_load_failure_policy": "recompute"}))
    request, start = await ground.both_legs({"remote_engine_id": "nobody"})
    yield Made(request.base_id, start)
    await ground.cure("decode")


@fault(
    "queue-outlasts-lease",
    "heartbeat_id_mismatch",
    what="D runs one request at a time and is busy for longer than P's lease; the legs are sent at once.",
    undone="D is started again with room for more than one request.",
    lease="whole",
)
async def queue_outlasts_lease(ground: Ground) -> AsyncIterator[Made]:
    async with busy_decode(ground):
        request = ground.request()
        request.decode()
        await request.prefill()
        yield Made(request.base_id, await request.lease_end())


@fault(
    "small-cache",
    "heartbeat_id_mismatch",
    what="D has a KV cache of 2,000 tokens, which one request fills; the next one is queued past P's lease.",
    undone="D is started again with its usual cache.",
    lease="whole",
)
async def small_cache(ground: Ground) -> AsyncIterator[Made]:
    small = Changes(kv_cache_bytes=_SMALL_CACHE, max_model_len=1900, args=("--no-enable-prefix-caching",))
    await ground.restart("decode", changes=small)
    await ground.learn()
    await ground.registered(1500)  # it waits with its blocks for a prefill that is late
    second = ground.request(1500)
    second.decode()
    await second.prefill()
    yield Made(second.base_id, await second.lease_end())
    await ground.cure("decode")


@fault(
    "dead-listener",
    "handshake_listener_dead",
    what="A decode leg names a pipeline stage that P does not have (pp_size 2), which ends P's handshake listener.",
    undone="P is started again, and D, which would wait for ever for what it asked before.",
)
async def dead_listener(ground: Ground) -> AsyncIterator[Made]:
    await ground.restart("decode")
    _, start = await ground.both_legs({"pp_size": 2})
    yield Made(ground.engine("prefill").name, start)
    await ground.cure("prefill", "decode")


@fault(
    "blocked-handshakes",
    "handshake_queue_blocked",
    what="D is sent to three engines that do not answer, and then to P, with which it has not shaken hands.",
    undone="The hands are shaken when the others have timed out; D's request is answered.",
)
async def blocked_handshakes(ground: Ground) -> AsyncIterator[Made]:
    await ground.restart("decode")
    lost = ground.request()
    for number in range(3):
        lost.under_another_id().decode(
            params={"remote_engine_id": f"gone-{number}", "remote_host": "192.0.2.1"}
        )
    await asyncio.sleep(0.5)
    request = ground.request()
    decode = request.decode()
    await request.prefill()
    yield Made(ground.engine("decode").name, now())
    await asyncio.wait([decode], timeout=20)
    await ground.cure("decode")


@fault(
    "post-fails",
    "write_not_posted",
    what="NIXL refuses to post on the last rank of P; the lab makes it so inside that process.",
    undone="The lab lets NIXL post again; D is started again, which waits for that rank's part for ever.",
    prefill_tp=2,
)
async def post_fails(ground: Ground) -> AsyncIterator[Made]:
    async with _post_fails(ground):
        request, start = await ground.both_legs()
        yield Made(request.base_id, start)
    await ground.cure("decode")


@fault(
    "failed-push-kept",
    "heartbeats_keep_failed_push",
    what="NIXL refuses to post, and D, which a serial router told P's request id, renews P's lease again and again.",
    undone="The lab lets NIXL post again; D is started again, which waits for ever.",
)
async def failed_push_kept(ground: Ground) -> AsyncIterator[Made]:
    async with _post_fails(ground):
        request = ground.request()
        answer = await request.prefill()
        start = now()
        request.decode(params=answer.kv_transfer_params)
        yield Made(request.base_id, start)
    await ground.cure("decode")


@asynccontextmanager
async def _post_fails(ground: Ground) -> AsyncIterator[None]:
    """Within the block NIXL refuses to post on the last rank of P."""
    engine = await ground.sight.engine("prefill", ground.engine("prefill").side_channel_port)
    worker = max((p for p in engine.processes if p.connector_role == "worker"), key=lambda p: p.rank)
    switch = post_fails_switch(faults_dir(ground.directory), worker.pid)
    switch.parent.mkdir(exist_ok=True)
    switch.touch()
    try:
        yield
    finally:
        switch.unlink()


FAULTS: Final[tuple[Fault, ...]] = (
    block_sizes,
    incompatible,
    no_telemetry,
    recompute,
    queue_outlasts_lease,
    small_cache,
    dead_listener,
    blocked_handshakes,
    failed_push_kept,
    post_fails,
)
