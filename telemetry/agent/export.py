"""The queue between the thread that watches and an OTLP endpoint: bounded, never waited for, every loss counted.

A *parcel* is what one transfer has to say: its spans, and the keys by which it is known again. Batches are made of
whole parcels, so that what was sent can be noted transfer by transfer (:mod:`.journal`). What does not fit is
dropped: the newest, since what waits is older and as good. A parcel is *done* when the endpoint has answered for it,
however it did, or when it was dropped; one that is still waiting at the end is not done, and the next agent finds it
in the rings.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from pushscope.telemetry.agent.otlp import Answer
from pushscope.telemetry.spans.model import Span

QUEUE_FULL: Final = "queue_full"
_REASONS: Final = {Answer.REFUSED: "refused", Answer.FAILED: "failed"}
DROP_REASONS: Final = (QUEUE_FULL, *_REASONS.values())
"""Why spans were dropped: the queue was full; the endpoint said no; it was not reached in time."""
PAUSE_S: Final = 1.0
"""After a batch that was not taken, the next one waits so long."""

_GIVE_UP_S: Final = 1.0


class Parcel(NamedTuple):
    """The spans of one transfer."""

    keys: tuple[int, ...]
    spans: tuple[Span, ...]


class Sender(Protocol):
    """Sends a batch, blocking, and says what became of it. ``close``, from another thread, ends a send early."""

    def send(self, spans: Sequence[Span]) -> tuple[Answer, str]: ...

    def close(self) -> None: ...


class Done(NamedTuple):
    """Parcels that need not be thought of again, and how many spans of them went which way."""

    keys: tuple[int, ...]
    exported: int = 0
    dropped: tuple[str, int] | None = None
    """(reason, number)"""


class ExportStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How it stands, of spans unless said otherwise."""

    endpoint: str
    exported: int = 0
    dropped: dict[str, int] = {}
    """By reason: ``queue_full``, ``refused``, ``failed``."""
    queued: int = 0
    """Waiting, or on their way."""
    max_queue: int = 0
    trouble: str = ""
    """Why the last batch was not taken, in words; empty if it was."""


class SpanExport:
    """One endpoint, and the spans that wait for it. ``put`` from one thread; the rest from any."""

    def __init__(
        self,
        sender: Sender,
        endpoint: str,
        *,
        max_queue: int,
        max_batch: int,
        delay_s: float,
        on_done: Callable[[Done], None] | None = None,
        on_trouble: Callable[[str], None] | None = None,
    ):
        """``on_done`` is called in the thread that exports, or in that of ``put`` for what is dropped at once;
        ``on_trouble`` with each new reason why batches are not taken, and with an empty text when they are again."""
        self._sender = sender
        self.endpoint = endpoint
        self._max_queue, self._max_batch, self._delay_s = max_queue, max_batch, delay_s
        self._on_done = on_done or _nothing
        self._on_trouble = on_trouble or _nothing
        self._changed = threading.Condition()
        self._waiting: deque[Parcel] = deque()
        self._num_waiting = self._num_under_way = 0
        self._oldest_s = 0.0
        """When the first of those that wait was put."""
        self._ends = self._given_up = False
        self._exported = 0
        self._dropped: Counter[str] = Counter()
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name=f"export to {endpoint}", daemon=True)
        self._thread.start()

    def put(self, parcel: Parcel) -> None:
        """Queue the spans of a transfer, or drop them. Never waits for the endpoint."""
        num_spans = len(parcel.spans)
        with self._changed:
            fits = self._fits(num_spans)
            if fits:
                if not self._waiting:
                    self._oldest_s = time.monotonic()
                self._waiting.append(parcel)
                self._num_waiting += num_spans
                if len(self._waiting) == 1 or self._num_waiting >= self._max_batch:
                    self._changed.notify_all()
            else:
                self._dropped[QUEUE_FULL] += num_spans
        if not fits:
            self._on_done(Done(parcel.keys, dropped=(QUEUE_FULL, num_spans)))

    def wait_for_room(self, num_spans: int, timeout_s: float) -> None:
        """Wait until so many spans fit; no longer than that, nor for an endpoint that takes nothing."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._trouble) or self._fits(num_spans), timeout_s)

    def status(self) -> ExportStatus:
        """How it stands now."""
        with self._changed:
            return ExportStatus(
                endpoint=self.endpoint,
                exported=self._exported,
                dropped={reason: self._dropped[reason] for reason in DROP_REASONS},
                queued=self._num_waiting + self._num_under_way,
                max_queue=self._max_queue,
                trouble=self._trouble,
            )

    def close(self, timeout_s: float) -> int:
        """Send what waits, for at most ``timeout_s``. How many spans were left behind."""
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        with self._changed:
            self._given_up = True
        self._sender.close()
        self._thread.join(_GIVE_UP_S)
        with self._changed:
            return self._num_waiting + self._num_under_way

    def _fits(self, num_spans: int) -> bool:
        queued = self._num_waiting + self._num_under_way
        return queued == 0 or queued + num_spans <= self._max_queue

    # -- the thread that exports -------------------------------------------------------------------

    def _run(self) -> None:
        while batch := self._next():
            answer, why = self._sender.send([span for parcel in batch for span in parcel.spans])
            if answer is Answer.FAILED and self._ends:
                return  # it is left, with what waits
            self._settle(batch, answer, why)
            if answer is not Answer.TAKEN:
                with self._changed:
                    self._changed.wait_for(lambda: self._ends, PAUSE_S)

    def _next(self) -> list[Parcel]:
        """Whole parcels of together about ``max_batch`` spans, when it is time; none at the end."""
        with self._changed:
            while not self._is_due():
                left_s = self._oldest_s + self._delay_s - time.monotonic() if self._waiting else None
                self._changed.wait(left_s)
            batch: list[Parcel] = []
            num_spans = 0
            if self._given_up:
                return batch
            while self._waiting and (not batch or num_spans + len(self._waiting[0].spans) <= self._max_batch):
                batch.append(self._waiting.popleft())
                num_spans += len(batch[-1].spans)
            self._num_waiting -= num_spans
            self._num_under_way = num_spans
            self._oldest_s = time.monotonic()
            return batch

    def _is_due(self) -> bool:
        return (
            self._ends
            or self._num_waiting >= self._max_batch
            or (bool(self._waiting) and time.monotonic() >= self._oldest_s + self._delay_s)
        )

    def _settle(self, batch: Sequence[Parcel], answer: Answer, why: str) -> None:
        """Count a batch, and say that it is done."""
        keys = tuple(key for parcel in batch for key in parcel.keys)
        with self._changed:
            num_spans, self._num_under_way = self._num_under_way, 0
            if answer is Answer.TAKEN:
                self._exported += num_spans
            else:
                self._dropped[_REASONS[answer]] += num_spans
            changed, self._trouble = why != self._trouble, why
            self._changed.notify_all()
        if answer is Answer.TAKEN:
            self._on_done(Done(keys, exported=num_spans))
        else:
            self._on_done(Done(keys, dropped=(_REASONS[answer], num_spans)))
        if changed:
            self._on_trouble(why)


def _nothing(_: object) -> None:
    pass
