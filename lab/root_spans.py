"""Root spans that are exported, by OpenTelemetry's SDK, which takes long to import: only if they are to be."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Status, StatusCode, Tracer

from pushscope.lab.spec import SERVED_MODEL_NAME
from pushscope.lab.tracing import RootSpan, Tracing, traceparent

SERVICE = "pushscope lab load"


class _Ids(IdGenerator):
    """OpenTelemetry's own takes them from the global ``random``, which a seed repeats."""

    def generate_span_id(self) -> int:
        return secrets.randbits(64) or 1

    def generate_trace_id(self) -> int:
        return secrets.randbits(128) or 1


@dataclass(frozen=True)
class _Exported(RootSpan):
    span: Span = INVALID_SPAN

    def end(self, request_id: str, error: str | None) -> None:
        self.span.set_attribute("gen_ai.response.id", request_id)
        if error is not None:
            self.span.set_status(Status(StatusCode.ERROR, error))
        self.span.end()


def _begun(tracer: Tracer, num_prompt_tokens: int, num_output_tokens: int) -> RootSpan:
    span = tracer.start_span(
        f"text_completion {SERVED_MODEL_NAME}",
        kind=SpanKind.CLIENT,
        attributes={
            "gen_ai.operation.name": "text_completion",
            "gen_ai.request.model": SERVED_MODEL_NAME,
            "gen_ai.request.max_tokens": num_output_tokens,
            "gen_ai.usage.input_tokens": num_prompt_tokens,
        },
    )
    context = span.get_span_context()
    trace_id = f"{context.trace_id:032x}"
    return _Exported(traceparent(trace_id, f"{context.span_id:016x}"), trace_id, span)


@contextmanager
def exported(exporter: SpanExporter) -> Iterator[Tracing]:
    """Root spans that go to ``exporter``; at the end of the block what is left is sent."""
    # OTEL_SERVICE_NAME names the engines' service; the environment of a load is often theirs.
    resource = Resource.create().merge(Resource({SERVICE_NAME: SERVICE}))
    provider = TracerProvider(resource=resource, id_generator=_Ids(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield partial(_begun, provider.get_tracer("pushscope.lab"))
    finally:
        provider.shutdown()
