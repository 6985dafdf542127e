"""What clients do: end a request at each of its stages, send it again, ask for what D has to compute itself."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Final

from pushscope.lab.faults.fault import Fault, Made, fault
from pushscope.lab.faults.ground import LONG, Ground, now
from pushscope.lab.faults.queue import busy_decode
from pushscope.lab.faults.stops import write_stopped_by_decode


@fault(
    "abort-queued",
    "prefill_unclaimed",
    what="A client ends its decode leg while D has it in its queue; the prefill is done.",
    undone="D is started again with room for more than one request; P's lease ends by itself.",
    lease="half",
)
async def abort_queued(ground: Ground) -> AsyncIterator[Made]:
    async with busy_decode(ground):
        request = ground.request()
        decode = request.decode()
        await request.prefill()
        lease_end = await request.lease_end()
        decode.cancel()
        yield Made(request.base_id, (now() + lease_end) / 2)


@fault(
    "abort-registered",
    "aborted_requests_pin_blocks",
    what="A client ends its decode leg when D has registered; the prefill leg was lost.",
    undone="The prefill leg is sent after all: its push frees D's blocks.",
)
async def abort_registered(ground: Ground) -> AsyncIterator[Made]:
    request, decode = await ground.registered()
    decode.cancel()
    yield Made(request.base_id, now())
    await request.prefill()


@fault(
    "abort-prefilling",
    "registration_without_prefill",
    what="A client, or the router, ends the prefill leg while P computes it; D has registered.",
    undone="The prefill leg is sent again.",
)
async def abort_prefilling(ground: Ground) -> AsyncIterator[Made]:
    request, decode = await ground.registered(LONG)
    prefill = request.prefill()
    await request.prefilling()
    prefill.cancel()
    yield Made(request.base_id, now())
    await request.prefill()
    await decode


@fault(
    "abort-in-flight",
    "aborted_requests_pin_blocks",
    what="A client ends its decode leg while P's WRITE is under way; P is stopped, so that it stays so.",
    undone="P goes on (SIGCONT): the WRITE is done, and frees D's blocks.",
)
async def abort_in_flight(ground: Ground) -> AsyncIterator[Made]:
    async with write_stopped_by_decode(ground) as (request, decode):
        with ground.stopped("prefill"):
            ground.signal("decode", signal.SIGCONT)
            decode.cancel()
            yield Made(request.base_id, now())


@fault(
    "retry-pending",
    "retry_met_older_registration",
    what="A request is sent again under its old id while D still waits for the prefill of its first attempt.",
    undone="The prefill leg is sent once more, for the attempt that is left.",
)
async def retry_pending(ground: Ground) -> AsyncIterator[Made]:
    request, _ = await ground.registered()
    second = request.decode()
    await request.registered(attempt=2)
    await request.prefill()
    yield Made(request.base_id, now())
    await request.prefill()
    await second


@fault(
    "shared-id",
    "concurrent_requests_share_id",
    what="Two requests with different prompts are sent at once under one id; D is stopped, so that both last.",
    undone="D goes on (SIGCONT); both are answered.",
)
async def shared_id(ground: Ground) -> AsyncIterator[Made]:
    first, answer = await ground.registered(LONG)
    second = first.with_prompt_of(LONG)
    other = second.decode()
    await second.registered(attempt=2)
    with ground.stopped("decode"):
        await first.prefill()
        await second.prefill()
        yield Made(first.base_id, now())
    await asyncio.gather(answer, other)


@fault(
    "full-hit",
    "full_hit_held_until_lease",
    what="D needs nothing of P: with prompt_logprobs it has to compute the whole prompt itself.",
    undone="P's lease ends by itself.",
)
async def full_hit(ground: Ground) -> AsyncIterator[Made]:
    request = ground.request()
    await request.prefill()
    decode = request.decode(prompt_logprobs=0, stream=False)
    await decode
    yield Made(request.base_id, now())


@fault(
    "different-prompts",
    "writer_exception",
    what="The decode leg has a longer prompt than the prefill leg, so that P's writer fails on the registration.",
    undone="D is started again, which frees the blocks that it waits with.",
)
async def different_prompts(ground: Ground) -> AsyncIterator[Made]:
    request = ground.request(100)
    await request.prefill()
    request.with_prompt_of(1000).decode()
    yield Made(ground.engine("prefill").name, now())
    await ground.cure("decode")


FAULTS: Final[tuple[Fault, ...]] = (
    abort_queued,
    abort_registered,
    abort_prefilling,
    abort_in_flight,
    retry_pending,
    shared_id,
    full_hit,
    different_prompts,
)
