"""Spans into a file: OTLP/JSON as it comes, Chrome trace JSON sorted by time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from pushscope.telemetry import events as ev
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.spans.chrome import trace_events
from pushscope.telemetry.spans.model import Span
from pushscope.telemetry.spans.otlp_json import resource_spans

_BATCH: Final = 256
Transfers = Iterable[tuple[Span, ...]]


class Format(StrEnum):
    """What the file is."""

    OTLP = "otlp"
    """OTLP/JSON, one ``TracesData``: what an OTLP/HTTP receiver takes, and collectors read from files."""
    CHROME = "chrome"
    """Chrome trace JSON: https://ui.perfetto.dev opens it, without any backend."""


def write_spans(path: Path, transfers: Transfers, origins: Mapping[str, ev.Origin], form: Format) -> int:
    """Write the spans of each transfer to a new file; the bytes written. Raises PushscopeError if it can't be."""
    try:
        with path.open("xb") as file:
            if form is Format.OTLP:
                return _write(file, b'{"resourceSpans":[', _of_otlp(transfers, origins), b"]}\n")
            head = b'{"displayTimeUnit":"ms","traceEvents":['
            return _write(file, head, trace_events(transfers, origins), b"]}\n")
    except FileExistsError:
        raise PushscopeError(f"{path} exists already; give another name, nothing was overwritten") from None
    except OSError as e:
        raise PushscopeError(f"cannot write {path}: {e.strerror}") from e


def _of_otlp(transfers: Transfers, origins: Mapping[str, ev.Origin]) -> Iterator[dict[str, Any]]:
    """In batches: each names its engines again, as the protocol allows, so that memory stays bounded."""
    all_transfers = iter(transfers)
    while batch := list(islice(all_transfers, _BATCH)):
        yield from resource_spans((span for spans in batch for span in spans), origins)


def _write(file: BinaryIO, head: bytes, elements: Iterable[object], tail: bytes) -> int:
    num_bytes = file.write(head)
    between = b"\n"
    for element in elements:
        num_bytes += file.write(between + msgspec.json.encode(element))
        between = b",\n"
    return num_bytes + file.write(tail)
