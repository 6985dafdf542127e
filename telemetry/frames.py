"""Readings as bytes: what a recording holds, and what an agent streams.

A magic line, then frames: u32 length, u32 crc32, msgpack of :class:`_Rings` (a new set of rings) or
:class:`_Frame` (one poll, its rings by index into the last set). Events stay as the engine encoded them. Fields
that a later version added come last and have defaults: an older version skips them, older bytes lack them.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO, Final
from zlib import crc32

import msgspec

from pushscope.telemetry.clock import Host
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.events import Origin
from pushscope.telemetry.marks import Mark
from pushscope.telemetry.source import SAME_HOST_LAG_NS, Reading, RingState, Stamp

MAGIC: Final = b"PUSHSCOPE RECORDING 1\n"
QUIET_NS: Final = 1_000_000_000
"""A reading that has nothing new becomes a frame once in so long, so that time passes."""
_HEAD: Final = struct.Struct("<II")
_MAX_FRAME_BYTES: Final = 256 << 20


class FrameError(PushscopeError):
    """Bytes that are no frames; the message says where, and what is wrong."""


class _Rings(msgspec.Struct, frozen=True, tag="rings", array_like=True):
    origins: tuple[Origin, ...]
    host: Host | None = None


class _State(msgspec.Struct, frozen=True, array_like=True):
    """Of one ring, as in RingState."""

    alive: bool
    lost: int
    torn: int
    forgotten: int
    position: int = 0


class _Frame(msgspec.Struct, frozen=True, tag="frame", array_like=True):
    t_ns: int
    unix_ns: int
    states: tuple[_State, ...]
    events: tuple[tuple[int, bytes], ...]
    notices: tuple[str, ...] = ()
    stopped: tuple[int, ...] = ()
    """The rings, by their place, whose process was stopped."""
    lag_ns: int = SAME_HOST_LAG_NS
    stamps: tuple[Stamp, ...] = ()
    more: bool = False
    unheard: tuple[int, ...] = ()
    """The rings, by their place, of which nothing could be heard."""
    marks: tuple[Mark, ...] = ()
    asides: tuple[str, ...] = ()


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Rings | _Frame).decode


class Encoder:
    """Readings in, bytes out; the first come after ``MAGIC``."""

    def __init__(self) -> None:
        self._rings: _Rings | None = None
        self._last_states: object = None
        self._last_t_ns = 0

    def encode(self, reading: Reading) -> bytes:
        """The bytes of a reading; none for one that has nothing new, but for one a second."""
        rings = _Rings(tuple(state.origin for state in reading.rings), reading.host)
        states = tuple(_State(s.alive, s.lost, s.torn, s.forgotten, s.position) for s in reading.rings)
        stopped = tuple(place for place, state in enumerate(reading.rings) if state.stopped)
        unheard = tuple(place for place, state in enumerate(reading.rings) if state.unheard)
        standing = states, stopped, unheard
        news = reading.events or reading.marks or rings != self._rings or standing != self._last_states
        if not news and reading.t_ns - self._last_t_ns < QUIET_NS:
            return b""
        data = b"" if rings == self._rings else _framed(rings)
        self._rings, self._last_states, self._last_t_ns = rings, standing, reading.t_ns
        events = tuple(reading.events)
        told = reading.notices, stopped, reading.lag_ns, reading.stamps, reading.more, unheard
        besides = reading.marks, reading.asides
        return data + _framed(_Frame(reading.t_ns, reading.unix_ns, states, events, *told, *besides))


def _framed(frame: _Rings | _Frame) -> bytes:
    body = _encode(frame)
    return _HEAD.pack(len(body), crc32(body)) + body


def extent(file: BinaryIO) -> tuple[int, int]:
    """When the first and the last reading in a file of frames were taken: it hops from frame to frame, and decodes only
    those at the ends. ``file`` stands behind ``MAGIC``. Frames after a damaged length don't count; (0, 0): none.
    """
    size = file.seek(0, os.SEEK_END)
    at, places = len(MAGIC), []
    while at + _HEAD.size <= size:
        file.seek(at)
        length, _ = _HEAD.unpack(file.read(_HEAD.size))
        at += _HEAD.size + length
        if at > size or length > _MAX_FRAME_BYTES:
            break
        places.append((at - length, length))
    first = next((t for place in places if (t := _time_at(file, *place)) is not None), 0)
    last = next((t for place in reversed(places) if (t := _time_at(file, *place)) is not None), 0)
    return first, max(first, last)


def _time_at(file: BinaryIO, at: int, length: int) -> int | None:
    """When the reading in a frame was taken; None of a frame that has none."""
    file.seek(at)
    try:
        frame = _decode(file.read(length))
    except msgspec.MsgspecError:
        return None
    return frame.t_ns if isinstance(frame, _Frame) else None


class Decoder:
    """Bytes in, as they come; readings out, as they are whole."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._at = 0
        """Bytes of frames that were decoded."""
        self._rings = _Rings(())

    def feed(self, data: bytes) -> None:
        self._bytes += data

    def next(self) -> Reading | None:
        """The next reading; None until more is fed. Raises FrameError for bytes that are none."""
        while (body := self._body()) is not None:
            try:
                frame = _decode(body)
            except msgspec.MsgspecError as e:
                raise FrameError(f"was made by another version: {e}") from e
            if isinstance(frame, _Rings):
                self._rings = frame
                continue
            origins = self._rings.origins
            last = max((index for index, _ in frame.events), default=0)
            if len(frame.states) != len(origins) or last >= max(1, len(origins)):
                raise FrameError("is damaged: a frame speaks of rings that were not told")
            rings = tuple(
                RingState(
                    origin,
                    s.alive,
                    s.lost,
                    s.torn,
                    s.forgotten,
                    stopped=place in frame.stopped,
                    position=s.position,
                    unheard=place in frame.unheard,
                )
                for place, (origin, s) in enumerate(zip(origins, frame.states, strict=True))
            )
            told = (
                frame.notices,
                self._rings.host,
                frame.lag_ns,
                frame.stamps,
                frame.more,
                frame.marks,
                frame.asides,
            )
            return Reading(frame.t_ns, frame.unix_ns, rings, frame.events, *told)
        return None

    def _body(self) -> bytes | None:
        if len(self._bytes) < _HEAD.size:
            return None
        length, crc = _HEAD.unpack_from(self._bytes)
        end = _HEAD.size + length
        if length <= _MAX_FRAME_BYTES and len(self._bytes) < end:
            return None
        body = bytes(self._bytes[_HEAD.size : end]) if length <= _MAX_FRAME_BYTES else b""
        if length > _MAX_FRAME_BYTES or crc32(body) != crc:
            raise FrameError(f"is damaged at byte {len(MAGIC) + self._at}")
        del self._bytes[:end]
        self._at += end
        return body
