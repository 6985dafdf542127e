"""What the connector calls: events in, ring bytes out, and nothing that could cost a request.

A recorder never raises, never blocks, starts no thread and opens no socket. What it cannot record it counts
and says once in the log. Off is another object (:data:`OFF`, or ``record`` replaced), not a branch.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from pushscope.telemetry.events import (
    ConnectorRaised,
    Event,
    EventsDropped,
    Loop,
    Origin,
    RecordingSwitched,
    cut,
    encode,
    error_text,
)
from pushscope.telemetry.ring import DEFAULT_BYTES, RingWriter

logger = logging.getLogger("vllm.pushscope")  # below vLLM's own, so that its handler prints it

SWITCH_NAME: Final = "recording-off"
"""While a file of this name lies in the ring folder, nothing is recorded."""
SAY_AGAIN_NS: Final = 10_000_000_000
_TICK_NS: Final = 1_000_000_000
_PER_STEP: Final = 8
_MAX_OPEN: Final = 20_000

now: Final = time.monotonic_ns


class Recorder:
    """Records events of one connector instance.

    ``record(event)`` writes it. ``begin(key, event)`` also remembers it as open: until ``end(key)`` it is
    said again every 10 s, and whenever half the ring was written since, so that a reader who comes when the
    ring has long wrapped still learns of it.
    ``step()`` is called once per engine step and does what is due.
    """

    record: Callable[[Event], None]

    def __init__(
        self, folder: Path, origin: Origin, *, num_bytes: int = DEFAULT_BYTES, group: str | None = None
    ):
        self._ring = RingWriter(folder, origin, num_bytes=num_bytes, group=group)
        self.path = self._ring.path
        self.origin = self._ring.origin
        self.dropped = 0
        self._first_error = ""
        self._dropped_said = 0
        self._open: dict[Hashable, Event] = {}
        self._again: Iterator[Hashable] | None = None
        self._again_due = now() + SAY_AGAIN_NS
        self._written = 0
        """Events written, roughly: threads may count at once."""
        self._half_turn = self._ring.num_slots // 2
        """What ``_written`` will be when half the ring has been written since."""
        self._tick_due = now() + _TICK_NS
        self._switch = str(folder / SWITCH_NAME)
        self._calls = self._total_ns = self._max_ns = 0
        self.on_tick: Callable[[], None] = _nothing
        """Called once a second, to record what is known only by looking: table sizes."""
        self.has_work: Callable[[], bool] = _false
        self.record = self._record

    def _record(self, event: Event) -> None:
        try:
            self._ring.write(encode(event))
            self._written += 1
        except Exception as e:  # noqa: BLE001 - a lost measurement, never a lost request
            self.failed(e)

    def begin(self, key: Hashable, event: Event) -> None:
        self.record(event)
        if len(self._open) < _MAX_OPEN:
            self._open[key] = event

    def end(self, key: Hashable) -> None:
        self._open.pop(key, None)

    def is_open(self, key: Hashable) -> bool:
        return key in self._open

    def failed(self, error: BaseException, where: str = "") -> None:
        """Count an event that could not be recorded; log the first."""
        self.dropped += 1
        if self._first_error or self._ring.closed:
            return
        self._first_error = cut(f"{where}: {error_text(error)}" if where else error_text(error))
        logger.warning(
            "pushscope could not record an event (%s); serving goes on, further losses are only counted",
            self._first_error,
            exc_info=error,
        )

    def raised(self, error: BaseException, where: str) -> None:
        """vLLM's own method ``where`` raised, on the engine's main thread."""
        self.record(ConnectorRaised(now(), where, error_text(error)))

    def took(self, ns: int) -> None:
        """Add a connector call that kept the engine's main thread for ``ns`` nanoseconds."""
        self._calls += 1
        self._total_ns += ns
        self._max_ns = max(self._max_ns, ns)

    def step(self) -> None:
        """What is due: once a second the sums and the switch, every 10 s what is still open, a few per step."""
        t = now()
        if t >= self._tick_due:
            self._tick_due = t + _TICK_NS
            self._tick(t)
        half_a_turn = self._written >= self._half_turn
        if half_a_turn or t >= self._again_due:
            self._again_due, self._half_turn = t + SAY_AGAIN_NS, self._written + self._ring.num_slots // 2
            due = [key for key, e in list(self._open.items()) if half_a_turn or t - e.t >= SAY_AGAIN_NS]
            self._again = iter(due) if due else None
        elif self._again is not None:
            for key in islice(self._again, _PER_STEP):
                if (event := self._open.get(key)) is not None:  # it may have ended meanwhile
                    self.record(event)

    def _tick(self, t: int) -> None:
        self._turn(on=not os.path.exists(self._switch))
        self.record(Loop(t, self._calls, self._total_ns, self._max_ns, self.has_work()))
        self._calls = self._total_ns = self._max_ns = 0
        self.on_tick()
        if self.dropped > self._dropped_said:
            self._dropped_said = self.dropped
            self.record(EventsDropped(t, self.dropped, self._first_error))

    def close(self) -> None:
        self.record = _nothing
        self._ring.close()

    def _turn(self, *, on: bool) -> None:
        if on == (self.record != _nothing):
            return
        if on:
            self.record = self._record
            self._half_turn = 0  # say at once what is open: readers know nothing of what ended meanwhile
        self._record(RecordingSwitched(now(), on))
        if not on:
            self.record = _nothing
        logger.info("pushscope recording is %s", "on" if on else "off")


def _nothing(*_: object) -> None:
    """What ``record`` is while recording is off."""


def _false() -> bool:
    return False
