"""Engines that stop, or slow down, without ending: SIGSTOP to all of their processes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from pushscope.lab.completion import Answer
from pushscope.lab.faults.fault import Fault, Made, fault
from pushscope.lab.faults.ground import LONG, Ground, now
from pushscope.lab.faults.request import Request
from pushscope.lab.legs import DirectTarget
from pushscope.lab.load import LoadPlan, run_load

_KNOWN: Final = 24
"""Transfers after which it is known what is usual between two engines."""
_AWAKE_S, _ASLEEP_S = 0.5, 4.0


@asynccontextmanager
async def write_stopped_by_decode(ground: Ground) -> AsyncIterator[tuple[Request, asyncio.Task[Answer]]]:
    """A request whose blocks P is writing while D is stopped for the block, and D's leg of it."""
    request, decode = await ground.registered(LONG)
    with ground.stopped("decode"):
        await request.prefill()
        await request.writing()
        yield request, decode


@fault(
    "decode-stopped",
    "write_never_finished",
    what="D is stopped (SIGSTOP) while P writes to it.",
    undone="D goes on (SIGCONT).",
)
async def decode_stopped(ground: Ground) -> AsyncIterator[Made]:
    async with write_stopped_by_decode(ground) as (request, decode):
        yield Made(request.base_id, now())
    await decode


@fault(
    "stop-outlasts-lease",
    "lease_ended_during_write",
    what="D is stopped (SIGSTOP) while P writes to it, for longer than P's lease.",
    undone="D goes on (SIGCONT), and another request wakes P, which makes no step any more; the answer may be wrong.",
    lease="whole",
)
async def stop_outlasts_lease(ground: Ground) -> AsyncIterator[Made]:
    async with write_stopped_by_decode(ground) as (request, decode):
        yield Made(request.base_id, await request.lease_end())
    # P, whose lease is over, makes no step by itself, and NIXL tells D of the WRITE's end at one: wake it.
    await ground.learn()
    await decode


@fault(
    "reverse-handshake",
    "reverse_handshake_failed",
    what="D registers with a P that does not know it, and is stopped (SIGSTOP) before P shakes hands with it.",
    undone="D is started again, which would wait for ever.",
)
async def reverse_handshake(ground: Ground) -> AsyncIterator[Made]:
    await ground.restart("decode")
    request, _ = await ground.registered()
    with ground.stopped("decode"):
        await request.prefill()
        yield Made(request.base_id, now())
    await ground.cure("decode")


@fault(
    "prefill-stopped",
    "engine_stopped",
    what="P is stopped (SIGSTOP) while it computes a prompt that D has registered for.",
    undone="P goes on (SIGCONT).",
)
async def prefill_stopped(ground: Ground) -> AsyncIterator[Made]:
    request, decode = await ground.registered(LONG)
    request.prefill()
    await request.prefilling()
    with ground.stopped("prefill"):
        yield Made(ground.engine("prefill").name, now())
    await decode


@fault(
    "decode-slowed",
    "slow_link",
    what=f"D runs for {_AWAKE_S * 1e3:.0f} ms in every {_AWAKE_S + _ASLEEP_S:.1f} s (SIGSTOP and SIGCONT in turn) "
    "while P writes to it.",
    undone="D is left to run.",
)
async def decode_slowed(ground: Ground) -> AsyncIterator[Made]:
    urls = [ground.engine("prefill").url], [ground.engine("decode").url]
    await run_load(LoadPlan(num_requests=_KNOWN, output_tokens=1), DirectTarget(*urls))
    async with write_stopped_by_decode(ground) as (request, decode):
        slowed = asyncio.create_task(_slow(ground))
        try:
            yield Made(request.base_id, now())
        finally:
            slowed.cancel()
            with suppress(asyncio.CancelledError):
                await slowed
    await decode


async def _slow(ground: Ground) -> None:
    """Let D, which is stopped, run a little now and then."""
    while True:
        await asyncio.sleep(_ASLEEP_S)
        ground.signal("decode", signal.SIGCONT)
        await asyncio.sleep(_AWAKE_S)
        ground.signal("decode", signal.SIGSTOP)


FAULTS: Final[tuple[Fault, ...]] = (
    decode_stopped,
    stop_outlasts_lease,
    reverse_handshake,
    prefill_stopped,
    decode_slowed,
)
