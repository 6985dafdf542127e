"""``pushscope top``: the first paint of the program on a real terminal, and frames with a crowd in flight."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from bench.estimate import median_of
from bench.figure import Figure, Progress, Settings
from bench.memory import Traffic
from bench.rings import ORIGINS, ring_folder
from bench.top_process import TopProcess
from bench.traffic import SUBMITTED, stream
from pushscope.telemetry.ring import RingWriter
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.watch import Watcher
from pushscope.tui.app import SnapshotTaken, TopApp
from pushscope.tui.main_screen import VIEWS

IN_FLIGHT = 10_000
PAINTS = 7
FRAMES = 100
FRAMES_OF_A_VIEW = 10
WIDTH, HEIGHT = 200, 60
PAINT_BUDGET_S = 1.0
FRAME_BUDGET_MS = 50.0
_NEVER_S = 3600.0


def run(_settings: Settings, progress: Progress) -> list[Figure]:
    """Wall time from the start of the program, and CPU time of a frame."""
    first, whole = [], []
    with ring_folder() as folder:
        writers = [RingWriter(folder, origin) for origin in ORIGINS]
        for _, ring, payload in stream(1_000, time.monotonic_ns(), 4_000, moments=SUBMITTED):
            writers[ring].write(payload)
        for number in range(PAINTS):
            progress(number / PAINTS / 2, f"paint {number + 1} of {PAINTS}")
            painted_s, shown_s = _paint({"PUSHSCOPE_DIR": str(folder)})
            first.append(painted_s)
            whole.append(shown_s)
        for writer in writers:
            writer.close()
    frames = asyncio.run(_frames(lambda done, text: progress(0.5 + done / 2, text)))
    paint = Figure(what="first paint of pushscope top", unit="s", measured=median_of(first))
    frame = Figure(what=f"a frame, {IN_FLIGHT:,} in flight", unit="ms", measured=median_of(frames))
    return [
        paint.against(f"<= {PAINT_BUDGET_S:g} s", held=paint.measured.value <= PAINT_BUDGET_S),
        Figure(what="the same until it shows 1,000 transfers", unit="s", measured=median_of(whole)),
        frame.against(f"<= {FRAME_BUDGET_MS:g} ms", held=frame.measured.value <= FRAME_BUDGET_MS),
    ]


def _paint(environment: dict[str, str]) -> tuple[float, float]:
    """Seconds from the start of the program to its first screen, and to a screen with the transfers on it."""
    with TopProcess(environment, size=(WIDTH, HEIGHT)) as top:
        # The footer is on the first screen already, the transfers are once the rings are read.
        return top.seen(b"Pause"), top.seen(b"cmpl-")


async def _frames(progress: Progress) -> list[float]:
    """Milliseconds of CPU for each frame: a new snapshot taken, and the whole screen composed and encoded. In turns of
    all views, and with a filter."""
    crowd = _crowd()
    app = TopApp(lambda: crowd, _NEVER_S)
    spent = []
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        while not app.shows_something:
            await pilot.pause(0.01)
        await pilot.press("slash", *"stage:wire", "enter")
        for number in range(FRAMES):
            progress(number / FRAMES, f"frame {number + 1} of {FRAMES}")
            if number % FRAMES_OF_A_VIEW == 0:
                await pilot.press(str(1 + number // FRAMES_OF_A_VIEW % len(VIEWS)))
            frame = _later(crowd, number)
            start = time.process_time()
            app.post_message(SnapshotTaken(frame))
            await pilot.pause()
            screen: Any = app.screen._compositor.render_update(full=True)
            screen.render_segments(app.console)
            spent.append((time.process_time() - start) * 1e3)
    return spent


def _crowd() -> Snapshot:
    """Transfers in flight, as a watcher saw them come."""
    traffic = Traffic()
    traffic.give(stream(IN_FLIGHT, time.monotonic_ns(), 4_000, moments=SUBMITTED))
    watcher = Watcher(traffic)
    watcher.run_to_end()
    return watcher.snapshot()


def _later(crowd: Snapshot, number: int) -> Snapshot:
    """The crowd some seconds on, when its oldest have gone."""
    taken_ns = crowd.taken_ns + number * 1_000_000_000
    return msgspec.structs.replace(crowd, taken_ns=taken_ns, in_flight=crowd.in_flight[number * 7 :])
