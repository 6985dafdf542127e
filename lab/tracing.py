"""The client's side of a trace: the root span of each request, whose context its ``traceparent`` carries on."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pushscope.lab.otlp import Otlp
from pushscope.telemetry.agent.otlp import exporter_class


@dataclass(frozen=True)
class RootSpan:
    """One request as its client sees it; this one is exported by nobody."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """What takes its context along: a ``traceparent``, or nothing."""
    trace_id: str | None = None
    """32 hex digits; None without a trace."""

    def end(self, request_id: str, error: str | None) -> None:
        """The request has ended: under this id, and well if ``error`` is None."""


Tracing = Callable[[int, int], RootSpan]
"""Begins the root span of a request, of (prompt tokens, output tokens)."""


def untraced(_num_prompt_tokens: int, _num_output_tokens: int) -> RootSpan:
    """No ``traceparent`` at all."""
    return RootSpan()


def headers_only(_num_prompt_tokens: int, _num_output_tokens: int) -> RootSpan:
    """A sampled ``traceparent`` with random ids."""
    trace_id = secrets.token_hex(16)
    return RootSpan(traceparent(trace_id, secrets.token_hex(8)), trace_id)


@contextmanager
def roots_to(otlp: Otlp | None) -> Iterator[Tracing]:
    """Root spans that are exported to a receiver; without one, headers alone."""
    if otlp is None:
        yield headers_only
        return
    from pushscope.lab.root_spans import exported  # noqa: PLC0415 - slow to import

    with exported(exporter_class(otlp.protocol)(endpoint=otlp.endpoint)) as roots:
        yield roots


def traceparent(trace_id: str, span_id: str) -> dict[str, str]:
    """The W3C header of a sampled span, of both ids in hex."""
    return {"traceparent": f"00-{trace_id}-{span_id}-01"}
