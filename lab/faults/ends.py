"""Engines that end, and come back with a new engine id or with the old one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from pushscope.lab.faults.fault import Fault, Made, fault
from pushscope.lab.faults.ground import Ground, now


@fault(
    "prefill-killed",
    "engine_gone",
    what="P is killed when D has registered with it.",
    undone="P is started again, and D, whose request would wait for ever.",
)
async def prefill_killed(ground: Ground) -> AsyncIterator[Made]:
    request, _ = await ground.registered()
    await ground.kill("prefill")
    yield Made(request.base_id, now())
    await ground.cure("prefill", "decode")


@fault(
    "decode-killed",
    "engine_gone",
    what="D is killed when it has registered with P, which has not finished the prefill.",
    undone="D is started again.",
)
async def decode_killed(ground: Ground) -> AsyncIterator[Made]:
    request, _ = await ground.registered()
    await ground.kill("decode")
    start = now()
    await request.prefill()
    yield Made(request.base_id, start)
    await ground.cure("decode")


@fault(
    "prefill-restarted-same-id",
    "stale_agent_after_restart",
    what="P is killed and comes back under its old engine id, and D goes on with the agent that died.",
    undone="D is started again, and knows nobody then.",
)
async def prefill_restarted_same_id(ground: Ground) -> AsyncIterator[Made]:
    await ground.restart_under_its_id("prefill")
    _, start = await ground.both_legs()
    yield Made(ground.engine("decode").name, start)
    await ground.cure("decode")


@fault(
    "decode-restarted-same-id",
    "stale_agent_after_restart",
    what="D is killed and comes back under its old engine id, and P goes on with the agent that died.",
    undone="P is started again, and D, whose request would wait for ever.",
)
async def decode_restarted_same_id(ground: Ground) -> AsyncIterator[Made]:
    await ground.restart_under_its_id("decode")
    _, start = await ground.both_legs()
    yield Made(ground.engine("prefill").name, start)
    await ground.cure("prefill", "decode")


@fault(
    "prefill-restarted-new-id",
    "engine_id_mismatch",
    what="P is killed and comes back under a new engine id; the router goes on to name the old one to a new D.",
    undone="The decode leg names the new engine id.",
)
async def prefill_restarted_new_id(ground: Ground) -> AsyncIterator[Made]:
    await ground.kill("prefill")
    await ground.restart("prefill", "decode")
    request, start = await ground.both_legs()
    yield Made(request.base_id, start)
    await ground.hang_up()
    await ground.learn()


@fault(
    "decode-restarted-new-id",
    "engine_gone",
    what="D is killed while P holds blocks for it, and comes back under a new engine id.",
    undone="P is told nothing: its lease ends by itself, and new requests get through at once.",
)
async def decode_restarted_new_id(ground: Ground) -> AsyncIterator[Made]:
    request, _ = await ground.registered()
    await ground.kill("decode")
    start = now()
    await ground.restart("decode")
    yield Made(request.base_id, start)
    await ground.hang_up()
    await ground.learn()


FAULTS: Final[tuple[Fault, ...]] = (
    prefill_killed,
    decode_killed,
    prefill_restarted_same_id,
    prefill_restarted_new_id,
    decode_restarted_same_id,
    decode_restarted_new_id,
)
