"""What every view is: some tables, drawn from the snapshot that is shown."""

from __future__ import annotations

from typing import ClassVar

from textual.containers import Vertical
from textual.widgets import Static

from pushscope.telemetry.snapshot import Snapshot
from pushscope.tui.query import Query
from pushscope.tui.table import SnapshotTable


class View(Vertical):
    """One of the views. ``NAME`` is its id, ``TITLE`` stands in the line of views."""

    NAME: ClassVar[str]
    TITLE: ClassVar[str]

    def __init__(self) -> None:
        super().__init__(id=self.NAME)

    def show(self, snapshot: Snapshot, query: Query) -> None:
        """Draw a snapshot."""
        for table in self.tables:
            table.show(snapshot, query)
            if table.kind.only_if_any:
                table.display = bool(table.selection.total)

    @property
    def tables(self) -> list[SnapshotTable]:
        """All of its tables, from the top."""
        return list(self.query(SnapshotTable))

    @property
    def first(self) -> SnapshotTable:
        """Where the cursor goes first: the first table that is seen."""
        return next((table for table in self.tables if table.display), self.tables[0])

    @staticmethod
    def count(_: Snapshot) -> str:
        """What stands beside its title."""
        return ""

    def put(self, selector: str, content: object) -> None:
        """Set the content of one of its texts."""
        self.query_one(selector, Static).update(content)  # type: ignore[arg-type]
