"""A P engine: computes prompts, holds their blocks under a lease, and writes them to who registers."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace
from typing import TYPE_CHECKING, Final

from pushscope.lab.simulator.engine import Engine, Recurring, Worker
from pushscope.lab.simulator.request import Phase, Request
from pushscope.lab.simulator.timeline import Story
from pushscope.lab.simulator.world import Place, World
from pushscope.telemetry import events as ev

if TYPE_CHECKING:
    from pushscope.lab.simulator.decode import DecodeWorker

_REAP_NS: Final = 50_000_000
_CHUNK: Final = 8_192
"""Tokens in one step at most."""
_POST_US: Final = 180


class PrefillEngine(Engine):
    """Computes ``slots`` prompts at once, the others wait in their order."""

    def __init__(self, world: World, place: Place, slots: int):
        super().__init__(world, place)
        self.workers = [PrefillWorker(self, rank) for rank in range(place.tp_size)]
        self._slots = [0] * slots
        """When each is free."""
        self._held = 0
        self.recurring.append(Recurring(self, _REAP_NS, self._reap))

    @property
    def ranks(self) -> Sequence[PrefillWorker]:
        return self.workers

    @property
    def staged(self) -> int:
        return self._held

    def arrive(self, r: Request) -> None:
        """The prefill leg is here."""
        r.p_phase = Phase.QUEUED
        self.begin_work()
        arrived = ev.RequestArrived(self.timeline.now_ns, r.p_id, "prefill")
        self.scheduler.begin(("arrived", r.p_id), arrived)
        self.timeline.start(self._prefill(r))

    def abort(self, r: Request) -> None:
        """The client has gone; a prefill that is done stays so."""
        if r.p_phase not in (Phase.QUEUED, Phase.WORKING):
            return
        t, status = self.timeline.now_ns, "finished_aborted"
        r.p_phase = Phase.ENDED
        self.scheduler.end(("arrived", r.p_id))
        self.scheduler.record(ev.PrefillNotProcessed(t, r.p_id, status))
        self.scheduler.record(ev.RequestEnded(t, r.p_id, status))
        self.end_work()

    def _prefill(self, r: Request) -> Story:
        needs_ns = r.tokens * self.times.prefill_per_token.ns(self.random)
        preempted = self.random.random() < self.world.mix.shares.preempted
        begin_ns = max(self.timeline.now_ns, self._slots[0])
        heapreplace(self._slots, begin_ns + (2 * needs_ns if preempted else needs_ns))
        yield begin_ns - self.timeline.now_ns + self.next_step_ns()
        if r.p_phase is Phase.ENDED:
            return
        r.p_phase = Phase.WORKING
        self.scheduler.record(ev.PrefillScheduled(self.timeline.now_ns, r.p_id, min(r.tokens, _CHUNK)))
        if preempted:
            yield needs_ns
            if r.p_phase is Phase.ENDED:
                return
            self.scheduler.record(ev.RequestPreempted(self.timeline.now_ns, r.p_id))
        yield needs_ns
        if r.p_phase is not Phase.ENDED:
            self._computed(r)

    def _computed(self, r: Request) -> None:
        t, lease_s = self.timeline.now_ns, self.world.mix.lease_s
        r.p_phase = Phase.DONE
        self._held += 1
        self.scheduler.end(("arrived", r.p_id))
        self.scheduler.begin(("send", r.p_id), ev.BlocksStaged(t, r.p_id, r.blocks, r.tokens, lease_s))
        self.scheduler.record(ev.RequestEnded(t, r.p_id, "finished_length_capped"))
        next_step_ns = self.next_step_ns()
        for worker in self.workers:
            self.timeline.start(worker.take(r, t + int(lease_s * 1e9)), next_step_ns)
        if r.after_prefill is not None:
            r.after_prefill(r)

    def released(self, r: Request) -> None:
        """One rank more does not need the blocks any more."""
        r.released_on += 1
        if r.released_on == self.tp_size:
            self.timeline.start(self._sent(r))

    def _sent(self, r: Request) -> Story:
        yield self.next_step_ns()
        self._held -= 1
        self.scheduler.end(("send", r.p_id))
        self.scheduler.record(ev.SendFinished(self.timeline.now_ns, r.p_id))
        self.end_work()

    def _reap(self) -> None:
        for worker in self.workers:
            worker.reap()


class PrefillWorker(Worker):
    """One rank of P."""

    engine: PrefillEngine

    def __init__(self, engine: PrefillEngine, rank: int):
        super().__init__(engine, rank)
        self._blocks: dict[str, Request] = {}
        self._registrations: dict[str, Request] = {}
        """What waits for its other half, by base id."""
        self._leases: dict[str, tuple[int, Request]] = {}
        """P's request id -> when its lease ends, and whose it is."""
        self._writes: set[str] = set()
        self._number = 0

    def tables(self) -> ev.Tables:
        registrations = len(self._registrations) + self.leftovers
        sizes = len(self._blocks), registrations, len(self._writes), len(self._leases)
        return ev.Tables(self.timeline.now_ns, 0, *sizes)

    # -- the main thread ---------------------------------------------------------------------------

    def take(self, r: Request, lease_until_ns: int) -> Story:
        """This rank's part of the step after the prefill."""
        yield self.times.ranks_apart.ns(self.random)
        t = self.timeline.now_ns
        self._leases[r.p_id] = lease_until_ns, r
        self.recorder.record(ev.BlocksHandedOff(t, r.p_id, r.blocks))
        self.recorder.record(ev.LeaseSet(t, r.p_id, (lease_until_ns - t) / 1e9))
        self.write(self._pick_up(r))

    def reap(self) -> None:
        """Let go the blocks whose lease is over."""
        t = self.timeline.now_ns
        for r in [r for until_ns, r in self._leases.values() if until_ns <= t]:
            del self._leases[r.p_id]
            self.recorder.record(ev.LeaseExpired(t, r.p_id))
            r.expired_on.add(self.rank)
            if r.writes.get(self.rank):
                self.world.wrongs["lease_ended_during_write"] += 1
            if r.d_phase is Phase.QUEUED:
                self.world.wrongs["lease_over_before_decode"] += 1
            if r.base in self._blocks:
                self.write(self._evict(r))
            self.engine.released(r)

    def heartbeat(self, names: tuple[str, ...]) -> Story:
        """D renews the leases that it can name."""
        yield self.times.writer.ns(self.random) + self.engine.next_step_ns()
        t = self.timeline.now_ns
        held = [name for name in names if name in self._leases]
        ignored = [name for name in names if name not in self._leases]
        self.recorder.record(ev.HeartbeatDrained(t, len(held), len(ignored), ignored[0] if ignored else ""))
        until_ns = t + int(self.world.mix.lease_s * 2 // 3 * 1e9)
        for name in held:
            before_ns, r = self._leases[name]
            if until_ns > before_ns:
                self._leases[name] = until_ns, r
                self.recorder.record(ev.LeaseExtended(t, name, (until_ns - t) / 1e9))

    # -- the writer thread -------------------------------------------------------------------------

    def _pick_up(self, r: Request) -> Story:
        yield self.times.writer.ns(self.random)
        picked_up = ev.BlocksPickedUp(self.timeline.now_ns, r.p_id)
        self.recorder.begin(("unmatched", r.p_id), picked_up)
        if self._registrations.pop(r.base, None) is not None:
            yield from self._meet(r, blocks_first=False)
        elif r.p_id in self._leases:
            self._blocks[r.base] = r

    def drain(self, r: Request, sender: DecodeWorker) -> Story:
        """A registration has come."""
        yield self.times.writer.ns(self.random)
        d = sender.engine
        surplus = self.rank in r.matched_on
        drained = ev.RegistrationDrained(
            self.timeline.now_ns,
            r.d_id,
            d.engine_id,
            "127.0.0.1",
            d.place.port,
            d.tp_size,
            r.blocks,
            sender.agent,
            surplus,
        )
        if surplus:
            self.recorder.record(drained)
            if self.rank not in r.surplus_on:
                r.surplus_on.add(self.rank)
                self.leftovers += 1
            return
        self.recorder.begin(("registration", r.d_id), drained)
        if self._blocks.pop(r.base, None) is not None:
            yield from self._meet(r, blocks_first=True)
            return
        self._registrations[r.base] = r
        if r.p_phase is Phase.ENDED or self.rank in r.expired_on:
            self.world.wrongs["registration_without_prefill"] += 1

    def _evict(self, r: Request) -> Story:
        yield self.times.writer.ns(self.random)
        self.recorder.end(("unmatched", r.p_id))
        had = self._blocks.pop(r.base, None) is not None
        if had:
            self.recorder.record(ev.Evicted(self.timeline.now_ns, r.p_id, had_blocks=True))

    def _meet(self, r: Request, *, blocks_first: bool) -> Story:
        t, d = self.timeline.now_ns, r.d
        r.matched_on.add(self.rank)
        r.writes[self.rank] = len(self._targets(r))
        self.recorder.end(("unmatched", r.p_id))
        self.recorder.end(("registration", r.d_id))
        self.recorder.record(ev.Matched(t, r.p_id, r.d_id, blocks_first, "base_id", d.engine_id))
        if self.knows(d):
            yield from self._push(r)
            return
        self.recorder.begin(("deferred", r.p_id), ev.TransferDeferred(t, r.p_id, d.engine_id))
        self.when_known(d, self._targets(r), self._resume(r))

    def _resume(self, r: Request) -> Story:
        self.recorder.end(("deferred", r.p_id))
        self.recorder.record(ev.TransferResumed(self.timeline.now_ns, r.p_id))
        yield from self._push(r)

    def _targets(self, r: Request) -> range:
        """D's ranks that this one writes to."""
        p_tp, d_tp = self.engine.tp_size, r.d.tp_size
        if d_tp >= p_tp:
            return range(self.rank * d_tp // p_tp, (self.rank + 1) * d_tp // p_tp)
        first = self.rank * d_tp // p_tp
        return range(first, first + 1)

    def _push(self, r: Request) -> Story:
        targets = self._targets(r)
        descriptors = r.blocks * self.world.mix.layers
        self._writes.add(r.p_id)
        for d_rank in targets:
            self._number += 1
            number, d = self._number, r.d
            started = ev.DescriptorsStarted(self.timeline.now_ns, r.p_id, number, d_rank, d.engine_id, r.d_id)
            self.recorder.record(started)
            yield self.times.descriptors.ns(self.random)
            self.recorder.record(ev.DescriptorsBuilt(self.timeline.now_ns, r.p_id, number, descriptors))
            self.recorder.begin(
                ("transfer", number), ev.SubmitStarted(self.timeline.now_ns + 1_000, r.p_id, number)
            )
            yield self.times.submit.ns(self.random)
            self.recorder.record(ev.Submitted(self.timeline.now_ns, r.p_id, number, "PROC"))
            self.timeline.start(self._fly(r, number, r.d.workers[d_rank], len(targets)))

    def _fly(self, r: Request, number: int, receiver: DecodeWorker, parts: int) -> Story:
        """One WRITE: D is told by NIXL, P looks at its next step."""
        mix = self.world.mix
        num_bytes = r.tokens * mix.token_bytes // (self.engine.tp_size * parts)
        wire = self.times.wire
        wire_ns = num_bytes / mix.link_bytes_per_s * 1e9 + wire.ns(self.random)
        slowest_ns = wire.most_s * 1e9
        yield int(min(wire_ns * max(self.slowness, receiver.slowness), slowest_ns))
        receiver.post(receiver.notified(r, self))
        yield self.engine.next_step_ns()
        self.recorder.end(("transfer", number))
        us = int(wire_ns // 1000)
        done = ev.TransferDone(self.timeline.now_ns, r.p_id, number, num_bytes, r.blocks, _POST_US, us)
        self.recorder.record(done)
        r.writes[self.rank] -= 1
        if not r.writes[self.rank]:
            self._writes.discard(r.p_id)
            if self._leases.pop(r.p_id, None) is not None:
                self.engine.released(r)
