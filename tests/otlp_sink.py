"""An OTLP receiver for assertions: gRPC and HTTP/protobuf, that keeps what it was sent, or behaves badly.

with OtlpSink() as sink:
    environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = sink.grpc_endpoint  # or sink.http_endpoint
    ...
    spans = sink.wait_for(10)
"""

from __future__ import annotations

import gzip
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan

KINDS = {number: name.removeprefix("SPAN_KIND_").lower() for name, number in ProtoSpan.SpanKind.items()}


@dataclass(frozen=True)
class SunkSpan:
    """One span as it arrived."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_span_id: str
    """Empty: a root."""
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    links: tuple[tuple[str, str], ...] = ()
    """(trace id, span id)"""
    is_error: bool = False
    error: str = ""
    scope: str = ""


@dataclass
class Behaviour:
    """How the sink behaves; may be changed while it runs."""

    grpc_refuses: grpc.StatusCode | None = None
    http_refuses: int | None = None
    delay_s: float = 0.0
    headers: list[dict[str, str]] = field(default_factory=list)
    """Of each request."""


class OtlpSink:
    """Listens at free ports of 127.0.0.1, or at the given ones."""

    def __init__(self, *, grpc_port: int = 0, http_port: int = 0):
        self.behaviour = Behaviour()
        self._lock = threading.Lock()
        self._batches: list[list[SunkSpan]] = []
        self._grpc = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        add_TraceServiceServicer_to_server(_Servicer(self), self._grpc)
        self._grpc_port = self._grpc.add_insecure_port(f"127.0.0.1:{grpc_port}")
        self._http = ThreadingHTTPServer(("127.0.0.1", http_port), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def grpc_endpoint(self) -> str:
        return f"http://127.0.0.1:{self._grpc_port}"

    @property
    def http_endpoint(self) -> str:
        """The base: exporters add ``/v1/traces`` to it."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> OtlpSink:
        self._grpc.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._grpc.stop(0).wait()

    @property
    def batches(self) -> list[list[SunkSpan]]:
        with self._lock:
            return list(self._batches)

    @property
    def spans(self) -> list[SunkSpan]:
        """Everything that arrived, in its order, twice what arrived twice."""
        return [span for batch in self.batches for span in batch]

    def clear(self) -> None:
        with self._lock:
            self._batches.clear()

    def wait_for(
        self, enough: int | Callable[[list[SunkSpan]], bool], timeout_s: float = 20.0
    ) -> list[SunkSpan]:
        """The spans, once there are so many, or once ``enough`` says so. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while True:
            spans = self.spans
            if enough(spans) if callable(enough) else len(spans) >= enough:
                return spans
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(spans)} spans arrived in {timeout_s:g} s, not what was waited for")
            time.sleep(0.02)

    def take(self, request: ExportTraceServiceRequest) -> None:
        with self._lock:
            self._batches.append(sunk_spans(request))


def sunk_spans(request: ExportTraceServiceRequest) -> list[SunkSpan]:
    """The spans of one OTLP request."""
    return [
        SunkSpan(
            name=span.name,
            kind=KINDS[span.kind],
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_span_id=span.parent_span_id.hex(),
            start_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            attributes=_values(span.attributes),
            resource=_values(of_resource.resource.attributes),
            links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
            is_error=span.status.code == 2,
            error=span.status.message,
            scope=of_scope.scope.name,
        )
        for of_resource in request.resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    ]


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None


class _Servicer(TraceServiceServicer):
    def __init__(self, sink: OtlpSink):
        self._sink = sink

    def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:  # noqa: N802
        behaviour = self._sink.behaviour
        behaviour.headers.append({key: str(value) for key, value in context.invocation_metadata()})
        time.sleep(behaviour.delay_s)
        if behaviour.grpc_refuses is not None:
            context.abort(behaviour.grpc_refuses, "the sink was told to refuse")
        self._sink.take(request)
        return ExportTraceServiceResponse()


_DECODERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress}


def _handler(sink: OtlpSink) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            behaviour = sink.behaviour
            behaviour.headers.append({name.lower(): value for name, value in self.headers.items()})
            time.sleep(behaviour.delay_s)
            if self.path != "/v1/traces":
                self._answer(404)
            elif behaviour.http_refuses is not None:
                self._answer(behaviour.http_refuses)
            else:
                decode = _DECODERS.get(self.headers.get("Content-Encoding", ""), bytes)
                sink.take(ExportTraceServiceRequest.FromString(decode(body)))
                self._answer(200, ExportTraceServiceResponse().SerializeToString())

        def _answer(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
