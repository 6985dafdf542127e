"""The KV hop in every trace: real engines, the agent that they started, a collector of another maker, and read back.

The lab's load begins each trace; vLLM's own tracing is on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from pushscope.lab.completion import complete
from pushscope.lab.deployment import Deployment
from pushscope.lab.environment import python_environment
from pushscope.lab.launch import Zygote
from pushscope.lab.legs import DirectTarget, decode_leg, prefill_leg
from pushscope.lab.load import LoadPlan, LoadRequest, ServerTarget, run_load
from pushscope.lab.model import make_model
from pushscope.lab.otlp import Otlp
from pushscope.lab.prompts import make_prompt
from pushscope.lab.results import RequestResult
from pushscope.lab.spec import prefill_decode
from pushscope.lab.tracing import headers_only, roots_to, untraced
from pushscope.telemetry import events as ev
from pushscope.telemetry.presence import present_agent
from pushscope.telemetry.source import RingsSource
from pushscope.telemetry.spans.path import pieces
from pushscope.telemetry.spans.reading import SpanReader

from ..otlp_sink import OtlpSink, SunkSpan
from ..rotel import Rotel
from .test_push import deployed

pytestmark = pytest.mark.engines

PLAN = LoadPlan(num_requests=3, concurrency=2, prompt_tokens=(60, 700), output_tokens=4, timeout_s=30)
RECEIVE, SEND = "kv_transfer receive", "kv_transfer send"
CLIENT, VLLM = "text_completion lab", "llm_request"
OF_RECEIVE = {f"kv_transfer {stage}" for stage in ("registration", "flight", "wire", "notification", "wake")}
OF_SEND = {f"kv_transfer {stage}" for stage in ("handoff", "rendezvous", "descriptors", "submit")}
HANDSHAKE = "kv_transfer handshake"
"""Only of the first transfers between two engines."""
DELAYS = {"OTEL_BSP_SCHEDULE_DELAY": "100"}
_GIVE_UP_S = 1.5
"""After this time a client has waited long enough for a decode that never comes."""

Trace = Sequence[SunkSpan]


# -- what is read back --------------------------------------------------------------------------------


def traces_of(spans: Sequence[SunkSpan]) -> dict[str, list[SunkSpan]]:
    """By trace id; of what vLLM says of its start, nothing."""
    found: defaultdict[str, list[SunkSpan]] = defaultdict(list)
    for span in spans:
        if span.name in (CLIENT, VLLM) or span.name.startswith("kv_transfer "):
            found[span.trace_id].append(span)
    return dict(found)


def named(trace: Trace, name: str) -> list[SunkSpan]:
    return [span for span in trace if span.name == name]


def of_kv(trace: Trace) -> list[SunkSpan]:
    return [span for span in trace if span.name.startswith("kv_transfer ")]


def assert_kv_hop(trace: Trace, *, p_tp: int = 1, d_tp: int = 1) -> None:
    """Every stage of every rank, under the right parent and within it; receive and sends linked, both ways."""
    (receive,) = named(trace, RECEIVE)
    sends = {span.attributes["kv_transfer.p.rank"]: span for span in named(trace, SEND)}
    assert set(sends) == {f"tp{rank}" for rank in range(p_tp)}
    assert (receive.kind, {s.kind for s in sends.values()}) == ("consumer", {"producer"})
    assert {receive.resource["service.name"]} == {"vllm-decode"}
    assert {send.resource["service.name"] for send in sends.values()} == {"vllm-prefill"}
    assert set(receive.links) == {(send.trace_id, send.span_id) for send in sends.values()}
    assert all(send.links == ((receive.trace_id, receive.span_id),) for send in sends.values())
    writes = {(f"tp{rank % p_tp}", f"tp{rank % d_tp}") for rank in range(max(p_tp, d_tp))}
    expected = Counter(
        [("kv_transfer registration", f"tp{rank}") for rank in range(d_tp)]
        + [("kv_transfer flight", f"tp{rank}") for rank in range(d_tp)]
        + [
            (f"kv_transfer {stage}", w)
            for stage in ("descriptors", "submit", "wire", "notification")
            for w in writes
        ]
        + [
            (f"kv_transfer {stage}", f"tp{rank}")
            for stage in ("rendezvous", "handoff")
            for rank in range(p_tp)
        ]
        + [("kv_transfer wake", "")]
    )
    found: Counter[tuple[str, object]] = Counter()
    for span in of_kv(trace):
        if span.name in (RECEIVE, SEND, HANDSHAKE):
            continue
        p, d = (span.attributes.get(f"kv_transfer.{side}.rank") for side in ("p", "d"))
        parent = receive if span.name in OF_RECEIVE else sends[p]
        assert span.name in OF_RECEIVE | OF_SEND
        assert (span.kind, span.parent_span_id) == ("internal", parent.span_id)
        assert parent.start_ns <= span.start_ns <= span.end_ns <= parent.end_ns
        assert span.resource["service.instance.id"] == parent.resource["service.instance.id"]
        kind = span.name.removeprefix("kv_transfer ")
        place: object = (p, d)
        if kind in ("registration", "flight"):
            place = d
        elif kind in ("rendezvous", "handoff"):
            place = p
        elif kind == "wake":
            place = ""
        found[span.name, place] += 1
    if d_tp > p_tp:  # the first registration that arrives lets P write to all
        expected = expected & found | Counter(
            {k: n for k, n in expected.items() if k[0] != "kv_transfer flight"}
        )
    assert found == expected
    assert not any(span.is_error for span in trace)


# -- 1P1D, the router and both legs directly ----------------------------------------------------------


@pytest.fixture(scope="module")
def sink() -> Iterator[OtlpSink]:
    with OtlpSink() as sink:
        yield sink


@pytest.fixture(scope="module")
def rotel(sink: OtlpSink) -> Iterator[Rotel]:
    with Rotel(sink.grpc_endpoint) as rotel:
        yield rotel


@pytest.fixture(scope="module")
def rings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spans") / "rings"


@pytest.fixture(scope="module")
def lab(model: Path, zygote: Zygote, rings: Path, rotel: Rotel) -> Iterator[Deployment]:
    """An agent that exports by gRPC, as vLLM's tracing does."""
    specs = prefill_decode(agent=True, otlp=Otlp(rotel.grpc_endpoint), env=DELAYS)
    with deployed(specs, model, zygote, rings.parent, router=True) as deployment:
        yield deployment


