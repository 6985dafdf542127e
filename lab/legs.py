"""Both legs of a request sent by ourselves, without a router: in either order, alone, or with ids that don't
match.

In push mode P and D pair a prefill with a decode by the request id that both derive from ``X-Request-Id``. D
has to be told how to reach P. In serial order P's answer says so; a client that sends both legs at once must
know P's engine id beforehand, and learns it from one serial request.
"""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import httpx

from pushscope.lab.completion import Answer, RequestError, complete, completion_body, describe
from pushscope.lab.load import LoadRequest, result_of
from pushscope.lab.prompts import make_prompt
from pushscope.lab.results import RequestResult
from pushscope.lab.tracing import RootSpan, Tracing, headers_only

Order = Literal["both", "p-first", "d-first", "only-p", "only-d"]
"""``both`` at once; ``p-first`` hands P's answer to D; ``d-first`` sends P's leg after D's; or one leg
alone."""

ORDERS: tuple[Order, ...] = get_args(Order)

PREFILL_PARAMS: Mapping[str, Any] = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
"""``kv_transfer_params`` of a prefill leg."""

_NEEDED_BY_DECODE = ("remote_engine_id", "remote_request_id", "remote_host", "remote_port", "tp_size")


@dataclass(frozen=True, slots=True)
class PrefillPeer:
    """How D reaches a P engine: its engine id, side channel, and numbers of ranks."""

    engine_id: str
    host: str
    port: int
    tp_size: int
    pp_size: int = 1

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> PrefillPeer:
        """From the ``kv_transfer_params`` in P's answer."""
        check_decode_params(params)
        return cls(
            engine_id=params["remote_engine_id"],
            host=params["remote_host"],
            port=params["remote_port"],
            tp_size=params["tp_size"],
            pp_size=params.get("pp_size", 1),
        )

    def decode_params(self, request_id: str) -> dict[str, Any]:
        """``kv_transfer_params`` of a decode leg whose prefill may not have happened yet.

        ``remote_request_id`` should be P's own id, which nobody knows yet; pairing doesn't use it.
        """
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_engine_id": self.engine_id,
            "remote_request_id": request_id,
            "remote_host": self.host,
            "remote_port": self.port,
            "tp_size": self.tp_size,
            "pp_size": self.pp_size,
            "remote_block_ids": [],
        }


def check_decode_params(params: Mapping[str, Any]) -> None:
    """Check that a decode leg says all that D needs: a missing key ends D's engine core, not just the
    request.

    Raises RequestError that names what is missing.
    """
    missing = [key for key in _NEEDED_BY_DECODE if params.get(key) is None]
    if missing:
        raise RequestError(
            f"Expected kv_transfer_params to name {', '.join(_NEEDED_BY_DECODE)}, "
            f"found {', '.join(missing)} missing: "
            "send the prefill leg to an engine that has a NIXL connector."
        )


@dataclass(frozen=True, slots=True)
class Leg:
    """One half of a request, ready to be sent to an engine."""

    url: str
    body: Mapping[str, Any]
    headers: Mapping[str, str]


def prefill_leg(url: str, request: LoadRequest, request_id: str, **more: Any) -> Leg:
    """P's half: compute the prompt and one token, and keep the blocks for D.

    ``more`` goes into the params.
    """
    body = completion_body(request.prompt, 1, stream=False)
    body["kv_transfer_params"] = {**PREFILL_PARAMS, **more}
    return Leg(url, body, {"X-Request-Id": request_id})


def decode_leg(
    url: str, request: LoadRequest, request_id: str, params: Mapping[str, Any], **more: Any
) -> Leg:
    """D's half: receive the prompt's KV and go on from there.

    Raises RequestError if ``params`` lack what D needs.
    """
    check_decode_params(params)
    body = completion_body(request.prompt, request.output_tokens, stream=request.stream)
    body["kv_transfer_params"] = {**params, **more}
    return Leg(url, body, {"X-Request-Id": request_id})


@dataclass(frozen=True, slots=True)
class _Pair:
    """The engines of one request, and what both of its legs carry."""

    prefill: str
    decode: str
    request_id: str
    decode_request_id: str
    more: Mapping[str, Any]


