"""The spans of a transfer: what the agent of these engines exports of it.

D's span and P's are each other's peers, not parent and child: P may begin long before D has the request and go on
long after D decodes, so neither encloses the other. They share a trace, and link to each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.model import Diagnosis
from pushscope.telemetry.group import Sides
from pushscope.telemetry.spans import describe
from pushscope.telemetry.spans.attributes import ERROR_TYPES, RECEIVE, SEND, known_error, stage_name
from pushscope.telemetry.spans.describe import Attributes, Failure
from pushscope.telemetry.spans.identity import Identity, identity_of
from pushscope.telemetry.spans.ids import Caller
from pushscope.telemetry.spans.model import Kind, Link, Span
from pushscope.telemetry.spans.part import d_times, p_ranks, p_times
from pushscope.telemetry.transfer import Rank, Stage, StageTime, Transfer, rank_name

_OF_P: Final = frozenset({Stage.HANDOFF, Stage.RENDEZVOUS, Stage.HANDSHAKE, Stage.DESCRIPTORS, Stage.SUBMIT})
"""Push: the stages that P sees by itself."""
_JOINED: Final = {"push": frozenset({Stage.FLIGHT, Stage.WIRE}), "pull": frozenset({Stage.RELAY})}
"""By mode, the stages that begin on one side and end on the other: D's, if both were seen."""
_AT_ITS_RANK: Final = frozenset({Stage.NOTIFICATION})
"""The stages of which D alone doesn't know the P rank."""


def spans_of(
    transfer: Transfer,
    sides: Sides,
    diagnoses: Sequence[Diagnosis],
    *,
    to_unix: Callable[[int], int],
    local: Collection[str],
    origins: Mapping[str, ev.Origin],
    uncertainty_ns: int | None = 0,
    until_ns: int | None = None,
    unsampled: bool = False,
) -> tuple[Span, ...]:
    """The spans of a transfer that ended, or was abandoned: those of the engines in ``local``, parents first.

    ``to_unix`` turns the times of the transfer into wall-clock nanoseconds. ``origins`` has one of each engine's.
    ``uncertainty_ns``: of the offset between the clocks of P's and D's hosts; 0 on one host, None if it is not
    known. ``until_ns``: where what is still open ends (None: with the last that was heard of the transfer).
    A side whose caller did not sample its request has no spans, unless ``unsampled`` ones are asked for too.
    """
    return _Maker(
        transfer, sides, diagnoses, to_unix, origins, uncertainty_ns, until_ns, unsampled=unsampled
    ).spans(local)


