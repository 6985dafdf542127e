"""The attributes of a transfer's spans, from its facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.model import Diagnosis
from pushscope.telemetry.group import Sides
from pushscope.telemetry.half import Facts
from pushscope.telemetry.spans.attributes import known_error
from pushscope.telemetry.spans.model import AttributeValue
from pushscope.telemetry.spans.path import pieces
from pushscope.telemetry.transfer import NOTHING_MOVED, Outcome, Rank, Stage, StageTime, Transfer, rank_name

Attributes = dict[str, AttributeValue]
_UNHARMED: Final = NOTHING_MOVED | {Outcome.DELIVERED}
_BY_OUTCOME: Final = {
    Outcome.EXPIRED: "lease_expired",
    Outcome.LOST: "engine_lost",
    Outcome.ABORTED: "aborted",
}


class Failure(NamedTuple):
    """What went wrong: ``error.type``, and in words."""

    error_type: str = ""
    error: str = ""


# -- of a side's part ----------------------------------------------------------------------------------


def of_transfer(
    transfer: Transfer, diagnoses: Sequence[Diagnosis], side: Facts, *others: Facts
) -> Attributes:
    """What receive and send have in common; ``side`` is heard first."""
    codes = tuple(dict.fromkeys(d.code for d in diagnoses))
    contexts = (e.transfer_id for facts in (side, *others) for _, e in facts.all(ev.TraceContext))
    return _known(
        {
            "kv_transfer.base_id": transfer.base_id,
            "kv_transfer.p.engine_id": transfer.p_engine,
            "kv_transfer.p.request_id": transfer.p_request,
            "kv_transfer.d.engine_id": transfer.d_engine,
            "kv_transfer.d.request_id": transfer.d_request,
            "kv_transfer.transfer_id": next(filter(None, contexts), None),
            "kv_transfer.mode": transfer.mode,
            "kv_transfer.attempt": transfer.attempt,
            "kv_transfer.outcome": transfer.outcome.value,
            "kv_transfer.sides": transfer.sides,
            "kv_transfer.tentative": transfer.tentative or None,
            "kv_transfer.pairing": transfer.pairing,
            "kv_transfer.order": transfer.order,
            "kv_transfer.diagnosis": codes[0] if codes else None,
            "kv_transfer.diagnoses": codes,
            "kv_transfer.tokens": transfer.num_tokens,
            "kv_transfer.blocks": transfer.num_blocks,
        }
    )


def of_receive(transfer: Transfer, sides: Sides) -> Attributes:
    """What only D's span has; what P's part would be needed for is absent where P was not observed."""
    path = pieces(transfer, sides)
    staged = sides.d.first(ev.RegistrationStaged)
    return _known(
        {
            "kv_transfer.ranks_done": transfer.ranks_done,
            "kv_transfer.ranks_expected": transfer.ranks,
            "kv_transfer.bytes": transfer.num_bytes,
            "kv_transfer.descriptors": transfer.descriptors,
            "kv_transfer.merged_descriptors": transfer.descriptors_merged,
            "kv_transfer.exposed_seconds": _seconds(transfer.exposed_ns),
            "kv_transfer.hidden_seconds": _seconds(transfer.hidden_ns),
            "kv_transfer.path_stages": tuple(piece.name for piece in path),
            "kv_transfer.path_seconds": tuple((piece.end_ns - piece.start_ns) / 1e9 for piece in path),
            "server.address": staged.peer_host if staged else None,
            "server.port": staged.peer_port if staged else None,
        }
    )


def of_send(sides: Sides, rank: Rank | None) -> Attributes:
    """What only the span of a P rank has."""
    done = [e for r, e in sides.p.all(ev.TransferDone) if r == rank]
    heard = sides.d.first(ev.RegistrationDrained)
    return _known(
        {
            "kv_transfer.p.rank": rank_name(rank) if rank else None,
            "kv_transfer.bytes": _sum([e.num_bytes for e in done]),
            "kv_transfer.descriptors": _sum(
                [e.num_descriptors for r, e in sides.p.all(ev.DescriptorsBuilt) if r == rank]
            ),
            "kv_transfer.merged_descriptors": _sum([e.num_descriptors for e in done]),
            "server.address": heard.peer_host if heard else None,
            "server.port": heard.peer_port if heard else None,
        }
    )


def wrong_at_d(transfer: Transfer, sides: Sides) -> Failure:
    """What went wrong, as D's span tells it."""
    if transfer.outcome is Outcome.FAILED:
        failed = (
            sides.p.last(ev.TransferFailed)
            or sides.d.last(ev.TransferFailed)
            or sides.d.last(ev.RegistrationFailed)
        )
        return Failure(known_error(failed.error_type) if failed else "receive_failed", transfer.error)
    return Failure(_BY_OUTCOME.get(transfer.outcome, ""), transfer.error)


