"""Which halves of one request belong together: attempts by time, pairs by what P's ranks said.

A request that is sent again has the same base id on every try, so a group holds the halves of all of them. An
*attempt* is a P leg and a D leg that were sent together. vLLM's P doesn't know attempts: it pairs finished blocks
with the oldest registration of the same base id (``push_worker._pop_matching_registration``), on each rank by
itself. So a pair may cross attempts, and two ranks may pair differently; both are told in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Final, NamedTuple

from pushscope.telemetry import events as ev
from pushscope.telemetry.half import Half, Identity
from pushscope.telemetry.transfer import Rank, rank_name

Matches = Mapping[Identity, Set[Identity]]
"""P half -> the D halves that its ranks matched it with."""
Attempts = Mapping[Identity, int]
DIFFERING: Final = "P's ranks paired attempts differently"
NO_ATTEMPTS: Final[Attempts] = MappingProxyType({})

_OF_A_PUSH: Final = frozenset(
    {
        ev.BlocksPickedUp,
        ev.Matched,
        ev.TransferDeferred,
        ev.TransferResumed,
        ev.DescriptorsStarted,
        ev.DescriptorsBuilt,
        ev.SubmitStarted,
        ev.Submitted,
        ev.TransferDone,
        ev.TransferFailed,
        ev.NothingToPush,
    }
)
"""What a P rank says of one push, which goes to one D half."""


class Released(NamedTuple):
    """A prefill whose lease ended when nobody had claimed its blocks."""

    engine: str
    t_ns: int


class Before(NamedTuple):
    """What became of a base id's attempts that were closed."""

    attempts: int = 0
    """How many there were. A prefill whose blocks went to an older one is not counted: its own D may come yet."""
    taken_by: int = 0
    """The attempt whose registration met the blocks that were meant for the next one; 0 if none did."""
    released: Released | None = None
    """The last prefill, if that is what became of it."""


NOTHING_BEFORE: Final[Mapping[str, Before]] = MappingProxyType({})
_NEVER_BEFORE: Final = Before()


class Pair(NamedTuple):
    """The two halves of one transfer, as far as they are known."""

    p: Half | None
    d: Half | None
    attempt: int = 1
    p_attempt: int = 1
    tentative: bool = False
    note: str = ""
    """In words: how this pair is not what was sent together."""
    d_was_over: bool = False
    """D had ended its part before P's blocks met its registration."""
    taken_by: int = 0
    """The attempt whose registration met the blocks that were meant for this D half."""
    released_ns: int = 0
    """When P's lease on its last prefill of this id ended, which D came too late to claim; 0 if that wasn't so."""

    @property
    def opened(self) -> tuple[int, str]:
        seen = [half for half in (self.p, self.d) if half and half.events]
        return min((h.first_t for h in seen), default=0), seen[0].request_id if seen else ""


def attempts_of(
    halves: Iterable[Half], before: Mapping[str, Before] = NOTHING_BEFORE, known: Attempts = NO_ATTEMPTS
) -> Attempts:
    """The attempt that each half belongs to, for each base id counted on from ``before``.

    In the order of their beginning a D half joins the P half that it names, if nobody has; else a half joins the
    latest attempt of its base id, if that lacks its side and the other side is still at it, or begins the next.
    A P half whose blocks went to an older attempt leaves its own without them: D's half may come when it is over, and
    another P half for that.
    What comes later never changes the number of a D half. Those that are ``known`` are kept.
    """
    numbers = dict(known)
    latest: dict[str, _Attempt] = {}
    for half in sorted(halves, key=_begun):
        previous = latest.get(half.base)
        attempt = _named_by(half, previous) or (
            previous if previous and previous.takes(half, numbers) else None
        )
        if attempt is None:
            number = previous.number if previous else before.get(half.base, _NEVER_BEFORE).attempts
            attempt = latest[half.base] = _Attempt(number + 1, previous)
            if previous is not None and (p := previous.gives_up_p(half)):
                attempt.sides[False] = p
                numbers[p.identity] = attempt.number
        attempt.sides[half.decodes] = half
        numbers[half.identity] = attempt.number
    return numbers


