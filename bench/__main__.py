"""``python -m bench [NAME…] [--pairs N] [--json FILE]``: benchmarks against the budgets, as ratios in one run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bench import figure as bench_figure
from bench.catalogue import BENCHES, chosen
from bench.child import run_apart
from bench.figure import BenchError, Figure, Settings
from bench.machine import Machine, this_machine
from bench.table import figures_table

FAILED, MISUSED, INTERRUPTED = 1, 2, 130


class Report(msgspec.Struct, frozen=True):
    """What ``--json`` writes."""

    machine: Machine
    figures: dict[str, list[Figure]]
    """By bench."""
    failed: dict[str, str]
    """Benches that could not run, and why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named benches and print one table. A missed budget is no failure."""
    options = _parser().parse_args(arguments)
    console = Console()
    try:
        names = chosen(options.names)
    except BenchError as e:
        print(f"bench: {e}", file=sys.stderr)
        return MISUSED
    machine = this_machine()
    report = Report(machine, {}, {})
    settings = Settings(options.pairs)
    with _display(console) as follow:
        for name in names:
            try:
                report.figures[name] = run_apart(name, settings, follow(name))
            except BenchError as e:
                report.failed[name] = str(e)
    console.print(figures_table([each for figures in report.figures.values() for each in figures]))
    for name, why in report.failed.items():
        console.print(f"{name} could not run: {why}", style="red", markup=False)
    console.print(machine.line(), markup=False, highlight=False)
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    return FAILED if report.failed else 0


def _parser() -> argparse.ArgumentParser:
    about = "\n".join(f"  {name:9} {bench.about}" for name, bench in BENCHES.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Benchmarks of pushscope against its budgets, as ratios in one run.",
        epilog=f"benches:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a bench; without one all of them")
    parser.add_argument(
        "--pairs", type=_at_least_two, default=30, help="interleaved pairs of loads (default 30)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    return parser


def _at_least_two(text: str) -> int:
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"expected a number of at least 2, found {text!r}")
    return int(text)


class _Lines:
    """Progress without a terminal: a line when a bench begins, and when it comes to something else."""

    def __call__(self, name: str) -> bench_figure.Progress:
        print(f"{name}: {BENCHES[name].about}", flush=True)
        said = ""

        def progress(done: float, text: str) -> None:
            nonlocal said
            kind = text.rstrip("0123456789 of")
            if kind != said:
                said = kind
                print(f"{name}: {done:4.0%} {text}", flush=True)

        return progress


class _Bars:
    """Progress on a terminal: a bar for each bench."""

    def __init__(self, bars: Progress):
        self._bars = bars

    def __call__(self, name: str) -> bench_figure.Progress:
        task = self._bars.add_task(name, total=1.0, text="starting")
        return lambda done, text: self._bars.update(task, completed=done, text=text)


@contextmanager
def _display(console: Console) -> Iterator[_Lines | _Bars]:
    if not console.is_terminal:
        yield _Lines()
        return
    columns = (
        TextColumn("{task.description:9}"),
        BarColumn(30),
        TimeElapsedColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=console) as bars:
        yield _Bars(bars)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
