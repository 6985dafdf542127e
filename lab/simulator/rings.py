"""A simulation as it happens: its engines write real rings, at the pace of this machine's clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pushscope.lab.simulator.mix import Mix
from pushscope.lab.simulator.simulation import Simulation
from pushscope.telemetry.clock import read_anchor
from pushscope.telemetry.ring import DEFAULT_BYTES, RingWriter

STEP_S: Final = 0.01


class RealTimeRings:
    """Rings in a folder, for as long as this context is open: to load an agent, a screen, one ring.

    ``write_until`` has to be called again and again, or ``run`` for a while. The engines are gone, without having
    shut down, when the context is left. Raises RingError if a folder can't be used.
    """

    def __init__(
        self,
        folder: Path,
        mix: Mix,
        seed: int = 0,
        *,
        d_folder: Path | None = None,
        num_bytes: int = DEFAULT_BYTES,
    ):
        """``d_folder``: where the rings of decode engines are, as if on another host; None: where all are."""
        anchor = read_anchor()
        self.simulation = Simulation(mix, seed, start_ns=anchor.monotonic_ns, start_unix_ns=anchor.unix_ns)
        self._folders = {"kv_producer": folder, "kv_consumer": d_folder or folder}
        self._num_bytes = num_bytes
        self._writers: list[RingWriter] = []
        self.written = 0
        """Events."""

    def __enter__(self) -> Self:
        for origin in self.simulation.origins:
            folder = self._folders[origin.kv_role]
            self._writers.append(RingWriter(folder, origin, num_bytes=self._num_bytes))
        self.simulation.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers:
            writer.close()

    def write_until(self, t_ns: int) -> int:
        """Write all that is recorded up to a moment (CLOCK_MONOTONIC nanoseconds); how many events that were."""
        said = self.simulation.advance(t_ns)
        for ring, payload in said:
            self._writers[ring].write(payload)
        self.written += len(said)
        return len(said)

    def run(self, seconds: float) -> None:
        """Keep pace with the clock for so long."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.write_until(time.monotonic_ns())
            time.sleep(STEP_S)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep pace with the clock in a thread. At the end of the block no more requests come, and those that are there
        are seen to their end."""
        over = threading.Event()

        def write() -> None:
            while not (over.is_set() and self.simulation.is_idle):
                if over.is_set():
                    self.simulation.stop()
                self.run(STEP_S)

        thread = threading.Thread(target=write, name="simulated engines")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
