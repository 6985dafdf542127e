"""What the legs of a request say to P and D, in every order, against two servers that only take notes."""

from __future__ import annotations

import asyncio
import gc
import json
import warnings
from typing import Any

import httpx
import pytest

from pushscope.lab.completion import PATH
from pushscope.lab.legs import ORDERS, DirectTarget, Order, PrefillPeer
from pushscope.lab.load import LoadRequest
from pushscope.lab.results import RequestResult

P, D = "http://p", "http://d"
REQUEST = LoadRequest(0, [5, 6, 7], 4, stream=False, timeout_s=2.0)
NEEDED_BY_D = {
    "do_remote_prefill",
    "remote_engine_id",
    "remote_request_id",
    "remote_host",
    "remote_port",
    "tp_size",
}
FROM_P = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": [[1, 2]],
    "remote_engine_id": "engine-p",
    "remote_request_id": "cmpl-x-0-01234567",
    "remote_host": "127.0.0.1",
    "remote_port": 5600,
    "tp_size": 2,
    "pp_size": 1,
    "remote_num_tokens": 3,
}


class Engines:
    """P and D: they note each leg, and answer as vLLM does."""

    def __init__(self, *, p_status: int = 200, p_params: dict[str, Any] | None = None) -> None:
        self.legs: list[tuple[str, dict[str, Any], httpx.Headers]] = []
        self.p_status = p_status
        self.p_params = FROM_P if p_params is None else p_params
        self.d_waits_for_ever = False
        self.d_cancelled = False

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path == PATH
        body = json.loads(request.content)
        name = "P" if request.url.host == "p" else "D"
        self.legs.append((name, body, request.headers))
        answer: dict[str, Any] = {"id": f"cmpl-{request.headers['x-request-id']}"}
        if name == "P":
            answer |= {"choices": [{"text": "a", "token_ids": [9]}], "kv_transfer_params": self.p_params}
            return httpx.Response(self.p_status, json=answer if self.p_status == 200 else {"error": "busy"})
        if self.d_waits_for_ever and not request.headers["x-request-id"].startswith("learn"):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.d_cancelled = True
                raise
        answer |= {"choices": [{"text": "ab", "token_ids": [9, 8, 7, 6]}]}
        return httpx.Response(200, json=answer)

    def real(self) -> list[tuple[str, dict[str, Any], httpx.Headers]]:
        """The legs of requests proper, without those by which the client learned P's engine id."""
        return [leg for leg in self.legs if not leg[2]["x-request-id"].startswith("learn")]


async def send(
    engines: Engines, target: DirectTarget, *requests: LoadRequest, status: str | None = None
) -> list[RequestResult]:
    async with httpx.AsyncClient(transport=httpx.MockTransport(engines)) as client:
        return [await target.send(client, request, 0.0) for request in requests or (REQUEST,)]


@pytest.mark.parametrize("order", ORDERS)
async def test_every_order_sends_its_legs_and_complete_params(order: Order) -> None:
    engines = Engines()
    [result] = await send(engines, DirectTarget([P], [D], order=order, transfer_id=True))
    assert result.error is None
    names = [name for name, _, _ in engines.real()]
    expected = {
        "both": ["D", "P"],
        "d-first": ["D", "P"],
        "p-first": ["P", "D"],
        "only-p": ["P"],
        "only-d": ["D"],
    }
    assert names == expected[order]
    for name, body, headers in engines.real():
        params = body["kv_transfer_params"]
        assert body["prompt"] == [5, 6, 7]
        assert body["max_tokens"] == (1 if name == "P" else 4)
        assert headers["x-request-id"] == result.request_id
        assert headers["traceparent"].split("-")[1] == result.trace_id
        if name == "P":
            assert params["do_remote_decode"] is True
        else:
            assert params.keys() >= NEEDED_BY_D
            assert None not in [params[key] for key in NEEDED_BY_D]
            assert params["do_remote_prefill"] is True
            assert params["remote_engine_id"] == "engine-p"
            assert params["tp_size"] == 2
    assert len({body["kv_transfer_params"]["transfer_id"] for _, body, _ in engines.real()}) == 1


async def test_d_gets_what_p_returned_in_serial_order() -> None:
    engines = Engines()
    await send(engines, DirectTarget([P], [D], order="p-first"))
    assert engines.real()[1][1]["kv_transfer_params"] == FROM_P


