"""A D engine: admits requests, registers them with P, counts P's notifications, and decodes."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pushscope.lab.simulator.engine import Engine, Recurring, Worker
from pushscope.lab.simulator.request import Phase, Request
from pushscope.lab.simulator.timeline import Story
from pushscope.lab.simulator.world import Place, World
from pushscope.telemetry import events as ev

if TYPE_CHECKING:
    from pushscope.lab.simulator.prefill import PrefillEngine, PrefillWorker


class DecodeEngine(Engine):
    """Has blocks for ``slots`` requests, the others wait in their order."""

    def __init__(self, world: World, place: Place, slots: int):
        super().__init__(world, place)
        self.workers = [DecodeWorker(self, rank) for rank in range(place.tp_size)]
        self._free = slots
        self._queue: deque[Request] = deque()
        self._staged = 0
        self._beaten_for: defaultdict[PrefillEngine, dict[str, None]] = defaultdict(dict)
        """P -> the ids that heartbeats to it name."""
        self.recurring.append(Recurring(self, int(world.mix.lease_s // 6 * 1e9), self._beat))

    @property
    def ranks(self) -> Sequence[DecodeWorker]:
        return self.workers

    @property
    def staged(self) -> int:
        return self._staged

    def arrive(self, r: Request) -> None:
        """The decode leg is here."""
        r.d_phase = Phase.QUEUED
        self.begin_work()
        t, engine = self.timeline.now_ns, r.p.engine_id
        self.scheduler.begin(("arrived", r.d_id), ev.RequestArrived(t, r.d_id, "decode", engine, r.told_id))
        self._beaten_for[r.p][r.told_id] = None
        if self._free:
            self._free -= 1
            self.timeline.start(self._admit(r))
        else:
            self._queue.append(r)

    def abort(self, r: Request) -> None:
        """The client has gone. Blocks that are on their way are kept until they have come."""
        t = self.timeline.now_ns
        phase, ended = r.d_phase, ev.RequestEnded(t, r.d_id, "finished_aborted")
        if phase in (Phase.AWAY, Phase.ENDED):
            return
        r.d_phase = Phase.ENDED
        self._beaten_for[r.p].pop(r.told_id, None)
        self.scheduler.end(("arrived", r.d_id))
        if phase is Phase.WORKING:
            self.scheduler.begin(("ended", r.d_id), ended)
            return
        if phase is Phase.QUEUED:
            self.scheduler.record(ev.NothingToReceive(t, r.d_id, "not_scheduled"))
            self._leave_entries()
        else:
            self._free_slot()
        self.scheduler.record(ended)
        self.end_work()

    def _free_slot(self) -> None:
        while self._queue:
            r = self._queue.popleft()
            if r.d_phase is not Phase.ENDED:
                self.timeline.start(self._admit(r))
                return
        self._free += 1

    def _admit(self, r: Request) -> Story:
        yield self.next_step_ns()
        if r.d_phase is Phase.ENDED:
            self._free_slot()
            return
        t, p = self.timeline.now_ns, r.p
        if r.full_hit:
            r.d_phase = Phase.DONE
            self.scheduler.end(("arrived", r.d_id))
            self.scheduler.record(ev.NothingToReceive(t, r.d_id, "no_external_tokens"))
            self._leave_entries()
            yield from self._decode(r)
            return
        r.d_phase = Phase.WORKING
        self._staged += 1
        sizes = p.tp_size, 1, r.tokens, r.blocks
        staged = ev.RegistrationStaged(t, r.d_id, p.engine_id, "127.0.0.1", p.place.port, *sizes)
        self.scheduler.begin(("receive", r.d_id), staged)
        for worker in self.workers:
            self.timeline.start(worker.register(r))

    def _leave_entries(self) -> None:
        """vLLM stores an empty receive on every rank, and never removes it."""
        for worker in self.workers:
            worker.leftovers += 1

    def received(self, r: Request) -> None:
        """One rank more has its blocks."""
        r.received_on += 1
        if r.received_on == self.tp_size:
            self.timeline.start(self._received(r))

    def _received(self, r: Request) -> Story:
        yield self.times.ranks_apart.ns(self.random)
        for what in ("arrived", "receive", "ended"):
            self.scheduler.end((what, r.d_id))
        self.scheduler.record(ev.ReceiveFinished(self.timeline.now_ns, r.d_id))
        self._staged -= 1
        self._beaten_for[r.p].pop(r.told_id, None)
        if r.d_phase is Phase.ENDED:
            self._free_slot()
            self.end_work()
            return
        r.d_phase = Phase.DONE
        yield self.times.wake.ns(self.random)
        if r.d_phase is Phase.DONE:
            self.scheduler.record(ev.DecodeScheduled(self.timeline.now_ns, r.d_id))
            yield from self._decode(r)

    def _decode(self, r: Request) -> Story:
        takes_ns = self.times.decode.ns(self.random)
        if not r.full_hit and self.random.random() < self.world.mix.shares.preempted:
            yield takes_ns // 2
            if r.d_phase is Phase.DONE:
                self.scheduler.record(ev.RequestPreempted(self.timeline.now_ns, r.d_id))
        yield takes_ns
        if r.d_phase is not Phase.DONE:
            return
        r.d_phase = Phase.ENDED
        self._beaten_for[r.p].pop(r.told_id, None)
        self.scheduler.record(ev.RequestEnded(self.timeline.now_ns, r.d_id, "finished_length_capped"))
        self._free_slot()
        self.end_work()

    def _beat(self) -> None:
        """Renew the leases of what is waited for."""
        for p, names in self._beaten_for.items():
            for worker in self.workers if names else ():
                worker.beat(p, tuple(names))


class DecodeWorker(Worker):
    """One rank of D."""

    engine: DecodeEngine

    def __init__(self, engine: DecodeEngine, rank: int):
        super().__init__(engine, rank)
        self._counts: dict[str, int] = {}
        """D's request id -> notifications counted, while it waits for them."""

    def tables(self) -> ev.Tables:
        receiving = len(self._counts) + self.leftovers
        return ev.Tables(self.timeline.now_ns, 0, 0, 0, 0, 0, receiving)

    def _sources(self, p: Engine) -> range:
        """P's ranks that write to this one."""
        p_tp, d_tp = p.tp_size, self.engine.tp_size
        if p_tp >= d_tp:
            return range(self.rank * p_tp // d_tp, (self.rank + 1) * p_tp // d_tp)
        first = self.rank * p_tp // d_tp
        return range(first, first + 1)

    def register(self, r: Request) -> Story:
        """This rank's part of the step in which D has blocks for the request."""
        yield self.times.ranks_apart.ns(self.random)
        t = self.timeline.now_ns
        self._counts[r.d_id] = 0
        if not self.knows(r.p):
            self.when_known(r.p, self._sources(r.p), self._send(r))
        self.recorder.begin(("receive", r.d_id), ev.RegistrationHandedOff(t, r.d_id))
        if self.knows(r.p):
            self.write(self._send(r))

    def _send(self, r: Request) -> Story:
        yield self.times.writer.ns(self.random)
        for rank in self._sources(r.p):
            worker = r.p.workers[rank]
            sent = ev.RegistrationSent(self.timeline.now_ns, r.d_id, 0, rank, worker.agent)
            self.recorder.begin(("sent", r.d_id, worker.agent), sent)
            self.timeline.start(self._carry(worker, worker.drain(r, self)))

    def beat(self, p: PrefillEngine, names: tuple[str, ...]) -> None:
        """A heartbeat to each of P's ranks that this one knows."""
        if not self.knows(p):
            self.when_known(p, self._sources(p))
            return
        for rank in self._sources(p):
            worker = p.workers[rank]
            sent = ev.HeartbeatSent(self.timeline.now_ns, worker.agent, len(names), names[0])
            self.recorder.record(sent)
            self.timeline.start(self._carry(worker, worker.heartbeat(names)))

    def _carry(self, worker: PrefillWorker, message: Story) -> Story:
        """A message on its way to a rank of P."""
        yield self.times.network.ns(self.random)
        worker.post(message)

    def notified(self, r: Request, writer: PrefillWorker) -> Story:
        """NIXL says that a WRITE has come: to the writer thread, which leaves the counting to the main thread."""
        yield self.times.writer.ns(self.random)
        drained = ev.NotificationDrained(self.timeline.now_ns, r.d_id, writer.agent, r.p.tp_size)
        self.recorder.record(drained)
        self.timeline.start(self._count(r))

    def _count(self, r: Request) -> Story:
        yield self.engine.next_step_ns()
        t, p_tp = self.timeline.now_ns, r.p.tp_size
        if r.d_id not in self._counts:
            self.world.wrongs["early_notification_dropped"] += 1
            self.recorder.record(ev.NotificationUnrecognised(t, r.d_id))
            return
        n = self._counts[r.d_id] = self._counts[r.d_id] + 1
        self.recorder.record(ev.NotificationCounted(t, r.d_id, n, p_tp, 1))
        sources = self._sources(r.p)
        if n < len(sources):
            return
        del self._counts[r.d_id]
        self.recorder.end(("receive", r.d_id))
        for rank in sources:
            self.recorder.end(("sent", r.d_id, r.p.workers[rank].agent))
        self.recorder.record(ev.ReceiveDone(t, r.d_id))
        self.engine.received(r)