@dataclass(slots=True)
class DirectTarget:
    """Sends the legs of each request to a prefill and a decode engine, each in turn.

    ``delay_s`` is waited before the second leg: after P's answer (``p-first``), after D's sending
    (``d-first``), not used in the other orders. With ``same_id`` false the legs carry different ids and never
    pair. ``transfer_id`` adds one to the ``kv_transfer_params`` of both legs; ``tracing`` a
    ``traceparent`` to their headers.
    """

    prefill_urls: Sequence[str]
    decode_urls: Sequence[str]
    order: Order = "both"
    delay_s: float = 0.0
    same_id: bool = True
    transfer_id: bool = False
    tracing: Tracing = headers_only
    num_learning: int = 0
    """Requests sent so far to learn a P's engine id, besides those of the load."""
    _peers: dict[str, PrefillPeer] = field(default_factory=dict)
    _learning: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    async def learn(self, client: httpx.AsyncClient, prefill: str, decode: str) -> PrefillPeer:
        """What D needs to know of a P engine, learned once by a serial request.

        That request goes on to D: left at P, its blocks would stay there for a whole lease. Forget a peer
        after a restart (``forget``); a request that failed unexpectedly does so by itself.

        Raises RequestError, also if P isn't a prefill engine, or httpx.HTTPError.
        """
        async with self._lock():
            if prefill not in self._peers:
                self.num_learning += 1
                request_id = f"learn-{uuid.uuid4().hex}"
                request = LoadRequest(0, make_prompt(0, secrets.randbits(32), 64), 1, stream=False)
                first = await _send(client, prefill_leg(prefill, request, request_id))
                params = first.kv_transfer_params or {}
                await _send(client, decode_leg(decode, request, request_id, params))
                self._peers[prefill] = PrefillPeer.from_params(params)
            return self._peers[prefill]

    def forget(self, prefill: str) -> None:
        """Learn that P engine's id anew before the next request."""
        self._peers.pop(prefill, None)

    async def send(self, client: httpx.AsyncClient, request: LoadRequest, load_start: float) -> RequestResult:
        pair = self._pair(request.index)
        answer = Answer()
        error = None
        start, root = time.perf_counter(), self._root(request)
        try:
            async with asyncio.timeout(request.timeout_s):
                peer = None
                if self.order in ("both", "d-first", "only-d"):
                    peer = await self.learn(client, pair.prefill, pair.decode)
                    start, root = (
                        time.perf_counter(),
                        self._root(request),
                    )  # learning is not part of the request
                await self._send_legs(client, request, pair, peer, headers=root.headers, answer=answer)
        except (RequestError, httpx.HTTPError, TimeoutError) as problem:
            error = describe(problem)
            if self.same_id and self.order != "only-d":  # otherwise nothing else was to be expected
                self.forget(pair.prefill)
        return result_of(
            request,
            answer,
            start=start,
            load_start=load_start,
            error=error,
            request_id=pair.request_id,
            root=root,
            prefill=pair.prefill if self.order != "only-d" else None,
            decode=pair.decode if self.order != "only-p" else None,
        )

    def _root(self, request: LoadRequest) -> RootSpan:
        return self.tracing(len(request.prompt), request.output_tokens)

    def _lock(self) -> asyncio.Lock:
        """Held while a peer is learned. A lock belongs to an event loop, and each load may have its own."""
        loop = asyncio.get_running_loop()
        if self._learning is None or self._learning[0] is not loop:
            self._learning = loop, asyncio.Lock()
        return self._learning[1]

    def _pair(self, index: int) -> _Pair:
        num_prefill, num_decode = len(self.prefill_urls), len(self.decode_urls)
        request_id = uuid.uuid4().hex
        return _Pair(
            prefill=self.prefill_urls[index % num_prefill],
            # One further after each round: with as many P as D each P still meets every D.
            decode=self.decode_urls[(index + index // num_prefill) % num_decode],
            request_id=request_id,
            decode_request_id=request_id if self.same_id else uuid.uuid4().hex,
            more={"transfer_id": uuid.uuid4().hex} if self.transfer_id else {},
        )

    async def _send_legs(
        self,
        client: httpx.AsyncClient,
        request: LoadRequest,
        pair: _Pair,
        peer: PrefillPeer | None,
        *,
        headers: Mapping[str, str],
        answer: Answer,
    ) -> None:
        """Send the legs of one request in our order; ``answer`` is filled by D, or by P if P is alone."""
        p_leg = prefill_leg(pair.prefill, request, pair.request_id, **pair.more)

        def d_leg(params: Mapping[str, Any]) -> Leg:
            return decode_leg(pair.decode, request, pair.decode_request_id, params, **pair.more)

        if self.order == "only-p":
            await _send(client, p_leg, headers, answer)
        elif peer is None:
            first = await _send(client, p_leg, headers)
            await asyncio.sleep(self.delay_s)
            await _send(client, d_leg(first.kv_transfer_params or {}), headers, answer)
        elif self.order == "only-d":
            leg = d_leg(peer.decode_params(pair.request_id))
            await _send(client, leg, headers, answer)
        else:
            leg = d_leg(peer.decode_params(pair.request_id))
            decode = _send(client, leg, headers, answer)
            delay_s = self.delay_s if self.order == "d-first" else 0.0
            prefill = _after(delay_s, lambda: _send(client, p_leg, headers))
            await _together(decode, prefill)


async def _send(
    client: httpx.AsyncClient,
    leg: Leg,
    headers: Mapping[str, str] | None = None,
    answer: Answer | None = None,
) -> Answer:
    headers = {**leg.headers, **(headers or {})}
    return await complete(client, leg.url, leg.body, headers=headers, answer=answer)


async def _after(delay_s: float, send: Callable[[], Awaitable[Answer]]) -> Answer:
    await asyncio.sleep(delay_s)
    return await send()


async def _together(*legs: Coroutine[Any, Any, Answer]) -> None:
    """Wait for both legs. The first that fails cancels the other, which then doesn't wait for ever."""
    tasks = [asyncio.ensure_future(leg) for leg in legs]
    try:
        for task in asyncio.as_completed(tasks):
            await task
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
