"""What a router, or the address that it names, does wrong."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from pushscope.lab.faults.fault import Fault, Made, fault
from pushscope.lab.faults.ground import Ground, now
from pushscope.lab.faults.request import Request
from pushscope.lab.legs import DirectTarget
from pushscope.lab.load import LoadPlan, run_load
from pushscope.lab.ports import free_ports

_NOWHERE: Final = "192.0.2.1"
"""An address that is nobody's (RFC 5737)."""
_MANY: Final = 24
"""Transfers after which the order of the legs is a habit."""
_TIME_TO_CLAIM_S: Final = 0.5


@fault(
    "lost-prefill",
    "registration_without_prefill",
    what="The decode leg of a request is sent, its prefill leg never.",
    undone="The prefill leg is sent after all.",
)
async def lost_prefill(ground: Ground) -> AsyncIterator[Made]:
    request, decode = await ground.registered()
    yield Made(request.base_id, now())
    await request.prefill()
    await decode


@fault(
    "lost-decode",
    "prefill_unclaimed",
    what="The prefill leg of a request is sent, its decode leg never.",
    undone="The decode leg is sent after all; P's blocks are claimed, if the lease is not over.",
    lease="half",
)
async def lost_decode(ground: Ground) -> AsyncIterator[Made]:
    request = ground.request()
    await request.prefill()
    lease_end = await request.lease_end()
    yield Made(request.base_id, (now() + lease_end) / 2)
    await _claim(request, lease_end)


@fault(
    "different-ids",
    "request_ids_differ",
    what="The two legs of a request carry different X-Request-Ids.",
    undone="Both missing legs are sent after all.",
)
async def different_ids(ground: Ground) -> AsyncIterator[Made]:
    request = ground.request()
    other = request.under_another_id()
    decode = other.decode()
    await other.registered()
    await request.prefill()
    lease_end = await request.lease_end()
    yield Made(request.base_id, now())
    await other.prefill()
    await decode
    await _claim(request, lease_end)


async def _claim(request: Request, lease_end: float) -> None:
    """Have D take the blocks that P holds, unless it is too late for that."""
    if now() < lease_end - _TIME_TO_CLAIM_S:
        await request.decode()


def _misdirected(name: str, code: str, what: str, wrong: Callable[[Ground], Mapping[str, Any]]) -> Fault:
    """A fault in what the decode leg is told of P, whom D must not know yet."""

    @fault(name, code, what=what, undone="The decode leg is sent again, as it should be.")
    async def misdirected(ground: Ground) -> AsyncIterator[Made]:
        await ground.restart("decode")
        request = ground.request()
        await request.prefill()
        lease_end = await request.lease_end()  # nothing tells it any more when D has failed
        start = now()
        request.decode(params=wrong(ground))
        yield Made(request.base_id, start)
        await _claim(request, lease_end)

    return misdirected


wrong_host = _misdirected(
    "wrong-host",
    "handshake_failed",
    "The decode leg names a side-channel host that is not P's, and nobody answers there.",
    lambda _: {"remote_host": _NOWHERE},
)
wrong_port = _misdirected(
    "wrong-port",
    "handshake_failed",
    "The decode leg names a side-channel port at which nobody listens.",
    lambda _: {"remote_port": free_ports()},
)
wrong_engine_id = _misdirected(
    "wrong-engine-id",
    "engine_id_mismatch",
    "The decode leg names an engine id that P does not have.",
    lambda _: {"remote_engine_id": str(uuid.uuid4())},
)


own_side_channel = _misdirected(
    "own-side-channel",
    "loopback_side_channel",
    "The decode leg names localhost with D's own side-channel port: D shakes hands with itself.",
    lambda ground: {
        "remote_host": "localhost",
        "remote_port": ground.engine("decode").side_channel_port,
    },
)


@fault(
    "incomplete-params",
    "incomplete_transfer_params",
    what="A decode leg comes without remote_engine_id, which ends D's engine core.",
    undone="D is started again.",
)
async def incomplete_params(ground: Ground) -> AsyncIterator[Made]:
    await ground.let_end("decode")
    request = ground.request()
    request.decode(without=["remote_engine_id"])
    yield Made(ground.engine("decode").name, now())
    await ground.cure("decode")


@fault(
    "late-decode",
    "lease_over_before_decode",
    what="The router sends P's leg, then D's, and D's when P's lease on the blocks is over.",
    undone="The prefill leg is sent again.",
    lease="whole",
)
async def late_decode(ground: Ground) -> AsyncIterator[Made]:
    request = ground.request()
    answer = await request.prefill()
    await asyncio.sleep(await request.lease_end() - now() + 0.5)
    decode = request.decode(params=answer.kv_transfer_params)
    yield Made(request.base_id, now())
    await request.prefill()
    await decode


@fault(
    "serial-router",
    "serial_router",
    what=f"Each of {_MANY} requests is dispatched to P first, and to D when P has answered.",
    undone=f"Each of {_MANY} requests is dispatched to both at once.",
)
async def serial_router(ground: Ground) -> AsyncIterator[Made]:
    urls = [ground.engine("prefill").url], [ground.engine("decode").url]
    plan = LoadPlan(num_requests=_MANY, prompt_tokens=400, output_tokens=1)
    await run_load(plan, DirectTarget(*urls, order="p-first", delay_s=0.03))
    yield Made(ground.engine("prefill").name, now())
    await run_load(plan, DirectTarget(*urls, order="both"))


@fault(
    "siblings",
    "siblings_unclaimed",
    what="The router passes n = 2 to P, whose two choices nobody asks for by their ids.",
    undone="P's lease ends by itself.",
    lease="half",
)
async def siblings(ground: Ground) -> AsyncIterator[Made]:
    request = ground.request()
    await request.prefill(n=2, temperature=1, top_k=1)
    lease_end = await request.lease_end(choice=1)
    yield Made(request.base_id, (now() + lease_end) / 2)


FAULTS: Final[tuple[Fault, ...]] = (
    lost_prefill,
    lost_decode,
    different_ids,
    wrong_host,
    wrong_port,
    wrong_engine_id,
    own_side_channel,
    siblings,
    incomplete_params,
    late_decode,
    serial_router,
)
