"""Events read from rings and assembled into transfers, per second of one core."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import msgspec

from bench.estimate import median_of
from bench.figure import Figure, Progress, Settings
from bench.rings import ORIGINS, ring_folder
from bench.traffic import TRANSFER, Said, stream
from pushscope.telemetry.events import decode
from pushscope.telemetry.ring import RingWriter
from pushscope.telemetry.source import Reading, RingsSource
from pushscope.telemetry.watch import Watcher, rest_the_collector

BUDGET_PER_S = 100_000
WINDOW_NS = 500_000_000
"""How often the screens ask: one poll and one snapshot."""
WINDOWS = 24
WARM_WINDOWS = 4
RING_BYTES = 16 << 20


class Handed:
    """A source that gives the reading it was handed."""

    label = "rings"
    ends = False

    def __init__(self) -> None:
        self.reading: Reading | None = None

    def poll(self) -> Reading | None:
        return self.reading

    def settle(self) -> None:
        pass

    def close(self) -> None:
        pass


class Costs(msgspec.Struct):
    """Of one window: how many events it had, and the CPU seconds that each step took."""

    events: int
    read_s: float
    decode_s: float
    fold_s: float
    """Decoding included."""
    snapshot_s: float

    @property
    def total_s(self) -> float:
        return self.read_s + self.fold_s + self.snapshot_s


def run(_settings: Settings, progress: Progress) -> list[Figure]:
    """Windows of half a second of traffic at the budgeted rate, each read, folded and looked at once."""
    costs = list(measure(progress))[WARM_WINDOWS:]
    per_s = median_of([c.events / c.total_s for c in costs])
    whole = Figure(what="events read and assembled", unit="1/s", measured=per_s)
    return [
        whole.against(f">= {BUDGET_PER_S:,} per second and core", held=per_s.value >= BUDGET_PER_S),
        _per_event("of it, per event: read from the ring", costs, lambda c: c.read_s),
        _per_event("of it, per event: decoded", costs, lambda c: c.decode_s),
        _per_event("of it, per event: folded and closed", costs, lambda c: c.fold_s - c.decode_s),
        _per_event("of it, per event: snapshots", costs, lambda c: c.snapshot_s),
    ]


def _per_event(what: str, costs: list[Costs], seconds: Callable[[Costs], float]) -> Figure:
    return Figure(what=what, unit="us", measured=median_of([seconds(c) / c.events * 1e6 for c in costs]))


def measure(progress: Progress) -> Iterator[Costs]:
    """The costs of each window."""
    windows = WARM_WINDOWS + WINDOWS
    begin_ns = time.monotonic_ns()
    per_s = BUDGET_PER_S / len(TRANSFER)
    progress(0.0, "writing the traffic")
    traffic = stream(int(windows * WINDOW_NS / 1e9 * per_s), begin_ns, per_s)
    with ring_folder() as folder:
        writers = [RingWriter(folder, origin, num_bytes=RING_BYTES) for origin in ORIGINS]
        handed = Handed()
        rest_the_collector()  # as the command does
        watcher = Watcher(handed)
        with closing(RingsSource(folder)) as rings:
            first = rings.poll()
            # Each ring has a place in the reading that depends on its file's name.
            assert len(first.rings) == len(writers)
            at = 0
            gc.collect()
            gc.freeze()  # the prepared traffic is not the reader's
            for number in range(windows):
                progress(number / windows, f"window {number + 1} of {windows}")
                end_ns = begin_ns + (number + 1) * WINDOW_NS
                at = _write(writers, traffic, at, end_ns)
                yield _window(rings, watcher, handed, end_ns)
        for writer in writers:
            writer.close()


def _write(writers: list[RingWriter], traffic: list[Said], at: int, end_ns: int) -> int:
    """Write what was said before ``end_ns``, from ``at`` on; where to go on."""
    while at < len(traffic) and traffic[at][0] < end_ns:
        _, ring, payload = traffic[at]
        writers[ring].write(payload)
        at += 1
    return at


def _window(rings: RingsSource, watcher: Watcher, handed: Handed, now_ns: int) -> Costs:
    """Read and assemble what is new, at the time that the traffic has come to."""
    start = time.thread_time()
    reading = rings.poll()
    read_s = time.thread_time() - start
    handed.reading = msgspec.structs.replace(reading, t_ns=now_ns)

    start = time.thread_time()
    for _, payload in reading.events:
        decode(payload)
    decode_s = time.thread_time() - start

    start = time.thread_time()
    watcher.poll()
    fold_s = time.thread_time() - start

    start = time.thread_time()
    watcher.snapshot()
    snapshot_s = time.thread_time() - start
    return Costs(len(reading.events), read_s, decode_s, fold_s, snapshot_s)
