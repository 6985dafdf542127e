"""The client's side of a trace: the root span of each request, whose context its ``traceparent`` carries on."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Protocol


class RootSpan(Protocol):
    """One request as its client sees it."""

    headers: Mapping[str, str]
    """What takes its context along: a ``traceparent``, or nothing."""

    @property
    def trace_id(self) -> str | None:
        """32 hex digits; None without a trace."""
        ...

    def end(self, request_id: str, error: str | None) -> None:
        """The request has ended: under this id, and well if ``error`` is None."""
        ...


class Tracing(Protocol):
    """Makes the root spans of a load."""

    def start(self, num_prompt_tokens: int, num_output_tokens: int) -> RootSpan: ...


class _Untraced:
    headers: Mapping[str, str] = {}
    trace_id = None

    def end(self, request_id: str, error: str | None) -> None:
        pass


class NoTracing:
    """Requests without a ``traceparent``."""

    def start(self, num_prompt_tokens: int, num_output_tokens: int) -> RootSpan:
        return _Untraced()


class _HeaderOnly(_Untraced):
    def __init__(self) -> None:
        self.trace_id = secrets.token_hex(16)
        self.headers = {"traceparent": traceparent(self.trace_id, secrets.token_hex(8))}


class HeadersOnly:
    """A sampled ``traceparent`` with random ids for each request; nobody exports the span that it names."""

    def start(self, num_prompt_tokens: int, num_output_tokens: int) -> RootSpan:
        return _HeaderOnly()


def traceparent(trace_id: str, span_id: str) -> str:
    """The W3C header of a sampled span."""
    return f"00-{trace_id}-{span_id}-01"
