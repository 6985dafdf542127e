"""What an agent must not export twice: the transfers whose spans are out, and how many spans went which way.

An agent that starts reads every ring from its oldest event on, and meets transfers again that an earlier one had
exported. The journal tells it which. It is a file of records, each written at once and with its checksum, so that
after ``kill -9`` it is good up to its end; what is lost is at most what the last batch was about to say. When it
has grown it is written anew, whole, and renamed into place. What is counted for metrics is kept apart
(:mod:`.exposition`).

A transfer is known by its halves: (engine, request id) of D if D is known, else of P. Both are noted, since of a
transfer whose rings have been written over in part, less may be seen the second time.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from pushscope.telemetry.agent.files import content, replaced, write_whole
from pushscope.telemetry.transfer import Transfer

NAME: Final = "agent.journal"
MAGIC: Final = b"PUSHSCOPE JOURNAL 2\n"
MAX_KEYS: Final = 65_536
"""A ring of the default size holds fewer than 3,000 transfers."""
_FRAME: Final = struct.Struct("<II")
_MAX_FILE_BYTES: Final = 4 << 20
"""Everything it can know takes a sixth of that."""


class _Record(msgspec.Struct, array_like=True):
    """What is new since the record before it."""

    exported: tuple[int, ...] = ()
    counts: dict[str, float] = {}
    """Whole values, not differences, of the counters that changed."""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Record).decode


def keys_of(transfer: Transfer) -> tuple[int, ...]:
    """What a transfer is known by: first what decides (D's half, or P's where D is not known), then the other."""
    halves = ((transfer.d_engine, transfer.d_request), (transfer.p_engine, transfer.p_request))
    return tuple(_key(engine, request) for engine, request in halves if engine and request)


def _key(engine: str, request: str) -> int:
    return int.from_bytes(blake2b(f"{engine}\0{request}".encode(), digest_size=8).digest(), "little")


class Journal:
    """The journal of one agent; before it is opened it knows nothing. Any thread may use it.

    ``trouble`` says, in words, why nothing is written, or what was lost; the agent goes on without.
    """

    def __init__(self) -> None:
        self._path = Path(NAME)
        self._lock = threading.Lock()
        self._exported: dict[int, None] = {}
        self._counts: Counter[str] = Counter()
        self.trouble = ""
        self._fd = -1
        self._num_bytes = 0

    def open(self, folder: Path) -> Journal:
        """Know what earlier agents have noted in a folder, made if it is missing, and note there from now on."""
        with contextlib.suppress(OSError):  # it shows when the journal is written
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / NAME
        with self._lock:
            self._read()
            self._write_anew()
        return self

    # -- asking ------------------------------------------------------------------------------------

    def is_exported(self, keys: tuple[int, ...]) -> bool:
        """Whether what a transfer had to say was exported, or dropped and counted as dropped."""
        return bool(keys) and keys[0] in self._exported

    def counts(self) -> Mapping[str, float]:
        """Every counter, over all agents that used this journal."""
        with self._lock:
            return dict(self._counts)

    # -- noting ------------------------------------------------------------------------------------

    def exported(self, keys: Iterable[int], added: Mapping[str, float]) -> None:
        """Transfers are exported, or dropped, which adds this to the counters: one record, both or neither."""
        with self._lock:
            self._counts.update(added)
            record = _Record(tuple(keys), {name: self._counts[name] for name in added})
            self._fold(record)
            if self._fd >= 0:
                self._append(record)

    def close(self) -> None:
        """Write nothing more."""
        with self._lock:
            self._let_go()

    def _fold(self, record: _Record) -> None:
        self._exported.update(dict.fromkeys(record.exported))
        for _ in range(len(self._exported) - MAX_KEYS):
            del self._exported[next(iter(self._exported))]
        self._counts.update({name: value - self._counts[name] for name, value in record.counts.items()})

    # -- the file ----------------------------------------------------------------------------------

    def _append(self, record: _Record) -> None:
        frame = _framed(record)
        try:
            if self._num_bytes + len(frame) > _MAX_FILE_BYTES:
                self._replace()
            else:
                write_whole(self._fd, frame)
                self._num_bytes += len(frame)
        except OSError as e:
            self._fails(e)

    def _write_anew(self) -> None:
        """One record with everything: what was damaged is gone, and what can't be written shows at the start."""
        try:
            self._replace()
        except OSError as e:
            self._fails(e)

    def _replace(self) -> None:
        data = MAGIC + _framed(_Record(tuple(self._exported), dict(self._counts)))
        fd = replaced(self._path, data)
        self._let_go()
        self._fd, self._num_bytes = fd, len(data)

    def _fails(self, error: OSError) -> None:
        self._let_go()
        self.trouble = (
            f"the journal {self._path} can't be written ({error.strerror}): after a restart the agent exports "
            f"again what the rings still hold"
        )

    def _let_go(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> None:
        try:
            data = content(self._path, 2 * _MAX_FILE_BYTES)
        except OSError as e:
            self.trouble = f"the journal {self._path} can't be read ({e.strerror}): an agent starts anew"
            return
        if data is None:
            return
        if not data.startswith(MAGIC):
            self.trouble = f"the journal {self._path} is of another version: an agent starts anew"
            return
        at = len(MAGIC)
        while (record := _record_at(data, at)) is not None:
            found, at = record
            self._fold(found)


def _framed(record: _Record) -> bytes:
    body = _encode(record)
    return _FRAME.pack(len(body), crc32(body)) + body


def _record_at(data: bytes, at: int) -> tuple[_Record, int] | None:
    """The record that begins there, and where the next one does; None at the end, or where it is damaged."""
    if at + _FRAME.size > len(data):
        return None
    length, crc = _FRAME.unpack_from(data, at)
    body = data[at + _FRAME.size : at + _FRAME.size + length]
    if len(body) < length or crc32(body) != crc:
        return None
    try:
        return _decode(body), at + _FRAME.size + length
    except msgspec.MsgspecError:
        return None
