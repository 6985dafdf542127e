"""The model that every view draws: one prompt's KV moving from a P engine to a D engine.

All of it is frozen data. Times are CLOCK_MONOTONIC nanoseconds of the recording host; a value that was not
observed is None, never an estimate.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

Rank = tuple[int, int]
"""A rank of an engine: (pipeline-parallel rank, tensor-parallel rank)."""


def rank_name(rank: Rank) -> str:
    """``tp1``, or ``pp1tp0``: a pipeline of one is the usual case, and needs no words."""
    return f"tp{rank[1]}" if rank[0] == 0 else f"pp{rank[0]}tp{rank[1]}"


class Stage(StrEnum):
    """The stages of a transfer, in the order in which a request meets them.

    Push has all but relay and allocation; pull has relay, allocation, handoff, handshake, descriptors, submit,
    wire and wake, all after P's blocks are staged.
    """

    RELAY = "relay"
    """Pull: blocks staged at P -> D has the request: the router's part."""
    ALLOCATION = "allocation"
    """Pull: D has the request -> its scheduler has blocks and stages the read."""

    REGISTRATION = "registration"
    """D: registration staged by the scheduler -> sent to the last P rank."""
    FLIGHT = "flight"
    """Registration sent by D -> drained by P. An idle P drains nothing, so this includes its idling."""
    HANDOFF = "handoff"
    """Push, P: blocks staged by the scheduler -> picked up by the writer thread. Pull, D: read staged ->
    at the worker."""
    RENDEZVOUS = "rendezvous"
    """P: the first of (registration drained, blocks picked up) -> matched."""
    HANDSHAKE = "handshake"
    """Deferred because the other engine is not known yet -> resumed. Push: at P; pull: at D."""
    DESCRIPTORS = "descriptors"
    """Descriptor build started -> transfer prepared. Push: at P; pull: at D."""
    SUBMIT = "submit"
    """Around NIXL's ``transfer()`` call."""
    WIRE = "wire"
    """Push: submit started at P -> completion notification drained at D; with P alone -> done seen (upper
    bound). Pull: submit started at D -> D's poll saw it done."""
    NOTIFICATION = "notification"
    """D: notification drained by the writer thread -> counted on the main thread."""
    WAKE = "wake"
    """D: last notification counted (pull: last read seen done) -> decode scheduled."""


PULL_STAGES = (
    Stage.RELAY,
    Stage.ALLOCATION,
    Stage.HANDOFF,
    Stage.HANDSHAKE,
    Stage.DESCRIPTORS,
    Stage.SUBMIT,
    Stage.WIRE,
    Stage.WAKE,
)
PUSH_STAGES = tuple(stage for stage in Stage if stage not in (Stage.RELAY, Stage.ALLOCATION))


P_STAGES = frozenset({Stage.HANDOFF, Stage.RENDEZVOUS, Stage.HANDSHAKE, Stage.DESCRIPTORS, Stage.SUBMIT})
"""Push: the stages in which P is at work. All others, and in pull mode all, are D's."""


class Outcome(StrEnum):
    """How a transfer stands, or ended."""

    WAITING = "waiting"
    """Nothing is wrong yet: one half of the rendezvous is still missing."""
    MOVING = "moving"
    """Both halves met; blocks are being written."""
    DELIVERED = "delivered"
    """The decode was scheduled on the received blocks (P alone: the write was done)."""
    NOTHING_TO_RECEIVE = "nothing to receive"
    """D had the whole prompt cached, computes it itself, or has it from another connector: no blocks move."""
    NOTHING_TO_PUSH = "nothing to push"
    """P had no blocks to write."""
    FAILED = "failed"
    """vLLM reported a failure of this transfer."""
    EXPIRED = "expired"
    """P's lease ran out before the blocks were taken."""
    ABORTED = "aborted"
    """The request was ended by its client or its engine before the blocks arrived."""
    LOST = "lost"
    """An engine that this transfer needs is gone."""
    UNSEEN = "unseen"
    """It ended while recording was switched off: nobody saw how."""


