"""What stands in the way of seeing transfers on this host: checks, each with a sentence."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import msgspec

from pushscope.telemetry import units
from pushscope.telemetry.ring import DEFAULT_BYTES, RingError, opened_folder
from pushscope.telemetry.snapshot import Engine, Snapshot
from pushscope.telemetry.source import RingsSource
from pushscope.telemetry.watch import Watcher


class Check(msgspec.Struct, frozen=True):
    """One thing looked at. ``ok`` is None where it is neither right nor wrong, only worth knowing."""

    ok: bool | None
    subject: str
    finding: str


def examine(folder: Path) -> list[Check]:
    """Every check, in the order in which they matter."""
    checks = [_folder(folder)]
    if not checks[0].ok:
        return checks
    checks.append(_room(folder))
    with closing(RingsSource(folder)) as source:
        watcher = Watcher(source)
        watcher.poll()
        snapshot = watcher.snapshot()
    checks += [_engine(engine) for engine in snapshot.engines]
    checks += [Check(False, "notice", notice) for notice in snapshot.notices]
    checks.append(_events(snapshot))
    return checks


def _folder(folder: Path) -> Check:
    try:
        with opened_folder(folder):
            return Check(True, "ring folder", f"{folder} can be read")
    except RingError as e:
        return Check(False, "ring folder", str(e))


def _room(folder: Path) -> Check:
    fs = os.statvfs(folder)
    left = fs.f_bavail * fs.f_frsize
    rings = left // DEFAULT_BYTES
    found = f"{units.size(left)} left on its file system"
    if rings < 8:
        return Check(
            False, "room", f"{found}: new engines may find none for a ring of {units.size(DEFAULT_BYTES)}"
        )
    return Check(True, "room", found)


def _engine(engine: Engine) -> Check:
    lost = sum(p.events_lost for p in engine.processes)
    told = (
        f"{engine.engine_id} on {engine.host}, {engine.mode}, vLLM {engine.vllm_version}, NIXL {engine.nixl_version}, "
        f"side channel {engine.side_channel}, {len(engine.processes)} rings, "
        f"{units.count(sum(p.events for p in engine.processes))} events, {units.count(lost)} lost"
    )
    return Check(engine.alive and not lost, engine.name, told if engine.alive else f"{told}; gone")


def _events(snapshot: Snapshot) -> Check:
    totals = snapshot.totals
    seen = f"{units.count(totals.transfers)} transfers in what the rings hold"
    return Check(None if not totals.transfers else True, "transfers", seen)