class _Attempt:
    """P's and D's leg of one try, as far as they were seen."""

    __slots__ = ("number", "previous", "sides")

    def __init__(self, number: int, previous: _Attempt | None):
        self.number = number
        self.previous = previous
        self.sides: dict[bool, Half] = {}
        """By whether it is D's."""

    def takes(self, half: Half, numbers: Attempts) -> bool:
        same, other, t = self.sides.get(half.decodes), self.sides.get(not half.decodes), half.first_t
        if same and not self._gave_away(same, t, numbers):
            return False
        return other is None or not _was_over(other, t) or self._gave_away(other, t, numbers)

    def _gave_away(self, half: Half, t: int, numbers: Attempts) -> bool:
        """Whether this is P's half, and its blocks had met the registration of another attempt by ``t``."""
        met = {(e.peer_engine, e.peer_request_id) for _, e in _matches(half) if e.t < t}
        return not half.decodes and bool(met) and all(numbers.get(d, self.number) != self.number for d in met)

    def gives_up_p(self, d: Half) -> Half | None:
        """The P leg, if it came right before the D leg of the next try, and long after this one's: its own was lost."""
        p, mine = self.sides.get(False), self.sides.get(True)
        if p is None or mine is None or not d.decodes:
            return None
        if d.first_t - p.first_t >= p.first_t - mine.first_t or any(e.t < d.first_t for _, e in _matches(p)):
            return None
        return self.sides.pop(False)


def _named_by(d: Half, attempt: _Attempt | None) -> _Attempt | None:
    """The attempt whose P leg this D half names, if it has no D leg: D's may come when P has given up."""
    name = d.named
    while attempt is not None:
        p = attempt.sides.get(False)
        if name and p is not None and p.request_id == name and True not in attempt.sides:
            return attempt
        attempt = attempt.previous
    return None


def _begun(half: Half) -> tuple[int, str, str]:
    return half.first_t, half.engine, half.request_id


def _was_over(half: Half, t: int) -> bool:
    """Whether a half had ended by ``t``. A D that never asked for blocks lets its P leg come late."""
    if half.decodes and not half.asks:
        return False
    over_ns = half.over_ns
    return over_ns is not None and over_ns < t


def pairs_of(
    halves: Mapping[Identity, Half],
    matches: Matches,
    attempts: Attempts,
    before: Mapping[str, Before] = NOTHING_BEFORE,
) -> list[Pair]:
    """The halves of a group by two: as P's ranks matched them, else tentatively, else alone.

    ``attempts`` numbers the halves, and those that were closed before and came up again.
    """
    edges = [(halves[p], _half_of(d, halves)) for p, ds in matches.items() if p in halves for d in sorted(ds)]
    if len(edges) == 1 and len(halves) == 2 and edges[0][1].events:  # nearly always
        return [_matched(*edges[0], attempts)]
    met: dict[Identity, tuple[Half, list[Half]]] = {}
    for p, d in edges:
        met.setdefault(d.identity, (d, []))[1].append(p)
    pairs = []
    for d, all_ps in met.values():
        ps = _first_on_a_rank(all_ps, d)
        pairs += [_too_late(p, d, attempts) for p in all_ps if p not in ps]
        alike = len(ps) == 1 and len({e.peer_request_id for _, e in _matches(ps[0])}) <= 1
        pairs.append(_matched(ps[0], d, attempts) if alike else _differing(ps, d, attempts))
    told = {pair.p.identity for pair in pairs if pair.p}
    pairs += [
        _taken_in_part(p, attempts)
        for p in {p.identity: p for p, _ in edges if p.identity not in told}.values()
    ]
    paired = {half.identity for edge in edges for half in edge}
    free = [h for h in halves.values() if h.identity not in paired]
    return pairs + (_tentative(free, halves.values(), attempts, pairs, before) if free else [])


def _half_of(identity: Identity, halves: Mapping[Identity, Half]) -> Half:
    """D's half of a match, which may have had no room for D's engine id: P named it with the registration."""
    half = halves.get(identity)
    if half is None:
        engine, request_id = identity
        named = (h for h in halves.values() if h.request_id == request_id and h.decodes)
        half = next(named, None) or Half(engine, request_id)
    return half