class _Maker:
    """Of one transfer."""

    def __init__(
        self,
        transfer: Transfer,
        sides: Sides,
        diagnoses: Sequence[Diagnosis],
        to_unix: Callable[[int], int],
        origins: Mapping[str, ev.Origin],
        uncertainty_ns: int | None,
        until_ns: int | None,
        *,
        unsampled: bool,
    ):
        self.transfer = transfer
        self.sides = sides
        self.diagnoses = diagnoses
        self.to_unix = to_unix
        self.origins = origins
        self.uncertainty_ns = uncertainty_ns
        self.until_ns = _last_t(transfer, sides) if until_ns is None else until_ns
        self.unsampled = unsampled
        self.identity: Identity = identity_of(transfer, sides.p, sides.d)
        self.pull = transfer.mode == "pull"
        self.joined = _JOINED[transfer.mode]
        self.posted = describe.Posted(sides.d if self.pull else sides.p)
        self.ranks = p_ranks(transfer, sides)

    def spans(self, local: Collection[str]) -> tuple[Span, ...]:
        d_engine, p_engine = self.transfer.d_engine, self.transfer.p_engine
        found: list[Span] = []
        if d_engine is not None and d_engine in local and self._wanted(self.identity.d_caller):
            found += self._of_d(d_engine)
        p_wanted = self._wanted(self.identity.p_caller) and not self._told_by_another()
        if p_engine is not None and p_engine in local and p_wanted:
            for rank in self.ranks:
                found += self._of_p(p_engine, rank)
        return tuple(found)

    def _wanted(self, caller: Caller | None) -> bool:
        return self.unsampled or caller is None or caller.sampled

    def _told_by_another(self) -> bool:
        """Pull: whether an earlier transfer has P's part in it, since several of D's requests may read one of P's."""
        t = self.transfer
        mine = (t.attempt, t.opened_ns, t.d_request or "")
        return self.pull and any(
            (other.attempt, other.opened_ns, other.d_request or "") < mine
            for other in self.sides.others
            if (other.p_engine, other.p_request) == (t.p_engine, t.p_request) and t.p_request is not None
        )

    # -- D -----------------------------------------------------------------------------------------

    def _of_d(self, engine: str) -> Iterator[Span]:
        times = d_times(self.sides, self.until_ns)
        if times is None:
            return
        start_ns, end_ns = times
        stages = [s for s in self.transfer.stages if self._owner(s.stage) == "D"]
        end_ns = max((end_ns, *(s.end_ns or 0 for s in stages if s.stage not in self.joined)))
        possible_ns = max((end_ns, *map(self._posted_ns, stages)))
        clamped: Attributes = {"kv_transfer.clamped": True} if possible_ns > end_ns else {}
        end_ns = possible_ns
        identity, caller = self.identity, self.identity.d_caller
        yield self._span(
            engine,
            RECEIVE,
            Kind.CONSUMER,
            identity.d_trace,
            identity.receive_id(),
            (start_ns, end_ns),
            {
                **describe.of_transfer(self.transfer, self.diagnoses, self.sides.d, self.sides.p),
                **describe.of_receive(self.transfer, self.sides),
                **self._of_engine(engine, self.transfer.p_engine),
                **self._uncertainty(both="P" in self.transfer.sides),
                **clamped,
            },
            describe.wrong_at_d(self.transfer, self.sides),
            caller=caller,
            links=self._links_to_p(),
        )
        for s, number in _numbered(stages, lambda s: (s.stage, s.peer_rank, _p_rank_by_d(s))):
            names = ("stage", s.stage.value, _text(s.peer_rank), _text(_p_rank_by_d(s)), number)
            span_id, parent = identity.d_span_id(*names), identity.receive_id()
            if s.stage is Stage.RELAY:  # it ends where D's part begins
                yield self._stage(
                    s, engine, identity.d_trace, span_id, None, (s.start_ns, start_ns), caller=caller
                )
            else:
                yield self._stage(s, engine, identity.d_trace, span_id, parent, (start_ns, end_ns))

    def _links_to_p(self) -> tuple[Link, ...]:
        """To the spans of the P ranks, if it is known that these take part."""
        t, identity = self.transfer, self.identity
        if t.p_engine is None or not identity.joined:
            return ()
        ranks: Iterable[Rank | None] = self.ranks
        if "P" not in t.sides:
            sent = [(e.peer_pp, e.peer_tp) for _, e in self.sides.d.all(ev.RegistrationSent)]
            read = [(0, e.peer_tp) for _, e in self.sides.d.all(ev.DescriptorsStarted)]
            ranks = sorted({*sent, *read})
        return tuple(Link(identity.p_trace, identity.send_id(t.p_engine, rank)) for rank in ranks)

    # -- P -----------------------------------------------------------------------------------------

    def _of_p(self, engine: str, rank: Rank | None) -> Iterator[Span]:
        start_ns, end_ns = p_times(self.transfer, self.sides, rank, self.until_ns)
        stages = [s for s in self.transfer.stages if self._owner(s.stage) == "P" and self._at_rank(s, rank)]
        end_ns = max((end_ns, *(s.end_ns or 0 for s in stages)))
        identity = self.identity
        send_id = identity.send_id(engine, rank)
        to_d = identity.joined and ("D" in self.transfer.sides or not self.pull)
        yield self._span(
            engine,
            SEND,
            Kind.PRODUCER,
            identity.p_trace,
            send_id,
            (start_ns, end_ns),
            {
                **describe.of_transfer(self.transfer, self.diagnoses, self.sides.p, self.sides.d),
                **describe.of_send(self.sides, rank),
                **self._of_engine(engine, None),
            },
            describe.wrong_at_p(self.transfer, self.sides, rank),
            caller=identity.p_caller,
            links=(Link(identity.d_trace, identity.receive_id()),) if to_d else (),
        )
        for s, number in _numbered(stages, lambda s: (s.stage, s.peer_rank)):
            names = ("stage", s.stage.value, _text(rank), _text(s.peer_rank), number)
            span_id = identity.p_span_id(engine, *names)
            yield self._stage(s, engine, identity.p_trace, span_id, send_id, (start_ns, end_ns))

    def _at_rank(self, s: StageTime, rank: Rank | None) -> bool:
        return s.rank == rank or (s.rank is None and rank == self.ranks[0])

    # -- both --------------------------------------------------------------------------------------

    def _owner(self, stage: Stage) -> str:
        """Whose span a stage is; nobody's if only one side of a joined one was seen."""
        if self.pull:
            return "" if stage is Stage.RELAY and "P" not in self.transfer.sides else "D"
        if stage is Stage.WIRE:
            return "D" if "D" in self.transfer.sides else "P"
        if stage is Stage.FLIGHT:
            return "D" if "P" in self.transfer.sides else ""
        return "P" if stage in _OF_P else "D"

    def _stage(
        self,
        s: StageTime,
        engine: str,
        trace_id: int,
        span_id: int,
        parent_id: int | None,
        within: tuple[int, int],
        *,
        caller: Caller | None = None,
    ) -> Span:
        """A stage's span, moved to within its parent where clocks, or what D did not wait for, put it elsewhere."""
        start_ns = max(s.start_ns, self._posted_ns(s))
        seen = start_ns, s.end_ns if s.end_ns is not None else within[1]
        start_ns = min(max(start_ns, within[0]), within[1])
        end_ns = min(max(seen[1], start_ns), within[1])
        rank = s.peer_rank if self.pull else s.rank
        attributes = describe.of_stage(s, self.posted, rank, self.sides.d)
        # No message comes in within the nanosecond in which it went out: it was moved there (stages.py).
        at_once = s.stage in self.joined and s.start_ns == s.end_ns
        if (start_ns, end_ns) != seen or start_ns != s.start_ns or at_once:
            attributes["kv_transfer.clamped"] = True
        if s.stage in self.joined:
            attributes |= self._uncertainty(both=self._owner(s.stage) == "D")
        failure = self.posted.failure(rank, s.end_ns)
        if s.stage is Stage.REGISTRATION:
            failure = self._registration_failure(s)
        times = start_ns, end_ns
        return self._span(
            engine,
            stage_name(s.stage),
            Kind.INTERNAL,
            trace_id,
            span_id,
            times,
            attributes,
            failure,
            parent_id=parent_id,
            caller=caller,
        )

    def _posted_ns(self, s: StageTime) -> int:
        """Of a notification: when the write that it tells of was posted; it can't have come before."""
        if s.stage is not Stage.NOTIFICATION or s.rank is None:
            return 0
        posted = (
            w.start_ns
            for w in self.transfer.stages
            if w.stage is Stage.SUBMIT and (w.rank, w.peer_rank) == (s.rank, s.peer_rank)
        )
        return min(posted, default=0)

    def _registration_failure(self, s: StageTime) -> Failure:
        failed = [e for _, e in self.sides.d.all(ev.RegistrationFailed) if e.t == s.end_ns]
        return Failure(known_error(failed[0].error_type), failed[0].error) if failed else Failure()

    def _of_engine(self, engine: str, peer: str | None) -> Attributes:
        """The model; the peer's side channel, if the peer itself was heard to say it."""
        own, other = self.origins.get(engine), self.origins.get(peer or "")
        found: Attributes = {"gen_ai.request.model": own.model} if own and own.model else {}
        host, _, port = other.side_channel.rpartition(":") if other else ("", "", "")
        if host and port.isdecimal():
            found |= {"server.address": host, "server.port": int(port)}
        return found

    def _uncertainty(self, *, both: bool) -> Attributes:
        if not both or self.uncertainty_ns == 0:
            return {}
        if self.uncertainty_ns is None:
            return {"kv_transfer.clock_unsure": True}
        return {"kv_transfer.clock_uncertainty_seconds": self.uncertainty_ns / 1e9}

    def _span(
        self,
        engine: str,
        name: str,
        kind: Kind,
        trace_id: int,
        span_id: int,
        times: tuple[int, int],
        attributes: Attributes,
        failure: Failure,
        *,
        parent_id: int | None = None,
        caller: Caller | None = None,
        links: tuple[Link, ...] = (),
    ) -> Span:
        if failure.error_type:
            attributes["error.type"] = failure.error_type
        is_error = bool(failure.error_type) and ERROR_TYPES[failure.error_type].is_error
        start_ns = self.to_unix(times[0])
        return Span(
            name=name,
            kind=kind,
            trace_id=trace_id,
            span_id=span_id,
            parent_span_id=caller.span_id if caller else parent_id,
            parent_is_remote=caller is not None,
            links=links,
            start_unix_ns=start_ns,
            end_unix_ns=max(start_ns, self.to_unix(times[1])),
            attributes=attributes,
            error_type=failure.error_type if is_error else "",
            error=failure.error if is_error else "",
            engine_id=engine,
        )


def _p_rank_by_d(s: StageTime) -> Rank | None:
    """The P rank of a stage, if D knows it by itself."""
    return None if s.stage in _AT_ITS_RANK else s.rank


def _numbered(
    stages: Iterable[StageTime], place: Callable[[StageTime], object]
) -> Iterator[tuple[StageTime, int]]:
    """Each stage with its number among those of its place, by time: the second write between two ranks is 1."""
    seen: Counter[object] = Counter()
    for s in sorted(stages, key=lambda s: (s.start_ns, s.end_ns is None, s.end_ns or 0)):
        where = place(s)
        yield s, seen[where]
        seen[where] += 1


def _last_t(transfer: Transfer, sides: Sides) -> int:
    times = [e.t for side in (sides.p, sides.d) for kind in side.kinds() for _, e in side.all(kind)]
    return max((transfer.closed_ns or transfer.since_ns, *times))


def _text(rank: Rank | None) -> str:
    return rank_name(rank) if rank else ""
