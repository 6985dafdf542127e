"""A long recording of simulated engines, played fast on the screen of ``pushscope top``: does its memory stay flat?"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
from contextlib import closing
from pathlib import Path
from typing import Final

from pushscope.lab.simulator.mix import Mix, Pool
from pushscope.lab.simulator.simulation import Simulation, VirtualSource
from pushscope.telemetry.recording import RecordingWriter
from pushscope.telemetry.session import Session
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.watch import rest_the_collector
from pushscope.telemetry.where import Where
from pushscope.tui.app import TopApp
from pushscope.tui.main_screen import VIEWS
from soak.display import OnProgress
from soak.result import Part
from soak.tally import Tally

SPEED: Final = 100.0
MIX: Final = Mix(
    pools=(
        Pool(name="even", num_p=2, num_d=2, per_s=2.0),
        Pool(name="serial", per_s=1.0, serial=True),
        Pool(name="wide", p_tp=2, d_tp=2, per_s=0.5),
    )
)
EVERY_NS: Final = 500_000_000
"""Of the engines' time, from one reading to the next."""
REFRESH_S: Final = 0.5
VIEW_S: Final = 0.7
"""How long each view is looked at, in turn."""
SIZE: Final = (160, 50)
_SLOWER: Final = 5
"""On a busy machine it may take so many times longer, and a minute."""


def run(seconds: float, folder: Path, on_progress: OnProgress, *, seed: int = 0) -> Part:
    """Record so long of the engines' time, and play it. ``on_progress`` is told seconds of the recording."""
    rest_the_collector()  # as the command does
    path = folder / "simulated.psr"
    # In a process of its own: what the making takes is none of the screen's.
    maker = multiprocessing.get_context("spawn").Process(target=record, args=(path, seconds, seed))
    maker.start()
    maker.join()
    tally = Tally(f"a recording of {seconds:,.0f} s at {SPEED:g} times its speed", simulated=True)
    asyncio.run(_play(path, tally, on_progress))
    return tally.part({})


def record(path: Path, seconds: float, seed: int) -> None:
    """Write a recording of simulated engines."""
    simulation = Simulation(MIX, seed)
    source = VirtualSource(simulation, 1 << 60, EVERY_NS)
    end_ns = simulation.now_ns + int(seconds * 1e9)
    with closing(RecordingWriter(path)) as writer:
        while (reading := source.poll()) is not None and reading.t_ns <= end_ns:
            writer.write(reading)


async def _play(path: Path, tally: Tally, on_progress: OnProgress) -> None:
    """From beginning to end, while the views are visited in turn."""
    with closing(Session(Where(replay=path))) as session:
        assert session.player is not None
        session.player.speed = SPEED
        over = asyncio.Event()
        loop = asyncio.get_running_loop()

        def taken() -> Snapshot:
            snapshot = session.snapshot()
            assert snapshot.play is not None
            position_s, duration_s = snapshot.play.position_s, snapshot.play.duration_s
            tally.take(snapshot, position_s / duration_s)
            on_progress(round(position_s), tally.error_count)
            if snapshot.play.over:
                loop.call_soon_threadsafe(over.set)
            return snapshot

        app = TopApp(taken, REFRESH_S, controls=session)
        at_most_s = _SLOWER * session.player.state().duration_s / SPEED + 60.0
        async with asyncio.timeout(at_most_s), app.run_test(size=SIZE) as pilot:
            for number in itertools.cycle(range(1, len(VIEWS) + 1)):
                await pilot.press(str(number))
                await pilot.pause(VIEW_S)
                if over.is_set():
                    return
