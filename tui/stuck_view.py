"""Diagnoses as text: for a terminal, where long lines wrap, and for a pipe, where none does."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rich.console import Console
from rich.text import Text

from pushscope.telemetry import units
from pushscope.telemetry.diagnosis.model import Diagnosis
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.stuck import Alike, Change, Row, Stuck, Verdict, folded, tally
from pushscope.tui.severity import WORD, severity_cell
from pushscope.tui.tables import route
from pushscope.tui.tones import COLOURED

ROW_LIMIT = 50
"""Diagnoses that are printed; what lies beyond is a number. JSON has them all."""
SUBJECT = 28
"""Cells for what a diagnosis is about, on a terminal."""
_NARROWEST = 20


def render_stuck(stuck: Stuck, snapshot: Snapshot, console: Console) -> None:
    """Print what is stuck, and whether that is all that can be."""
    for line in stuck_lines(stuck, snapshot, console):
        console.print(line, soft_wrap=True, highlight=False, emoji=False)


def stuck_lines(stuck: Stuck, snapshot: Snapshot, console: Console) -> Iterator[Text]:
    """For each diagnosis what and whom, the sentence, and (the first time) what to do. Then a summary."""
    told: set[str] = set()
    rows = folded(stuck.rows)
    for each in rows[:ROW_LIMIT]:
        row = each.rows[0] if isinstance(each, Alike) else each
        yield _head(each, snapshot, whole=not console.is_terminal)
        if isinstance(each, Alike):
            yield from _wrapped(_in_all(each, snapshot), "", console)
        yield from _wrapped(units.clean(row.diagnosis.sentence), "", console)
        if its_costs := costs(row.diagnosis):
            yield from _wrapped(its_costs, "", console)
        if (remedy := row.diagnosis.remedy) and remedy not in told:
            told.add(remedy)
            yield from _wrapped(units.clean(f"-> {remedy}"), "italic", console)
    if (more := len(rows) - ROW_LIMIT) > 0:
        yield Text(f"… and {units.count(more)} more")
    for why in stuck.unknown:
        yield Text(units.clean(f"! cannot tell: {why}"), COLOURED["warn"])
    yield Text(units.clean(summary(stuck, snapshot)), "bold")


def summary(stuck: Stuck, snapshot: Snapshot) -> str:
    """One line: how much is stuck, of what, and where it was looked for."""
    if stuck.rows:
        words = tally(row.diagnosis for row in stuck.rows)
    elif stuck.verdict is Verdict.UNKNOWN:
        words = "nothing is seen to be stuck, but not everything is seen"
    else:
        words = "nothing is stuck"
    milder = f"{units.count(stuck.milder)} milder not shown" if stuck.milder else ""
    totals = snapshot.totals
    at_it = f"{units.count(totals.in_flight)} in flight, {units.count(totals.waiting)} waiting"
    return " · ".join(filter(None, (words, milder, at_it, snapshot.source)))


def subject(row: Row, snapshot: Snapshot, width: int | None = None) -> str:
    """Whom it is about: a request with its attempt, or an engine by its short name and id."""
    diagnosis = row.diagnosis
    if not diagnosis.attempt:
        name = snapshot.engine_name(diagnosis.subject)
        words = name if diagnosis.subject.startswith(name) else f"{name} {diagnosis.subject}"
        return units.clean(words, width)
    mark = f" #{diagnosis.attempt}" if diagnosis.attempt > 1 else ""
    if width is None:
        return units.clean(diagnosis.subject) + mark
    return units.shorten(diagnosis.subject, width - len(mark)) + mark


def engines(row: Row, snapshot: Snapshot, width: int = 36) -> str:
    """``P1 -> D1`` of a transfer; empty for an engine, or a transfer that is not shown any more."""
    return route(row.transfer, snapshot, width) if row.transfer else ""


def costs(diagnosis: Diagnosis, limit: int = 5) -> str:
    """``Costs 7 transfers: …``: those that an engine's diagnosis names; empty if it names none."""
    if not diagnosis.costs:
        return ""
    number = len(diagnosis.costs)
    named = [
        f"{request} #{attempt}" if attempt > 1 else request for request, attempt in diagnosis.costs[:limit]
    ]
    more = f" and {units.count(number - limit)} more" if number > limit else ""
    transfers = "transfer" if number == 1 else "transfers"
    return units.clean(f"Costs {units.count(number)} {transfers}: {', '.join(named)}{more}.")


def lasting(row: Row, snapshot: Snapshot) -> str:
    """For how long it has been so."""
    return units.age(max(0, snapshot.taken_ns - row.diagnosis.since_ns) / 1e9)


def change_line(change: Change, snapshot: Snapshot) -> str:
    """One line for a log: when, what became of it, what, whom, and, if it is new, the sentence and remedy."""
    row = change.row
    diagnosis = row.diagnosis
    about = " ".join(filter(None, (subject(row, snapshot), engines(row, snapshot))))
    head = f"{wall_time(snapshot.taken_unix_s)} {{}} {diagnosis.severity.value} {diagnosis.code} {about}"
    if not change.begins:
        return units.clean(head.format("clears") + f", after {lasting(row, snapshot)}")
    remedy = f" -> {diagnosis.remedy}" if diagnosis.remedy else ""
    return units.clean(
        f"{head.format('begins')}, since {lasting(row, snapshot)}: {diagnosis.sentence}{remedy}"
    )


def state_lines(stuck: Stuck, snapshot: Snapshot) -> list[str]:
    """How it stands, for a log: why it can't be told, and the summary."""
    when = wall_time(snapshot.taken_unix_s)
    cannot = [f"cannot tell: {why}" for why in stuck.unknown]
    return [units.clean(f"{when} {words}") for words in (*cannot, summary(stuck, snapshot))]


def wall_time(unix_s: float) -> str:
    """Local, to the second, as logs have it."""
    return datetime.fromtimestamp(unix_s).astimezone().isoformat(" ", "seconds")


def _head(each: Row | Alike, snapshot: Snapshot, *, whole: bool) -> Text:
    row, number = (each.rows[0], len(each.rows)) if isinstance(each, Alike) else (each, 1)
    cell = severity_cell(row.diagnosis.severity)
    head = Text(f"{cell.text:<{WORD}}", COLOURED[cell.tone])
    head.append(f"  {row.diagnosis.code}", "bold")
    whom = (
        f"{units.count(number)} requests"
        if number > 1
        else subject(row, snapshot, None if whole else SUBJECT)
    )
    for words in (whom, engines(row, snapshot), f"since {lasting(row, snapshot)}"):
        head.append(f"  {words}" if words else "")
    return head


def _in_all(alike: Alike, snapshot: Snapshot) -> str:
    """How much many are together; the sentence of the oldest follows."""
    first = subject(alike.rows[0], snapshot)
    size = f", {units.count(alike.num_blocks)} blocks ({units.count(alike.num_tokens)} tokens) in all"
    number = f"{units.count(len(alike.rows))} requests{size if alike.num_blocks else ''}"
    return units.clean(f"{number}. The oldest is {first}:")


def _wrapped(words: str, style: str, console: Console) -> Iterator[Text]:
    indent = " " * (WORD + 2)
    text = Text(words, style)
    width = max(_NARROWEST, console.width - len(indent))
    for line in text.wrap(console, width) if console.is_terminal else (text,):
        yield Text(indent) + line
