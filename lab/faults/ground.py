"""What a fault is made on: the first prefill and decode engine of a running lab, and what can be done to them."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx

from pushscope.lab.completion import Answer, RequestError, describe
from pushscope.lab.control import Changes, Order, give
from pushscope.lab.deployment import ROUTER
from pushscope.lab.faults.request import Request
from pushscope.lab.faults.sight import Sight
from pushscope.lab.legs import DirectTarget, PrefillPeer
from pushscope.lab.processes import signal_group
from pushscope.lab.spec import Role
from pushscope.lab.state import EngineState, LabState, NoLabError, find_lab

SHORT, LONG = 200, 6000
"""Tokens of a prompt that is nothing, and of one whose blocks don't fit into a socket's buffers."""
_LEARN_S = 30.0
Side = Literal["prefill", "decode"]


class Ground:
    """A running lab, with what is known of its first pair of engines."""

    def __init__(self, directory: Path, client: httpx.AsyncClient, sight: Sight, peer: PrefillPeer) -> None:
        self.directory = directory
        self.client = client
        self.sight = sight
        self.peer = peer
        """How D reaches P."""
        self._requests: list[Request] = []

    # What runs

    @property
    def lab(self) -> LabState:
        """The lab as it is now: a restarted engine has another process."""
        return find_lab(self.directory)

    def engine(self, side: Role) -> EngineState:
        """The first engine of that side."""
        return self.lab.first(side)

    async def engine_id(self, side: Role) -> str:
        """The present id of the first engine of that side."""
        return (await self.sight.engine(side, self.engine(side).side_channel_port)).engine_id

    # Requests

    def request(self, num_tokens: int = SHORT) -> Request:
        """A request to be sent by hand."""
        urls = (self.engine("prefill").url, self.engine("decode").url)
        request = Request(self.client, self.sight, urls, self.peer, num_tokens)
        self._requests.append(request)
        return request

    async def registered(self, num_tokens: int = SHORT) -> tuple[Request, asyncio.Task[Answer]]:
        """A request whose decode leg is sent and has registered with P, and that leg."""
        request = self.request(num_tokens)
        decode = request.decode()
        await request.registered()
        return request, decode

    async def both_legs(self, params: Mapping[str, Any] | None = None) -> tuple[Request, float]:
        """A request whose decode leg is sent, with these ``params``, and then its prefill leg, which P has answered;
        and when the first was sent."""
        request = self.request()
        start = now()
        request.decode(params=params)
        await request.prefill()
        return request, start

    async def hang_up(self) -> None:
        """Close the connections of all requests."""
        tasks = [task for request in self._requests for task in request.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._requests.clear()

    # Engines

    def signal(self, side: Side, number: signal.Signals) -> None:
        """Send a signal to all processes of an engine."""
        signal_group(self.engine(side).pid, number)

    @contextmanager
    def stopped(self, side: Side) -> Iterator[None]:
        """All processes of an engine are stopped (SIGSTOP) for the block."""
        self.signal(side, signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(side, signal.SIGCONT)

    async def kill(self, side: Side) -> None:
        """End an engine as a crash would."""
        await self._order(Order("kill", self.engine(side).name))

    async def let_end(self, side: Side) -> None:
        """Tell the lab that an engine is going to end, so that the lab goes on without."""
        await self._order(Order("let_end", self.engine(side).name))

    async def restart(self, *sides: Side, changes: Changes = Changes()) -> None:  # noqa: B008 - frozen
        """Start engines again, with a new engine id unless ``changes`` name one, and wait until they are seen to
        record."""
        for side in sides:
            await self._order(Order("restart", self.engine(side).name, changes))
        if "prefill" in sides and self.lab.router_url is not None:
            await self._order(Order("restart", ROUTER))  # it learns an engine id only once
        for side in sides:
            await self.engine_id(side)  # its recording is seen

    async def restart_under_its_id(self, side: Side) -> None:
        """Kill an engine and start it again with the engine id that it had."""
        engine_id = await self.engine_id(side)
        await self.kill(side)
        await self.restart(side, changes=Changes(kv_transfer={"engine_id": engine_id}))

    async def cure(self, *sides: Side) -> None:
        """End what still hangs, start these engines again, and see that a request gets through."""
        await self.hang_up()
        await self.restart(*sides)
        await self.learn()

    async def learn(self) -> None:
        """Send a request through both engines, which tells how D reaches P now."""
        self.peer = await learn(self.client, self.lab)

    async def _order(self, order: Order) -> None:
        await asyncio.to_thread(give, self.lab.control, order)


async def learn(client: httpx.AsyncClient, lab: LabState) -> PrefillPeer:
    """How D reaches P, as P's answer to a request says, which goes on to D."""
    prefill, decode = lab.first("prefill").url, lab.first("decode").url
    return await DirectTarget([prefill], [decode]).learn(client, prefill, decode)


@asynccontextmanager
async def ground(directory: Path, sight: Sight) -> AsyncIterator[Ground]:
    """The running lab of a directory, which ``sight`` sees; what still hangs at the end is hung up.

    Raises NoLabError, also if no request gets through both engines: a lab must be well to begin with.
    """
    lab = find_lab(directory)
    async with httpx.AsyncClient(trust_env=False, timeout=None) as client:  # what hangs is to hang
        try:
            async with asyncio.timeout(_LEARN_S):
                peer = await learn(client, lab)
        except (RequestError, httpx.HTTPError, TimeoutError) as error:
            raise NoLabError(
                f"Expected the running lab to answer a request, found: {describe(error)}. Start it again."
            ) from error
        found = Ground(directory, client, sight, peer)
        try:
            yield found
        finally:
            await found.hang_up()


def now() -> float:
    """The clock of Made."""
    return time.monotonic()
