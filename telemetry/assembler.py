"""Events in, transfers out.

A fold whose result does not depend on how rings interleave: events go into halves (:mod:`.half`), the halves
of one base id form a group, and a group's transfers are a pure function of its halves (:mod:`.pairing` says
which belong together, :mod:`.judge` where each stands), computed again only when something in it changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Final

import msgspec

from pushscope.telemetry import events as ev
from pushscope.telemetry.group import Group, Sides
from pushscope.telemetry.half import Half, Identity, heard_of_d
from pushscope.telemetry.ids import base_id
from pushscope.telemetry.judge import UNKNOWN_ENGINE, EngineFacts, at_its_time, transfer_of
from pushscope.telemetry.pairing import Before, Pair, attempts_of, before_the_next, pairs_of, wanted_by
from pushscope.telemetry.reach import Reach
from pushscope.telemetry.source import RingState
from pushscope.telemetry.tombs import Tombs
from pushscope.telemetry.transfer import Outcome, Rank, Transfer

SETTLE_NS: Final = 200_000_000
"""After the last event of a transfer all of whose sides are final, wait this long for stragglers."""
ONE_SIDED_EXTRA_S: Final = 5.0
MAX_GROUPS: Final = 50_000
MAX_RECENT: Final = 500
CONFIRM_NS: Final = 15_000_000_000
"""After recording was switched on again an engine says within this long what is still open."""
SILENT_NS: Final = 60_000_000_000
"""What an engine has not said again for so long it has not open any more, though nobody saw it end."""
_OF_A_READ: Final = frozenset({ev.RequestArrived, ev.ReadStaged, ev.ReadHandedOff})
_OUT_OF_THE_ORDINARY: Final = frozenset(
    {kind for kind in ev.KINDS if not issubclass(kind, ev.RequestEvent)}
    | {ev.TraceContext, ev.RegistrationDrained}
)
"""What is not of a request, or not of the engine that says it."""
_BEGINNINGS: Final = frozenset({ev.RequestArrived, ev.RegistrationStaged, ev.ReadStaged, ev.BlocksStaged})


class Assembler:
    """Folds events; gives the transfers that are open, and those that ended, to ``on_closed`` too.

    A group that is followed no longer is forgotten with its events; ``on_forgotten`` gets it before.
    """

    def __init__(
        self,
        on_closed: Callable[[Transfer], None] | None = None,
        on_forgotten: Callable[[Group], None] | None = None,
    ):
        self._groups: dict[str, Group] = {}
        self._group_of: dict[Identity, Group] = {}
        """The group of each half that is followed: what an event is looked up by."""
        self._alias: dict[str, str] = {}
        self._tombs: Tombs[int] = Tombs()
        """Of halves: which attempt each was."""
        self._base_tombs: Tombs[Before] = Tombs()
        self._now_ns = 0
        self._last_t: dict[str, int] = {}
        """When each engine was heard last."""
        self._raised: dict[str, tuple[int, str]] = {}
        """Engine -> (when, what) its connector raised on the engine's main thread, last."""
        self._unplaced: dict[Identity, list[tuple[Rank, ev.WriterException]]] = {}
        """What writer threads raised for requests of which nothing else was read yet; most are never followed."""
        self._gaps: dict[str, tuple[int, int]] = {}
        """Engine -> (when its recording was switched on again, when that was read)."""
        self.reach = Reach()
        self._engines: dict[str, EngineFacts] = {}
        self._agents: dict[str, Rank] = {}
        self._origins: dict[str, ev.Origin] = {}
        self._lease_s = 30.0
        self._on_closed = on_closed
        self._on_forgotten = on_forgotten
        self.recent: deque[Transfer] = deque(maxlen=MAX_RECENT)
        self.closed_by_outcome: dict[Outcome, int] = {}
        self.evicted = 0
        """Transfers dropped before their end, because too many were open."""

    # -- feeding -----------------------------------------------------------------------------------

    def rings(self, states: Iterable[RingState]) -> None:
        """What is known of the rings now: who records, on which rank, and who is alive."""
        newest: dict[tuple[str, str, int, int], RingState] = {}
        for state in states:
            origin = state.origin
            if origin.instance not in self._origins:
                self._origins[origin.instance] = origin
                self._lease_s = max(self._lease_s, origin.lease_s)
                if origin.nixl_agent:
                    self._agents[origin.nixl_agent] = (origin.pp_rank, origin.tp_rank)
                self._look_again()
            # An engine that was restarted under its old id is as alive as its newest rings.
            place = (origin.engine_id, origin.connector_role, origin.pp_rank, origin.tp_rank)
            if place not in newest or newest[place].origin.anchor_monotonic_ns < origin.anchor_monotonic_ns:
                newest[place] = state
        engines: dict[str, EngineFacts] = {}
        for state in newest.values():
            origin = state.origin
            known = engines.get(origin.engine_id, UNKNOWN_ENGINE)
            alive = state.alive and known.alive
            started_ns = known.started_ns or origin.anchor_monotonic_ns
            last_t = 0 if alive else self._last_t.get(origin.engine_id, 0)
            engines[origin.engine_id] = EngineFacts(
                True,
                alive,
                origin.tp_size,
                origin.pp_size,
                origin.mode,
                last_t,
                host=origin.host,
                block_size=origin.block_size,
                started_ns=min(started_ns, origin.anchor_monotonic_ns),
                stopped=state.stopped or known.stopped,
            )
        self.reach.note(newest.values(), self._now_ns)
        if engines.items() - self._engines.items():
            self._engines.update(engines)
            self._look_again()

    def heard(self, engine: str, t: int) -> None:
        """Some event of an engine, at ``t``: a sign of life."""
        self._last_t[engine] = max(t, self._last_t.get(engine, 0))

    def raised(self, engine: str, t: int, what: str) -> None:
        """What an engine's connector raised: if the engine is gone, it died of it."""
        self._raised[engine] = max((t, what), self._raised.get(engine, (0, "")))
        self._look_again()

    def gap_ended(self, engine: str, t: int) -> None:
        """An engine records again. What it does not soon say to be open ended while nobody looked."""
        self._gaps[engine] = (t, self._now_ns)

    def feed(self, origin: ev.Origin, event: ev.RequestEvent | ev.WriterException) -> bool:
        """Fold one event in, whatever its order. False if it was no news: said again, or too late to matter.

        Others are passed over.
        """
        kind = type(event)
        engine = own = origin.engine_id
        rank = (origin.pp_rank, origin.tp_rank)
        if kind in _OUT_OF_THE_ORDINARY:
            if isinstance(event, ev.WriterException):
                self._failed_on((engine, event.request_id), rank, event)
            if not isinstance(event, ev.RequestEvent):
                return True
            if (
                isinstance(event, ev.TraceContext)
                and origin.connector_role == "worker"
                and not event.peer_engine
            ):
                return True  # an older release did not say whose request this is
            if heard_of_d(event):
                # P says that it heard of D's request: a fact of D's half, seen from P's rank.
                engine = event.peer_engine
        identity = (engine, event.request_id)
        group = self._group_of.get(identity) or self._begin(identity, event.t, kind)
        if group is None:
            return False
        half = group.halves[identity]
        half.heard_ns = self._now_ns
        if engine is own:
            half.spoke_ns = self._now_ns
        if not half.add(rank, event):
            return False
        if engine is not own or origin.kv_role == "kv_consumer":
            half.decodes = True
        if event.t > group.last_t:
            group.last_t = event.t
        group.transfers = None
        if isinstance(event, ev.Matched):
            self._pair_push(group, identity, (event.peer_engine, event.peer_request_id))
        elif kind in _OF_A_READ:
            self._pair_read(group, half)
        return True

    def _failed_on(self, identity: Identity, rank: Rank, event: ev.WriterException) -> None:
        """The writer thread gave up what it did for a request: a fact of that one, which may not be followed yet."""
        if group := self._group_of.get(identity):
            if group.halves[identity].add(rank, event):
                group.last_t = max(group.last_t, event.t)
                group.transfers = None
            return
        self._unplaced.setdefault(identity, []).append((rank, event))
        if len(self._unplaced) > MAX_RECENT:
            del self._unplaced[next(iter(self._unplaced))]

    def _begin(self, identity: Identity, t: int, kind: type[ev.Event]) -> Group | None:
        """The group of a half that is not followed yet, with that half; None if it comes too late to matter."""
        base = base_id(identity[1])
        tomb = self._tombs.of(identity)
        if tomb is not None:
            if kind not in _BEGINNINGS or t <= tomb.last_t:
                # Said again as long as the engine holds on to it: so must we.
                self._tombs.speak_of(identity, self._now_ns)
                self._base_tombs.speak_of(base, self._now_ns)
                return None
            self._tombs.remove(identity)
        name = self._alias.get(base, base)
        group = self._groups.get(name)
        if group is None:
            if len(self._groups) >= MAX_GROUPS:
                self._evict()
            group = self._groups[name] = Group(name)
        if earlier := self._base_tombs.of(base):
            group.before = {**group.before, base: earlier.kept}
        group.halves[identity] = Half(*identity, base)
        self._group_of[identity] = group
        for rank, raised in self._unplaced.pop(identity, ()):
            self._failed_on(identity, rank, raised)
        return group

    def _pair_push(self, group: Group, p: Identity, d: Identity) -> None:
        """Push: a P rank says whose registration its blocks met."""
        self._join(group, d[1])
        group.pairs.setdefault(p, set()).add(d)
        if d not in group.halves and (tomb := self._tombs.of(d)):
            group.reopened = {**group.reopened, d: tomb.kept}

    def _pair_read(self, group: Group, half: Half) -> None:
        """Pull: D says by itself which of P's requests it reads, or that it need not read."""
        if not half.has(ev.ReadStaged, ev.ReadHandedOff):
            return
        engine, request_id = wanted_by(half)
        if engine and request_id:
            self._join(group, request_id)
            group.pairs.setdefault((engine, request_id), set()).add(half.identity)

    def _join(self, group: Group, request_id: str) -> None:
        """A request that is paired with one of this group belongs to it, whatever its base id."""
        other = base_id(request_id)
        other = self._alias.get(other, other)
        if other == group.base:
            return
        self._alias[other] = group.base
        group.aliases.append(other)
        if (merged := self._groups.pop(other, None)) is None:
            return
        self._group_of.update(dict.fromkeys(merged.halves, group))
        self._alias.update(dict.fromkeys(merged.aliases, group.base))
        group.merge(merged)

    def _look_again(self) -> None:
        for group in self._groups.values():
            group.transfers = None

    # -- asking ------------------------------------------------------------------------------------

    def open_transfers(self) -> list[Transfer]:
        """Every transfer that is still followed, ended ones included until they are closed."""
        return [transfer for group in self._groups.values() for transfer in self._transfers(group)]

    def groups(self) -> Iterator[Group]:
        """Every group that is still followed, with its transfers."""
        for group in self._groups.values():
            self._transfers(group)
            yield group

    def groups_of(self, transfer: Transfer) -> Iterator[Group]:
        """The groups that halves of a transfer are followed in, with their transfers; mostly one, or none any more."""
        for engine, request in (
            (transfer.d_engine, transfer.d_request),
            (transfer.p_engine, transfer.p_request),
        ):
            group = self._group_of.get((engine or "", request or ""))
            if group is not None:
                self._transfers(group)
                yield group

    def sides_of(self, transfer: Transfer) -> Sides | None:
        """What a transfer that is followed was made of; None if it is not followed any more."""
        for group in self.groups_of(transfer):
            transfers = self._transfers(group)
            for index, known in enumerate(transfers):
                if known.identity == transfer.identity:
                    pair, others = group.made_of[index], transfers[:index] + transfers[index + 1 :]
                    heard = self._heard(known.p_engine, pair.p), self._heard(known.d_engine, pair.d)
                    return Sides(*group.sides_of(index), *heard, pair.taken_by, pair.released_ns, others)
        return None

    def fell_short_at_p(self, transfer: Transfer) -> bool:
        """Whether P's lease ended, or something failed at P, in a transfer that is followed."""
        identity = (transfer.p_engine or "", transfer.p_request or "")
        halves = (group.halves.get(identity) for group in self.groups_of(transfer))
        return any(half.has(ev.LeaseExpired, ev.TransferFailed) for half in halves if half)

    def _transfers(self, group: Group) -> tuple[Transfer, ...]:
        if group.transfers is None:
            made = list(self._assemble(group))
            group.transfers, group.made_of = tuple(zip(*made, strict=True)) if made else ((), ())
        return group.transfers

    def rank_of(self, agent: str) -> Rank | None:
        """The rank that a NIXL agent speaks for, if it is one of an observed engine."""
        return self._agents.get(agent)

    def _heard(self, engine_id: str | None, half: Half | None) -> EngineFacts:
        """The engine that has a half, and when it was heard last."""
        heard_ns = self._last_t.get(engine_id or "", 0)
        return msgspec.structs.replace(at_its_time(self._engine(engine_id), half), heard_ns=heard_ns)

    def _engine(self, engine_id: str | None) -> EngineFacts:
        facts = self._engines.get(engine_id or "", UNKNOWN_ENGINE)
        if facts.alive or engine_id not in self._raised:
            return facts
        return msgspec.structs.replace(facts, died_of=self._raised[engine_id][1])

    def _assemble(self, group: Group) -> Iterable[tuple[Transfer, Pair]]:
        group.attempts = attempts_of(group.halves.values(), group.before, group.reopened)
        pairs = pairs_of(group.halves, group.pairs, group.attempts, group.before)
        for pair in sorted(pairs, key=attrgetter("opened")) if len(pairs) > 1 else pairs:
            transfer = transfer_of(pair, self._engine, self._agents)
            if transfer is not None:
                yield transfer, pair

    # -- closing -----------------------------------------------------------------------------------

    def close_ended(self, now_ns: int, watermark_ns: int) -> None:
        """Close what is over: every observed side final and quiet, or one side final and its lease past."""
        self._now_ns = now_ns
        for group in [g for g in self._groups.values() if self._is_over(g, now_ns, watermark_ns)]:
            self._close(group)
        if self._gaps:
            for group in [g for g in self._groups.values() if self._fell_into_a_gap(g, now_ns)]:
                self._close(group, unseen=True)
        # Late events of a closed transfer come within its lease; keep twice that much, bounded.
        horizon_ns = now_ns - int(2 * self._lease_s * 1e9)
        self._tombs.forget_before(horizon_ns)
        self._base_tombs.forget_before(horizon_ns)

    def close_all(self) -> None:
        """Close whatever is left, as at the end of a recording that is only counted."""
        for group in list(self._groups.values()):
            self._close(group)

    def _is_over(self, group: Group, now_ns: int, watermark_ns: int) -> bool:
        quiet_ns = watermark_ns - group.last_t
        if quiet_ns < SETTLE_NS:
            return False
        transfers = self._transfers(group)
        if any(t.is_open for t in transfers):
            return False
        if any(t.outcome is not Outcome.DELIVERED for t in transfers) and any(
            self._holds_on(half, now_ns) for half in group.halves.values()
        ):
            return False  # the end that P, or the client, made of it is none for D
        if not transfers:  # a prompt without a transfer: still computed, or never sent on
            return all(
                half.has(ev.RequestEnded) or not at_its_time(self._engine(half.engine), half).alive
                for half in group.halves.values()
            )
        if all(self._both_final(group, t) for t in transfers):
            return True
        if any(t.outcome is Outcome.LOST for t in transfers):
            return False  # the survivor still waits, and must be seen to
        if any(self.reach.known_until(t, now_ns) < now_ns for t in transfers):
            return False  # what the other side did may still be told
        return now_ns - group.last_t > (self._lease_s + ONE_SIDED_EXTRA_S) * 1e9

    def _holds_on(self, half: Half, now_ns: int) -> bool:
        """Whether an engine still holds blocks for this request: it says so again and again."""
        spoke_lately = now_ns - half.spoke_ns < SILENT_NS
        return half.decodes and spoke_lately and half.awaits and self._is_there(half.engine, half)

    def _both_final(self, group: Group, transfer: Transfer) -> bool:
        p = group.halves.get((transfer.p_engine or "", transfer.p_request or ""))
        d_identity = (transfer.d_engine or "", transfer.d_request or "")
        d = group.halves.get(d_identity)
        p_final = p is not None and p.has(ev.SendFinished, ev.PrefillNotProcessed)
        d_final = d is not None and d.has(ev.DecodeScheduled, ev.ReceiveFailed, ev.RequestEnded)
        d_final = d_final or d_identity in group.reopened
        if transfer.outcome is Outcome.LOST:
            # What a survivor has never had it doesn't wait for.
            p_final = p_final or p is None or not self._is_there(transfer.p_engine, p)
            d_final = d_final or d is None or not self._is_there(transfer.d_engine, d)
        return p_final and d_final

    def _is_there(self, engine_id: str | None, half: Half | None) -> bool:
        engine = at_its_time(self._engine(engine_id), half)
        return engine.observed and engine.alive

    def _fell_into_a_gap(self, group: Group, now_ns: int) -> bool:
        """Whether an engine that switched recording on again has not said that it still has this open."""
        for half in group.halves.values():
            on_t, read_ns = self._gaps.get(half.engine, (0, 0))
            if half.last_t < on_t and half.heard_ns <= read_ns and now_ns - read_ns > CONFIRM_NS:
                return any(t.is_open for t in self._transfers(group))
        return False

    def _close(self, group: Group, *, unseen: bool = False) -> None:
        transfers = self._transfers(group)
        if unseen:
            transfers = group.transfers = tuple(t.as_unseen() if t.is_open else t for t in transfers)
        for transfer in transfers:
            self.recent.append(transfer)
            self.closed_by_outcome[transfer.outcome] = self.closed_by_outcome.get(transfer.outcome, 0) + 1
            if self._on_closed is not None:
                self._on_closed(transfer)
        self._bury(group)

    def _bury(self, group: Group) -> None:
        if self._on_forgotten is not None:
            self._on_forgotten(group)
        del self._groups[group.base]
        for alias in group.aliases:
            del self._alias[alias]
        of_base: dict[str, list[Half]] = {base: [] for base in group.before}
        for identity, half in group.halves.items():
            del self._group_of[identity]
            self._tombs.put(identity, half.last_t, group.attempts.get(identity, 0), self._now_ns)
            of_base.setdefault(half.base, []).append(half)
        for base, halves in of_base.items():
            before = before_the_next(halves, group.made_of, group.attempts, group.before.get(base, Before()))
            self._base_tombs.put(base, group.last_t, before, self._now_ns)

    def _evict(self) -> None:
        """Make room: ended ones first, then one-sided ones, then the oldest."""
        groups = self._groups.values()
        victim = (
            next((g for g in groups if g.transfers and not any(t.is_open for t in g.transfers)), None)
            or next((g for g in groups if len(g.halves) == 1), None)
            or next(iter(groups))
        )
        self.evicted += len(self._transfers(victim)) or 1
        self._bury(victim)
