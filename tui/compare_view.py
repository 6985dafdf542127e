"""Two runs as a table: 80 columns suffice, no colour is needed."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from pushscope.telemetry import units
from pushscope.telemetry.compare import Comparison, Difference, Run, Verdict
from pushscope.tui.columns import Cell
from pushscope.tui.header import flow
from pushscope.tui.report_view import counts, heading, plain_table, say
from pushscope.tui.tones import COLOURED

_TONES = {Verdict.FASTER: "good", Verdict.SLOWER: "bad"}
_WIDE = 100
"""Cells from which on there is room for all figures; below only the first so many are shown."""
_NARROW = 5
_EXPLANATION = (
    "ratio: after / before, of the medians, with the 95 % interval by which the two\n"
    "runs vary in themselves. It does not tell how one run differs from the next of\n"
    "its kind: repeat both, in turns. A transfer counts with its slowest rank."
)


def render_comparison(comparison: Comparison, console: Console) -> None:
    """Print a comparison."""
    for name, run in (("before", comparison.before), ("after", comparison.after)):
        console.print(
            flow([Cell(f"{name}: {units.clean(run.source)}"), *map(Cell, _told(run))], console.width)
        )
    if not comparison.differences:
        say(console, "No stage was seen in either.")
        return
    heading(console, "Stage by stage")
    modes = {each.mode for each in comparison.differences}
    wide = console.width >= _WIDE
    table = plain_table("stage", console.width)
    for title in (
        "before p50",
        "after p50",
        "ratio",
        "interval",
        *(("before p99", "after p99", "n") if wide else ()),
    ):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for each in comparison.differences:
        *figures, verdict = _row(each, several=len(modes) > 1)
        table.add_row(*(figures if wide else figures[:_NARROW]), verdict)
    console.print(table)
    say(console, _EXPLANATION, "dim")


def _told(run: Run) -> list[str]:
    return [
        f"{units.count(run.transfers)} transfers in {units.duration(run.duration_s)}",
        f"{units.rate(run.delivered_per_s)} delivered",
        units.size(run.num_bytes),
        *(counts("outcomes", run.outcomes) if run.outcomes else ()),
        *([f"retries {units.count(run.retries)}"] if run.retries else []),
    ]


def _row(each: Difference, *, several: bool) -> list[str | Text]:
    name = ("≤ " if each.upper_bound else "") + each.name + (f" {each.mode}" if several else "")
    interval = "" if each.low is None or each.high is None else f"{each.low:.2f}-{each.high:.2f}"
    return [
        Text(name),
        units.duration(each.before.p50_s),
        units.duration(each.after.p50_s),
        units.UNKNOWN if each.ratio is None else f"{each.ratio:.2f}",
        interval,
        units.duration(each.before.p99_s),
        units.duration(each.after.p99_s),
        f"{units.count(each.before.count)}/{units.count(each.after.count)}",
        Text(each.verdict.value, COLOURED[_TONES.get(each.verdict, "")]),
    ]
