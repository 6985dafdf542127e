"""Process groups as the kernel sees them, read from /proc.

Each engine leads a session of its own, so its process group is the engine with all its workers. A pid alone
doesn't name a process for long; with its start time it does.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """One process.

    ``start_ticks`` counts clock ticks since boot; ``title`` is its command line, or its name.
    """

    pid: int
    group: int
    state: str
    start_ticks: int
    title: str


def process_info(pid: int) -> ProcessInfo | None:
    """What /proc says of ``pid``; None if there is no such process.

    A zombie counts as a process (state ``Z``).
    """
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
        command = (_PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    title = command.replace(b"\0", b" ").decode("utf-8", "replace").strip() or name
    return ProcessInfo(
        pid=pid, group=int(fields[2]), state=fields[0], start_ticks=int(fields[19]), title=title
    )


def all_processes() -> Iterator[ProcessInfo]:
    """Every process that can be seen, zombies left out."""
    for entry in os.listdir(_PROC):
        if entry.isdigit():
            info = process_info(int(entry))
            if info is not None and info.state != "Z":
                yield info


def group_members(group: int) -> list[ProcessInfo]:
    """The live processes of a process group, the oldest first."""
    members = [info for info in all_processes() if info.group == group]
    return sorted(members, key=lambda info: info.start_ticks)


def is_running(pid: int, start_ticks: int) -> bool:
    """Whether that very process still runs."""
    info = process_info(pid)
    return info is not None and info.state != "Z" and info.start_ticks == start_ticks


def signal_group(group: int, number: int) -> None:
    """Send a signal to a group; a group that is gone is no error."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def stop_groups(groups: Iterable[int], *, grace_s: float, leaders_first: bool = False) -> None:
    """SIGTERM to each group, and SIGKILL to what is left after ``grace_s`` seconds.

    With ``leaders_first`` only the leaders get SIGTERM, and the rest of a group when its leader is gone, or
    still there after ``grace_s`` seconds: a leader that ends its own children in order is not got in the way
    of. Returns when all are gone.
    """
    left = set(groups)
    if leaders_first:
        left = _stop_leaders(left, grace_s)
        grace_s = min(grace_s, 1.0)
    for group in left:
        signal_group(group, signal.SIGTERM)
    left = _wait_gone(left, grace_s)
    for group in left:
        signal_group(group, signal.SIGKILL)
    _wait_gone(left, 5.0)


def _stop_leaders(groups: set[int], timeout_s: float) -> set[int]:
    """SIGTERM to the leaders, and wait until they are gone; the groups that still have members."""
    for info in all_processes():
        if info.pid == info.group and info.group in groups:
            with suppress(ProcessLookupError):
                os.kill(info.pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while True:
        members = [info for info in all_processes() if info.group in groups]
        groups = {info.group for info in members}
        if not groups & {info.pid for info in members} or time.monotonic() > deadline:
            return groups
        time.sleep(0.05)


def _wait_gone(groups: set[int], timeout_s: float) -> set[int]:
    """Wait until the groups have no live member; what is left after the time-out."""
    deadline = time.monotonic() + timeout_s
    while True:
        groups = groups & {info.group for info in all_processes()}
        if not groups or time.monotonic() > deadline:
            return groups
        time.sleep(0.05)


def processes_with_environment(name: str, value: str) -> list[ProcessInfo]:
    """The live processes that were *started* with ``name=value`` in their environment."""
    wanted = f"{name}={value}".encode()
    found = []
    for info in all_processes():
        with suppress(OSError):
            if wanted in (_PROC / str(info.pid) / "environ").read_bytes().split(b"\0"):
                found.append(info)
    return found
