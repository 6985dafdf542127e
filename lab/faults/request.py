"""One request of which each leg is sent by hand: at its time, changed, or not at all."""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import httpx

from pushscope.lab.completion import ID_PREFIX, Answer, complete
from pushscope.lab.faults.sight import Sight
from pushscope.lab.legs import Leg, PrefillPeer, decode_leg, prefill_leg
from pushscope.lab.load import LoadRequest
from pushscope.lab.prompts import make_prompt
from pushscope.telemetry.transfer import Stage, Transfer

OUTPUT_TOKENS = 4


class Request:
    """A prompt and an id. A leg is a task: to be awaited, or cancelled, which closes its connection."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        sight: Sight,
        urls: tuple[str, str],
        peer: PrefillPeer,
        num_tokens: int,
    ) -> None:
        self.id = uuid.uuid4().hex
        self._client = client
        self._sight = sight
        self._prefill_url, self._decode_url = urls
        self._peer = peer
        self._request = _request(num_tokens)
        self.tasks: list[asyncio.Task[Answer]] = []

    def under_another_id(self) -> Request:
        """The same prompt, sent with another X-Request-Id."""
        other = copy(self)
        other.id = uuid.uuid4().hex
        return other

    def with_prompt_of(self, num_tokens: int) -> Request:
        """Another prompt, sent with the same X-Request-Id."""
        other = copy(self)
        other._request = _request(num_tokens)
        return other

    @property
    def base_id(self) -> str:
        """What P and D pair on: the id of the request's first prompt."""
        return f"{ID_PREFIX}{self.id}-0"

    def prefill(self, **body: Any) -> asyncio.Task[Answer]:
        """Send P's leg; ``body`` overrules keys of it."""
        leg = prefill_leg(self._prefill_url, self._request, self.id)
        return self._send(leg, {**leg.body, **body})

    def decode(
        self,
        *,
        params: Mapping[str, Any] | None = None,
        without: Sequence[str] = (),
        **body: Any,
    ) -> asyncio.Task[Answer]:
        """Send D's leg; ``params`` overrule its ``kv_transfer_params``, of which those named ``without`` are left
        out."""
        params = {**self._peer.decode_params(self.id), **(params or {})}
        leg = decode_leg(self._decode_url, self._request, self.id, params)
        handed = {key: value for key, value in leg.body["kv_transfer_params"].items() if key not in without}
        return self._send(leg, {**leg.body, "kv_transfer_params": handed, **body})

    async def registered(self, attempt: int = 1) -> Transfer:
        """Wait until D has sent its registration."""
        return await self._sight.transfer(
            self.base_id,
            lambda t: t.attempt == attempt and t.d_request is not None and _has(t, Stage.FLIGHT),
            "D's registration sent",
        )

    async def prefilling(self) -> Transfer:
        """Wait until P has the request."""
        return await self._sight.transfer(self.base_id, lambda t: t.p_request is not None, "the request at P")

    async def writing(self) -> Transfer:
        """Wait until P has posted a WRITE."""
        return await self._sight.transfer(self.base_id, lambda t: _has(t, Stage.WIRE), "a WRITE posted")

    async def lease_end(self, choice: int | None = None) -> float:
        """Wait until P holds the blocks (of one choice, of a request with n > 1); the time.monotonic() at which
        its lease ends."""
        base_id = self.base_id if choice is None else f"{choice}_{self.base_id}"
        held = await self._sight.transfer(base_id, lambda t: t.lease_until_ns is not None, "blocks at P")
        return (held.lease_until_ns or 0) / 1e9

    def _send(self, leg: Leg, body: Mapping[str, Any]) -> asyncio.Task[Answer]:
        task = asyncio.create_task(complete(self._client, leg.url, body, headers=leg.headers))
        task.add_done_callback(_take_error)
        self.tasks.append(task)
        return task


def _request(num_tokens: int) -> LoadRequest:
    return LoadRequest(0, make_prompt(secrets.randbits(32), 0, num_tokens), OUTPUT_TOKENS, stream=True)


def _take_error(task: asyncio.Task[Answer]) -> None:
    """That a leg fails is often what was wanted; whoever cares awaits it."""
    if not task.cancelled():
        task.exception()


def _has(transfer: Transfer, stage: Stage) -> bool:
    return any(s.stage is stage for s in transfer.stages)
