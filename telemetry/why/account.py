"""Everything that was seen of one request, attempt by attempt: what ``pushscope why`` says.

A watcher forgets the events of what is over. Here those of the requests that a text may mean are kept, and no
others, so that a source can be read once, whatever its size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.model import Diagnosis, Severity
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.group import Group
from pushscope.telemetry.half import NO_FACTS, Half, heard_of_d
from pushscope.telemetry.snapshot import Engine, Snapshot
from pushscope.telemetry.source import Source
from pushscope.telemetry.spans.identity import identity_of
from pushscope.telemetry.story import EngineStory
from pushscope.telemetry.stuck import worst_first
from pushscope.telemetry.transfer import NOTHING_MOVED, Outcome, Rank, Transfer
from pushscope.telemetry.watch import Watcher
from pushscope.telemetry.why.expected import Missing, Sides, missing
from pushscope.telemetry.why.held import Closeness, Held, closest
from pushscope.telemetry.why.meanwhile import Happening, meanwhile
from pushscope.telemetry.why.words import SCHEDULERS, Agents, in_words

MAX_KEPT: Final = 1000
"""Requests whose events are kept, the last ones: a short beginning of an id may fit them all."""
_WENT_WELL: Final = NOTHING_MOVED | {Outcome.DELIVERED}


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One try at the request."""

    number: int
    transfer: Transfer | None = None
    """None while it is no more than a prompt that is being computed."""
    p_engine: str | None = None
    p_request: str | None = None
    d_engine: str | None = None
    d_request: str | None = None
    taken_by: int = 0
    """The attempt that got the blocks which were meant for this one; 0 if none did."""
    began_ns: int
    last_ns: int
    """The time of its last event."""
    happened: tuple[Happening, ...] = ()
    """In the order of time, with what its engines did meanwhile."""
    missing: tuple[Missing, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    """What is wrong with it, and with its engines."""
    trace_id: str = ""
    """The trace that its spans are in (D's, where D is known), in 32 hexadecimal digits."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One request's whole story."""

    asked: str
    base_id: str
    taken_ns: int
    taken_unix_s: float
    source: str
    engines: tuple[Engine, ...] = ()
    """Those that had a part in it."""
    attempts: tuple[Attempt, ...]
    notices: tuple[str, ...] = ()


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One of several requests that a text may mean."""

    base_id: str
    attempts: int
    outcome: str
    """Of the last attempt."""
    p_engine: str | None
    d_engine: str | None
    began_ns: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a question: an account; or the candidates, if there are several; or neither."""

    asked: str
    account: Account | None = None
    candidates: tuple[Candidate, ...] = ()
    requests: int = 0
    """How many requests were seen at all."""
    snapshot: Snapshot
    damage: str = ""
    """Why the source could not be read to its end."""


class Found(NamedTuple):
    """A group of halves that the text may mean."""

    group: Group
    wrong: tuple[tuple[Diagnosis, ...], ...]
    """What was wrong with each of its transfers when it was followed last."""


class _Search:
    """Reads a source, and keeps of what the watcher forgets the requests that a text may mean."""

    def __init__(self, source: Source, text: str):
        self.watcher = Watcher(source, on_forgotten=self._look_at)
        self.requests = 0
        """Seen at all."""
        self.damage = ""
        self._held = Held(text)
        self._kept = {closeness: deque[Found](maxlen=MAX_KEPT) for closeness in Closeness if closeness}

    def run(self) -> Snapshot:
        try:
            self.watcher.read_all()
        except PushscopeError as e:
            self.damage = str(e)
        snapshot = self.watcher.snapshot()
        for group in self.watcher.assembler.groups():
            self._look_at(group)
        return snapshot

    def _look_at(self, group: Group) -> None:
        self.requests += 1
        if closeness := closest(self._held, _ids(group), _traces(group)):
            wrong = tuple(map(self.watcher.wrong_with, group.transfers or ()))
            self._kept[closeness].append(Found(group, wrong))

    def found(self) -> list[list[Found]]:
        """The requests that the text fits best, each with all of its groups in the order of time."""
        best = next((kept for _, kept in sorted(self._kept.items(), reverse=True) if kept), ())
        requests = _joined((_bases(found.group), [found]) for found in best)
        rest = [found for kept in self._kept.values() if kept is not best for found in kept]
        for bases, members in requests:  # its attempts that the text does not name
            members += [found for found in rest if bases & _bases(found.group)]
        return [sorted(members, key=_began) for _, members in requests]


def answer(source: Source, text: str) -> Answer:
    """Read a source, rings as far as they reach back, and tell what it holds of a request."""
    if not text.strip():
        raise PushscopeError("expected a request id, found nothing: give an id, or the beginning of one")
    search = _Search(source, text)
    snapshot = search.run()
    found = search.found()
    account = _account(text, found[0], search.watcher, snapshot) if len(found) == 1 else None
    candidates = () if account else tuple(sorted(map(_candidate, found), key=lambda c: -c.began_ns))
    return Answer(
        asked=text,
        account=account,
        candidates=candidates,
        requests=search.requests,
        snapshot=snapshot,
        damage=search.damage,
    )


# -- groups ------------------------------------------------------------------------------------------


def _ids(group: Group) -> Iterator[str]:
    for half in group.halves.values():
        yield half.request_id
        yield half.named


def _traces(group: Group) -> Iterator[tuple[str, str]]:
    for half in group.halves.values():
        for e in half.events.values():
            if isinstance(e, ev.TraceContext):
                yield e.traceparent, e.transfer_id


def _bases(group: Group) -> set[str]:
    return {group.base, *group.aliases, *(half.base for half in group.halves.values())}


def _began(found: Found) -> int:
    return min((half.first_t for half in found.group.halves.values()), default=0)


def _joined(parts: Iterable[tuple[set[str], list[Found]]]) -> list[tuple[set[str], list[Found]]]:
    """What has a base id in common is one request."""
    whole: list[tuple[set[str], list[Found]]] = []
    for bases, members in parts:
        touching = [w for w in whole if w[0] & bases]
        whole = [w for w in whole if not w[0] & bases]
        whole.append(
            (
                bases.union(*(w[0] for w in touching)),
                [*(found for w in touching for found in w[1]), *members],
            )
        )
    return whole


def _candidate(request: Sequence[Found]) -> Candidate:
    transfers = [t for found in request for t in found.group.transfers or ()]
    last = max(transfers, key=lambda t: (t.opened_ns, t.attempt), default=None)
    return Candidate(
        base_id=last.base_id if last else request[-1].group.base,
        attempts=len({t.attempt for t in transfers}) or 1,
        outcome=last.outcome.value if last else "no transfer yet",
        p_engine=last.p_engine if last else None,
        d_engine=last.d_engine if last else None,
        began_ns=_began(request[0]),
    )


# -- the account -------------------------------------------------------------------------------------


def attempts_in(found: Found, watcher: Watcher, snapshot: Snapshot) -> list[Attempt]:
    """The attempts of one group, with what their engines did meanwhile."""
    stories = watcher.stories.all()
    told = _attempts(found, watcher.assembler.rank_of, snapshot)
    return [_with_its_engines(attempt, stories, snapshot.taken_ns) for attempt in told]


def _account(text: str, request: Sequence[Found], watcher: Watcher, snapshot: Snapshot) -> Account:
    attempts = [attempt for found in request for attempt in attempts_in(found, watcher, snapshot)]
    attempts.sort(key=lambda a: (a.number, a.began_ns))
    had_a_part = {engine for a in attempts for engine in (a.p_engine, a.d_engine)}
    return Account(
        asked=text,
        base_id=next((a.transfer.base_id for a in attempts if a.transfer), request[0].group.base),
        taken_ns=snapshot.taken_ns,
        taken_unix_s=snapshot.taken_unix_s,
        source=snapshot.source,
        engines=tuple(e for e in snapshot.engines if e.engine_id in had_a_part),
        attempts=tuple(attempts),
        notices=snapshot.notices,
    )


def _attempts(found: Found, rank_of: Agents, snapshot: Snapshot) -> Iterator[Attempt]:
    group = found.group
    told: set[int] = set()
    for transfer, pair, wrong in zip(group.transfers or (), group.made_of, found.wrong, strict=True):
        # Not the pair's own halves: of a P half whose ranks paired differently it has a part.
        p = group.halves.get((transfer.p_engine or "", transfer.p_request or ""))
        d = group.halves.get((transfer.d_engine or "", transfer.d_request or ""))
        told |= {id(half) for half in (p, d) if half}
        diagnoses = (*worst_first(wrong), *_of_engines(transfer, snapshot))
        attempt = _attempt(p, d, transfer.attempt, transfer, rank_of, snapshot, pair.taken_by)
        yield msgspec.structs.replace(attempt, diagnoses=diagnoses)
    for half in group.halves.values():  # a prompt that is being computed, a leg that was never sent on
        if id(half) not in told:
            p, d = (None, half) if half.decodes else (half, None)
            yield _attempt(p, d, group.attempts.get(half.identity, 1), None, rank_of, snapshot)


def _of_engines(transfer: Transfer, snapshot: Snapshot) -> tuple[Diagnosis, ...]:
    """What is wrong now with its engines, as far as it costs this transfer, or may while it is open."""
    engines = (transfer.p_engine, transfer.d_engine) if transfer.is_open else ()
    return tuple(
        d
        for d in snapshot.diagnoses
        if (transfer.base_id, transfer.attempt) in d.costs
        or (not d.attempt and d.subject in engines and d.severity is Severity.ERROR)
    )


def _attempt(
    p: Half | None,
    d: Half | None,
    number: int,
    transfer: Transfer | None,
    rank_of: Agents,
    snapshot: Snapshot,
    taken_by: int = 0,
) -> Attempt:
    p_engine = transfer.p_engine if transfer else p.engine if p else None
    d_engine = transfer.d_engine if transfer else d.engine if d else None
    seen = (h for half in (p, d) if half for h in _happenings(half, p_engine, rank_of))
    happened = sorted(seen, key=lambda h: h.t_ns)
    sides = Sides(
        p.by_kind() if p else NO_FACTS,
        d.by_kind() if d else NO_FACTS,
        _ranks(p_engine, snapshot),
        _ranks(d_engine, snapshot),
        pull=transfer is not None and transfer.mode == "pull",
        taken_by=taken_by,
    )
    trace_id = ""
    if transfer is not None:
        identity = identity_of(transfer, sides.p, sides.d)
        trace_id = f"{identity.d_trace if transfer.d_request else identity.p_trace:032x}"
    went_well = transfer is not None and transfer.outcome in _WENT_WELL
    return Attempt(
        number=number,
        transfer=transfer,
        p_engine=p_engine,
        p_request=p.request_id if p else None,
        d_engine=d_engine,
        d_request=d.request_id if d else None,
        began_ns=happened[0].t_ns if happened else transfer.opened_ns if transfer else 0,
        last_ns=happened[-1].t_ns if happened else transfer.since_ns if transfer else 0,
        happened=tuple(happened),
        missing=() if went_well else missing(sides),
        taken_by=taken_by,
        trace_id=trace_id,
    )


def _with_its_engines(attempt: Attempt, stories: Iterable[EngineStory], now_ns: int) -> Attempt:
    """With what its engines did from its begin to its end; one that somebody still waits for has not ended."""
    t = attempt.transfer
    waits = t is None or t.is_open or t.d_waits or t.outcome is Outcome.LOST
    until_ns = now_ns if waits else max(attempt.last_ns, t.closed_ns or 0 if t else 0)
    beside = meanwhile(
        stories,
        attempt.p_engine,
        attempt.d_engine,
        (attempt.began_ns, until_ns),
        (attempt.p_request, attempt.d_request),
    )
    happened = sorted((*attempt.happened, *beside), key=lambda h: h.t_ns)
    return msgspec.structs.replace(attempt, happened=tuple(happened))


def _ranks(engine_id: str | None, snapshot: Snapshot) -> frozenset[Rank]:
    """The ranks of an engine that record."""
    return frozenset(
        process.rank
        for engine in snapshot.engines
        if engine.engine_id == engine_id
        for process in engine.processes
        if process.connector_role == "worker"
    )


def _happenings(half: Half, p_engine: str | None, rank_of: Agents) -> Iterator[Happening]:
    for (kind, rank, _), event in half.events.items():
        # A P rank says when it heard of D's request: a fact of D's half that happened at P.
        heard = heard_of_d(event)
        at_p = not half.decodes or heard
        yield Happening(
            t_ns=event.t,
            side="P" if at_p else "D",
            engine=p_engine or "" if at_p else half.engine,
            rank=None if kind in SCHEDULERS and not heard else rank,
            kind=kind.__name__,
            what=in_words(event, of_d=half.decodes, rank_of=rank_of),
        )
