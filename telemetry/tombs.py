"""What is kept of what was closed: enough to know it again when it is spoken of later. Bounded."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, NamedTuple, TypeVar

MAX_TOMBS: Final = 50_000
T = TypeVar("T")


class Tomb(NamedTuple, Generic[T]):
    """What is kept of a half, or of a base id, that was closed."""

    last_t: int
    """The time of its last event."""
    spoken_ns: int
    """When it was last spoken of."""
    kept: T


class Tombs(Generic[T]):
    """By the hash of an identity, or of a base id (there are many), in the order of being spoken of."""

    def __init__(self) -> None:
        self._tombs: OrderedDict[int, Tomb[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tombs)

    def of(self, name: object) -> Tomb[T] | None:
        return self._tombs.get(hash(name))

    def put(self, name: object, last_t: int, kept: T, now_ns: int) -> None:
        self._tombs.pop(hash(name), None)  # to the end
        self._tombs[hash(name)] = Tomb(last_t, now_ns, kept)

    def speak_of(self, name: object, now_ns: int) -> None:
        """Keep it longer, if it is here."""
        if tomb := self.of(name):
            self.put(name, tomb.last_t, tomb.kept, now_ns)

    def remove(self, name: object) -> None:
        del self._tombs[hash(name)]

    def forget_before(self, horizon_ns: int) -> None:
        """Those last spoken of before ``horizon_ns``, and the oldest if there are too many."""
        while self._tombs and (
            len(self._tombs) > MAX_TOMBS or next(iter(self._tombs.values())).spoken_ns < horizon_ns
        ):
            self._tombs.popitem(last=False)