async def test_p_is_learned_once_by_a_whole_serial_request() -> None:
    engines = Engines()
    await send(engines, DirectTarget([P], [D]), REQUEST, REQUEST)
    learned = [name for name, _, headers in engines.legs if headers["x-request-id"].startswith("learn")]
    assert learned == ["P", "D"]


def test_one_target_serves_loads_of_several_event_loops() -> None:
    engines, target = Engines(), DirectTarget([P], [D])

    async def two_at_once() -> list[RequestResult]:
        target.forget(P)
        async with httpx.AsyncClient(transport=httpx.MockTransport(engines)) as client:
            return await asyncio.gather(*[target.send(client, REQUEST, 0.0) for _ in range(2)])

    for _ in range(2):
        assert [result.error for result in asyncio.run(two_at_once())] == [None, None]
    assert len(engines.legs) - len(engines.real()) == 4  # learned once by each load


async def test_ids_can_differ_on_purpose() -> None:
    engines = Engines()
    [result] = await send(engines, DirectTarget([P], [D], same_id=False))
    ids = {name: headers["x-request-id"] for name, _, headers in engines.real()}
    assert ids["P"] == result.request_id
    assert ids["D"] != ids["P"]


async def test_the_other_leg_is_cancelled_when_one_fails() -> None:
    engines = Engines()
    target = DirectTarget([P], [D])
    await send(engines, target)
    engines.p_status, engines.d_waits_for_ever = 503, True
    [result] = await send(engines, target)
    assert result.error == "HTTP 503: busy"
    assert engines.d_cancelled
    assert result.latency_s < 1.0


async def test_a_failure_makes_p_be_learned_anew() -> None:
    engines = Engines()
    target = DirectTarget([P], [D])
    await send(engines, target)
    engines.p_status = 503
    await send(engines, target)
    engines.p_status, engines.p_params = 200, FROM_P | {"remote_engine_id": "restarted"}
    await send(engines, target)
    assert engines.legs[-2][1]["kv_transfer_params"]["remote_engine_id"] == "restarted"


async def test_a_request_gives_up_after_its_time_out() -> None:
    engines = Engines()
    engines.d_waits_for_ever = True
    request = LoadRequest(0, [5], 4, timeout_s=0.2)
    [result] = await send(engines, DirectTarget([P], [D], order="only-d"), request)
    assert result.error == "timed out"
    assert engines.d_cancelled


async def test_a_second_leg_whose_time_never_came_is_forgotten_quietly() -> None:
    engines = Engines()
    engines.d_waits_for_ever = True
    request = LoadRequest(0, [5], 4, timeout_s=0.2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        [result] = await send(engines, DirectTarget([P], [D], order="d-first", delay_s=5), request)
        gc.collect()
    assert result.error == "timed out"
    assert [name for name, _, _ in engines.real()] == ["D"]
    assert caught == []


async def test_requests_that_learn_are_counted() -> None:
    serial, at_once = DirectTarget([P], [D], order="p-first"), DirectTarget([P], [D])
    await send(Engines(), serial, REQUEST, REQUEST)
    await send(Engines(), at_once, REQUEST, REQUEST)
    assert (serial.num_learning, at_once.num_learning) == (0, 1)


@pytest.mark.parametrize("order", ["both", "p-first", "only-d"])
async def test_incomplete_params_never_reach_d(order: Order) -> None:
    engines = Engines(p_params={key: value for key, value in FROM_P.items() if key != "remote_engine_id"})
    [result] = await send(engines, DirectTarget([P], [D], order=order))
    assert result.error is not None
    assert "found remote_engine_id missing" in result.error
    assert [name for name, _, _ in engines.legs] == ["P"]


async def test_every_p_meets_every_d() -> None:
    engines = Engines()
    target = DirectTarget([P, "http://p/2"], [D, "http://d/2"], order="p-first")
    pairs = [target._pair(index) for index in range(4)]
    assert {(pair.prefill, pair.decode) for pair in pairs} == {
        (p, d) for p in target.prefill_urls for d in target.decode_urls
    }
    assert engines.legs == []


def test_a_peer_needs_no_more_than_p_returns() -> None:
    peer = PrefillPeer.from_params({key: value for key, value in FROM_P.items() if key != "pp_size"})
    assert peer == PrefillPeer("engine-p", "127.0.0.1", 5600, 2, 1)
