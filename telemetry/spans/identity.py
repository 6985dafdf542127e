"""Which trace and which ids the spans of a transfer have: what each side can tell by itself."""

from __future__ import annotations

from typing import NamedTuple

from pushscope.telemetry import events as ev
from pushscope.telemetry.half import Facts
from pushscope.telemetry.spans.ids import Caller, caller_of, span_id_of, trace_id_of
from pushscope.telemetry.transfer import Rank, Transfer, rank_name

Key = tuple[str, str]
"""(engine, request id): what the trace of a request without a caller is named by."""


class Identity(NamedTuple):
    """What both sides' spans are named by. Push: D's request; pull, or a P that never met D: P's request."""

    d_trace: int
    p_trace: int
    d_caller: Caller | None
    """The span that D's request came from."""
    p_caller: Caller | None
    """The span that P's request came from: its own caller, else D's, if D's registration told of it."""
    d_key: Key
    p_key: Key
    joined: bool
    """P's and D's spans are of one transfer: they link to each other."""

    def receive_id(self) -> int:
        return self.d_span_id("receive")

    def send_id(self, engine: str, rank: Rank | None) -> int:
        return self.p_span_id(engine, "send", _text(rank))

    def d_span_id(self, *names: object) -> int:
        """The id of one of D's spans."""
        return span_id_of(self.d_trace, "D", *self.d_key, *names)

    def p_span_id(self, engine: str, *names: object) -> int:
        """The id of one of P's spans."""
        return span_id_of(self.p_trace, "P", engine, *self.p_key, *names)


def identity_of(transfer: Transfer, p: Facts, d: Facts) -> Identity:
    """The identity of a transfer, the same whichever of its sides were seen, as far as those can know it.

    In pull mode P is not told of D's caller: without one of its own its spans are in the trace of its request.
    """
    d_caller, own_caller = _caller(d), _caller(p)
    d_key = (transfer.d_engine or "", transfer.d_request or "")
    p_key = _p_request(transfer, d)
    if transfer.mode == "pull":
        joined = bool(d_key[1] and p_key[1]) and not transfer.tentative
        d_named_by, p_named_by = (p_key if joined else d_key), p_key
    else:
        p_was_seen = transfer.p_request is not None
        joined = bool(d_key[1]) and not (p_was_seen and transfer.tentative)
        d_named_by, p_named_by = d_key, (d_key if joined else p_key)
    d_trace = d_caller.trace_id if d_caller else trace_id_of(*d_named_by)
    p_caller = own_caller or (d_caller if joined else None)
    p_trace = p_caller.trace_id if p_caller else trace_id_of(*p_named_by)
    return Identity(d_trace, p_trace, d_caller, p_caller, d_key, p_named_by, joined)


def _p_request(transfer: Transfer, d: Facts) -> Key:
    """P's request: as P said, else as D was told of it."""
    arrived = d.first(ev.RequestArrived)
    told = (arrived.peer_engine, arrived.peer_request_id) if arrived else ("", "")
    return transfer.p_engine or told[0], transfer.p_request or told[1]


def _caller(side: Facts) -> Caller | None:
    """By what this side said itself, or the other side heard of it."""
    told = sorted((e.t, e.traceparent) for _, e in side.all(ev.TraceContext))
    return next((caller for _, text in told if (caller := caller_of(text))), None)


def _text(rank: Rank | None) -> str:
    return rank_name(rank) if rank else ""
