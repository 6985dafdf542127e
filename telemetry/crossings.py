"""What engines recorded of messages between hosts, as bounds of their clocks' offsets.

A message has two ends, each recorded by its own host: a registration is sent by D and drained by P; a transfer is
submitted by one side and its notification drained by the other, after it. vLLM's handshake measures the peer's clock
by itself (``base_worker._nixl_handshake``: perf_counter, which is CLOCK_MONOTONIC, of the peer minus its own, in the
middle of the shortest round trip).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, TypeVar

from pushscope.telemetry import events as ev
from pushscope.telemetry.clocks import ClockId, Clocks

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MAX_ENDS: Final = 20_000
MAX_HANDSHAKES: Final = 256
_ROUNDING_NS: Final = 1_000
"""vLLM computes with floats of seconds since boot."""


class _End:
    """Of one end of a message: on which host, and the earliest time that was said."""

    __slots__ = ("host", "t")

    def __init__(self, host: ClockId, t: int):
        self.host = host
        self.t = t


class Crossings:
    """Finds the two ends of messages; in whatever order they are read, and however often."""

    def __init__(self, clocks: Clocks):
        self._clocks = clocks
        self._sent: OrderedDict[Hashable, _End] = OrderedDict()
        self._received: OrderedDict[Hashable, _End] = OrderedDict()
        self._wanted: OrderedDict[tuple[str, int], Hashable] = OrderedDict()
        """(instance, number) of a transfer -> the notification that it will end with."""
        self._submitted: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._host_of: dict[str, ClockId] = {}
        """Engine -> its host."""
        self._handshakes: OrderedDict[tuple[ClockId, ev.HandshakeEnded], None] = OrderedDict()
        """With engines whose host is not known yet."""

    def met(self, origin: ev.Origin, host: ClockId) -> None:
        """An engine, and the host that it runs on."""
        if self._host_of.get(origin.engine_id) == host:
            return
        self._host_of[origin.engine_id] = host
        for of_host, handshake in list(self._handshakes):
            if handshake.peer_engine == origin.engine_id:
                del self._handshakes[of_host, handshake]
                self._measured(of_host, handshake)

    def feed(self, origin: ev.Origin, host: ClockId, event: ev.Event) -> None:
        """Take what an event, in its own host's time, says of a message."""
        if isinstance(event, ev.RegistrationSent):
            if event.agent and origin.nixl_agent:
                name = (origin.engine_id, event.request_id, origin.nixl_agent, event.agent)
                self._one_end(self._sent, self._received, name, host, event.t)
        elif isinstance(event, ev.RegistrationDrained):
            if event.agent and origin.nixl_agent:
                name = (event.peer_engine, event.request_id, event.agent, origin.nixl_agent)
                self._one_end(self._received, self._sent, name, host, event.t)
        elif isinstance(event, ev.DescriptorsStarted):
            if event.peer_request_id and origin.nixl_agent:
                to = (event.peer_engine, event.peer_request_id, (0, event.peer_tp), origin.nixl_agent)
                _put(self._wanted, (origin.instance, event.number), to)
                self._submit((origin.instance, event.number), host)
        elif isinstance(event, ev.SubmitStarted):
            _put(self._submitted, (origin.instance, event.number), event.t)
            self._submit((origin.instance, event.number), host)
        elif isinstance(event, ev.NotificationDrained):
            if event.agent:
                rank = (origin.pp_rank, origin.tp_rank)
                by = (origin.engine_id, event.request_id, rank, event.agent)
                self._one_end(self._received, self._sent, by, host, event.t)
        elif isinstance(event, ev.HandshakeEnded) and not event.error_type and event.offset_s:
            self._measured(host, event)

    def _submit(self, transfer: tuple[str, int], host: ClockId) -> None:
        if transfer in self._wanted and transfer in self._submitted:
            name, t = self._wanted[transfer], self._submitted[transfer]
            self._one_end(self._sent, self._received, name, host, t)

    def _one_end(
        self,
        ends: OrderedDict[Hashable, _End],
        others: OrderedDict[Hashable, _End],
        name: Hashable,
        host: ClockId,
        t: int,
    ) -> None:
        known = ends.get(name)
        if known is not None and known.t <= t:
            return
        _put(ends, name, _End(host, t))
        if name in others:
            sent, received = self._sent[name], self._received[name]
            self._clocks.message(sent.host, received.host, sent.t, received.t)

    def _measured(self, host: ClockId, e: ev.HandshakeEnded) -> None:
        peer = self._host_of.get(e.peer_engine)
        if peer is None:
            _put(self._handshakes, (host, e), None, MAX_HANDSHAKES)
        elif peer != host:
            began, ended = e.started_t - _ROUNDING_NS, e.t + _ROUNDING_NS
            self._clocks.measured(host, peer, began, ended, round(e.offset_s * 1e9))


def _put(table: OrderedDict[K, V], name: K, value: V, limit: int = MAX_ENDS) -> None:
    table[name] = value
    if len(table) > limit:
        table.popitem(last=False)