@dataclass(frozen=True)
class Load:
    """What was sent, by the way it went, and what came back of it."""

    results: dict[str, list[RequestResult]]
    spans: list[SunkSpan]

    @property
    def traces(self) -> dict[str, list[SunkSpan]]:
        return traces_of(self.spans)


@pytest.fixture(scope="module")
def load(lab: Deployment, rotel: Rotel, sink: OtlpSink) -> Load:
    results = {}
    urls = lab.urls("prefill"), lab.urls("decode")
    with roots_to(Otlp(rotel.grpc_endpoint)) as roots:
        targets = {"router": ServerTarget(lab.router_url, tracing=roots)}
        targets |= {o: DirectTarget(*urls, order=o, tracing=roots) for o in ("both", "p-first", "d-first")}
        for seed, (way, target) in enumerate(targets.items()):
            results[way] = asyncio.run(run_load(replace(PLAN, seed=seed), target))
            assert [result.error for result in results[way]] == [None] * len(results[way])
    wanted = {result.trace_id for of_way in results.values() for result in of_way}

    def all_here(spans: list[SunkSpan]) -> bool:
        traces = traces_of(spans)
        return all(
            {CLIENT, RECEIVE, SEND} <= {s.name for s in traces.get(t, ())}
            and len(named(traces[t], VLLM)) == 2
            for t in wanted
        )

    return Load(results, sink.wait_for(all_here, 30))


@pytest.mark.parametrize("way", ["router", "both", "p-first", "d-first"])
def test_one_trace_holds_client_both_engines_and_the_kv_hop(load: Load, way: str):
    for result in load.results[way]:
        trace = load.traces[result.trace_id or ""]
        (client,) = named(trace, CLIENT)
        assert (client.kind, client.parent_span_id) == ("client", "")
        requests = named(trace, VLLM)
        assert (
            sorted(span.attributes["gen_ai.usage.prompt_tokens"] for span in requests)
            == [result.num_prompt_tokens] * 2
        )
        assert {span.attributes["gen_ai.request.id"] for span in requests} == {f"cmpl-{result.request_id}-0"}
        beside = [*requests, *named(trace, RECEIVE), *named(trace, SEND)]
        assert {span.parent_span_id for span in beside} == {client.span_id}
        assert_kv_hop(trace)


def test_the_id_of_every_span_of_ours_is_its_own(load: Load):
    ids = [span.span_id for trace in load.traces.values() for span in of_kv(trace)]
    assert len(ids) == len(set(ids))


