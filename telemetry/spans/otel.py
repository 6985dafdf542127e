"""A span in the form of OpenTelemetry's SDK, for its exporters."""

from __future__ import annotations

from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from pushscope.telemetry.spans.model import Kind, Span
from pushscope.telemetry.spans.resource import SCOPE

_KINDS: Final = {
    Kind.PRODUCER: SpanKind.PRODUCER,
    Kind.CONSUMER: SpanKind.CONSUMER,
    Kind.INTERNAL: SpanKind.INTERNAL,
}
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


def to_readable(span: Span, resource: Resource, scope_version: str = "") -> ReadableSpan:
    """The span with its own ids: nothing is drawn from a random generator."""
    parent = None
    if span.parent_span_id is not None:
        parent = _context(span.trace_id, span.parent_span_id, is_remote=span.parent_is_remote)
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace_id, span.span_id),
        parent=parent,
        resource=resource,
        attributes=dict(span.attributes),
        links=[Link(_context(link.trace_id, link.span_id, is_remote=True)) for link in span.links],
        kind=_KINDS[span.kind],
        status=Status(StatusCode.ERROR, span.error or None) if span.error_type else Status(),
        start_time=span.start_unix_ns,
        end_time=span.end_unix_ns,
        instrumentation_scope=InstrumentationScope(SCOPE, scope_version),
    )


def _context(trace_id: int, span_id: int, *, is_remote: bool = False) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote, _SAMPLED)
