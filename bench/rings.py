"""Rings to write into, and the engines that would have written them: one P, one D, one rank each."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pushscope.telemetry.clock import this_host
from pushscope.telemetry.events import Origin

P_ENGINE = "5b7c1f9e-0f5d-4b0e-9a53-3f2f7f1f8a01"
D_ENGINE = "c2a9d1b4-6a1f-4f3b-8d27-71d3b5a1c003"


@contextmanager
def ring_folder() -> Iterator[Path]:
    """An empty folder in shared memory, where engines have their rings; gone afterwards."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="pushscope-bench-", dir=shared if shared.is_dir() else None
    ) as name:
        yield Path(name)


def _origin(engine: str, kv_role: str, connector_role: str) -> Origin:
    host = this_host()
    return Origin(
        host=host.name,
        boot_id=host.boot_id,
        time_namespace=host.time_namespace,
        pid=os.getpid(),
        connector_role=connector_role,
        engine_id=engine,
        kv_role=kv_role,
        mode="push",
        nixl_agent=f"agent-of-{engine[:8]}" if connector_role == "worker" else "",
        anchor_monotonic_ns=time.monotonic_ns(),
        anchor_unix_ns=time.time_ns(),
        instance=f"{engine[:8]}-{connector_role}",
    )


P_SCHEDULER = _origin(P_ENGINE, "kv_producer", "scheduler")
P_WORKER = _origin(P_ENGINE, "kv_producer", "worker")
D_SCHEDULER = _origin(D_ENGINE, "kv_consumer", "scheduler")
D_WORKER = _origin(D_ENGINE, "kv_consumer", "worker")
ORIGINS = (P_SCHEDULER, P_WORKER, D_SCHEDULER, D_WORKER)
