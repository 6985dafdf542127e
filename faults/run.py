"""Bring up a lab, make one fault after the other, and look when each is named and when it has cleared."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import msgspec

from faults.result import Row
from pushscope.lab.completion import RequestError
from pushscope.lab.control import Control, OrderError
from pushscope.lab.deployment import Deployment
from pushscope.lab.engine.broken_nixl import FAULTS as FAULTS_ENV
from pushscope.lab.faults.fault import Fault
from pushscope.lab.faults.folder import faults_dir
from pushscope.lab.faults.ground import ground
from pushscope.lab.faults.naming import Seen, cleared, named, told
from pushscope.lab.faults.sight import NotSeenError, Sight
from pushscope.lab.launch import Launcher
from pushscope.lab.spec import prefill_decode
from pushscope.lab.state import NoLabError
from pushscope.lab.up import LabPlan, lab

LEASE_S = 6.0
_NAMED_S = 20.0
_CLEARED_S = 90.0
_WHOLE_S = 150.0
"""For making it, naming it and undoing it."""
_NOT_MADE = (NotSeenError, NoLabError, OrderError, RequestError, TimeoutError, httpx.HTTPError)

OnRow = Callable[[Row], None]


@contextmanager
def faulty_lab(directory: Path, launcher: Launcher, *, prefill_tp: int = 1) -> Iterator[Path]:
    """A lab in ``directory`` that takes orders, without a router; the folder of its rings."""
    rings = directory / "rings"
    specs = prefill_decode(
        extra_config={"kv_lease_duration": LEASE_S}, env={FAULTS_ENV: str(faults_dir(directory))}
    )
    specs = [replace(s, tensor_parallel_size=prefill_tp) if s.role == "prefill" else s for s in specs]
    plan = LabPlan(directory=directory, specs=specs, router=None, ring_dir=rings)
    with lab(plan, launcher=launcher) as deployment, _served(deployment, directory):
        yield rings


@contextmanager
def _served(deployment: Deployment, directory: Path) -> Iterator[None]:
    """Take orders in a thread: within the block nobody else touches the deployment."""
    over = threading.Event()
    with Control(deployment, directory) as control:

        def serve() -> None:
            while not over.is_set():
                control.serve(0.2)

        thread = threading.Thread(target=serve, name="control")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def run(faults: Sequence[Fault], directory: Path, launcher: Launcher, on_row: OnRow) -> list[Row]:
    """Make every fault in a lab of its layout; one that leaves its lab ill gives the next ones a new lab."""
    rows: list[Row] = []
    for ranks in sorted({fault.prefill_tp for fault in faults}):
        left = deque(fault for fault in faults if fault.prefill_tp == ranks)
        while left:
            folder = directory / f"{len(rows)}"
            with faulty_lab(folder, launcher, prefill_tp=ranks) as rings, Sight(rings) as sight:
                well = True
                while left and well:
                    rows.append(asyncio.run(make(left.popleft(), folder, sight)))
                    on_row(rows[-1])
                    well = rows[-1].cleared_s is not None
    return rows


async def make(fault: Fault, directory: Path, sight: Sight) -> Row:
    """Make one fault, undo it, and tell what was seen."""
    row = Row(fault=fault.name, code=fault.code, lease=fault.lease, named_s=None)
    found: Seen | None = None
    await cleared(sight, fault, _CLEARED_S)  # what was before is told for a while
    before = told(sight.look())
    try:
        async with asyncio.timeout(_WHOLE_S), ground(directory, sight) as at, fault.make(at) as made:
            found = await named(sight, fault, made, _NAMED_S, before)
    except _NOT_MADE as error:
        return _with(row, found, None, f"{type(error).__name__}: {error}")
    return _with(row, found, await cleared(sight, fault, _CLEARED_S))


def _with(row: Row, seen: Seen | None, cleared_s: float | None, error: str = "") -> Row:
    """The row with what was seen."""
    row = msgspec.structs.replace(
        row, cleared_s=None if cleared_s is None else round(cleared_s, 2), error=error
    )
    if seen is None:
        return row
    row = msgspec.structs.replace(row, besides=seen.besides)
    if seen.diagnosis is None:
        return row
    found = seen.diagnosis
    return msgspec.structs.replace(
        row, named_s=round(seen.after_s, 2), severity=str(found.severity), sentence=found.sentence
    )
