"""The newest few of a set: what can be kept of any stream in bounded memory, and in whatever order it comes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Newest(Generic[T]):
    """The newest ``limit`` distinct items, oldest first, whatever the order and repetition in which they come."""

    __slots__ = ("_items", "_key", "_limit", "_tuple")

    def __init__(self, limit: int, key: Callable[[T], Any]):
        self._limit = limit
        self._key = key
        """Tells any two distinct items apart, and begins with their time."""
        self._items: list[T] = []
        self._tuple: tuple[T, ...] | None = ()

    def add(self, item: T) -> None:
        items, key = self._items, self._key(item)
        at = len(items)
        if items and key <= self._key(items[-1]):
            at = bisect_left(items, key, key=self._key)
            if at < len(items) and self._key(items[at]) == key:
                return
        if at == 0 and len(items) == self._limit:
            return
        items.insert(at, item)
        if len(items) > self._limit:
            del items[0]
        self._tuple = None

    def all(self) -> tuple[T, ...]:
        if self._tuple is None:
            self._tuple = tuple(self._items)
        return self._tuple
