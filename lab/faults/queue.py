"""A decode engine that serves one request at a time, and has one: what comes now is queued."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pushscope.lab.completion import complete, completion_body
from pushscope.lab.control import Changes
from pushscope.lab.faults.ground import Ground
from pushscope.lab.prompts import make_prompt

_ENDLESS = 8000
"""Output tokens: minutes."""


@asynccontextmanager
async def busy_decode(ground: Ground, changes: Changes | None = None) -> AsyncIterator[asyncio.Task[object]]:
    """D is started again for the block so that it runs one request at a time, and given one that it computes
    itself; the task can be cancelled to let the others on."""
    await ground.restart("decode", changes=changes or Changes(args=("--max-num-seqs", "1")))
    await ground.learn()
    body = completion_body(make_prompt(0, 0, 16), _ENDLESS, stream=True)
    decode = ground.engine("decode").url
    busy: asyncio.Task[object] = asyncio.create_task(complete(ground.client, decode, body))
    await asyncio.sleep(0.5)
    try:
        yield busy
    finally:
        busy.cancel()
        await ground.cure("decode")