def test_a_request_without_a_caller_has_a_trace_that_both_sides_derive(load: Load):
    """Those that the load sends to learn P's engine id carry no ``traceparent``."""
    called = {result.trace_id for of_way in load.results.values() for result in of_way}
    derived = [trace for trace_id, trace in load.traces.items() if trace_id not in called and of_kv(trace)]
    assert len(derived) == 2, "one for `both`, one for `d-first`"
    for trace in derived:
        assert {span.parent_span_id for span in trace if span.name in (RECEIVE, SEND)} == {""}
        assert_kv_hop(trace)


def test_the_critical_path_is_disjoint_and_ends_where_decode_is_scheduled(load: Load, rings: Path):
    exported = {
        span.attributes["kv_transfer.d.request_id"]: span
        for trace in load.traces.values()
        for span in named(trace, RECEIVE)
    }
    with closing(RingsSource(rings)) as source:
        made = [each for each in SpanReader(source).read() if each.spans]
    seen = 0
    for transfer, sides, _ in made:
        if (receive := exported.get(transfer.d_request)) is None:
            continue
        seen += 1
        path = pieces(transfer, sides)
        staged, scheduled = sides.p.first(ev.BlocksStaged), sides.d.first(ev.DecodeScheduled)
        assert staged is not None
        assert scheduled is not None
        assert [piece.start_ns for piece in path] == [staged.t, *(piece.end_ns for piece in path[:-1])]
        assert path[-1].end_ns == scheduled.t
        assert all(piece.end_ns >= piece.start_ns for piece in path)
        assert receive.attributes["kv_transfer.path_stages"] == [piece.name for piece in path]
        seconds = [(piece.end_ns - piece.start_ns) / 1e9 for piece in path]
        assert receive.attributes["kv_transfer.path_seconds"] == pytest.approx(seconds)
        assert sum(seconds) == pytest.approx(receive.attributes["kv_transfer.exposed_seconds"])
    assert seen == len(exported)


def test_submit_is_never_shorter_than_nixl_says_that_posting_took(load: Load, record_property):
    excess_us = []
    for trace in load.traces.values():
        for span in named(trace, "kv_transfer submit"):
            posted_ns = span.attributes["kv_transfer.nixl_post_seconds"] * 1e9
            excess_us.append((span.end_ns - span.start_ns - posted_ns) / 1e3)
    assert excess_us
    assert min(excess_us) >= 0
    median = statistics.median(excess_us)
    record_property("submit over NIXL's post duration, median us", median)
    print(
        f"submit over NIXL's own post duration: median {median:.0f} us of {len(excess_us)}, least {min(excess_us):.0f}"
    )


# -- the same id again --------------------------------------------------------------------------------


def test_a_constant_id_does_not_mix_traces(load: Load, lab: Deployment, sink: OtlpSink):
    """Two requests in a row, and two at once, under one ``X-Request-Id``."""
    sent = asyncio.run(_same_id(lab, ["in-a-row"], ["in-a-row"], ["at-once", "at-once"]))

    def all_here(spans: list[SunkSpan]) -> bool:
        traces = traces_of(spans)
        return all({RECEIVE, SEND} <= {s.name for s in traces.get(t, ())} for t in sent)

    traces = traces_of(sink.wait_for(all_here, 30))
    seen: Counter[str] = Counter()
    for trace_id, caller in sent.items():
        assert {s.parent_span_id for s in traces[trace_id] if s.name in (RECEIVE, SEND, VLLM)} == {caller}
        for side, name in (("d", RECEIVE), ("p", SEND)):
            (span,) = named(traces[trace_id], name)
            seen[span.attributes[f"kv_transfer.{side}.request_id"]] += 1
    assert len(seen) == 8
    assert set(seen.values()) == {1}, "no request is in two traces"


def test_a_retry_is_in_its_own_trace(load: Load, lab: Deployment, rings: Path):
    """The first client gives up before P has its leg; of the second one P gives the blocks to the first one's D.

    Read from the rings, since a transfer is closed, and exported, when a lease has passed.
    """
    first, second = asyncio.run(_same_id(lab, ["retried"], ["retried"], only_d_at_first=True)).items()
    with closing(RingsSource(rings)) as source:
        spans = [span for made in SpanReader(source, everything=True).read() for span in made.spans]
    requests = []
    for trace_id, caller in (first, second):
        trace = [span for span in spans if f"{span.trace_id:032x}" == trace_id]
        ends = [span for span in trace if span.name in (RECEIVE, SEND)]
        assert {f"{span.parent_span_id:016x}" for span in ends} == {caller}
        (receive,) = [span for span in ends if span.name == RECEIVE]
        requests.append(receive.attributes["kv_transfer.d.request_id"])
    assert len(set(requests)) == 2
    sends = [
        s for s in spans if s.name == SEND and "retried" in str(s.attributes.get("kv_transfer.p.request_id"))
    ]
    assert [f"{send.trace_id:032x}" for send in sends] == [second[0]], "P has the second client's leg alone"


