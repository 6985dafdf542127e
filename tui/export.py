"""What is shown, as a file: the rows of the tables as JSON or CSV, the screen as SVG."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.units import clean
from pushscope.tui.selection import Selection
from pushscope.tui.table_kind import TableKind

FORMATS: Final = ("json", "csv", "svg")
_WIDE: Final = 10_000
"""Cells for a column in a file: nothing is cut."""

Shown = tuple[TableKind[Any], Selection[Any]]
"""A table, and all rows that fit its filter, in its order."""


def as_json(view: str, tables: Sequence[Shown], snapshot: Snapshot, filtered_by: str) -> bytes:
    """The rows as the data that they are drawn from; times as in ``pushscope top --json``."""
    document = {
        "view": view,
        "taken_unix_s": snapshot.taken_unix_s,
        "taken_ns": snapshot.taken_ns,
        "source": snapshot.source,
        "filter": filtered_by,
        "notices": snapshot.notices,
        "tables": [
            {"title": kind.title, "sorted_by": shown.sort, "total": shown.total, "rows": shown.rows}
            for kind, shown in tables
        ],
    }
    return msgspec.json.encode(document) + b"\n"


def as_csv(table: Shown, snapshot: Snapshot) -> bytes:
    """One table as it is read: the titles, then the words of each cell, nothing cut."""
    kind, shown = table
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(column.title for column in kind.columns)
    for row in shown.rows:
        writer.writerow(_harmless(column.cell(row, snapshot, _WIDE).text) for column in kind.columns)
    return out.getvalue().encode()


def write(folder: Path, view: str, kind: str, data: bytes, *, now: float | None = None) -> Path:
    """Write a new file, named after the view and the time. Raises PushscopeError if it can't be written."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    for number in range(100):
        path = folder / f"pushscope-{view}-{stamp}{f'-{number}' if number else ''}.{kind}"
        try:
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            continue
        except OSError as e:
            raise PushscopeError(
                f"cannot write {path}: {e.strerror}; start it in a folder that you may write"
            ) from e
        return path
    raise PushscopeError(f"{folder} has a hundred exports of this second; wait a moment")


def _harmless(text: str) -> str:
    # A spreadsheet takes a text that begins so for a formula.
    text = clean(text)
    return f"'{text}" if text[:1] in ("=", "+", "@") or (text[:1] == "-" and len(text) > 1) else text