# -- what P's ranks matched ----------------------------------------------------------------------------


def _matched(p: Half, d: Half, attempts: Attempts, note: str = "") -> Pair:
    p_attempt = attempts[p.identity]
    attempt = attempts.get(d.identity, p_attempt)
    if attempt == p_attempt or d.base != p.base:
        return Pair(p, d, attempt, p_attempt, note=note)
    matched_ns = min((e.t for _, e in _matches(p) if e.peer_request_id == d.request_id), default=None)
    if matched_ns is None:
        return Pair(
            p, d, attempt, p_attempt, note=f"attempt {attempt} read P's blocks of attempt {p_attempt}"
        )
    # A half without events was closed before.
    was_over = _was_over(d, matched_ns) if d.events else True
    crossed = f"P's blocks of attempt {p_attempt} met D's registration of attempt {attempt}"
    note = "; ".join(filter(None, (crossed + (", which D had ended" if was_over else ""), note)))
    return Pair(p, d, attempt, p_attempt, note=note, d_was_over=was_over)


def _first_on_a_rank(ps: Sequence[Half], d: Half) -> Sequence[Half]:
    """The P halves that were the first to meet D's registration on some P rank."""
    if len(ps) == 1:
        return ps
    first: dict[Rank, tuple[int, Half]] = {}
    for p in ps:
        for rank, e in _matches(p):
            if e.peer_request_id == d.request_id and (rank not in first or e.t < first[rank][0]):
                first[rank] = e.t, p
    return [p for p in ps if any(p is found for _, found in first.values())]


def _too_late(p: Half, d: Half, attempts: Attempts) -> Pair:
    """With more D ranks than P ranks a registration comes more than once, and what is left of it takes the next
    blocks of the same base id: they go where other blocks are already."""
    p_attempt = attempts[p.identity]
    attempt = attempts.get(d.identity, p_attempt)
    note = (
        f"P's blocks of attempt {p_attempt} met a registration of attempt {attempt} that had been met before"
    )
    return Pair(p, None, p_attempt, p_attempt, note=note, d_was_over=True)


def _taken_in_part(p: Half, attempts: Attempts) -> Pair:
    """A P half that some ranks wrote to where others wrote an earlier one: what is left of it, on the other ranks."""
    met = {rank for rank, _ in _matches(p)}
    rest = Half(*p.identity)
    for (kind, rank, _), event in p.events.items():
        if kind not in _OF_A_PUSH or rank not in met:
            rest.add(rank, event)
    note = f"{', '.join(map(rank_name, sorted(met)))} gave these blocks to another attempt"
    return Pair(rest, None, attempts[p.identity], attempts[p.identity], note=note, d_was_over=True)


def _matches(p: Half) -> list[tuple[Rank, ev.Matched]]:
    return [(rank, e) for (_, rank, _), e in p.events.items() if isinstance(e, ev.Matched)]


def _differing(ps: Sequence[Half], d: Half, attempts: Attempts) -> Pair:
    """P's ranks did not all pair alike: this D half with what the ranks did that write to it."""
    first = min(ps, key=_begun)
    part = Half(*first.identity)
    paired = []
    for p in ps:
        met = {rank: e.peer_request_id for rank, e in _matches(p)}
        for (kind, rank, _), event in p.events.items():
            # A rank that has matched nothing yet will write to this one, as far as anybody knows.
            goes_here = met.get(rank, d.request_id) == d.request_id
            if goes_here if kind in _OF_A_PUSH else p is first:
                part.add(rank, event)
        for rank, peer in met.items():
            to = attempts.get(next((i for i in attempts if i[1] == peer), d.identity), attempts[p.identity])
            paired.append((rank, f"{rank_name(rank)} {attempts[p.identity]}→{to}"))
    words = ", ".join(word for _, word in sorted(paired))
    return _matched(part, d, attempts, f"{DIFFERING}: {words}")


# -- what nobody has matched yet -----------------------------------------------------------------------