OPEN_OUTCOMES = frozenset({Outcome.WAITING, Outcome.MOVING})
NOTHING_MOVED = frozenset({Outcome.NOTHING_TO_RECEIVE, Outcome.NOTHING_TO_PUSH})
"""There was nothing to move, and nothing is missing."""
WENT_WRONG = frozenset({Outcome.FAILED, Outcome.EXPIRED, Outcome.LOST})
"""The blocks were due and did not come, and no client gave them up."""


class StageTime(msgspec.Struct, frozen=True, gc=False):
    """One stage of one transfer, on one rank.

    ``rank`` is the P rank and ``peer_rank`` the D rank of a write; a stage of the scheduler has neither.
    ``end_ns`` is None while the stage is open.
    """

    stage: Stage
    start_ns: int
    end_ns: int | None = None
    rank: Rank | None = None
    peer_rank: Rank | None = None
    upper_bound: bool = False
    waited: str = ""
    """Rendezvous only: who waited for whom (``P waited for D``, ``D waited for P``)."""

    @property
    def seconds(self) -> float | None:
        return None if self.end_ns is None else (self.end_ns - self.start_ns) / 1e9


class Transfer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt to move one prompt's KV. Identity: (D engine, D request id) once D is known.

    ``sides`` tells which engines were observed (``P``, ``D``): what the other did is not known.
    ``tentative`` means that the two halves were only paired by their base id.
    """

    base_id: str
    attempt: int = 1
    """Which try at this request it is: the number of D's leg, of P's where D is not known."""
    p_attempt: int | None = None
    """Of which try P's leg is, None if that is not known: another one if P's blocks met the registration of an
    older or newer try."""
    pairing: str = ""
    """In words, if P paired otherwise than the legs were sent: across attempts, or not alike on all ranks."""
    mode: str = "push"
    d_engine: str | None = None
    d_request: str | None = None
    p_engine: str | None = None
    p_request: str | None = None
    tentative: bool = False
    sides: tuple[str, ...] = ()

    outcome: Outcome
    stage: Stage | None = None
    """The stage it is in, None once it has ended."""
    opened_ns: int
    since_ns: int
    """When its present stage (or, if ended, its end) began."""
    closed_ns: int | None = None
    waits: str = ""
    """Who waits for what, in words; empty if nobody does."""
    late_decode: bool | None = None
    """Whether D had the request only when P had the blocks finished; None if one of the two was not seen."""
    d_waits: bool = False
    """D is seen to have asked for the blocks, and has neither got them nor given up; whatever became of P's part."""
    recomputed: bool = False
    """D's receive failed, and D computed the prompt itself: the answer is good."""
    d_holds: bool = False
    """D is seen to have ended the request with blocks allotted to it that nobody has filled: in push mode only P's
    write frees them."""
    order: str = ""
    """``registration first`` (D was early), ``blocks first`` (P was early), or empty if not matched."""
    error: str = ""

    ranks_done: int = 0
    ranks: int = 0
    """Notifications counted and expected, over all D ranks (P alone: writes done and posted)."""
    num_tokens: int | None = None
    num_blocks: int | None = None
    """What D asked for, or (not known yet) what P holds; 0 if nothing is to move."""
    num_bytes: int | None = None
    descriptors: int | None = None
    descriptors_merged: int | None = None

    stages: tuple[StageTime, ...] = ()
    path: tuple[StageTime, ...] = ()
    """The critical path: disjoint pieces through the last rank, ending at decode scheduled."""
    exposed_ns: int | None = None
    """Blocks staged at P -> decode scheduled at D: what the first token waited for the transfer."""
    hidden_ns: int | None = None
    """What lay before: registration work done while P still computed."""
    lease_until_ns: int | None = None
    """When P lets its blocks go if nobody takes them: as set, or as heartbeats have put it off."""

    @property
    def identity(self) -> tuple[object, ...]:
        """What tells it from all others."""
        return self.d_engine, self.d_request, self.p_engine, self.p_request, self.attempt

    @property
    def is_open(self) -> bool:
        return self.outcome in OPEN_OUTCOMES

    def as_unseen(self) -> Transfer:
        """The same, if it ended while recording was off."""
        return msgspec.structs.replace(
            self,
            outcome=Outcome.UNSEEN,
            stage=None,
            waits="",
            closed_ns=self.since_ns,
            error="it ended while recording was off",
        )
