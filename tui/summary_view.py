"""A summary as tables for a terminal or a pipe: 80 columns suffice, no colour is needed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pushscope.telemetry import units
from pushscope.telemetry.pace import Times
from pushscope.telemetry.summary import Phase, StuckCause, Summary
from pushscope.tui.columns import Cell
from pushscope.tui.header import flow
from pushscope.tui.report_view import counts, heading, plain_table, say

_LABEL_CELLS = 18


def render_summary(summary: Summary, console: Console) -> None:
    """Print a summary."""
    total = summary.total
    if total is None or not (total.transfers or total.stuck):
        say(console, "No transfers ended, and nothing was stuck.")
        return
    for pieces in _told(total):
        console.print(flow([Cell(piece) for piece in pieces], console.width))
    if total.stages:
        heading(console, "Stages")
        console.print(_stage_table(total, console.width))
    if summary.phases:
        heading(console, "Between marks")
        console.print(_phase_table(summary.phases, console.width))
        if summary.phases_dropped:
            say(console, f"{units.count(summary.phases_dropped)} older phases are in the total only.", "dim")
    if total.stuck:
        heading(console, "What was stuck")
        for cause in total.stuck:
            say(console, _stuck(cause))


def _told(phase: Phase) -> Iterable[list[str]]:
    yield [
        f"{units.count(phase.transfers)} transfers in {units.duration(phase.end_unix_s - phase.begin_unix_s)}",
        f"{units.rate(phase.delivered_per_s)} delivered",
        units.size(phase.num_bytes),
        units.byte_rate(phase.bytes_per_s),
    ]
    if phase.outcomes:
        yield counts("outcomes", phase.outcomes)
    for mode, times in phase.exposed.items():
        p50, p90, p99, longest = _durations(times)
        yield [f"exposed time, {mode}: p50 {p50}", f"p90 {p90}", f"p99 {p99}", f"max {longest}"]


def _durations(times: Times) -> list[str]:
    return [units.duration(value) for value in (times.p50_s, times.p90_s, times.p99_s, times.max_s)]


def _stage_table(phase: Phase, width: int) -> Table:
    table = plain_table("stage", width)
    for name in ("mode", "n", "p50", "p90", "p99", "max"):
        table.add_column(name, justify="right", no_wrap=True)
    for pace in phase.stages:
        stage = Text(("≤ " if pace.upper_bound else "") + pace.stage.value)
        table.add_row(stage, pace.mode, units.count(pace.times.count), *_durations(pace.times))
    return table


def _phase_table(phases: Iterable[Phase], width: int) -> Table:
    table = plain_table("from", width)
    table.add_column("mark", no_wrap=True)
    for name in ("for", "ended", "bad", "delivered", "exposed p50", "p99", "stuck"):
        table.add_column(name, justify="right", no_wrap=True)
    for phase in phases:
        begin = datetime.fromtimestamp(phase.begin_unix_s).astimezone()
        slowest = max(phase.exposed.values(), key=lambda times: times.p99_s or 0, default=Times())
        table.add_row(
            f"{begin:%H:%M:%S}",
            Text(units.clean(phase.label, _LABEL_CELLS)),
            units.age(phase.end_unix_s - phase.begin_unix_s),
            units.count(phase.transfers),
            units.count(phase.bad),
            units.rate(phase.delivered_per_s),
            *(units.duration(value) for value in (slowest.p50_s, slowest.p99_s)),
            units.count(sum(cause.subjects for cause in phase.stuck)),
        )
    return table


def _stuck(cause: StuckCause) -> str:
    return (
        f"{cause.severity.value} {cause.code}: {units.count(cause.subjects)}, the longest for "
        f"{units.age(cause.longest_s)} ({units.shorten(cause.example, 40)}): {units.clean(cause.sentence)}"
    )