def wrong_at_p(transfer: Transfer, sides: Sides, rank: Rank | None) -> Failure:
    """What went wrong, as the span of a P rank tells it: another rank's failure is not this one's."""
    failed = [e for r, e in sides.p.all(ev.TransferFailed) if r == rank]
    if failed:
        last = max(failed, key=lambda e: e.t)
        return Failure(known_error(last.error_type), last.error)
    expired = any(r == rank for r, _ in sides.p.all(ev.LeaseExpired))
    if expired and transfer.outcome not in _UNHARMED:
        return Failure("lease_expired", "the lease ran out before the blocks were taken")
    if transfer.outcome in (Outcome.LOST, Outcome.ABORTED):
        return Failure(_BY_OUTCOME[transfer.outcome], transfer.error)
    return Failure()


# -- of a stage ----------------------------------------------------------------------------------------


class Posted:
    """The NIXL transfers of the side that posts them (push: P, pull: D), found by the time of their steps."""

    def __init__(self, poster: Facts):
        steps = (*poster.all(ev.DescriptorsStarted), *poster.all(ev.SubmitStarted))
        self._numbers = {(rank, e.t): e.number for rank, e in steps}
        self._built = {(rank, e.number): e for rank, e in poster.all(ev.DescriptorsBuilt)}
        self._done = {(rank, e.number): e for rank, e in poster.all(ev.TransferDone)}
        self._failed = {(rank, e.t): e for rank, e in poster.all(ev.TransferFailed)}

    def failure(self, rank: Rank | None, end_ns: int | None) -> Failure:
        """What a stage of this rank ended with."""
        failed = self._failed.get((rank, end_ns)) if rank is not None and end_ns is not None else None
        return Failure(known_error(failed.error_type), failed.error) if failed else Failure()

    def figures(self, s: StageTime, rank: Rank | None) -> Mapping[str, AttributeValue | None]:
        number = self._numbers.get((rank, s.start_ns)) if rank else None
        if rank is None or number is None:
            return {}
        found: dict[str, AttributeValue | None] = {"kv_transfer.write": number}
        built, done = self._built.get((rank, number)), self._done.get((rank, number))
        if s.stage is Stage.DESCRIPTORS and built:
            found["kv_transfer.descriptors"] = built.num_descriptors
        elif s.stage is Stage.SUBMIT and done:
            found["kv_transfer.nixl_post_seconds"] = _micros(done.post_us)
        elif s.stage is Stage.WIRE and done:
            found["kv_transfer.nixl_transfer_seconds"] = _micros(done.xfer_us)
            found["kv_transfer.bytes"] = _counted(done.num_bytes)
            found["kv_transfer.merged_descriptors"] = _counted(done.num_descriptors)
        return found


def of_stage(s: StageTime, posted: Posted, posting_rank: Rank | None, d: Facts) -> Attributes:
    """What a stage's span says of itself. ``posting_rank``: of the side that posts NIXL transfers."""
    counted = [e.n for r, e in d.all(ev.NotificationCounted) if (r, e.t) == (s.peer_rank, s.end_ns)]
    return _known(
        {
            "kv_transfer.stage": s.stage.value,
            "kv_transfer.p.rank": rank_name(s.rank) if s.rank else None,
            "kv_transfer.d.rank": rank_name(s.peer_rank) if s.peer_rank else None,
            "kv_transfer.waited": s.waited,
            "kv_transfer.upper_bound": s.upper_bound or None,
            "kv_transfer.unfinished": s.end_ns is None or None,
            "kv_transfer.notification": counted[0] if counted and s.stage is Stage.NOTIFICATION else None,
            **posted.figures(s, posting_rank),
        }
    )


def _known(attributes: Mapping[str, AttributeValue | None]) -> Attributes:
    """Without what is not known, and without empty texts."""
    return {name: value for name, value in attributes.items() if value is not None and value not in ("", ())}


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9


def _micros(us: int) -> float | None:
    return us / 1e6 if us >= 0 else None


def _counted(number: int) -> int | None:
    return number if number >= 0 else None


def _sum(values: Sequence[int]) -> int | None:
    return sum(values) if values and min(values) >= 0 else None
