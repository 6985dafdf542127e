"""One event recorded, against one OpenTelemetry span made in place, a log line, and a look at the clock."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Sequence

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Tracer
from opentelemetry.util.types import AttributeValue

from bench.figure import Figure, Progress, Settings, compared
from bench.rings import D_ENGINE, P_WORKER, ring_folder
from bench.rounds import Call, interleaved
from bench.traffic import TRANSFER
from pushscope.telemetry.events import Matched
from pushscope.telemetry.ids import recorded_id
from pushscope.telemetry.recorder import Recorder, now

ROUNDS = 40
CALLS = 2_000
EVENTS_TO_A_SPAN = 12

# As vLLM makes them: cmpl-<X-Request-Id>-<index>-<random>.
P_ID = "cmpl-7f1c9be2-8f6c-4d0a-9d57-1f0a3c5e2b77-0-1b2c3d4e"
D_ID = "cmpl-7f1c9be2-8f6c-4d0a-9d57-1f0a3c5e2b77-0-5f6a7b8c"
ATTRIBUTES: dict[str, AttributeValue] = {
    "kv_transfer.prefill.request.id": P_ID,
    "kv_transfer.decode.request.id": D_ID,
    "kv_transfer.decode.engine.id": D_ENGINE,
    "kv_transfer.match.key": "base_id",
    "kv_transfer.blocks_first": False,
}


class NullExporter(SpanExporter):
    """Takes spans and drops them: what is measured is the making of spans, not their sending."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002
        return SpanExportResult.SUCCESS


class NullStream(io.TextIOBase):
    """Takes text and drops it."""

    def write(self, text: str, /) -> int:
        return len(text)


def run(_settings: Settings, progress: Progress) -> list[Figure]:
    """The cost of ``Recorder.record``, and of ``begin`` with ``end``, beside their alternatives."""
    provider = TracerProvider(resource=Resource.create({"service.name": "bench"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(NullExporter()))
    tracer = provider.get_tracer("bench")
    with ring_folder() as folder:
        recorder = Recorder(folder, P_WORKER)
        contenders = {
            "span": _span(tracer),
            "current span": _current_span(tracer),
            "all events": _all_events(recorder),
            "longest event": _longest_event(recorder),
            "begin and end": _begin_and_end(recorder),
            "log line": _log_line(),
            "clock": time.perf_counter,
        }
        us = interleaved(
            contenders, rounds=ROUNDS, calls=CALLS, progress=progress, between=provider.force_flush
        )
        recorder.close()
    provider.shutdown()
    event = [each / len(TRANSFER) for each in us["all events"]]
    budgeted = compared(
        "an event recorded (mean of a transfer's)", "us", event, us["span"], "start_span, end"
    )
    assert budgeted.ratio is not None
    held = budgeted.ratio.value <= 1 / EVENTS_TO_A_SPAN
    return [
        budgeted.against(f"<= 1/{EVENTS_TO_A_SPAN} of an OTel span", held=held),
        compared("an event", "us", event, us["current span"], "with start_as_current_span"),
        compared("an event", "us", event, us["log line"], "log line to nowhere"),
        compared("an event", "us", event, us["clock"], "time.perf_counter()"),
        compared("the longest event of a transfer", "us", us["longest event"], us["span"], "start_span, end"),
        compared("the same, begun and ended", "us", us["begin and end"], us["span"], "start_span, end"),
    ]


def _all_events(recorder: Recorder) -> Call:
    """Every event of a transfer once, each made with its time and its request's id as a seam makes it."""
    makes = [moment.make for moment in TRANSFER]

    def record() -> None:
        for make in makes:
            recorder.record(make(now(), recorded_id(P_ID), D_ID))

    return record


def _longest_event(recorder: Recorder) -> Call:
    def record() -> None:
        recorder.record(Matched(now(), recorded_id(P_ID), recorded_id(D_ID), False, "base_id", D_ENGINE))

    return record


def _begin_and_end(recorder: Recorder) -> Call:
    def begin_and_end() -> None:
        matched = Matched(now(), recorded_id(P_ID), recorded_id(D_ID), False, "base_id", D_ENGINE)
        recorder.begin(("write", 7), matched)
        recorder.end(("write", 7))

    return begin_and_end


def _span(tracer: Tracer) -> Call:
    """The least that makes a span of five attributes: sampled, batched, and exported to nowhere."""

    def make_span() -> None:
        tracer.start_span("kv_transfer rendezvous", attributes=dict(ATTRIBUTES)).end()

    return make_span


def _current_span(tracer: Tracer) -> Call:
    """The same as it is usually written around a piece of code."""

    def make_span() -> None:
        with tracer.start_as_current_span("kv_transfer rendezvous", attributes=dict(ATTRIBUTES)):
            pass

    return make_span


def _log_line() -> Call:
    """The same facts as a line of the standard library's logging, formatted as vLLM's lines are."""
    handler = logging.StreamHandler(NullStream())
    handler.setFormatter(logging.Formatter("%(levelname)s %(asctime)s [%(filename)s:%(lineno)d] %(message)s"))
    logger = logging.Logger("bench", logging.INFO)
    logger.addHandler(handler)

    def log() -> None:
        logger.info(
            "matched %s with %s of %s by %s (blocks first: %s)", P_ID, D_ID, D_ENGINE, "base_id", False
        )

    return log
