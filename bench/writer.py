"""A P and a D that are not there: rings written in real time, as if transfers began so many a second."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec

from bench.rings import ORIGINS
from bench.traffic import SUBMITTED, Said, stream
from pushscope.telemetry.ring import DEFAULT_BYTES, RingWriter

_PIECE_S: Final = 0.5
_TICK_S: Final = 0.02


class SimulatedPair:
    """Writes the rings of one P and one D, in a thread, from ``start`` to ``stop``.

    ``num_begun`` counts the transfers that it has begun; after ``stop`` all of them are over.
    """

    def __init__(
        self, folder: Path, per_s: float, *, endpoint: str = "", seed: int = 0, num_bytes: int = DEFAULT_BYTES
    ):
        """``endpoint``: what the engines were told to export their own traces to."""
        self._per_s, self._seed = per_s, seed
        self._rings = [
            RingWriter(
                folder,
                msgspec.structs.replace(
                    origin,
                    otlp_traces_endpoint=endpoint,
                    anchor_monotonic_ns=time.monotonic_ns(),
                    anchor_unix_ns=time.time_ns(),
                ),
                num_bytes=num_bytes,
            )
            for origin in ORIGINS
        ]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="simulated pair", daemon=True)
        self.num_begun = 0

    def __enter__(self) -> SimulatedPair:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.close()

    def stop(self) -> None:
        """Begin no more, and see the last ones to their end."""
        self._stop.set()
        self._thread.join()

    def close(self) -> None:
        """The engines end."""
        for ring in self._rings:
            ring.close()

    def paths(self, kv_role: str) -> list[Path]:
        """The rings of one side."""
        return [ring.path for ring in self._rings if ring.origin.kv_role == kv_role]

    def leave_open(self, num_transfers: int) -> None:
        """Write transfers that are on the wire, at once, and stay there."""
        for said in stream(num_transfers, time.monotonic_ns(), 1e9, moments=SUBMITTED, seed=-1 - self._seed):
            self._write(said)

    def _run(self) -> None:
        pending: list[Said] = []
        begin_ns, piece = time.monotonic_ns(), 0
        while not self._stop.is_set() or pending:
            now_ns = time.monotonic_ns()
            if not self._stop.is_set() and now_ns >= begin_ns:
                num = round(self._per_s * _PIECE_S)
                pending += stream(num, begin_ns, self._per_s, seed=self._seed * 1_000_000 + piece)
                pending.sort(key=lambda said: said[0])
                self.num_begun += num
                begin_ns += int(_PIECE_S * 1e9)
                piece += 1
            due = 0
            while due < len(pending) and pending[due][0] <= now_ns:
                self._write(pending[due])
                due += 1
            del pending[:due]
            time.sleep(_TICK_S)

    def _write(self, said: Said) -> None:
        _, ring, payload = said
        self._rings[ring].write(payload)
