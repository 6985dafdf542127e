"""Root spans that are exported, by OpenTelemetry's SDK, which takes long to import: only if they are to be."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from pushscope.lab.spec import SERVED_MODEL_NAME
from pushscope.lab.tracing import RootSpan, traceparent

SERVICE = "pushscope lab load"


class _Ids(IdGenerator):
    """OpenTelemetry's own takes them from the global ``random``, which a seed repeats."""

    def generate_span_id(self) -> int:
        return secrets.randbits(64) or 1

    def generate_trace_id(self) -> int:
        return secrets.randbits(128) or 1


class RootSpans:
    """Makes root spans for :func:`exported`."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("pushscope.lab")

    def start(self, num_prompt_tokens: int, num_output_tokens: int) -> RootSpan:
        return _Root(
            self._tracer.start_span(
                f"text_completion {SERVED_MODEL_NAME}",
                kind=SpanKind.CLIENT,
                attributes={
                    "gen_ai.operation.name": "text_completion",
                    "gen_ai.request.model": SERVED_MODEL_NAME,
                    "gen_ai.request.max_tokens": num_output_tokens,
                    "gen_ai.usage.input_tokens": num_prompt_tokens,
                },
            )
        )


class _Root:
    def __init__(self, span: Span) -> None:
        self._span = span
        context = span.get_span_context()
        self.trace_id = f"{context.trace_id:032x}"
        self.headers: Mapping[str, str] = {
            "traceparent": traceparent(self.trace_id, f"{context.span_id:016x}")
        }

    def end(self, request_id: str, error: str | None) -> None:
        self._span.set_attribute("gen_ai.response.id", request_id)
        if error is not None:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()


@contextmanager
def exported(exporter: SpanExporter) -> Iterator[RootSpans]:
    """Root spans that go to ``exporter``; at the end of the block what is left is sent."""
    # OTEL_SERVICE_NAME names the engines' service; the environment of a load is often theirs.
    resource = Resource.create().merge(Resource({SERVICE_NAME: SERVICE}))
    provider = TracerProvider(resource=resource, id_generator=_Ids(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield RootSpans(provider)
    finally:
        provider.shutdown()
