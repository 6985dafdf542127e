"""Ids that two processes agree on without talking: hashes of what both know, never random numbers.

vLLM seeds Python's global ``random`` alike in every rank, so ids taken from it (as OpenTelemetry's SDK does)
would be the same on all of them.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final, NamedTuple

_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED: Final = 0x01
_BETWEEN: Final = b"\x1f"


class Caller(NamedTuple):
    """The span that a request came from, as its W3C ``traceparent`` tells."""

    trace_id: int
    span_id: int
    sampled: bool


def caller_of(traceparent: str) -> Caller | None:
    """The caller that a ``traceparent`` header names; None if it is none (W3C Trace Context, section 3.2)."""
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None:
        return None
    caller = Caller(int(found[1], 16), int(found[2], 16), bool(int(found[3], 16) & _SAMPLED))
    return caller if caller.trace_id and caller.span_id else None


def trace_id_of(engine: str, request_id: str) -> int:
    """The trace of a request that came without a caller: of D's in push mode, of P's in pull mode."""
    return _number(16, b"trace", engine, request_id)


def span_id_of(trace_id: int, *names: object) -> int:
    """A span's id in its trace: the same names make the same id, in whatever process and however often."""
    return _number(8, b"span", f"{trace_id:032x}", *names)


def share_of(*names: str) -> float:
    """A number from 0 up to 1 that is always the same for the same names, and evenly spread over many."""
    return _number(8, b"share", *names) / 2**64


def _number(num_bytes: int, kind: bytes, *names: object) -> int:
    """Never 0, which would be no id."""
    text = _BETWEEN.join(str(name).encode("utf-8", "surrogatepass") for name in names)
    return int.from_bytes(blake2b(text, digest_size=num_bytes, person=b"pushscope " + kind).digest()) or 1
