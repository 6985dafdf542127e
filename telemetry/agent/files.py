"""Files of an agent: written so that after ``kill -9``, or on a full disk, there is the old one or the new one."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path


def write_whole(fd: int, data: bytes) -> None:
    """One write. Raises OSError if not all of it fits."""
    if os.write(fd, data) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def replaced(path: Path, data: bytes) -> int:
    """Put a file with ``data`` in the place of what is there; its descriptor, to write on. Raises OSError."""
    staging = path.with_name(f"{path.name}.{os.getpid()}")
    fd = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        write_whole(fd, data)
        os.rename(staging, path)
    except OSError:
        os.close(fd)
        with contextlib.suppress(OSError):
            staging.unlink()
        raise
    return fd


def content(path: Path, at_most: int) -> bytes | None:
    """What is in a file; None if there is none. Raises OSError; also for a symbolic link, or what is no file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(at_most)
