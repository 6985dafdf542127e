"""The queue before an OTLP endpoint: bounded, never waited for, every loss counted and told once."""

from __future__ import annotations

import threading
import time

import grpc
import msgspec
import pytest

from pushscope.telemetry.agent.endpoints import Endpoints
from pushscope.telemetry.agent.export import Done, Parcel, SpanExport
from pushscope.telemetry.agent.otlp import Answer, OtlpError, OtlpSender, OtlpSettings, otlp_settings
from pushscope.telemetry.spans.model import Kind, Span

from ..otlp_sink import OtlpSink
from .scenario import D_ENGINE, D_SCHEDULER, P_ENGINE, P_SCHEDULER


def span(number: int = 1, *, engine: str = D_ENGINE, **changes: object) -> Span:
    given = {
        "name": "kv_transfer receive",
        "kind": Kind.CONSUMER,
        "trace_id": 0xABC,
        "span_id": number,
        "start_unix_ns": 1_700_000_000_000_000_000,
        "end_unix_ns": 1_700_000_000_005_000_000,
        "attributes": {"kv_transfer.bytes": 7},
        "engine_id": engine,
    }
    return Span(**(given | changes))


def parcel(key: int, num_spans: int = 1) -> Parcel:
    return Parcel((key,), tuple(span(100 * key + n + 1) for n in range(num_spans)))


