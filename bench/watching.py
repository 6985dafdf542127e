"""``pushscope top`` for a while: its CPU beside engines that are idle, and beside 50,000 events a second."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.estimate import median_of
from bench.figure import Figure, Progress, Settings
from bench.rings import ring_folder
from bench.top_process import TopProcess
from bench.traffic import TRANSFER
from bench.writer import SimulatedPair

IDLE_S = 10
BUSY_S = 20
EVENTS_PER_S = 50_000
SIZE = (200, 60)
RING_BYTES = 64 << 20
_SETTLE_S = 5.0


def run(_settings: Settings, progress: Progress) -> list[Figure]:
    """Percent of a core, and which part of the transfers it has counted."""
    with ring_folder() as folder, SimulatedPair(folder, 0.001), _top(folder) as top:
        idle = _shares(top, IDLE_S, lambda done: progress(done / 3, "idle engines"))
    per_s = EVENTS_PER_S / len(TRANSFER)
    begin_s = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as scratch,
        ring_folder() as folder,
        SimulatedPair(folder, per_s, num_bytes=RING_BYTES) as pair,
        _top(folder, "--summary", str(Path(scratch) / "summary.json")) as top,
    ):
        busy = _shares(top, BUSY_S, lambda done: progress(1 / 3 + done * 2 / 3, "50,000 events/s"))
        pair.stop()
        written_per_s = pair.num_begun * len(TRANSFER) / (time.monotonic() - begin_s)
        time.sleep(_SETTLE_S)
        top.quit()
        counted = json.loads((Path(scratch) / "summary.json").read_text())["total"]["transfers"]
        seen = counted / pair.num_begun
    return [
        Figure(what="pushscope top, idle engines", unit="% of a core", measured=median_of(idle)),
        Figure(
            what=f"pushscope top, {written_per_s:,.0f} events/s written",
            unit="% of a core",
            measured=median_of(busy),
        ),
        Figure(what="of the transfers then, counted on exit", unit="%", measured=median_of([100 * seen])),
    ]


def _top(folder: Path, *options: str) -> TopProcess:
    top = TopProcess({"PUSHSCOPE_DIR": str(folder)}, *options, size=SIZE)
    top.seen(b"Pause")
    top.look_away()
    time.sleep(_SETTLE_S)
    return top


def _shares(top: TopProcess, seconds: int, progress: Callable[[float], None]) -> list[float]:
    """Percent of a core, for each of so many seconds."""
    shares = []
    for second in range(seconds):
        progress(second / seconds)
        begin_s, cpu_s = time.perf_counter(), top.cpu_s()
        time.sleep(1.0)
        shares.append(100 * (top.cpu_s() - cpu_s) / (time.perf_counter() - begin_s))
    return shares