async def _same_id(lab: Deployment, *at_once: Sequence[str], only_d_at_first: bool = False) -> dict[str, str]:
    """Send requests under these ids, those of one group at once; trace id -> the caller's span."""
    (p_url,), (d_url,) = lab.urls("prefill"), lab.urls("decode")
    sent: dict[str, str] = {}
    async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
        peer = await DirectTarget([p_url], [d_url]).learn(client, p_url, d_url)

        async def send(request_id: str) -> None:
            root = headers_only(0, 0)
            alone = only_d_at_first and not sent
            request = LoadRequest(0, make_prompt(99, len(sent), 300), 4)
            sent[root.trace_id or ""] = root.headers["traceparent"].split("-")[2]
            legs = [decode_leg(d_url, request, request_id, peer.decode_params(request_id))]
            legs += [] if alone else [prefill_leg(p_url, request, request_id)]
            with suppress(TimeoutError):
                async with asyncio.timeout(_GIVE_UP_S if only_d_at_first else None):
                    await asyncio.gather(
                        *(
                            complete(client, x.url, x.body, headers={**x.headers, **root.headers})
                            for x in legs
                        )
                    )

        for group in at_once:
            await asyncio.gather(*map(send, group))
    return sent


# -- over HTTP, by another agent ----------------------------------------------------------------------


def test_another_agent_exports_the_same_spans_over_http(load: Load, lab, rings, rotel, sink, tmp_path):
    """Last: it takes the place of the agent that the engines started, and notes nothing of what that one did."""
    before = {span.span_id: span for trace in load.traces.values() for span in of_kv(trace)}
    note = present_agent(rings)
    assert note is not None
    os.kill(note.pid, signal.SIGTERM)
    end = time.monotonic() + 20
    while present_agent(rings) is not None:
        assert time.monotonic() < end
        time.sleep(0.05)
    time.sleep(0.5)  # what it sent last is still at the collector
    sink.clear()
    agent = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "pushscope.telemetry.agent",
            "--bind",
            "127.0.0.1:0",
            "--state",
            str(tmp_path),
        ],
        env={
            **python_environment(),
            "PUSHSCOPE_DIR": str(rings),
            "OTEL_EXPORTER_OTLP_ENDPOINT": rotel.http_endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            **DELAYS,
        },
    )
    try:
        sink.wait_for(lambda spans: before.keys() <= {span.span_id for span in spans}, 30)
    finally:
        agent.terminate()
        assert agent.wait(20) == 0
    again = {span.span_id: span for span in sink.spans if span.span_id in before}
    assert {i: _without_times(s) for i, s in again.items()} == {
        i: _without_times(s) for i, s in before.items()
    }


def _without_times(span: SunkSpan) -> SunkSpan:
    """Each agent measures for itself how far the wall clock is ahead."""
    return replace(span, start_ns=0, end_ns=0)


# -- ranks --------------------------------------------------------------------------------------------


def test_ranks_that_were_seeded_alike_have_spans_of_their_own(zygote: Zygote, tmp_path, rotel, sink):
    """TP 2 on both sides. vLLM seeds the global ``random`` alike in every rank; no caller, so ids are all ours."""
    make_model(tmp_path / "model", layers=4, heads=8, kv_heads=4)
    env = {**DELAYS, "OTEL_EXPORTER_OTLP_ENDPOINT": rotel.grpc_endpoint}
    specs = prefill_decode(tensor_parallel_size=2, agent=True, env=env)
    sink.clear()
    with deployed(specs, tmp_path / "model", zygote, tmp_path) as deployment:
        target = DirectTarget(deployment.urls("prefill"), deployment.urls("decode"), tracing=untraced)
        results = asyncio.run(run_load(PLAN, target))
        assert [result.error for result in results] == [None] * len(results)
    # Down it is, and its agent has sent what waited.
    spans = sink.wait_for(lambda spans: len(named(spans, RECEIVE)) == 1 + len(results), 20)
    traces = [trace for trace in traces_of(spans).values() if of_kv(trace)]
    assert len(traces) == 1 + len(results), "one more to learn P's engine id"
    for trace in traces:
        assert_kv_hop(of_kv(trace), p_tp=2, d_tp=2)
    ids = [span.span_id for trace in traces for span in of_kv(trace)]
    assert len(ids) == len(set(ids))
