"""The root spans of a load, and the headers that carry them."""

from __future__ import annotations

import random

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from pushscope.lab.root_spans import SERVICE, exported
from pushscope.lab.tracing import headers_only, untraced


def test_a_traceparent_is_sampled_and_its_own() -> None:
    roots = [headers_only(10, 2) for _ in range(2)]
    version, trace_id, span_id, flags = roots[0].headers["traceparent"].split("-")
    assert (version, len(trace_id), len(span_id), flags) == ("00", 32, 16, "01")
    assert roots[0].trace_id == trace_id
    assert roots[0].headers != roots[1].headers


def test_without_tracing_no_header_is_sent() -> None:
    root = untraced(10, 2)
    assert not root.headers
    assert root.trace_id is None


def test_the_root_that_is_exported_is_the_one_that_the_header_names() -> None:
    memory = InMemorySpanExporter()
    with exported(memory) as roots:
        good, bad = roots(10, 2), roots(20, 4)
        good.end("a", None)
        bad.end("b", "HTTP 500: no")
    first, second = memory.get_finished_spans()
    assert good.headers["traceparent"] == f"00-{first.context.trace_id:032x}-{first.context.span_id:016x}-01"
    assert good.trace_id == f"{first.context.trace_id:032x}"
    assert first.parent is None
    assert first.kind is SpanKind.CLIENT
    assert first.attributes is not None
    assert first.attributes["gen_ai.usage.input_tokens"] == 10
    assert first.attributes["gen_ai.response.id"] == "a"
    assert first.resource.attributes["service.name"] == SERVICE
    assert first.status.status_code is StatusCode.UNSET
    assert (second.status.status_code, second.status.description) == (StatusCode.ERROR, "HTTP 500: no")


def test_a_seeded_random_does_not_repeat_ids() -> None:
    ids = set()
    for _ in range(2):
        random.seed(7)
        with exported(InMemorySpanExporter()) as roots:
            ids.add(roots(1, 1).trace_id)
    assert len(ids) == 2
