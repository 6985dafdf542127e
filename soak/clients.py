"""Clients of real engines: most wait for their answer, some go away, and for some D needs nothing of P."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field, replace
from random import Random

import httpx

from pushscope.lab.completion import Answer, RequestError, complete, describe
from pushscope.lab.legs import DirectTarget, decode_leg, prefill_leg
from pushscope.lab.load import LoadRequest, result_of
from pushscope.lab.results import RequestResult
from pushscope.lab.tracing import RootSpan

_PATIENCE_S = (0.005, 0.25)


@dataclass(slots=True)
class Clients:
    """Sends requests through ``direct``; of all requests so many shares are full hits, and of clients that leave.

    Let clients leave in serial order only: with both legs sent at once, their going away would end P's leg while D
    waits for it, and that D never gets over.
    """

    direct: DirectTarget
    full_hits: float
    leaves: float
    random: Random = field(default_factory=lambda: Random(0))
    left: set[int] = field(default_factory=set)
    """Numbers of the requests whose clients left, or meant to."""

    async def send(self, client: httpx.AsyncClient, request: LoadRequest, load_start: float) -> RequestResult:
        draw = self.random.random()
        if draw < self.full_hits:
            return await self._full_hit(client, request, load_start)
        if draw < self.full_hits + self.leaves:
            self.left.add(request.index)
            request = replace(request, timeout_s=self.random.uniform(*_PATIENCE_S))
        return await self.direct.send(client, request, load_start)

    async def _full_hit(
        self, client: httpx.AsyncClient, request: LoadRequest, load_start: float
    ) -> RequestResult:
        """With ``prompt_logprobs`` D has to compute the whole prompt itself."""
        start, answer, error, request_id = time.perf_counter(), Answer(), None, uuid.uuid4().hex
        p, d = self.random.choice(self.direct.prefill_urls), self.random.choice(self.direct.decode_urls)
        try:
            peer = await self.direct.learn(client, p, d)
            for leg, more in (
                (prefill_leg(p, request, request_id), {}),
                (
                    decode_leg(d, request, request_id, peer.decode_params(request_id)),
                    {"prompt_logprobs": 0, "stream": False},
                ),
            ):
                await complete(client, leg.url, {**leg.body, **more}, headers=leg.headers, answer=answer)
        except (RequestError, httpx.HTTPError, TimeoutError) as problem:
            error = describe(problem)
        return result_of(
            request,
            answer,
            start=start,
            load_start=load_start,
            error=error,
            root=RootSpan(),
            request_id=request_id,
        )
