"""What a table is: which rows, in which columns and orders, and by what they are filtered."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic

from pushscope.telemetry.snapshot import Snapshot
from pushscope.tui.columns import Column, R
from pushscope.tui.query import Fields


@dataclass(frozen=True)
class Sort(Generic[R]):
    """An order of rows; ``key`` None means: as the snapshot has them."""

    name: str
    key: Callable[[R, Snapshot], Any] | None = None
    column: str = ""
    """The title of the column that a click on sorts so."""


@dataclass(frozen=True)
class TableKind(Generic[R]):
    """One of the tables."""

    title: str
    empty: str
    """What is said when there is nothing to show."""
    rows: Callable[[Snapshot], tuple[R, ...]]
    columns: tuple[Column[R], ...]
    sorts: tuple[Sort[R], ...]
    identity: Callable[[R], Hashable]
    """What stays the same from one snapshot to the next: by it the cursor stays on its row."""
    fields: Fields
    only_if_any: bool = False
    """Shown only while it has rows."""
