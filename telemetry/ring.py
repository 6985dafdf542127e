"""The ring file: the one thing that an engine and its readers share.

Layout, little endian::

    0     header page, 4096 bytes
          0   magic, 8 bytes, written last
          8   u32 layout version · u32 slot bytes · u32 number of slots · u32 length and u32 crc32 of
          28  the origin: msgpack of events.Origin
    4096  slots of 256 bytes; event number n (from 1) lies in slot n % slots
          0   u64 n · u16 payload length · u32 crc32 of the payload, seeded with n
          14  payload: one encoded event, at most 234 bytes
          248 u64 n again, written last: the commit word

A slot is written by slice assignment, commit word last. ``struct.pack_into`` on a mapped file stores byte
by byte and readers of another process see half-written words; a slice assignment is one ``memcpy``, whose
words are whole but whose order across words nothing promises. Hence the checksum: a slot counts only if
both numbers agree and the payload matches its crc.

Writers are several threads of one process. A slot is claimed by ``next(itertools.count())``, atomic in
CPython; a thread that is preempted between claim and commit leaves a hole, which readers skip after 100 ms.
Readers are any number, in any process, and never write.

The writer holds ``flock(LOCK_EX)`` for life: its end, however it comes, is seen as a lock that a reader can
share. The space is reserved before it is mapped, since a write through a sparse mapping of a full tmpfs is
a SIGBUS that no ``except`` catches.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import mmap
import os
import secrets
import stat
import struct
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.events import MAX_EVENT_BYTES, VOCABULARY_VERSION, Origin

MAGIC: Final = b"PUSHSCOP"
LAYOUT_VERSION: Final = 1 << 16 | VOCABULARY_VERSION
HEADER_BYTES: Final = 4096
SLOT_BYTES: Final = 256
DEFAULT_BYTES: Final = 4 << 20
SUFFIX: Final = ".ring"
HOLE_NS: Final = 100_000_000
"""A claimed slot that is still not committed after this long is skipped."""
REAP_AFTER_S: Final = 24 * 3600.0

_HEADER: Final = struct.Struct("<8sIIIII")
_SLOT: Final = struct.Struct("<QHI")
_COMMIT_AT: Final = SLOT_BYTES - 8
_COMMIT: Final = struct.Struct("<Q")
_LOOK_AHEAD: Final = 64
"""Holes are at most as many as threads that write; nothing committed this far ahead means nothing new."""


class RingError(PushscopeError):
    """A ring or its folder cannot be used; the message says what was expected, found, and what to do."""


def default_folder() -> Path:
    """``$PUSHSCOPE_DIR``, else ``/dev/shm/pushscope-<uid>``."""
    return Path(os.environ.get("PUSHSCOPE_DIR") or f"/dev/shm/pushscope-{os.getuid()}")


# -- the folder ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def opened_folder(folder: Path, *, create: bool = False, group: str | None = None) -> Iterator[int]:
    """A descriptor of the folder of rings, checked: a real folder, not a link, that nobody else can write.

    With ``create`` it is made if missing (0700, or 0750 for ``group``), and must be ours.
    """
    made = _make(folder, group) if create else False
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as e:
        raise RingError(
            f"expected a folder of rings at {folder}, found none that can be opened ({e.strerror}); start an "
            f"engine with pushscope.connector, or set PUSHSCOPE_DIR to the folder that it uses"
        ) from e
    try:
        info = os.fstat(fd)
        if create and info.st_uid != os.getuid():
            raise RingError(
                f"the ring folder {folder} belongs to user {info.st_uid}, not to {os.getuid()} who runs "
                f"this engine; remove it or set PUSHSCOPE_DIR to another folder"
            )
        if stat.S_IMODE(info.st_mode) & 0o022:
            raise RingError(
                f"the ring folder {folder} can be written by other users "
                f"(mode {stat.S_IMODE(info.st_mode):o}); expected 700 or 750: chmod it, or use another folder"
            )
        if create and group is not None and not made:
            with contextlib.suppress(OSError):  # a read-only file system says so when the ring is made
                _share(fd, group)
        yield fd
    finally:
        os.close(fd)


def _make(folder: Path, group: str | None) -> bool:
    """Make the folder if it is missing, for us alone or for ``group``. One that is there keeps its mode: it may
    be everybody's."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.is_symlink() or folder.exists():
            return False
        folder.mkdir(mode=0o700, exist_ok=True)  # another engine may come first
    except OSError as e:
        raise RingError(
            f"cannot make the ring folder {folder}: {e.strerror}; set PUSHSCOPE_DIR to a folder that this user "
            f"can write"
        ) from e
    if group is not None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _share(fd, group)
        finally:
            os.close(fd)
    return True


