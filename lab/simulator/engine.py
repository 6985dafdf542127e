"""What P and D engines have in common: steps, the once-a-second words, a writer thread, handshakes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Final

from pushscope.lab.simulator.timeline import Story
from pushscope.lab.simulator.world import SCHEDULER, WORKER, Place, World
from pushscope.telemetry import events as ev

SECOND_NS: Final = 1_000_000_000
_STEPS_A_SECOND: Final = 100


class Recurring:
    """What an engine does again and again while it has work."""

    def __init__(self, engine: Engine, every_ns: int, act: Callable[[], None]):
        self._engine, self._every_ns, self._act = engine, every_ns, act
        self._last_ns = engine.timeline.now_ns
        self._running = False

    def wake(self) -> None:
        if not self._running:
            self._running = True
            timeline = self._engine.timeline
            timeline.start(self._run(), max(0, self._last_ns + self._every_ns - timeline.now_ns))

    def _run(self) -> Story:
        while self._engine.works:
            self._last_ns = self._engine.timeline.now_ns
            self._act()
            yield self._every_ns
        self._running = False


class Engine(ABC):
    """One engine: a scheduler, and a worker of each rank. It makes steps only while it has work."""

    def __init__(self, world: World, place: Place):
        self.world, self.timeline, self.random = world, world.timeline, world.random
        self.times = world.mix.times
        self.place, self.engine_id, self.tp_size = place, place.engine_id, place.tp_size
        self.scheduler = world.recorder(place, SCHEDULER)
        self._work = 0
        self.recurring = [Recurring(self, SECOND_NS, self._tick)]

    @property
    @abstractmethod
    def ranks(self) -> Iterable[Worker]:
        """Its workers."""

    @property
    @abstractmethod
    def staged(self) -> int:
        """How many requests its scheduler has given to the connector and not had back."""

    @property
    def works(self) -> bool:
        return self._work > 0

    def next_step_ns(self) -> int:
        """Until the next step begins."""
        return int(self.random.random() * self.times.step.ns(self.random))

    def begin_work(self) -> None:
        """One more request is in the engine, which wakes up if it slept."""
        self._work += 1
        if self._work > 1:
            return
        for worker in self.ranks:
            worker.read_mail()
        for recurring in self.recurring:
            recurring.wake()

    def end_work(self) -> None:
        self._work -= 1

    def _tick(self) -> None:
        self.scheduler.tick(_STEPS_A_SECOND, ev.Tables(self.timeline.now_ns, self.staged), has_work=True)
        for worker in self.ranks:
            worker.recorder.tick(_STEPS_A_SECOND, worker.tables(), has_work=True)


class Worker(ABC):
    """One rank of an engine."""

    def __init__(self, engine: Engine, rank: int):
        self.engine, self.rank = engine, rank
        self.world, self.timeline, self.random, self.times = (
            engine.world, engine.timeline, engine.random, engine.times,
        )  # fmt: skip
        self.recorder = self.world.recorder(engine.place, WORKER, rank)
        self.agent = self.recorder.origin.nixl_agent
        self.slowness = 1.0
        """How many times longer than usual its writes take."""
        self.leftovers = 0
        """Entries of its table of registrations (P), or of receives (D), that nothing removes."""
        self._known: set[str] = set()
        self._for_known: defaultdict[str, list[Story]] = defaultdict(list)
        """Peer -> what the writer does once it is known."""
        self._hands_free_ns = 0
        self._jobs: deque[Story] = deque()
        self._writing = False
        self._mail: list[Story] = []

    @abstractmethod
    def tables(self) -> ev.Tables:
        """The sizes of its tables."""

    # -- the writer thread -------------------------------------------------------------------------

    def write(self, job: Story) -> None:
        """Give the writer thread something to do: it does one thing after the other."""
        self._jobs.append(job)
        if not self._writing:
            self._writing = True
            self.timeline.start(self._writer(), self.times.writer.ns(self.random))

    def _writer(self) -> Story:
        while self._jobs:
            yield from self._jobs.popleft()
        self._writing = False

    # -- NIXL's notifications ----------------------------------------------------------------------

    def post(self, message: Story) -> None:
        """A message has come to this rank's NIXL agent. Nobody looks for it while the engine sleeps."""
        if self.engine.works:
            self.write(message)
        else:
            self._mail.append(message)

    def read_mail(self) -> None:
        """The engine makes a step again."""
        mail, self._mail = self._mail, []
        for message in mail:
            self.write(message)

    # -- handshakes --------------------------------------------------------------------------------

    def knows(self, peer: Engine) -> bool:
        return peer.engine_id in self._known

    def when_known(self, peer: Engine, ranks: Iterable[int], job: Story | None = None) -> None:
        """Shake hands with these ranks of a peer, if that is not under way, and let the writer do ``job`` then."""
        jobs = self._for_known.get(peer.engine_id)
        if jobs is None:
            jobs = self._for_known[peer.engine_id]
            t, place = self.timeline.now_ns, peer.place
            self.recorder.record(ev.HandshakeQueued(t, peer.engine_id, "127.0.0.1", place.port))
            self.timeline.start(self._handshake(peer, tuple(ranks)))
        if job is not None:
            jobs.append(job)

    def _handshake(self, peer: Engine, ranks: tuple[int, ...]) -> Story:
        """One thread does them all, one after the other."""
        took_ns = self.times.handshake.ns(self.random)
        wait_ns = max(0, self._hands_free_ns - self.timeline.now_ns)
        self._hands_free_ns = self.timeline.now_ns + wait_ns + took_ns
        yield wait_ns
        begun, engine = self.timeline.now_ns, peer.engine_id
        self.recorder.record(ev.HandshakeStarted(begun, engine))
        for rank in ranks:
            yield took_ns // len(ranks)
            peer.scheduler.record(ev.SideChannelServed(self.timeline.now_ns, 0, rank))
        t = self.timeline.now_ns
        self.recorder.record(ev.HandshakeEnded(t, engine, begun, len(ranks)))
        agents = {worker.rank: worker.agent for worker in peer.ranks}
        for rank in ranks:
            self.recorder.begin(("peer", engine, rank), ev.PeerRank(t, engine, 0, rank, agents[rank]))
        self._known.add(engine)
        for job in self._for_known[engine]:
            self.write(job)
        self._for_known[engine] = []
