"""Events in words: what an operator reads in a timeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pushscope.telemetry import events as ev
from pushscope.telemetry import units
from pushscope.telemetry.transfer import Rank, rank_name

Agents = Callable[[str], Rank | None]
"""The rank that a NIXL agent speaks for, None if it isn't known."""

SCHEDULERS: Final = frozenset(
    {
        ev.RequestArrived,
        ev.TraceContext,
        ev.RequestPreempted,
        ev.RequestEnded,
        ev.RegistrationStaged,
        ev.NothingToReceive,
        ev.WatchdogFired,
        ev.ReceiveFinished,
        ev.DecodeScheduled,
        ev.ReadStaged,
        ev.PrefillScheduled,
        ev.BlocksStaged,
        ev.PrefillNotProcessed,
        ev.SendFinished,
    }
)
"""What a scheduler records; all else is one rank's worker."""

_NOTHING: Final = {
    "no_external_tokens": "nothing to receive: the prompt is cached here, or comes from elsewhere",
    "not_scheduled": "nothing to receive: the request ended before it was scheduled",
}
_KEYS: Final = {"exact": "by the exact id", "base_id": "by the base id", "transfer_id": "by transfer_id"}


def in_words(event: ev.Event, *, of_d: bool, rank_of: Agents = lambda _: None) -> str:
    """What an event says. ``of_d``: it is D's, or (a registration that was drained) about D's request."""
    if isinstance(event, ev.TransferEvent):
        return _transfer(event, "read" if of_d else "write", "P" if of_d else "D")
    return _WORDS[type(event)](event, of_d, rank_of)


def _transfer(event: ev.TransferEvent, verb: str, peer: str) -> str:
    name = f"{verb} {event.number}" if event.number else verb
    match event:
        case ev.DescriptorsStarted(peer_tp=peer_tp):
            return f"{name}: blocks for {peer}'s tp{peer_tp} are mapped to descriptors"
        case ev.DescriptorsBuilt(num_descriptors=number):
            return f"{name}: prepared, {_plural(number, 'descriptor')}"
        case ev.SubmitStarted():
            return f"{name}: given to NIXL"
        case ev.Submitted(state=state):
            return f"{name}: NIXL took it, {state or 'state not known'}"
        case ev.TransferDone(num_bytes=num_bytes, num_descriptors=number):
            moved = units.size(num_bytes) if num_bytes >= 0 else "size not known"
            merged = f", {_plural(number, 'descriptor')} after merging" if number >= 0 else ""
            return f"{name}: seen done, {moved}{merged}"
        case ev.TransferFailed(error_type=kind, error=error):
            return f"{name} failed: {_error(kind, error)}"
    raise TypeError(f"no words for {type(event).__name__}")


def _arrived(e: ev.RequestArrived, of_d: bool, _: Agents) -> str:
    if not of_d:
        return "the prefill leg arrived"
    told = f", told of P's request {e.peer_request_id}" if e.peer_request_id else ""
    return f"the decode leg arrived{told}"


def _trace_context(e: ev.TraceContext, _: bool, __: Agents) -> str:
    named = (
        f"traceparent {e.traceparent}" * bool(e.traceparent),
        f"transfer_id {e.transfer_id}" * bool(e.transfer_id),
    )
    told = "D's registration tells " if e.peer_engine else ""
    return told + ", ".join(filter(None, named))


def _registration_staged(e: ev.RegistrationStaged, _: bool, __: Agents) -> str:
    where = f" with {e.peer_host}:{e.peer_port}" if e.peer_host else ""
    return f"has {_plural(e.num_blocks, 'block')} for {_plural(e.num_tokens, 'token')}, will register them{where}"


def _registration_failed(e: ev.RegistrationFailed, _: bool, __: Agents) -> str:
    to = f" to P's {rank_name((e.peer_pp, e.peer_tp))}" if e.to_rank else ""
    return f"the registration could not be sent{to}: {_error(e.error_type, e.error)}"


def _registration_drained(e: ev.RegistrationDrained, _: bool, rank_of: Agents) -> str:
    rank = rank_of(e.agent)
    of = f" from {rank_name(rank)}" if rank else ""
    surplus = ", not needed: the request is matched on this rank" if e.surplus else ""
    return f"D's registration arrived{of}, {_plural(e.num_blocks, 'block')}{surplus}"


