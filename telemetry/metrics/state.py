"""The figures as they are saved, with what must not be counted twice: after a restart they go on where they were.

An agent that starts reads every ring from its oldest event on, and meets what an earlier one had counted. How far each
ring was counted is a number in it (:class:`.place.Mark`); of transfers, which halves were counted. Both are saved with
the figures, as one, so that they can't disagree.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.metrics.figures import Figures
from pushscope.telemetry.metrics.place import Mark

VERSION: Final = 1
MAX_HALVES: Final = 65_536
"""A ring of the default size holds fewer than 3,000 transfers."""


class State(msgspec.Struct, kw_only=True):
    """Everything that is counted, and how far."""

    version: int = VERSION
    figures: Figures = {}
    marks: dict[str, Mark] = {}
    """By the ring's instance."""
    halves: tuple[int, ...] = ()
    """Of transfers that were counted: digests, the oldest first."""
    saved_ns: int = 0
    """CLOCK_MONOTONIC: what happened later is not in it."""
    evicted: int = 0


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(State).decode


def save(state: State) -> bytes:
    """The state's bytes."""
    return _encode(state)


def load(data: bytes) -> State:
    """The state in ``data``; raises PushscopeError if it is none of this version."""
    try:
        state = _decode(data)
    except msgspec.MsgspecError as e:
        raise PushscopeError(f"expected saved metrics, found something else: {e}") from e
    if state.version != VERSION:
        raise PushscopeError(f"expected saved metrics of version {VERSION}, found version {state.version}")
    return state


class Ledger:
    """Which halves of transfers were counted: now, and by those before us."""

    def __init__(self, halves: tuple[int, ...]):
        self._before = frozenset(halves)
        self._all = dict.fromkeys(halves)

    def counted_before(self, engine_id: str, request_id: str) -> bool:
        """Whether an earlier process counted this half; if not, it is noted as counted."""
        half = _digest(engine_id, request_id)
        if half in self._before:
            return True
        self._all[half] = None
        if len(self._all) > MAX_HALVES:
            del self._all[next(iter(self._all))]
        return False

    def halves(self) -> tuple[int, ...]:
        return tuple(self._all)


def _digest(engine_id: str, request_id: str) -> int:
    text = f"{engine_id}\0{request_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest())
