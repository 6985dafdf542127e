"""The spans of all that a source holds, transfer by transfer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pushscope.telemetry import events as ev
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.group import Sides
from pushscope.telemetry.source import RingState, Source
from pushscope.telemetry.spans.make import spans_of
from pushscope.telemetry.spans.model import Span
from pushscope.telemetry.spans.resource import origins_of
from pushscope.telemetry.transfer import Transfer
from pushscope.telemetry.watch import Watcher


class Made(NamedTuple):
    """A transfer, what it was made of, and its spans: none if its caller did not sample it."""

    transfer: Transfer
    sides: Sides
    spans: tuple[Span, ...]


class SpanReader:
    """Reads a source to its end, of rings all that is there.

    ``everything``: also transfers that are still open (what is open ends with the reading), and those that
    their callers did not sample.
    """

    def __init__(self, source: Source, *, everything: bool = False):
        self.origins: dict[str, ev.Origin] = {}
        """One of each engine that was met."""
        self.damage = ""
        """Why the source could not be read to its end."""
        self._source = source
        self._everything = everything
        self._watcher = Watcher(source, on_closed=self._closed)
        self._made: deque[Made] = deque()
        self._rings: tuple[RingState, ...] = ()
        self._ahead_ns: int | None = None

    def read(self) -> Iterator[Made]:
        """Each transfer once: those that ended as they were closed, then the rest."""
        try:
            for _ in self._polls():
                yield from self._new()
        except PushscopeError as e:
            self.damage = str(e)
            yield from self._new()
        reading = self._watcher.reading
        for transfer in self._watcher.assembler.open_transfers():
            if self._everything or not transfer.is_open:
                self._make(transfer, until_ns=reading.t_ns if reading else None)
        yield from self._new()

    def _polls(self) -> Iterator[None]:
        if not self._source.ends:
            self._watcher.read_all()
            yield
            return
        while self._watcher.poll():
            yield

    def _new(self) -> Iterator[Made]:
        while self._made:
            yield self._made.popleft()

    def _closed(self, transfer: Transfer) -> None:
        self._make(transfer)

    def _make(self, transfer: Transfer, until_ns: int | None = None) -> None:
        sides = self._watcher.assembler.sides_of(transfer)
        if sides is None:
            return
        to_unix = self._clock()
        spans = spans_of(
            transfer,
            sides,
            self._watcher.wrong_with(transfer),
            to_unix=to_unix,
            local={engine for engine in (transfer.p_engine, transfer.d_engine) if engine},
            origins=self.origins,
            until_ns=until_ns,
            unsampled=self._everything,
        )
        self._made.append(Made(transfer, sides, spans))

    def _clock(self) -> Callable[[int], int]:
        """To wall-clock nanoseconds, as the two clocks stood at the first reading: one offset for all spans."""
        reading = self._watcher.reading
        if reading is not None and reading.rings != self._rings:
            self._rings = reading.rings
            self.origins |= origins_of(reading.rings)
        if reading is not None and self._ahead_ns is None:
            self._ahead_ns = reading.unix_ns - reading.t_ns
        ahead_ns = self._ahead_ns or 0
        return lambda t_ns: t_ns + ahead_ns
