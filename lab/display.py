"""How the lab shows progress: live on a terminal, plain lines everywhere else."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from pushscope.lab.load import LoadPlan
from pushscope.lab.readiness import Progress, Stage
from pushscope.lab.results import RequestResult
from pushscope.telemetry.units import duration

_STYLES: dict[Stage, str] = {"ready": "green", "stopped": "dim"}
_LINES_EVERY_S = 3.0


class StartDisplay:
    """A line for each engine and the router while they start; use it as ``on_progress`` within a ``with``
    block."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: dict[str, Progress] = {}
        self._spinner = Spinner("dots")
        self._live = Live(console=console, get_renderable=self._table, refresh_per_second=8)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    def finish(self) -> None:
        """Everything is ready: leave the lines as they are."""
        self._live.stop()

    def __call__(self, progress: Progress) -> None:
        last = self._last.get(progress.name)
        self._last[progress.name] = progress
        if not self._console.is_terminal and (last is None or last.stage != progress.stage):
            self._console.print(_line(progress), highlight=False)

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 1))
        for progress in self._last.values():
            busy = progress.stage not in ("ready", "stopped")
            table.add_row(self._spinner if busy else " ", _line(progress))
        return table


def _line(progress: Progress) -> Text:
    text = Text(f"{progress.name:<8}")
    text.append(f"{progress.stage:<10}", _STYLES.get(progress.stage, "yellow"))
    return text.append(f"{progress.seconds:6.1f} s")


class LoadDisplay:
    """How far a load is; use it as ``on_result`` within a ``with`` block."""

    def __init__(self, console: Console, plan: LoadPlan, name: str = "requests") -> None:
        """``name``: what is counted."""
        self._console = console
        self._name = name
        self._total = plan.num_requests
        self._done = self._failed = 0
        self._last_line = time.monotonic()
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task(name, total=plan.num_requests)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def __call__(self, result: RequestResult) -> None:
        self._done += 1
        self._failed += not result.ok
        if self._console.is_terminal:
            self._bar.update(self._task, completed=self._done, description=self._description(result))
        elif time.monotonic() - self._last_line >= _LINES_EVERY_S:
            self._last_line = time.monotonic()
            total = f" of {self._total}" if self._total else ""
            self._console.print(f"{self._done}{total} {self._description(result)}", highlight=False)

    def _description(self, result: RequestResult) -> str:
        ttft = "" if result.ttft_s is None else f", TTFT {duration(result.ttft_s)}"
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self._name}{failed}{ttft}"
