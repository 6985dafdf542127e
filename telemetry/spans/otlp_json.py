"""Spans as OTLP/JSON: ids in hex, 64-bit numbers as text (opentelemetry.io/docs/specs/otlp, JSON Protobuf Encoding)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pushscope.telemetry import events as ev
from pushscope.telemetry.spans.model import AttributeValue, Kind, Span
from pushscope.telemetry.spans.resource import SCOPE, resource_of, scope_version

_KINDS: Final = {Kind.INTERNAL: 1, Kind.PRODUCER: 4, Kind.CONSUMER: 5}
_ERROR: Final = 2
_SAMPLED: Final = 0x01
_KNOWS_WHETHER_REMOTE: Final = 0x100
_IS_REMOTE: Final = 0x200


def resource_spans(spans: Iterable[Span], origins: Mapping[str, ev.Origin]) -> list[dict[str, Any]]:
    """The elements of ``resourceSpans``: one for each engine."""
    by_engine: dict[str, list[Span]] = {}
    for span in spans:
        by_engine.setdefault(span.engine_id, []).append(span)
    return [
        {
            "resource": {"attributes": _attributes(resource_of(engine, origins))},
            "scopeSpans": [
                {
                    "scope": {"name": SCOPE, "version": scope_version(origins, engine)},
                    "spans": [_span(span) for span in found],
                }
            ],
        }
        for engine, found in by_engine.items()
    ]


def _span(span: Span) -> dict[str, Any]:
    flags = _SAMPLED | _KNOWS_WHETHER_REMOTE | (_IS_REMOTE if span.parent_is_remote else 0)
    found: dict[str, Any] = {
        "traceId": f"{span.trace_id:032x}",
        "spanId": f"{span.span_id:016x}",
        "flags": flags,
        "name": span.name,
        "kind": _KINDS[span.kind],
        "startTimeUnixNano": str(span.start_unix_ns),
        "endTimeUnixNano": str(span.end_unix_ns),
        "attributes": _attributes(span.attributes),
        "status": {},
    }
    if span.parent_span_id is not None:
        found["parentSpanId"] = f"{span.parent_span_id:016x}"
    if span.links:
        remote = _SAMPLED | _KNOWS_WHETHER_REMOTE | _IS_REMOTE
        found["links"] = [
            {"traceId": f"{link.trace_id:032x}", "spanId": f"{link.span_id:016x}", "flags": remote}
            for link in span.links
        ]
    if span.error_type:
        found["status"] = {"code": _ERROR} | ({"message": span.error} if span.error else {})
    return found


def _attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: AttributeValue) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case _:
            return {"arrayValue": {"values": [_value(item) for item in value]}}
