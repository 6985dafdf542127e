"""Marks: what somebody did to the deployment, and when: a load that starts, a rate that rises, a note made by hand.

They lie in the file ``marks`` of a ring folder, one line of JSON each: ``[UNIX_SECONDS, "LABEL", "BY"]``. Whoever may
write there appends a line in one write; whoever reads the rings reads the marks too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.events import cut
from pushscope.telemetry.ring import RingError, opened_folder
from pushscope.telemetry.units import clean, size

FILE_NAME: Final = "marks"
KEPT: Final = 1_000
"""The last so many are read, and remembered."""
OLDEST_S: Final = 3600.0
"""Older ones are not read: they belong to a load of which the rings hold nothing. Under load a ring goes back some
minutes; an hour is ample, and yesterday's test is not shown beside today's."""
MAX_LABEL_BYTES: Final = 200
_MAX_BY_BYTES: Final = 64
_MAX_LINE_BYTES: Final = 1024
_MAX_FILE_BYTES: Final = 16 << 20
"""It may lie in memory: a program that marks without end is told so."""
_LAST_UNIX_S: Final = 253_402_300_800.0
"""The year 10000, which no calendar can show."""


class Mark(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A moment worth a name. Its time is wall time: who marks and who watches may be on different hosts.

    Two that are equal are one mark that came in two ways.
    """

    unix_s: float
    label: str
    """``start``, ``rate 8/s``, ``stop``, or whatever was typed."""
    by: str = ""
    """Who made it: ``lab load (pid 4711)``, ``top``."""

    @property
    def has_a_time(self) -> bool:
        """Whether its time is one that can be shown; a file or an agent may hold any number."""
        return 0 <= self.unix_s < _LAST_UNIX_S


_decode: Final = msgspec.json.Decoder(Mark).decode


class Marks:
    """The last marks that came, each once."""

    def __init__(self) -> None:
        self.all: tuple[Mark, ...] = ()
        """In the order of time."""
        self._known: frozenset[Mark] = frozenset()

    def add(self, marks: Iterable[Mark]) -> tuple[Mark, ...]:
        """Those that are new, in the order of time; one that is older than all that are kept is not."""
        came = {mark for mark in marks if mark.has_a_time} - self._known
        if not came:
            return ()
        self.all = tuple(sorted({*self.all, *came})[-KEPT:])
        self._known = frozenset(self.all)
        return tuple(sorted(came & self._known))


# -- writing ------------------------------------------------------------------------------------------


def mark_of(label: str, by: str) -> Mark:
    """This moment, marked. Raises PushscopeError if the label says nothing."""
    mark = Mark(time.time(), cut(clean(label).strip(), MAX_LABEL_BYTES), cut(clean(by), _MAX_BY_BYTES))
    if not mark.label:
        raise PushscopeError("expected a label to mark this moment with, found nothing that can be shown")
    return mark


def write_mark(folder: Path, label: str, by: str) -> Mark:
    """Mark this moment in a ring folder.

    Raises PushscopeError if this user may not write there, or the label says nothing.
    """
    mark = mark_of(label, by)
    line = msgspec.json.encode(mark) + b"\n"
    with opened_folder(folder) as folder_fd:
        try:
            fd = _opened_to_write(folder_fd)
            try:
                _append(fd, line, folder / FILE_NAME)
            finally:
                os.close(fd)
        except OSError as e:
            what_to_do = "free space there" if e.errno == errno.ENOSPC else "mark as the engines' user"
            raise PushscopeError(
                f"cannot write a mark to {folder / FILE_NAME}: {e.strerror}; {what_to_do}"
            ) from e
    return mark


def _opened_to_write(folder_fd: int) -> int:
    """The file, made if it is missing: of the folder's owner and group, also if root marks."""
    flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    folder = os.fstat(folder_fd)
    mode = 0o640 if folder.st_mode & stat.S_IRGRP else 0o600
    try:
        fd = os.open(FILE_NAME, flags | os.O_CREAT | os.O_EXCL, mode, dir_fd=folder_fd)
    except FileExistsError:
        return os.open(FILE_NAME, flags, dir_fd=folder_fd)
    with contextlib.suppress(OSError):
        os.fchown(fd, folder.st_uid, folder.st_gid)
        os.fchmod(fd, mode)  # whatever the umask
    return fd


def _append(fd: int, line: bytes, path: Path) -> None:
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        raise PushscopeError(f"expected a file of marks at {path}, found something else; remove it")
    if info.st_size > _MAX_FILE_BYTES:
        raise PushscopeError(f"{path} has grown to {size(info.st_size)}; remove it, and mark less often")
    if info.st_size and os.pread(fd, 1, info.st_size - 1) != b"\n":
        line = b"\n" + line  # behind what somebody has not finished
    if os.write(fd, line) < len(line):  # no room for all of it
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# -- reading ------------------------------------------------------------------------------------------


class MarksFile:
    """The marks of a ring folder, read on from where they were read last."""

    def __init__(self, folder: Path):
        self._folder, self._path = folder, folder / FILE_NAME
        self._read_before = Marks()
        self._inode = self._at = 0
        """Which file it was, and how much of it was read."""
        self._skipped = 0
        self._trouble = ""

    def poll(self, now_s: float) -> tuple[Mark, ...]:
        """Those that are new, and not too old at the time (Unix seconds)."""
        try:
            lines = self._new_lines()
            self._trouble = ""
        except RingError:  # whoever reads the rings says so
            return ()
        except OSError as e:
            self._trouble = f"the marks in {self._path} cannot be read: {e.strerror}"
            return ()
        marks = [mark for line in lines if line.strip() and (mark := self._parsed(line))]
        return self._read_before.add(mark for mark in marks if mark.unix_s > now_s - OLDEST_S)

    @property
    def asides(self) -> tuple[str, ...]:
        """What must be known of them."""
        lines = (
            "1 line is no mark and is"
            if self._skipped == 1
            else f"{self._skipped} lines are no marks and are"
        )
        skipped = f"{self._path}: {lines} skipped" if self._skipped else ""
        return tuple(filter(None, (self._trouble, skipped)))

    def _new_lines(self) -> list[bytes]:
        """The lines that came since, whole ones, and at most the last ``KEPT``."""
        with opened_folder(self._folder) as folder_fd:
            try:
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                fd = os.open(FILE_NAME, flags, dir_fd=folder_fd)
            except FileNotFoundError:
                self._at = 0  # one that is made anew may get the same inode
                return []
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                raise OSError(errno.EINVAL, "it is no file")
            if info.st_ino != self._inode or info.st_size < self._at:  # another one
                self._inode, self._at = info.st_ino, 0
            begin = max(self._at, info.st_size - KEPT * _MAX_LINE_BYTES)
            data = os.pread(fd, info.st_size - begin, begin)
        finally:
            os.close(fd)
        first = 0 if begin == self._at else data.find(b"\n") + 1  # not in the middle of a line
        end = data.rfind(b"\n") + 1
        self._at = begin + end
        return data[first:end].splitlines()[-KEPT:]

    def _parsed(self, line: bytes) -> Mark | None:
        """The mark in a line; None, and counted, if it is none."""
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            if len(line) <= _MAX_LINE_BYTES and (mark := _decode(line)).has_a_time:
                return mark
        self._skipped += 1
        return None