class FakeSender:
    """Takes what it is sent, or answers as it is told; ``hold`` keeps it from answering."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.answer, self.why = Answer.TAKEN, ""
        self.go = threading.Event()
        self.go.set()
        self.closed = False

    def send(self, spans):
        self.batches.append([s.span_id for s in spans])
        while not self.go.wait(0.01):
            if self.closed:
                return Answer.FAILED, "closed"
        return self.answer, self.why

    def close(self):
        self.closed = True


class Export:
    """A SpanExport with a fake sender, and what it reported."""

    def __init__(self, **settings: float):
        self.sender = FakeSender()
        self.done: list[Done] = []
        self.troubles: list[str] = []
        given = {"max_queue": 100, "max_batch": 10, "delay_s": 0.01} | settings
        self.export = SpanExport(
            self.sender, "nowhere", **given, on_done=self.done.append, on_trouble=self.troubles.append
        )

    def wait(self, holds, timeout_s: float = 10.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < deadline, self.export.status()
            time.sleep(0.005)


@pytest.fixture
def made():
    exports: list[Export] = []

    def make(**settings: float) -> Export:
        exports.append(Export(**settings))
        return exports[-1]

    yield make
    for each in exports:
        each.sender.go.set()
        each.export.close(1)


class TestQueue:
    def test_spans_go_out_and_are_done(self, made):
        it = made()
        for key in range(1, 4):
            it.export.put(parcel(key, 2))
        it.wait(lambda: it.export.status().exported == 6)
        assert sorted(key for done in it.done for key in done.keys) == [1, 2, 3]
        assert it.export.status().queued == 0
        assert it.troubles == []

    def test_batches_are_of_whole_transfers(self, made):
        it = made(max_batch=5, delay_s=60)
        for key in range(1, 6):
            it.export.put(parcel(key, 3))
        it.wait(lambda: len(it.sender.batches) >= 4)
        assert {len(batch) for batch in it.sender.batches} == {3}, "a second one would make it six"
        it = made(max_batch=6, delay_s=60)
        for key in range(1, 5):
            it.export.put(parcel(key, 3))
        it.wait(lambda: len(it.sender.batches) == 2)
        assert [len(batch) for batch in it.sender.batches] == [6, 6]

    def test_a_transfer_larger_than_a_batch_goes_alone(self, made):
        it = made(max_batch=5)
        it.export.put(parcel(1, 30))
        it.wait(lambda: it.export.status().exported == 30)

    def test_what_does_not_fit_is_dropped_and_counted_and_nobody_waits(self, made):
        it = made(max_queue=20, max_batch=10)
        it.sender.go.clear()
        for key in range(1, 101):
            began = time.perf_counter()
            it.export.put(parcel(key, 2))
            assert time.perf_counter() - began < 1
        status = it.export.status()
        assert status.queued == 20
        assert status.dropped["queue_full"] == 180
        assert sum(done.dropped[1] for done in it.done if done.dropped) == 180
        it.sender.go.set()
        it.wait(lambda: it.export.status().exported == 20)
        it.export.put(parcel(200))
        it.wait(lambda: it.export.status().exported == 21)

    def test_room_is_waited_for_only_as_long_as_told_and_not_for_an_endpoint_in_trouble(self, made):
        it = made(max_queue=2, max_batch=2)
        it.sender.go.clear()
        it.export.put(parcel(1, 2))
        began = time.monotonic()
        it.export.wait_for_room(1, 0.2)
        assert 0.2 <= time.monotonic() - began < 5
        it.sender.answer, it.sender.why = Answer.FAILED, "down"
        it.sender.go.set()
        it.export.wait_for_room(2, 60)
        it.wait(lambda: it.troubles == ["down"])
        it.sender.go.clear()
        it.export.put(parcel(2, 2))
        it.export.wait_for_room(2, 60)  # returns at once

    def test_a_slow_trickle_is_not_kept_for_long(self, made):
        it = made(max_batch=1000, delay_s=0.05)
        it.export.put(parcel(1))
        it.wait(lambda: it.export.status().exported == 1, 5)

    @pytest.mark.parametrize(("answer", "reason"), [(Answer.REFUSED, "refused"), (Answer.FAILED, "failed")])
    def test_trouble_is_counted_told_once_and_over_when_it_is_over(self, made, answer, reason):
        it = made(max_batch=1)
        it.sender.answer, it.sender.why = answer, "the disk is full"
        it.export.put(parcel(1))
        it.export.put(parcel(2))
        it.wait(lambda: it.export.status().dropped[reason] == 2)
        assert it.troubles == ["the disk is full"]
        assert it.export.status().trouble == "the disk is full"
        it.sender.answer, it.sender.why = Answer.TAKEN, ""
        it.export.put(parcel(3))
        it.wait(lambda: it.export.status().exported == 1)
        it.wait(lambda: it.troubles == ["the disk is full", ""])
        assert it.export.status().trouble == ""
        assert [done.keys for done in it.done] == [(1,), (2,), (3,)], "each is done, however it went"

    def test_what_waits_is_sent_at_the_end(self, made):
        it = made(max_batch=2, delay_s=60)
        it.export.put(parcel(1))
        assert it.export.close(5) == 0
        assert it.export.status().exported == 1

    def test_the_end_does_not_wait_for_ever_and_what_is_left_is_not_done(self, made):
        it = made(max_batch=2)
        it.sender.go.clear()
        for key in range(1, 4):
            it.export.put(parcel(key, 2))
        it.wait(lambda: it.sender.batches)
        began = time.monotonic()
        assert it.export.close(0.1) == 6
        assert time.monotonic() - began < 5
        assert it.done == []

    def test_at_the_end_a_dead_endpoint_is_tried_once(self, made):
        it = made(max_batch=2, delay_s=60)
        it.sender.answer = Answer.FAILED
        for key in range(1, 4):
            it.export.put(parcel(key, 1))
        it.wait(lambda: it.export.status().dropped["failed"] == 2)
        assert it.export.close(5) == 1
        assert len(it.sender.batches) == 2


def settings(**environ: str) -> OtlpSettings:
    return otlp_settings(environ)


class TestVariables:
    def test_by_default_everything_goes_by_grpc_to_the_engines_own_endpoint(self):
        found = settings()
        assert (found.off, found.protocol, found.endpoint, found.ratio) == ("", "grpc", "", 1.0)

    def test_what_is_for_traces_comes_first(self):
        found = settings(
            OTEL_EXPORTER_OTLP_ENDPOINT="http://a",
            OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="http://b",
            OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
            OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="http/protobuf",
        )
        assert (found.endpoint, found.protocol) == ("http://b", "http/protobuf")

    @pytest.mark.parametrize(
        ("sampler", "argument", "ratio"),
        [
            ("always_on", "", 1.0),
            ("always_off", "", 0.0),
            ("parentbased_always_off", "", 0.0),
            ("parentbased_always_on", "0.3", 1.0),
            ("traceidratio", "0.25", 0.25),
            ("parentbased_traceidratio", "0.25", 0.25),
            ("traceidratio", "", 1.0),
        ],
    )
    def test_the_sampler_is_a_ratio(self, sampler, argument, ratio):
        found = settings(OTEL_TRACES_SAMPLER=sampler, OTEL_TRACES_SAMPLER_ARG=argument)
        assert (found.ratio, found.notices) == (ratio, ())

    def test_an_unknown_sampler_or_ratio_is_noticed_and_everything_is_exported(self):
        for environ in (
            {"OTEL_TRACES_SAMPLER": "jaeger_remote"},
            {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "half"},
        ):
            found = otlp_settings(environ)
            assert found.ratio == 1.0
            (notice,) = found.notices
            assert "expected" in notice or "known are" in notice

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("OTEL_SDK_DISABLED", "true"),
            ("OTEL_TRACES_EXPORTER", "none"),
            ("OTEL_TRACES_EXPORTER", "console"),
        ],
    )
    def test_off(self, name, value):
        assert name in settings(**{name: value}).off

    def test_the_batch_processors_numbers(self):
        found = settings(
            OTEL_BSP_MAX_QUEUE_SIZE="100", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="512", OTEL_BSP_SCHEDULE_DELAY="250"
        )
        assert (found.max_queue, found.max_batch, found.delay_s) == (100, 100, 0.25)

    @pytest.mark.parametrize(
        ("name", "value", "expected"),
        [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "grpc or http/protobuf"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "many", "whole number"),
        ],
    )
    def test_what_cannot_be_followed_is_one_sentence(self, name, value, expected):
        with pytest.raises(OtlpError, match=f"{name} is '{value}'; expected .*{expected}"):
            settings(**{name: value})


@pytest.fixture(scope="module")
def sink():
    with OtlpSink() as sink:
        yield sink


@pytest.fixture(autouse=True)
def _well_behaved(request, monkeypatch):
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    if "sink" in request.fixturenames:
        sink = request.getfixturevalue("sink")
        sink.clear()
        sink.behaviour.grpc_refuses = sink.behaviour.http_refuses = None
        sink.behaviour.headers.clear()


def endpoint_of(sink: OtlpSink, protocol: str) -> str:
    return sink.grpc_endpoint if protocol == "grpc" else sink.http_endpoint


ORIGINS = {P_ENGINE: P_SCHEDULER, D_ENGINE: D_SCHEDULER}


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
class TestEndpoint:
    def send(self, sink, protocol, monkeypatch, *spans: Span, **environ: str):
        """By the variables, as a user sets them."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint_of(sink, protocol))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3")
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        said: list[str] = []
        done: list[Done] = []
        found = otlp_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint_of(sink, protocol)})
        given = OtlpSettings(protocol=protocol, endpoint=found.endpoint, delay_s=0.01)
        endpoints = Endpoints(given, ORIGINS, on_done=done.append, say=said.append)
        endpoints.put((1,), spans)
        left = endpoints.close(10)
        return endpoints.status()[0], said, done, left

    def test_a_span_arrives_as_it_was_with_its_engine_as_resource(self, sink, protocol, monkeypatch):
        status, said, done, _ = self.send(
            sink, protocol, monkeypatch, span(7, parent_span_id=3), span(8, engine=P_ENGINE)
        )
        assert status.exported == 2
        assert done == [Done((1,), exported=2)]
        assert said == [f"exporting spans to {endpoint_of(sink, protocol)} by OTLP ({protocol})"]
        d, p = sorted(sink.spans, key=lambda s: s.span_id)
        assert (d.name, d.kind, int(d.trace_id, 16), int(d.span_id, 16), int(d.parent_span_id, 16)) == (
            "kv_transfer receive",
            "consumer",
            0xABC,
            7,
            3,
        )
        assert d.attributes == {"kv_transfer.bytes": 7}
        assert d.end_ns - d.start_ns == 5_000_000
        assert (d.resource["service.instance.id"], p.resource["service.instance.id"]) == (D_ENGINE, P_ENGINE)
        assert (d.resource["service.name"], d.resource["host.name"]) == ("vllm-decode", "host")

    def test_headers_compression_service_and_resource_are_followed(self, sink, protocol, monkeypatch):
        self.send(
            sink,
            protocol,
            monkeypatch,
            span(),
            OTEL_EXPORTER_OTLP_HEADERS="x-tenant=me",
            OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
            OTEL_SERVICE_NAME="my-model",
            OTEL_RESOURCE_ATTRIBUTES="deployment.environment=lab",
        )
        (arrived,) = sink.spans
        assert arrived.resource["service.name"] == "my-model"
        assert arrived.resource["deployment.environment"] == "lab"
        (headers,) = sink.behaviour.headers
        assert headers["x-tenant"] == "me"
        if protocol != "grpc":  # gRPC takes its own header off
            assert headers["content-encoding"] == "gzip"

    def test_a_refusal_is_told_with_its_reason_and_not_tried_again(self, sink, protocol, monkeypatch):
        sink.behaviour.grpc_refuses, sink.behaviour.http_refuses = grpc.StatusCode.UNAUTHENTICATED, 401
        status, said, done, _ = self.send(sink, protocol, monkeypatch, span())
        assert status.dropped == {"queue_full": 0, "refused": 1, "failed": 0}
        assert len(sink.behaviour.headers) == 1
        assert ("UNAUTHENTICATED" if protocol == "grpc" else "401") in said[-1]
        assert done == [Done((1,), dropped=("refused", 1))]

    def test_nobody_there(self, protocol):
        with OtlpSink() as gone:
            endpoint = endpoint_of(gone, protocol)
        path = "" if protocol == "grpc" else "/v1/traces"
        sender = OtlpSender(protocol, endpoint + path, timeout_s=1.5)
        answer, why = sender.send([])
        sender.close()
        assert answer is Answer.FAILED
        assert "refused" in why.lower() or "connect" in why.lower(), why

    def test_what_an_exporter_logs_is_told_by_us_and_nowhere_else(self, sink, protocol, caplog):
        sink.behaviour.grpc_refuses, sink.behaviour.http_refuses = grpc.StatusCode.INVALID_ARGUMENT, 400
        path = "" if protocol == "grpc" else "/v1/traces"
        sender = OtlpSender(protocol, endpoint_of(sink, protocol) + path)
        for _ in range(2):  # what is said twice is heard twice
            answer, why = sender.send([])
            assert answer is Answer.REFUSED
            assert why
        sender.close()
        assert caplog.records == []


