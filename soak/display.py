"""How far a soak is: a bar on a terminal, a line now and then everywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_LINE_EVERY_S = 30.0
OnProgress = Callable[[int, int], None]
"""Called with the transfers (or what else there is to do), and the diagnoses of severity error, so far."""


@contextmanager
def display(name: str, total: int, unit: str = "transfers") -> Iterator[OnProgress]:
    """Within the block, call what this gives."""
    console = Console()
    columns = TextColumn("{task.description}"), BarColumn(30), MofNCompleteColumn()
    times = TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.fields[errors]} errors")
    with Progress(*columns, *times, console=console, disable=not console.is_terminal) as bars:
        task = bars.add_task(name, total=total, errors=0)
        said = time.monotonic()

        def show(done: int, errors: int) -> None:
            nonlocal said
            bars.update(task, completed=min(done, total), errors=errors)
            if not console.is_terminal and time.monotonic() - said >= _LINE_EVERY_S:
                said = time.monotonic()
                print(f"{name}: {done:,} of {total:,} {unit}, {errors} errors", flush=True)

        yield show
