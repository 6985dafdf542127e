"""Two hosts whose clocks differ, simulated: push transfers with random delays, as each host would record them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

import msgspec

from pushscope.telemetry import events as ev
from pushscope.telemetry.clock import Host
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.source import Reading, RingState, Stamp
from pushscope.telemetry.transfer import Transfer
from pushscope.telemetry.watch import Watcher

from .scenario import D_SCHEDULER, D_WORKER, ORIGINS, P_SCHEDULER, P_WORKER, Said

S = 1_000_000_000
MS = 1_000_000
US = 1_000
UNIX = 1_700_000_000 * S
Clock = Callable[[int], int]
"""True time to what a host's CLOCK_MONOTONIC says."""

P_HOST = Host("node-p", "boot-p", "time:[1]")
D_HOST = Host("node-d", "boot-d", "time:[1]")


def drifting(start: int, ppm: float, step_at: int = 0, step: int = 0) -> Clock:
    """A clock that said ``start`` at true time 0; a sleep of the host at ``step_at`` sets it back against others."""
    return lambda t: start + t + int(t * ppm * 1e-6) + (step if step_at and t >= step_at else 0)


P_CLOCK = drifting(5_000 * S, 20)
D_CLOCK = drifting(9_000 * S + 250 * MS, -20)


@dataclass
class TwoHosts:
    """P's host and D's; everything is said in true time, and recorded by the clock of who says it."""

    p_clock: Clock = P_CLOCK
    d_clock: Clock = D_CLOCK
    wall_error: int = 250 * MS
    """By how much D's wall clock is ahead of P's."""
    here: Host = D_HOST
    seed: int = 0
    said: list[tuple[int, ev.Origin, ev.Event]] = field(default_factory=list)
    """(true time at which it can be read, who, what)."""

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.origins = tuple(self._moved(o) for o in ORIGINS)
        self.of = dict(zip(ORIGINS, self.origins, strict=True))

    def _moved(self, origin: ev.Origin) -> ev.Origin:
        host, clock, wall = (
            (P_HOST, self.p_clock, 0)
            if origin in (P_SCHEDULER, P_WORKER)
            else (D_HOST, self.d_clock, self.wall_error)
        )
        return msgspec.structs.replace(
            origin,
            host=host.name,
            boot_id=host.boot_id,
            time_namespace=host.time_namespace,
            anchor_monotonic_ns=clock(0),
            anchor_unix_ns=UNIX + wall,
        )

    def clock(self, origin: ev.Origin) -> Clock:
        return self.p_clock if origin in (P_SCHEDULER, P_WORKER) else self.d_clock

    def here_clock(self, t: int) -> int:
        return {P_HOST: self.p_clock, D_HOST: self.d_clock}[self.here](t)

    def offset(self, t: int) -> int:
        """P's clock minus D's, truly."""
        return self.p_clock(t) - self.d_clock(t)

    def _say(self, origin: ev.Origin, t: int, make: Callable[[int], ev.Event]) -> None:
        lag = self.random.randrange(10 * MS)
        self.said.append((t + lag, self.of[origin], make(self.clock(origin)(t))))

    def delay(self, least_us: float = 100, mean_us: float = 1500) -> int:
        return int((least_us + self.random.expovariate(1 / mean_us)) * US)

    def handshakes(self, t: int) -> int:
        """Both ways, as at the first transfer; the true time when they are over."""
        t = self._handshake(D_WORKER, "engine-p", t, self.p_clock)
        return self._handshake(P_WORKER, "engine-d", t, self.d_clock)

    def _handshake(self, by: ev.Origin, peer: str, t: int, peer_clock: Clock) -> int:
        there, back = self.delay(200, 2000), self.delay(200, 2000)
        setup = self.delay(1000, 20_000)
        own = self.clock(by)
        offset_s = peer_clock(t + there) / 1e9 - (own(t) + own(t + there + back)) / 2e9
        end = t + there + back + setup
        self._say(by, end, lambda now: ev.HandshakeEnded(now, peer, own(t), 1, offset_s))
        return end

    def transfer(self, name: str, t: int, *, number: int) -> int:
        """A push transfer that begins at ``t``; when it ends."""
        p, d = f"{name}-aaaaaaaa", f"{name}-bbbbbbbb"
        say, delay = self._say, self.delay
        say(P_SCHEDULER, t, lambda t: ev.RequestArrived(t, p, "prefill"))
        say(D_SCHEDULER, t, lambda t: ev.RequestArrived(t, d, "decode", "engine-p", p))
        staged = t + delay()
        say(
            D_SCHEDULER,
            staged,
            lambda t: ev.RegistrationStaged(t, d, "engine-p", "10.0.0.1", 5600, 1, 1, 100, 4),
        )
        sent = staged + delay()
        say(D_WORKER, sent, lambda t: ev.RegistrationSent(t, d, 0, 0, P_WORKER.nixl_agent))
        drained = sent + delay()
        say(
            P_WORKER,
            drained,
            lambda t: ev.RegistrationDrained(t, d, "engine-d", "10.0.0.2", 5700, 1, 4, D_WORKER.nixl_agent),
        )
        finished = t + delay(5000, 5000)
        say(P_SCHEDULER, finished, lambda t: ev.BlocksStaged(t, p, 4, 100, 30.0))
        picked = finished + delay()
        say(P_WORKER, picked, lambda t: ev.BlocksPickedUp(t, p))
        matched = max(picked, drained) + delay(10, 20)
        say(P_WORKER, matched, lambda t: ev.Matched(t, p, d, False, "base_id", "engine-d"))
        say(P_WORKER, matched + 10 * US, lambda t: ev.DescriptorsStarted(t, p, number, 0, "engine-d", d))
        say(P_WORKER, matched + 200 * US, lambda t: ev.DescriptorsBuilt(t, p, number, 8))
        submit = matched + 300 * US
        say(P_WORKER, submit, lambda t: ev.SubmitStarted(t, p, number))
        say(P_WORKER, submit + delay(10, 50), lambda t: ev.Submitted(t, p, number, "PROC"))
        arrived = submit + delay()
        say(D_WORKER, arrived, lambda t: ev.NotificationDrained(t, d, P_WORKER.nixl_agent, 1))
        counted = arrived + delay()
        say(D_WORKER, counted, lambda t: ev.NotificationCounted(t, d, 1, 1, 1))
        say(D_SCHEDULER, counted + 100 * US, lambda t: ev.ReceiveFinished(t, d))
        end = counted + delay()
        say(D_SCHEDULER, end, lambda t: ev.DecodeScheduled(t, d))
        say(P_WORKER, arrived + delay(), lambda t: ev.TransferDone(t, p, number, 4096, 2, 100, 900))
        say(P_SCHEDULER, end + delay(), lambda t: ev.SendFinished(t, p))
        return end

    # -- reading -----------------------------------------------------------------------------------

    def readings(
        self, every: int = 50 * MS, *, stamps: Callable[[int], tuple[Stamp, ...]] = lambda _: ()
    ) -> Iterator[tuple[int, Reading]]:
        """(true time, reading), ring by ring in an order that is another one each time."""
        said = sorted(self.said, key=lambda s: s[0])
        at, last = 0, said[-1][0] + 2 * S
        for now in range(every, last, every):
            fresh: Said = []
            while at < len(said) and said[at][0] <= now:
                fresh.append(said[at][1:])
                at += 1
            order = self.random.sample(range(len(self.origins)), len(self.origins))
            fresh.sort(key=lambda oe: order[self.origins.index(oe[0])])
            events = [(self.origins.index(o), ev.encode(e)) for o, e in fresh]
            rings = tuple(RingState(o) for o in self.origins)
            here = self.here_clock(now)
            unix = UNIX + now + (self.wall_error if self.here is D_HOST else 0)
            yield now, Reading(here, unix, rings, events, host=self.here, stamps=stamps(now))

    def watch(self, **more: object) -> Iterator[tuple[int, Watcher, list[Transfer]]]:
        """(true time, the watcher after the poll at that time, what was closed so far)."""
        source = _Fed()
        closed: list[Transfer] = []
        watcher = Watcher(source, on_closed=closed.append)
        for now, reading in self.readings(**more):  # type: ignore[arg-type]
            source.reading = reading
            watcher.poll()
            yield now, watcher, closed
        source.reading = None
        watcher.poll()
        yield now, watcher, closed


class _Fed:
    label, ends = "two hosts", True
    reading: Reading | None = None

    def poll(self) -> Reading | None:
        return self.reading

    def settle(self) -> None:
        pass

    def close(self) -> None:
        pass


def all_transfers(watcher: Watcher, closed: list[Transfer]) -> list[Transfer]:
    return [*closed, *watcher.assembler.open_transfers()]


def offset_in(snapshot: Snapshot) -> tuple[int, int | None]:
    """P's clock minus D's as a snapshot has it, and how sure."""
    (c,) = snapshot.clocks
    sign = 1 if c.host == "node-d" else -1
    assert {c.host, c.peer_host} == {"node-d", "node-p"}
    return sign * c.offset_ns, c.uncertainty_ns
