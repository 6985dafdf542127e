"""A load of requests: how many, how often, how long, and what became of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import httpx

from pushscope.lab.completion import (
    Answer,
    RequestError,
    complete,
    completion_body,
    describe,
)
from pushscope.lab.prompts import Arrivals, TokenCount, arrival_times, make_prompt, token_count
from pushscope.lab.results import RequestResult
from pushscope.lab.tracing import RootSpan, Tracing, headers_only


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A load; two runs of one plan send the same prompts.

    It ends after ``num_requests`` or, counting starts of requests, after ``duration_s``, whichever comes
    first. With a ``rate`` (requests per second) requests arrive by themselves, at most ``concurrency`` of
    them at once if that is given; without a rate there are always ``concurrency`` requests (1 if not given).

    Raises ValueError for a plan without an end or with a figure that isn't positive.
    """

    num_requests: int | None = None
    duration_s: float | None = None
    rate: float | None = None
    arrivals: Arrivals = "poisson"
    concurrency: int | None = None
    prompt_tokens: TokenCount = 200
    output_tokens: TokenCount = 16
    seed: int = 0
    stream: bool = True
    timeout_s: float = 60.0
    """For one request as a whole."""
    first_index: int = 0
    """Of its requests, whose prompts depend on it."""

    def __post_init__(self) -> None:
        if self.num_requests is None and self.duration_s is None:
            raise ValueError(
                "Expected a number of requests or a duration, found neither: the load would never end."
            )
        for name in ("num_requests", "duration_s", "rate", "concurrency", "timeout_s"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"Expected {name} to be positive, found {value}.")

    def request(self, index: int) -> LoadRequest:
        """Request number ``index``."""
        num_prompt = token_count(self.prompt_tokens, self.seed, index, "prompt length")
        num_output = token_count(self.output_tokens, self.seed, index, "output length")
        return LoadRequest(
            index, make_prompt(self.seed, index, num_prompt), num_output, self.stream, self.timeout_s
        )


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """One request of a load."""

    index: int
    prompt: list[int]
    output_tokens: int
    stream: bool = True
    timeout_s: float = 60.0


class Target(Protocol):
    """Where a load goes."""

    async def send(self, client: httpx.AsyncClient, request: LoadRequest, load_start: float) -> RequestResult:
        """Send one request to its end. An error is part of the result, never raised.

        ``load_start`` is the time.perf_counter() at which the load began.
        """
        ...


@dataclass(frozen=True, slots=True)
class ServerTarget:
    """A router, or an engine that stands alone."""

    url: str
    tracing: Tracing = headers_only

    async def send(self, client: httpx.AsyncClient, request: LoadRequest, load_start: float) -> RequestResult:
        answer = Answer()
        start = time.perf_counter()
        error = None
        root = self.tracing(len(request.prompt), request.output_tokens)
        body = completion_body(request.prompt, request.output_tokens, stream=request.stream)
        try:
            async with asyncio.timeout(request.timeout_s):
                await complete(client, self.url, body, headers=root.headers, answer=answer)
        except (RequestError, httpx.HTTPError, TimeoutError) as problem:
            error = describe(problem)
        return result_of(request, answer, start=start, load_start=load_start, error=error, root=root)


def result_of(
    request: LoadRequest,
    answer: Answer,
    *,
    start: float,
    load_start: float,
    error: str | None,
    root: RootSpan,
    request_id: str | None = None,
    prefill: str | None = None,
    decode: str | None = None,
) -> RequestResult:
    """The result of a request that began at ``start`` (time.perf_counter()) and has ended now, and with it its root
    span.

    Without streaming all tokens come at once, and TTFT and TPOT aren't known.
    """
    request_id = answer.request_id if request_id is None else request_id
    root.end(request_id, error)
    first = answer.first_token_at if request.stream else None
    return RequestResult(
        index=request.index,
        request_id=request_id,
        num_prompt_tokens=len(request.prompt),
        start_s=start - load_start,
        latency_s=time.perf_counter() - start,
        ttft_s=None if first is None else first - start,
        tpot_s=answer.tpot_s if request.stream else None,
        num_output_tokens=len(answer.token_ids),
        token_ids=tuple(answer.token_ids),
        text=answer.text,
        error=error,
        trace_id=root.trace_id,
        prefill=prefill,
        decode=decode,
    )


async def run_load(
    plan: LoadPlan, target: Target, *, on_result: Callable[[RequestResult], None] | None = None
) -> list[RequestResult]:
    """Run a load to its end; the results are in the order of the requests. ``on_result`` is called as each
    one ends.

    Cancelling it cancels the requests in flight.
    """
    results: list[RequestResult] = []
    # vLLM closes a connection that was idle for 5 s: one that has been for so long must not be taken again.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=2.0)
    async with httpx.AsyncClient(timeout=None, limits=limits, trust_env=False) as client:
        start = time.perf_counter()

        async def send(index: int) -> None:
            result = await target.send(client, plan.request(index), start)
            results.append(result)
            if on_result is not None:
                on_result(result)

        async with asyncio.TaskGroup() as tasks:
            if plan.rate is None:
                await _closed_loop(plan, tasks, send_each=send, start=start)
            else:
                await _open_loop(plan, tasks, send_each=send, start=start)
    return sorted(results, key=lambda result: result.index)


class _Send(Protocol):
    async def __call__(self, index: int) -> None: ...


async def _closed_loop(plan: LoadPlan, tasks: asyncio.TaskGroup, *, send_each: _Send, start: float) -> None:
    """Keep ``concurrency`` requests in flight."""
    indices = _indices(plan, start)

    async def one_after_another() -> None:
        for index in indices:  # shared: each index goes to one of the loops
            await send_each(index)

    for _ in range(plan.concurrency or 1):
        tasks.create_task(one_after_another())


async def _open_loop(plan: LoadPlan, tasks: asyncio.TaskGroup, *, send_each: _Send, start: float) -> None:
    """Start requests at their arrival times, whether or not earlier ones are done."""
    assert plan.rate is not None
    slots = asyncio.Semaphore(plan.concurrency) if plan.concurrency else None

    async def in_a_slot(index: int) -> None:
        try:
            await send_each(index)
        finally:
            if slots is not None:
                slots.release()

    arrivals = arrival_times(plan.rate, plan.arrivals, plan.seed)
    for index, at in zip(_indices(plan, start), arrivals, strict=False):
        if plan.duration_s is not None and at >= plan.duration_s:
            return
        await asyncio.sleep(max(0.0, start + at - time.perf_counter()))
        if slots is not None:
            await slots.acquire()
        tasks.create_task(in_a_slot(index))


def _indices(plan: LoadPlan, start: float) -> Iterator[int]:
    """The first, the next, … until the plan says stop."""
    index = plan.first_index
    while plan.num_requests is None or index < plan.first_index + plan.num_requests:
        if plan.duration_s is not None and time.perf_counter() - start >= plan.duration_s:
            return
        yield index
        index += 1
