"""``pushscope report`` as tables for a terminal or a pipe: 80 columns suffice, no colour is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pushscope.telemetry import units
from pushscope.telemetry.report import RankReport, Report, Spread, StageReport
from pushscope.telemetry.transfer import Rank, rank_name
from pushscope.tui.columns import Cell
from pushscope.tui.header import flow


def render_report(report: Report, console: Console, engine_names: Mapping[str, str] | None = None) -> None:
    """Print a report. ``engine_names`` maps engine ids to short names; without one, an id is cut."""
    if not report.transfers:
        say(console, "No transfers were seen.")
        return
    for pieces in _summary(report):
        console.print(flow([Cell(piece) for piece in pieces], console.width))
    if report.stages:
        heading(console, "Where the time went")
        console.print(_stage_table(report.stages, console.width))
        say(console, _EXPLANATION, "dim")
    if len({(r.p_engine, r.d_engine, r.rank, r.peer_rank) for r in report.ranks}) > 1:
        heading(console, "By rank")
        console.print(_rank_table(report.ranks, engine_names or {}, console.width))
    if report.unobserved:
        heading(console, "Not seen, of delivered transfers")
        console.print(_unobserved_table(report, console.width))


_EXPLANATION = (
    "exposed: between blocks staged at P and decode scheduled at D; hidden: before.\n"
    "Ranks work side by side, and add up. path: the stage's part of all exposed\n"
    "time, on the critical path. ≤: upper bounds (only P was observed)."
)


def _summary(report: Report) -> Iterable[list[str]]:
    yield [
        f"{units.count(report.transfers)} transfers in {units.duration(report.duration_s)}",
        *([f"{units.count(report.open)} still open"] if report.open else []),
        f"{units.rate(report.delivered_per_s)} delivered",
        units.size(report.num_bytes),
        units.byte_rate(report.bytes_per_s),
    ]
    yield counts("outcomes", report.outcomes)
    if report.orders:
        yield counts("rendezvous", report.orders)
    if set(report.sides) != {"P and D"}:
        yield counts("observed", report.sides)
    if report.retries or report.mispaired or report.tentative:
        yield [
            f"retries: {units.count(report.retries)}",
            *([f"paired across attempts: {units.count(report.mispaired)}"] if report.mispaired else []),
            f"tentative pairs: {units.count(report.tentative)}",
        ]
    if report.descriptors_merged:
        ratio = report.descriptors / report.descriptors_merged
        before, after = units.count(report.descriptors), units.count(report.descriptors_merged)
        yield [f"descriptors: {before}, merged to {after} ({ratio:.1f} : 1)"]
    yield _spread("exposed time", report.exposed)
    yield _spread("hidden time", report.hidden)


def counts(name: str, tally: Mapping[str, int]) -> list[str]:
    """A tally in pieces, the largest first, with its name before it."""
    largest_first = sorted(tally.items(), key=lambda item: -item[1])
    pieces = [f"{word} {units.count(number)}" for word, number in largest_first]
    return [f"{name}: {pieces[0]}", *pieces[1:]]


def _spread(name: str, spread: Spread) -> list[str]:
    if not spread.count:
        return [f"{name}: not known for any transfer (it takes both sides)"]
    p50, p90, p99 = (units.duration(value) for value in (spread.p50_s, spread.p90_s, spread.p99_s))
    return [f"{name}: p50 {p50}", f"p90 {p90}", f"p99 {p99}", f"of {units.count(spread.count)} transfers"]


def _stage_table(stages: Iterable[StageReport], width: int) -> Table:
    table = plain_table("stage", width)
    for title in ("n", "p50", "p90", "p99", "max", "exposed", "hidden", "exp%", "path"):
        table.add_column(title, justify="right", no_wrap=True)
    for stage in stages:
        times = stage.times
        split = stage.exposed_share is not None
        table.add_row(
            Text(("≤ " if stage.upper_bound else "") + stage.stage.value),
            units.count(times.count),
            *(units.duration(value) for value in (times.p50_s, times.p90_s, times.p99_s, times.max_s)),
            units.duration(stage.exposed_s if split else None),
            units.duration(stage.hidden_s if split else None),
            units.share(stage.exposed_share),
            units.share(stage.path_share if split else None),
        )
    return table


def _rank_table(ranks: Iterable[RankReport], names: Mapping[str, str], width: int) -> Table:
    table = plain_table("P rank -> D rank", width)
    table.add_column("stage", no_wrap=True)
    for title in ("n", "p50", "p99", "max", "exposed", "hidden"):
        table.add_column(title, justify="right", no_wrap=True)
    for rank in ranks:
        label = f"{_end(rank.p_engine, rank.rank, names)} -> {_end(rank.d_engine, rank.peer_rank, names)}"
        for stage in rank.stages:
            times = stage.times
            split = stage.exposed_share is not None
            table.add_row(
                Text(label),
                Text(("≤ " if stage.upper_bound else "") + stage.stage.value),
                units.count(times.count),
                *(units.duration(value) for value in (times.p50_s, times.p99_s, times.max_s)),
                units.duration(stage.exposed_s if split else None),
                units.duration(stage.hidden_s if split else None),
            )
            label = ""
        table.add_section()
    return table


def _unobserved_table(report: Report, width: int) -> Table:
    table = plain_table("stage", width)
    table.add_column("transfers", justify="right", no_wrap=True)
    table.add_column("why")
    for gap in report.unobserved:
        table.add_row(Text(gap.stage.value), units.count(gap.transfers), Text(gap.reason))
    return table


def _end(engine: str | None, rank: Rank | None, names: Mapping[str, str]) -> str:
    name = "?" if engine is None else units.clean(names.get(engine, engine[:8]), 12)
    if rank is None:
        return name
    return f"{name}/{rank_name(rank)}"


def plain_table(first: str, width: int) -> Table:
    """A table without lines, with its first column."""
    # No box: at 80 columns every cell is needed, and a pipe may not speak UTF-8.
    gap = 2 if width >= 100 else 1
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    table.add_column(first, no_wrap=True)
    return table


def heading(console: Console, words: str) -> None:
    """A line above a table."""
    console.print()
    console.print(Text(words, "bold"))


def say(console: Console, words: str, style: str = "") -> None:
    """A line of its own."""
    console.print(Text(words, style))