def _tentative(
    free: Sequence[Half],
    halves: Iterable[Half],
    attempts: Attempts,
    paired: Sequence[Pair],
    before: Mapping[str, Before],
) -> list[Pair]:
    """By base id: D halves, oldest first, each with the P half that vLLM is most likely to pair it with."""
    in_order = sorted(free, key=_begun)
    free_p = [h for h in in_order if not h.decodes]
    pairs = []
    for d in (h for h in in_order if h.decodes):
        attempt = attempts[d.identity]
        p = _likely(d, free_p, attempts)
        if p is None:
            own = [half for half in halves if half.base == d.base]
            pairs.append(_without_p(d, attempt, own, paired, before.get(d.base, _NEVER_BEFORE)))
        else:
            free_p.remove(p)
            pairs.append(Pair(p, d, attempt, attempts[p.identity], tentative=True))
    return pairs + [Pair(h, None, attempts[h.identity], attempts[h.identity]) for h in free_p]


def _without_p(d: Half, attempt: int, own: Iterable[Half], paired: Iterable[Pair], earlier: Before) -> Pair:
    """D's half alone, with what became of the blocks that it could have had; ``own`` are all halves of its base id."""
    taken_by = _taken_by(attempt, paired)
    if not taken_by and attempt == earlier.attempts + 1:
        taken_by = earlier.taken_by
    released = _released(own, earlier)
    from_there = released is not None and wanted_by(d)[0] in (None, released.engine)
    released_ns = released.t_ns if released and from_there else 0
    return Pair(None, d, attempt, attempt, taken_by=taken_by, released_ns=released_ns)


def _taken_by(attempt: int, paired: Iterable[Pair]) -> int:
    """The attempt whose registration met the blocks of this one; 0 if none did."""
    return next((p.attempt for p in paired if p.p_attempt == attempt != p.attempt), 0)


def _released(halves: Iterable[Half], earlier: Before) -> Released | None:
    """The last prefill of a base id, be it an earlier one, if its lease ended unclaimed."""
    last = max((half for half in halves if not half.decodes), key=_begun, default=None)
    if last is None:
        return earlier.released
    ended = [e.t for e in last.events.values() if isinstance(e, ev.LeaseExpired)]
    return Released(last.engine, min(ended)) if ended and not _matches(last) else None


def before_the_next(
    halves: Sequence[Half], pairs: Iterable[Pair], attempts: Attempts, earlier: Before
) -> Before:
    """What is to be known of these halves of one base id, and of those before them, to say what the next one lacks."""
    crossed = [pair for pair in pairs if pair.p and pair.p_attempt > pair.attempt]
    gave_away = {pair.p.identity for pair in crossed if pair.p}
    numbers = [attempts[half.identity] for half in halves if half.identity not in gave_away]
    number = max(numbers, default=earlier.attempts)
    unchanged = earlier.taken_by if number == earlier.attempts else 0
    return Before(number, _taken_by(number + 1, crossed) or unchanged, _released(halves, earlier))


def _likely(d: Half, free_p: Iterable[Half], attempts: Attempts) -> Half | None:
    """The one that D names; of its own attempt, still at it; any that is still at it, while D waits; its own."""
    engine, request_id = wanted_by(d)
    candidates = [p for p in free_p if engine in (None, p.engine)]
    own = [p for p in candidates if attempts[p.identity] == attempts[d.identity]]
    at_it = [p for p in candidates if p.over_ns is None]
    named = [p for p in candidates if p.request_id == request_id]
    waits = d.over_ns is None
    likely = (*named, *(p for p in own if p in at_it), *(at_it if waits else ()), *own)
    return next(iter(likely), None)


def wanted_by(d: Half) -> tuple[str | None, str]:
    """The P engine that D registers with, and the P request that it was told of, as far as D said."""
    facts = d.by_kind()
    arrived = facts.first(ev.RequestArrived)
    asked = facts.first(ev.RegistrationStaged) or facts.first(ev.ReadStaged) or arrived
    engine = (asked and asked.peer_engine) or (arrived and arrived.peer_engine) or None
    return engine, d.named