def _share(folder_fd: int, group: str) -> None:
    os.fchown(folder_fd, -1, _group_id(group))
    os.fchmod(folder_fd, 0o750)


def _group_id(group: str) -> int:
    import grp  # noqa: PLC0415 - only where the option is used

    try:
        return int(group) if group.isdigit() else grp.getgrnam(group).gr_gid
    except KeyError:
        raise RingError(f'option "group" names {group!r}, which is no group of this host') from None


def reap(folder_fd: int, *, older_than_s: float = REAP_AFTER_S) -> int:
    """Remove rings whose engine is gone and that nothing has touched for ``older_than_s``; returns how many."""
    removed = 0
    for name in [name for name in os.listdir(folder_fd) if name.endswith(SUFFIX)]:
        with contextlib.suppress(OSError):
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder_fd)
            try:
                info = os.fstat(fd)
                age_s = time.time() - max(info.st_mtime, info.st_ctime)
                if age_s > older_than_s and not _is_locked(fd):
                    os.unlink(name, dir_fd=folder_fd)
                    removed += 1
            finally:
                os.close(fd)
    return removed


def _is_locked(fd: int) -> bool:
    """Whether a writer holds the file. Shared, so that two readers never take each other for an engine."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


# -- writing ------------------------------------------------------------------------------------------


def _discard(payload: bytes) -> None:
    """What ``write`` is on a closed ring."""


class RingWriter:
    """A new ring, held by this process. ``write(payload)`` appends one encoded event, from any thread."""

    write: Callable[[bytes], None]

    def __init__(
        self, folder: Path, origin: Origin, *, num_bytes: int = DEFAULT_BYTES, group: str | None = None
    ):
        num_slots = (num_bytes - HEADER_BYTES) // SLOT_BYTES
        if num_slots < _LOOK_AHEAD:
            raise RingError(
                f'option "bytes" is {num_bytes}; a ring needs at least '
                f"{HEADER_BYTES + _LOOK_AHEAD * SLOT_BYTES} bytes"
            )
        with opened_folder(folder, create=True, group=group) as folder_fd:
            reap(folder_fd)
            size = HEADER_BYTES + num_slots * SLOT_BYTES
            _check_room(folder, folder_fd, size)
            instance = f"{origin.pid}-{origin.connector_role}-{origin.pp_rank}.{origin.tp_rank}-{secrets.token_hex(4)}"
            self.origin = msgspec.structs.replace(origin, instance=instance)
            self.path = folder / (instance + SUFFIX)
            self.num_slots = num_slots
            header, mode = _header(self.origin, num_slots), 0o600 if group is None else 0o640
            try:
                self._fd, self._map = _publish(folder_fd, self.path.name, size, header, mode)
            except OSError as e:
                raise RingError(
                    f"cannot make a ring of {size} bytes in {folder}: {e.strerror}; free space there, or set "
                    f"PUSHSCOPE_DIR to another folder"
                ) from e
        self.write = _appender(self._map, num_slots)
        _open_writers.add(self)

    def close(self) -> None:
        """Let go of the file, which stays for readers until it is reaped."""
        self.write = _discard
        _open_writers.discard(self)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            # A thread inside `write` may still use the mapping: it then gets a ValueError, which is caught.
            self._map.close()

    @property
    def closed(self) -> bool:
        return self._fd < 0


_open_writers: weakref.WeakSet[RingWriter] = weakref.WeakSet()


def _abandon_in_child() -> None:
    # A forked child shares the lock and the mapping: it would keep a dead engine alive, and write into its ring.
    for writer in list(_open_writers):
        writer.close()


os.register_at_fork(after_in_child=_abandon_in_child)


def _appender(mapping: mmap.mmap, num_slots: int) -> Callable[[bytes], None]:
    """The hot path. A closure, since its five names are then local."""
    claim = itertools.count(1).__next__
    pack_slot, pack_commit = _SLOT.pack, _COMMIT.pack

    def write(payload: bytes) -> None:
        n = claim()
        at = HEADER_BYTES + n % num_slots * SLOT_BYTES
        length = len(payload)
        mapping[at : at + 14 + length] = pack_slot(n, length, crc32(payload, n & 0xFFFFFFFF)) + payload
        at += _COMMIT_AT
        mapping[at : at + 8] = pack_commit(n)

    return write


def _header(origin: Origin, num_slots: int) -> bytes:
    body = msgspec.msgpack.encode(origin)
    if _HEADER.size + len(body) > HEADER_BYTES:
        raise RingError(
            f"the engine describes itself in {len(body)} bytes, a ring header holds {HEADER_BYTES - _HEADER.size}; "
            f"shorten the engine id or the side-channel host"
        )
    return _HEADER.pack(MAGIC, LAYOUT_VERSION, SLOT_BYTES, num_slots, len(body), crc32(body)) + body


def room_for_others(total_bytes: int) -> int:
    """What a new ring must leave free of a file system of that size."""
    return min(total_bytes // 2, 1 << 30)


def _check_room(folder: Path, folder_fd: int, size: int) -> None:
    """Engines keep queues in /dev/shm, which containers make small: never take what they may need."""
    fs = os.fstatvfs(folder_fd)
    left = fs.f_bavail * fs.f_frsize - size
    if left < room_for_others(fs.f_blocks * fs.f_frsize):
        raise RingError(
            f"a ring of {size} bytes would leave {max(left, 0)} bytes in {folder}, less than half of that file "
            f"system; enlarge it (--shm-size, emptyDir sizeLimit), or set PUSHSCOPE_DIR to another folder"
        )


def _publish(folder_fd: int, name: str, size: int, header: bytes, mode: int) -> tuple[int, mmap.mmap]:
    """Make the file whole and locked before it has its name."""
    try:
        fd = os.open(".", os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, mode, dir_fd=folder_fd)
        staging = None
    except OSError:  # a file system without O_TMPFILE
        staging = name + ".staging"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(staging, flags, mode, dir_fd=folder_fd)
    try:
        if mode & 0o040:  # for a group: the folder's
            os.fchown(fd, -1, os.fstat(folder_fd).st_gid)
        os.fchmod(fd, mode)  # whatever the umask
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.posix_fallocate(fd, 0, size)
        mapping = mmap.mmap(fd, size)
        mapping[8 : len(header)] = header[8:]
        mapping[0:8] = header[:8]
        if staging is None:
            os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=folder_fd, follow_symlinks=True)
        else:
            os.rename(staging, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    except BaseException:
        os.close(fd)
        if staging is not None:
            with contextlib.suppress(OSError):
                os.unlink(staging, dir_fd=folder_fd)
        raise
    return fd, mapping


# -- reading ------------------------------------------------------------------------------------------


class RingReader:
    """One ring, read from its oldest event on, or on from position ``after``. Never writes; any number may read it.

    ``lost`` counts events that were overwritten before they were read, or since ``after``; ``torn`` those whose slot
    was claimed and never committed, or is damaged; ``forgotten`` those that were gone before this reader came.
    """

    def __init__(self, path: Path, after: int | None = None):
        self.path = path
        self.torn = 0
        self._hole_since: int | None = None
        try:
            # Not blocking: somebody's pipe of that name would make us wait for ever.
            self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as e:
            raise RingError(f"expected a ring at {path}, it cannot be opened: {e.strerror}") from e
        try:
            self.origin, self._num_slots = _read_header(self._fd, path)
            self._map = mmap.mmap(self._fd, HEADER_BYTES + self._num_slots * SLOT_BYTES, prot=mmap.PROT_READ)
        except BaseException:
            os.close(self._fd)
            raise
        self._newest_at_start = self._newest()
        oldest = max(1, self._newest_at_start - self._num_slots + 1)
        read = oldest - 1 if after is None else min(after, self._newest_at_start)
        self._next = max(oldest, read + 1)
        self.forgotten = 0 if after is not None else read
        self.lost = self._next - 1 - read

    @property
    def position(self) -> int:
        """The number of the last event that was read, or passed over: where another reader may go on."""
        return self._next - 1

    def alive(self) -> bool:
        """Whether the engine still holds the ring."""
        return _is_locked(self._fd)

    def poll(self, now_ns: int, at_most: int = 1 << 60) -> list[bytes]:
        """The encoded events that came since the last call, in the order in which they were claimed."""
        payloads: list[bytes] = []
        while len(payloads) < at_most:
            payload, n = self._read(self._next)
            if payload is not None and n == self._next:
                payloads.append(payload)
                self._next += 1
                self._hole_since = None
            elif payload is not None and n > self._next:
                # Lapped: go on well behind the writer, not right in front of it.
                resume = n - self._num_slots + self._num_slots // 8 + 1
                self.lost += resume - self._next
                self._next = resume
            elif not self._anything_after(self._next):
                return payloads
            elif self._hole_since is None:
                self._hole_since = now_ns
                return payloads
            elif now_ns - self._hole_since < HOLE_NS:
                return payloads
            else:
                self.torn += 1
                self._next += 1
                self._hole_since = None
        return payloads

    def close(self) -> None:
        self._map.close()
        os.close(self._fd)

    def _read(self, n: int) -> tuple[bytes | None, int]:
        """The event that now lies in the slot of ``n``, with its number; None while the slot is not whole."""
        at = HEADER_BYTES + n % self._num_slots * SLOT_BYTES
        for _ in range(2):  # a second look, in case the copy fell into a write
            slot = self._map[at : at + SLOT_BYTES]
            found, length, crc = _SLOT.unpack_from(slot)
            payload = slot[14 : 14 + length]
            if (
                found
                and length <= MAX_EVENT_BYTES
                and _COMMIT.unpack_from(slot, _COMMIT_AT)[0] == found
                and crc32(payload, found & 0xFFFFFFFF) == crc
            ):
                return payload, found
        return None, 0

    def _anything_after(self, n: int) -> bool:
        ahead = range(n + 1, n + _LOOK_AHEAD)
        return n < self._newest_at_start or any(self._read(later)[1] >= later for later in ahead)

    def _newest(self) -> int:
        return max(n for slot in range(self._num_slots) if (n := self._read(slot)[1]) or slot == 0)


def _read_header(fd: int, path: Path) -> tuple[Origin, int]:
    page = os.pread(fd, HEADER_BYTES, 0) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    if len(page) < HEADER_BYTES or page[:8] != MAGIC:
        raise RingError(f"expected a pushscope ring at {path}, found another kind of file; remove it")
    _, version, slot_bytes, num_slots, length, crc = _HEADER.unpack_from(page)
    if version != LAYOUT_VERSION:
        raise RingError(
            f"the ring {path} has layout {version >> 16}.{version & 0xFFFF}, this pushscope reads "
            f"{LAYOUT_VERSION >> 16}.{LAYOUT_VERSION & 0xFFFF}; use the pushscope that the engine uses"
        )
    body = page[_HEADER.size : _HEADER.size + length]
    whole = os.fstat(fd).st_size >= HEADER_BYTES + num_slots * slot_bytes and crc32(body) == crc
    if slot_bytes != SLOT_BYTES or num_slots < 1 or not whole:
        raise RingError(f"the header of the ring {path} is damaged; remove the file")
    try:
        return msgspec.msgpack.decode(body, type=Origin), num_slots
    except msgspec.MsgspecError as e:
        raise RingError(f"the header of the ring {path} cannot be read ({e}); remove the file") from e
