"""Which agent reads a ring folder: a lock on the folder, and a note in it that says who.

At most one agent reads a folder, so that nothing is exported twice. It holds ``flock(LOCK_EX)`` on the folder
itself for life, which also works where the folder may only be read; its end, however it comes, frees the lock. The
note is for people and for tools. It outlives an agent that was killed, so the lock is what counts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from pathlib import Path
from typing import Final

import msgspec

from pushscope.telemetry.ring import opened_folder

NOTE_NAME: Final = "agent.json"
_PROBES: Final = 20
_PROBE_S: Final = 0.05
"""A reader that looks whether an agent runs holds the lock for a moment: try for a second."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Who reads a folder."""

    pid: int = 0
    """As seen in its own pid namespace."""
    host: str = ""
    url: str = ""
    """Where it answers."""
    version: str = ""
    """Of pushscope; empty if it runs from source."""

    @property
    def who(self) -> str:
        """In words; an agent that could not leave a note is one of which nothing else is known."""
        if not self.pid:
            return "an agent that could not leave a note"
        return f"an agent with pid {self.pid} on {self.host}" + (f", at {self.url}" if self.url else "")


class Occupied(Exception):  # noqa: N818 - not an error, an answer
    """Another agent reads the folder; ``note`` says which."""

    def __init__(self, note: Note):
        super().__init__(note.who)
        self.note = note


class Presence:
    """This process reads a folder, until it is closed.

    Raises Occupied if another one does, and RingError if the folder can't be opened.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        with opened_folder(folder) as fd:
            self._fd = os.dup(fd)
        for _ in range(_PROBES):
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_PROBE_S)
            else:
                return
        os.close(self._fd)
        raise Occupied(_read_note(folder))

    def tell(self, note: Note) -> bool:
        """Leave a note for whoever may read the rings; False if the folder can't be written."""
        staging = self.folder / f"{NOTE_NAME}.{os.getpid()}"
        try:
            readable = 0o040 if os.fstat(self._fd).st_mode & stat.S_IRGRP else 0
            staging.write_bytes(msgspec.json.encode(note))
            staging.chmod(0o600 | readable)
            staging.rename(self.folder / NOTE_NAME)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Let the next agent come."""
        with contextlib.suppress(OSError):
            (self.folder / NOTE_NAME).unlink(missing_ok=True)
        os.close(self._fd)


def present_agent(folder: Path) -> Note | None:
    """The agent that reads a folder; None if none does. Raises RingError if the folder can't be opened."""
    with opened_folder(folder) as fd:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read_note(folder)
    return None


def _read_note(folder: Path) -> Note:
    try:
        return msgspec.json.decode((folder / NOTE_NAME).read_bytes(), type=Note)
    except (OSError, msgspec.MsgspecError):
        return Note()