def test_each_engine_has_its_own_endpoint_where_the_environment_names_none():
    with OtlpSink() as one, OtlpSink() as two:
        origins = {
            P_ENGINE: replaced(P_SCHEDULER, one.grpc_endpoint),
            D_ENGINE: replaced(D_SCHEDULER, two.grpc_endpoint),
        }
        done: list[Done] = []
        endpoints = Endpoints(OtlpSettings(delay_s=0.01), origins, on_done=done.append, say=lambda _: None)
        assert endpoints.of("unknown") == ""
        endpoints.put((1,), [span(1, engine=P_ENGINE), span(2, engine=D_ENGINE), span(3, engine="elsewhere")])
        assert endpoints.close(5) == 0
        assert [int(s.span_id, 16) for s in one.spans] == [1]
        assert [int(s.span_id, 16) for s in two.spans] == [2]


def replaced(origin, endpoint):
    return msgspec.structs.replace(origin, otlp_traces_endpoint=endpoint)


def test_a_variable_that_no_exporter_can_be_made_from_is_told_by_its_name(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "zip")
    said: list[str] = []
    settings = OtlpSettings(endpoint="http://127.0.0.1:1", delay_s=0.01)
    endpoints = Endpoints(settings, ORIGINS, on_done=lambda _: None, say=said.append)
    endpoints.put((1,), [span()])
    endpoints.close(5)
    assert endpoints.status()[0].dropped["refused"] == 1
    assert "OTEL_EXPORTER_OTLP_COMPRESSION" in said[-1]


def test_nothing_is_exported_when_switched_off():
    endpoints = Endpoints(
        OtlpSettings(off="OTEL_SDK_DISABLED is true", endpoint="http://x"), ORIGINS, on_done=print, say=print
    )
    assert endpoints.of(P_ENGINE) == ""
