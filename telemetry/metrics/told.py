"""An event, counted: what of it is a figure of the engine that told it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pushscope.telemetry import events as ev
from pushscope.telemetry.metrics import catalogue as m
from pushscope.telemetry.metrics.figures import Series
from pushscope.telemetry.metrics.place import Place

SAID_AGAIN: Final = frozenset({ev.RegistrationSent, ev.RegistrationDrained})
"""Of the kinds that are counted, those that engines say again while they are open."""
_KNOWN_FAILURES: Final = frozenset(m.FAILURES)


def _failed(place: Place, error_type: str) -> None:
    place.own.add(m.FAILED, (error_type if error_type in _KNOWN_FAILURES else m.OTHER,))


def _registration_sent(place: Place, _: ev.RegistrationSent) -> None:
    place.own.add(m.REGISTRATIONS, ("sent",))


def _registration_failed(place: Place, e: ev.RegistrationFailed) -> None:
    place.own.add(m.REGISTRATIONS, ("failed",))
    _failed(place, e.error_type)


def _registration_drained(place: Place, e: ev.RegistrationDrained) -> None:
    place.own.add(m.REGISTRATIONS, ("surplus" if e.surplus else "received",))


def _notification_counted(place: Place, _: ev.NotificationCounted) -> None:
    place.own.add(m.NOTIFICATIONS, ("counted",))


def _notification_unrecognised(place: Place, _: ev.NotificationUnrecognised) -> None:
    place.own.add(m.NOTIFICATIONS, ("unrecognised",))


def _writer_exception(place: Place, e: ev.WriterException) -> None:
    place.own.add(m.WRITER_EXCEPTIONS)
    place.own.add(m.NOTIFICATIONS, ("lost",), e.notifications_lost)


def _transfer_done(place: Place, e: ev.TransferDone) -> None:
    mode = (place.mode,)
    if e.num_bytes >= 0:
        place.own.observe(m.NIXL_BYTES, mode, e.num_bytes)
        place.own.add(m.RANK_BYTES, (place.mode, place.rank), e.num_bytes)
    if e.num_descriptors >= 0:
        place.own.observe(m.NIXL_DESCRIPTORS, (place.mode, "true"), e.num_descriptors)
    if e.post_us >= 0:
        place.own.sum(m.NIXL_SECONDS, (place.mode, "post"), e.post_us / 1e6)
    if e.xfer_us >= 0:
        place.own.sum(m.NIXL_SECONDS, (place.mode, "transfer"), e.xfer_us / 1e6)


def _transfer_failed(place: Place, e: ev.TransferFailed) -> None:
    _failed(place, e.error_type)


def _descriptors_built(place: Place, e: ev.DescriptorsBuilt) -> None:
    place.own.observe(m.NIXL_DESCRIPTORS, (place.mode, "false"), e.num_descriptors)


def _handshake_queued(place: Place, e: ev.HandshakeQueued) -> None:
    _handshakes_with(place, e.peer_engine, e.t)


def _handshakes_with(place: Place, peer: str, t_ns: int) -> Series:
    """The figures of a pair: zeros first, also of what can only follow."""
    pair = place.figures.peer(peer, place.unix_s(t_ns))
    for family in (m.PEER_HANDSHAKES, m.PEER_TRANSFERS, m.PEER_COMPLETIONS):
        pair.zeros(family, place.parts, place.mode)
    return pair


def _handshake_ended(place: Place, e: ev.HandshakeEnded) -> None:
    result = ("failed",) if e.error_type else ("succeeded",)
    place.own.add(m.HANDSHAKES, result)
    pair = _handshakes_with(place, e.peer_engine, e.t)
    pair.add(m.PEER_HANDSHAKES, result)
    if e.started_t:
        pair.sum(m.HANDSHAKE_SECONDS, (), max(0, e.t - e.started_t) / 1e9)


def _heartbeat_sent(place: Place, e: ev.HeartbeatSent) -> None:
    place.own.add(m.HEARTBEAT_IDS, ("unsent" if e.error else "sent",), e.num_ids)


def _heartbeat_drained(place: Place, e: ev.HeartbeatDrained) -> None:
    place.own.add(m.HEARTBEAT_IDS, ("applied",), e.applied)
    place.own.add(m.HEARTBEAT_IDS, ("ignored",), e.ignored)


def _lease_set(place: Place, _: ev.LeaseSet) -> None:
    place.own.add(m.LEASES, ("set",))


def _lease_extended(place: Place, _: ev.LeaseExtended) -> None:
    place.own.add(m.LEASES, ("extended",))


def _lease_expired(place: Place, _: ev.LeaseExpired) -> None:
    place.own.add(m.LEASES, ("expired",))


def _evicted(place: Place, e: ev.Evicted) -> None:
    place.own.add(m.EVICTIONS, ("blocks",), e.had_blocks)
    place.own.add(m.EVICTIONS, ("registration",), e.had_registration)


def _watchdog_fired(place: Place, _: ev.WatchdogFired) -> None:
    place.own.add(m.WATCHDOG_FIRED)


def _loop(place: Place, e: ev.Loop) -> None:
    place.own.add(m.CONNECTOR_SECONDS, (place.rank,), e.total_ns / 1e9)
    place.own.add(m.CONNECTOR_CALLS, (place.rank,), e.calls)


def _events_dropped(place: Place, e: ev.EventsDropped) -> None:
    mark = place.mark
    place.own.add(m.EVENTS_LOST, ("unrecorded",), max(0, e.total - mark.unrecorded))
    mark.unrecorded = max(mark.unrecorded, e.total)


COUNTS: Final[dict[type, Callable[[Place, Any], None]]] = {
    ev.RegistrationSent: _registration_sent,
    ev.RegistrationFailed: _registration_failed,
    ev.RegistrationDrained: _registration_drained,
    ev.NotificationCounted: _notification_counted,
    ev.NotificationUnrecognised: _notification_unrecognised,
    ev.WriterException: _writer_exception,
    ev.TransferDone: _transfer_done,
    ev.TransferFailed: _transfer_failed,
    ev.DescriptorsBuilt: _descriptors_built,
    ev.HandshakeQueued: _handshake_queued,
    ev.HandshakeEnded: _handshake_ended,
    ev.HeartbeatSent: _heartbeat_sent,
    ev.HeartbeatDrained: _heartbeat_drained,
    ev.LeaseSet: _lease_set,
    ev.LeaseExtended: _lease_extended,
    ev.LeaseExpired: _lease_expired,
    ev.Evicted: _evicted,
    ev.WatchdogFired: _watchdog_fired,
    ev.Loop: _loop,
    ev.EventsDropped: _events_dropped,
}
"""By kind of event, for those of which something is counted: an event that is news, and where it comes from."""
