"""From transfers to spans and figures: what an agent does with each that is closed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pushscope.telemetry.agent.endpoints import Endpoints
from pushscope.telemetry.agent.journal import Journal, keys_of
from pushscope.telemetry.agent.noting import Noting
from pushscope.telemetry.clock import Host, read_anchor
from pushscope.telemetry.clocks import ClockId, ClockOffset, clock_id
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.events import Origin, error_text
from pushscope.telemetry.group import Group
from pushscope.telemetry.metrics.meter import NO_TRACES, Meter, Trace, Traces
from pushscope.telemetry.metrics.page import Own, gathered
from pushscope.telemetry.metrics.state import State, save
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.spans.attributes import RECEIVE, SEND
from pushscope.telemetry.spans.make import spans_of
from pushscope.telemetry.spans.model import Span
from pushscope.telemetry.spans.sampling import sampled
from pushscope.telemetry.transfer import Transfer
from pushscope.telemetry.watch import Watcher

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

CATCH_UP_S: Final = 5.0
"""Rings hold more than what engines say in so long, so that none is lost by it."""
_SIDE_OF: Final = {SEND: "P", RECEIVE: "D"}
"""By the name of the span that stands for a side's part."""


class Follower:
    """Follows a source, counts what happens, and hands the spans of transfers that end to the endpoints.

    ``poll`` from one thread; the rest from any.
    """

    def __init__(
        self,
        everywhere: Noting,
        here: Noting,
        journal: Journal,
        endpoints: Endpoints,
        *,
        ratio: float,
        say: Callable[[str], None],
    ):
        """``here``: this host's rings, of which this agent speaks; ``everywhere``: the same, or joined with what
        other hosts saw."""
        self._everywhere = everywhere
        self._here, self._journal, self._endpoints = here, journal, endpoints
        self._ratio, self._say = ratio, say
        self._lock = threading.Lock()
        self._meter = Meter(local=here.origins, to_unix=self._to_unix)
        self._watcher = Watcher(
            everywhere, on_closed=self._closed, on_forgotten=self._forgotten, on_event=self._meter.on_event
        )
        self._patience_s = CATCH_UP_S
        """The first poll reads all that the rings hold, more than may wait: it may wait for the endpoint so long."""
        self._clocks: tuple[ClockOffset, ...] = ()
        """As they were before the last poll."""
        self._ahead_ns = 0
        """Wall time minus CLOCK_MONOTONIC, at the last poll."""
        self._unsaid: list[int] = []
        """Keys of transfers that were closed in this poll with nothing to export."""
        self._ended = False
        """Transfers were closed in this poll."""
        self.counts: Mapping[str, int] = {}
        """Transfers that ended, by side and outcome, as of the last poll: ``transfers.D.delivered`` and so on."""
        self.polls = 0
        self.poll_s = 0.0
        """Time that all polls took."""
        self.failed = 0
        """Transfers whose spans could not be made: a defect, of which the first is logged."""

    def go_on_from(self, state: State) -> None:
        """Count on from what an earlier agent had counted; before anything is read."""
        with self._lock:
            self._meter.go_on_from(state)

    def poll(self) -> None:
        """Read what is new."""
        anchor = read_anchor()
        with self._lock:
            began_s = time.monotonic()
            self._ahead_ns = anchor.unix_ns - anchor.monotonic_ns
            self._clocks = self._watcher.clocks()
            self._watcher.poll()
            self.polls += 1
            self.poll_s += time.monotonic() - began_s
            if self._ended or not self.counts:
                self.counts, self._ended = self._meter.outcomes(), False
        self._patience_s = 0.0
        if self._unsaid:
            self._journal.exported(self._unsaid, {})
            self._unsaid = []

    def snapshot(self) -> Snapshot:
        """What is so at the last poll."""
        with self._lock:
            return self._watcher.snapshot()

    def state(self) -> bytes:
        """The figures, to be saved; empty before anything was read."""
        with self._lock:
            return self._state()

    def gathered(self, own: Own) -> tuple[list[Metric], bytes]:
        """What a scraper is to be shown, and the figures that it tells, to be saved; nothing before the first poll."""
        with self._lock:
            if self._watcher.reading is None:
                return [], b""
            return gathered(self._watcher, self._meter, own=own), self._state()

    def _state(self) -> bytes:
        return save(self._meter.state(self._watcher)) if self._watcher.reading is not None else b""

    def clock_notices(self) -> tuple[str, ...]:
        """What must be known of the hosts' clocks."""
        return tuple(offset.notice for offset in self._clocks if offset.notice)

    def _closed(self, transfer: Transfer) -> None:
        if not self._here.knows_all_of(transfer):
            return
        keys = keys_of(transfer)
        traces = NO_TRACES if self._journal.is_exported(keys) else self._export(keys, transfer)
        self._meter.on_closed(transfer, traces)
        self._ended = True

    def _forgotten(self, group: Group) -> None:
        """What is evicted is not closed first: it is told as it stands."""
        for transfer in group.transfers or ():
            if transfer.is_open and not self._journal.is_exported(keys := keys_of(transfer)):
                self._export(keys, transfer)

    def _export(self, keys: tuple[int, ...], transfer: Transfer) -> Traces:
        """Hand its spans to the endpoints; where they will be found, if they are exported."""
        engines = {transfer.p_engine or "", transfer.d_engine or ""} & self._here.origins.keys()
        if not any(map(self._endpoints.of, engines)):
            return NO_TRACES
        try:
            if spans := self._spans(transfer):
                began_s = time.monotonic()
                self._endpoints.put(keys, spans, patience_s=self._patience_s)
                self._patience_s -= time.monotonic() - began_s
                return _traces_of(spans)
            self._unsaid += keys
        except Exception as e:  # noqa: BLE001 - one transfer's spans, never the agent
            self.failed += 1
            if self.failed == 1:
                why = str(e) if isinstance(e, PushscopeError) else error_text(e)
                self._say(f"spans of a transfer could not be made ({why}); more of this is only counted")
        return NO_TRACES

    def _spans(self, transfer: Transfer) -> tuple[Span, ...]:
        """The spans that are this agent's to export; none if the transfer is not sampled."""
        watcher = self._watcher
        sides = watcher.assembler.sides_of(transfer)
        diagnoses = watcher.wrong_with(transfer)
        if sides is None or not sampled(transfer, sides, diagnoses, watcher.usual, self._ratio):
            return ()
        return spans_of(
            transfer,
            sides,
            diagnoses,
            to_unix=self._to_unix,
            local=self._here.origins.keys(),
            origins=self._everywhere.origins,
            uncertainty_ns=self._uncertainty_ns(transfer),
        )

    def _uncertainty_ns(self, transfer: Transfer) -> int | None:
        """Of the offset between the clocks of P's and D's hosts; 0 where they have one clock, None if not known."""
        origins = self._everywhere.origins
        p, d = origins.get(transfer.p_engine or ""), origins.get(transfer.d_engine or "")
        if p is None or d is None or _clock(p) == _clock(d):
            return 0
        between = (offset for offset in self._clocks if {offset.host, offset.peer_host} == {p.host, d.host})
        return next((offset.uncertainty_ns for offset in between), None)

    def _to_unix(self, t_ns: int) -> int:
        return t_ns + self._ahead_ns


def _traces_of(spans: Iterable[Span]) -> Traces:
    """Of each side the span that stands for its part; of several ranks the first."""
    found: dict[str, Trace] = {}
    for span in spans:
        if side := _SIDE_OF.get(span.name):
            found.setdefault(side, Trace(span.trace_id, span.span_id))
    return found


def _clock(origin: Origin) -> ClockId:
    return clock_id(Host(origin.host, origin.boot_id, origin.time_namespace))