def _notification_drained(e: ev.NotificationDrained, of_d: bool, rank_of: Agents) -> str:
    rank = rank_of(e.agent)
    of = f" from {'P' if of_d else 'D'}'s {rank_name(rank)}" if rank else ""
    return f"the notification of completion arrived{of}"


def _matched(e: ev.Matched, _: bool, __: Agents) -> str:
    first = "its blocks were first" if e.blocks_first else "the registration was first"
    return f"matched with D's {e.peer_request_id or 'request'} {_KEYS.get(e.key, '')}".rstrip() + f", {first}"


def _evicted(e: ev.Evicted, _: bool, __: Agents) -> str:
    what = ("blocks" * e.had_blocks, "registration" * e.had_registration)
    return f"the writer thread let go of the {' and '.join(filter(None, what)) or 'request'}"


def _notification_sent(e: ev.NotificationSent, _: bool, __: Agents) -> str:
    return "told P that it reads nothing" + (f", which failed: {e.error}" if e.error else "")


_WORDS: Final[dict[type[ev.Event], Callable[[Any, bool, Agents], str]]] = {
    ev.RequestArrived: _arrived,
    ev.TraceContext: _trace_context,
    ev.RequestPreempted: lambda *_: "preempted: its blocks are taken away",
    ev.RequestEnded: lambda e, *_: f"the request ended: {e.status}",
    ev.RegistrationStaged: _registration_staged,
    ev.NothingToReceive: lambda e, *_: _NOTHING.get(e.reason, f"nothing to receive: {e.reason}"),
    ev.WatchdogFired: lambda *_: "push_registration_timeout passed: vLLM logs it, the request waits on",
    ev.ReceiveFinished: lambda *_: "the scheduler knows: all ranks have received",
    ev.DecodeScheduled: lambda *_: "decode scheduled",
    ev.ReadStaged: lambda e, *_: (
        f"has {_plural(e.num_blocks, 'block')} for {_plural(e.num_tokens, 'token')}, will read P's"
    ),
    ev.NotificationSent: _notification_sent,
    ev.ReadHandedOff: lambda *_: "the worker has the read",
    ev.RegistrationHandedOff: lambda *_: "the registration is queued for the writer thread",
    ev.RegistrationSent: lambda e, *_: f"registration sent to P's {rank_name((e.peer_pp, e.peer_tp))}",
    ev.RegistrationFailed: _registration_failed,
    ev.NotificationDrained: _notification_drained,
    ev.NotificationCounted: lambda e, *_: f"notification {e.n} counted",
    ev.NotificationUnrecognised: lambda *_: "a notification was dropped: no such request is known here",
    ev.ReceiveDone: lambda *_: "reports the blocks as received",
    ev.ReceiveFailed: lambda *_: "reports the receive as failed",
    ev.PrefillScheduled: lambda e, *_: f"prefill begins, {_plural(e.num_tokens, 'token')} in the first step",
    ev.BlocksStaged: lambda e, *_: (
        f"prefill done: holds {_plural(e.num_blocks, 'block')} of {_plural(e.num_tokens, 'token')} for D, "
        f"lease {units.age(e.lease_s)}"
    ),
    ev.PrefillNotProcessed: lambda e, *_: f"the prefill leg ended without blocks for D: {e.status}",
    ev.SendFinished: lambda *_: "blocks released",
    ev.BlocksHandedOff: lambda *_: "the blocks are queued for the writer thread",
    ev.BlocksPickedUp: lambda *_: "the writer thread has the blocks, looks for D's registration",
    ev.RegistrationDrained: _registration_drained,
    ev.Matched: _matched,
    ev.TransferDeferred: lambda *_: "must shake hands with the other engine first",
    ev.TransferResumed: lambda *_: "has shaken hands, goes on",
    ev.NothingToPush: lambda *_: "no blocks are left to write; D is not told",
    ev.LeaseSet: lambda e, *_: f"the lease runs, {units.age(e.lease_s)} are left",
    ev.LeaseExtended: lambda e, *_: f"last heartbeat applied: {units.age(e.lease_s)} of lease are left",
    ev.LeaseExpired: lambda *_: "the lease ran out: nobody took the blocks",
    ev.Evicted: _evicted,
    ev.WriterException: lambda e, *_: f"the writer thread gave it up, {e.where or 'it'} raised {e.error}",
}


def _error(kind: str, error: str) -> str:
    return ": ".join(filter(None, (kind, error))) or "cause not known"


def _plural(number: int, thing: str) -> str:
    return f"{units.count(number)} {thing}{'' if number == 1 else 's'}"
