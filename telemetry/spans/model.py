"""What a span is here: frozen data, made of a transfer, that an exporter turns into its own format.

Times are wall-clock nanoseconds (UNIX epoch). Ids are numbers: 128 bits of a trace, 64 of a span, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

AttributeValue = str | bool | int | float | tuple[str, ...] | tuple[float, ...]
"""Sequences are of one type, as OpenTelemetry wants it."""


class Kind(StrEnum):
    """OpenTelemetry's kinds, as far as they occur here."""

    PRODUCER = "producer"
    """It starts work that another process goes on with: P's part of a transfer."""
    CONSUMER = "consumer"
    """It waits for that work, and takes it: D's part."""
    INTERNAL = "internal"
    """A stage."""


class Link(msgspec.Struct, frozen=True, gc=False):
    """A span that this one has to do with, other than its parent."""

    trace_id: int
    span_id: int


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One span. The resource that it belongs to is an engine's."""

    name: str
    kind: Kind = Kind.INTERNAL
    trace_id: int
    span_id: int
    parent_span_id: int | None = None
    """None: the root of its trace."""
    parent_is_remote: bool = False
    """The parent is a span of another process: the caller's, or the other engine's."""
    links: tuple[Link, ...] = ()
    start_unix_ns: int
    end_unix_ns: int
    attributes: Mapping[str, AttributeValue] = {}
    error_type: str = ""
    """Not empty: the status is ERROR; what went wrong, in one word, as the attribute ``error.type`` has it too."""
    error: str = ""
    """What went wrong in words: the description of the status."""
    engine_id: str
    """Whose engine did it: the resource."""

    @property
    def seconds(self) -> float:
        return (self.end_unix_ns - self.start_unix_ns) / 1e9
