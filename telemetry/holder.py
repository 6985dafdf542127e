"""The process that holds a ring, and whether it is stopped: facts of this host's /proc.

A stopped engine (SIGSTOP, SIGTSTP, a debugger) says nothing, like an idle one; only the kernel knows. The process is
found by the lock that it holds on the ring, which the kernel gives in the reader's own process ids, so that an engine
in another container is found too, or not at all.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_STOPPED: Final = frozenset("Tt")
"""Stopped by a signal, stopped by a debugger (proc_pid_stat(5))."""


def holder_of(path: Path) -> int | None:
    """The process id of who holds the lock on a file; None if nobody does, or it can't be known here."""
    try:
        file = path.stat()
        locks = (_PROC / "locks").read_text()
    except OSError:
        return None
    name = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    for line in locks.splitlines():
        match line.split():
            case [_, "FLOCK", _, "WRITE", pid, where, *_] if where == name and int(pid) > 0:
                return int(pid)
    return None


def is_stopped(pid: int) -> bool:
    """Whether a process is there and stopped."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in _STOPPED
