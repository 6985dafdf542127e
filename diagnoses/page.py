"""The table, for a terminal and as a page."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from faults.page import after, name_of, table
from faults.result import WITHIN_LEASE_S, WITHIN_S

from diagnoses.judge import by_row
from diagnoses.result import Level, Reproduction, Run, order_of
from diagnoses.rows import GROUPS, INPUTS, ONLY_EVENTS, ROWS
from pushscope.lab.faults.table import FAULTS
from pushscope.telemetry.diagnosis.catalogue import CATALOGUE, NOT_FROM_EVENTS

_HEAD = """\
<!-- Written by `make table`; what it says comes from diagnoses.json, faults.json and diagnoses/page.py. -->
# What is diagnosed, and how soon

Every failure mode, in the groups and rows of the runbooks: what it is diagnosed as, and how many seconds after it
began it was named, on each level on which the tests reproduce it. Written by the tests; `make test` fails where it
finds another thing than stands here.

* **event list**: the diagnosis alone; what engines would have recorded is written by hand, and looked at every
  250 ms of it.
* **vLLM's classes**: vLLM's own schedulers and connectors of every rank, with a fake NIXL agent and a clock that is
  moved; looked at every 250 ms and after every step.
* **real engines**: as `make faults` has made them, see [faults.md](faults.md).

Where P's lease (or half of it) must run out before anything can be known, seconds are from then: *half* and *lease*;
less than none is before it. What nobody waits for is a *pile* when it has been there for 15 s. The limit is
{within:g} s, and {within_lease:g} s after such an end. Several ways to make one: the soonest and the latest.

{machine}
"""
_SHORT = {"": "", "half": " (half)", "whole": " (lease)", "pile": " (pile)"}
_LINK = "[`{code}`](../runbooks.md#{code})"


def page_of(run: Run) -> str:
    """Markdown, all of it from the runs, the rows and the catalogue."""
    found = run.all()
    head = _HEAD.format(within=WITHIN_S, within_lease=WITHIN_LEASE_S, machine=run.machine.line())
    sections = [head + "\n" + _counts(found)]
    for group, title in GROUPS.items():
        sections.append(f"## {group}: {title}\n\n" + _table(found, group))
    sections.append("## Of no row\n\n" + _table(found, ""))
    sections.append(
        "## Not from events\n\nWhy a row has no diagnosis.\n\n" + _reasons(NOT_FROM_EVENTS.items())
    )
    if ONLY_EVENTS:
        reasons = [f"* `{code}`: {why}." for code, why in ONLY_EVENTS.items()]
        sections.append("## Only as event lists\n\n" + "\n".join(reasons))
    sections.append("## Small inputs of public reports\n\n" + _inputs(found))
    sections.append("## How each was made\n\n" + "\n".join(_ways(found)))
    return "\n\n".join(sections) + "\n"


def lines_of(known: Collection[Reproduction], noted: Collection[Reproduction]) -> Iterator[str]:
    """The same for a terminal: a line for each row and code, and each small input, that is among ``noted``."""
    rows = {(each.row, each.code) for each in noted if not each.input}
    for (row, code), ways in by_row(known).items():
        if (row, code) in rows:
            cells = "  ".join(f"{level}: {_seconds(ways, level):14}" for level in Level)
            yield f"{row or '-':4} {code:34} {cells}".rstrip()
    for each in noted:
        if each.input:
            yield f"small input {each.input:2} ({INPUTS[each.input].report}): {each.row} {name_of(each)} {after(each)}"


def _counts(found: Collection[Reproduction]) -> str:
    rows = {level: {each.row for each in found if each.level is level and each.row} for level in Level}
    diagnosed = set().union(*rows.values())
    counts = ", ".join(f"{len(rows[level])} as {level}" for level in (Level.EVENTS,))
    counts += f", {len(rows[Level.CLASSES])} on vLLM's classes, {len(rows[Level.ENGINES])} on real engines"
    ways = sum(not each.input for each in found)
    return (
        f"{len(diagnosed)} of {len(ROWS)} rows are diagnosed, in {ways} reproductions: {counts}. "
        f"{len(NOT_FROM_EVENTS)} can't be told from events."
    )


def _table(found: Collection[Reproduction], group: str) -> str:
    lines = []
    for (row, code), ways in by_row(found).items():
        if row[:1] != group:
            continue
        told = ROWS[row] if row else CATALOGUE[code].title
        name = _LINK.format(code=code) if all(each.named_s is not None for each in ways) else f"NOT `{code}`"
        lines.append((order_of(row), [row or "–", told, name, *(_seconds(ways, level) for level in Level)]))
    for row, why in NOT_FROM_EVENTS.items():
        if row[0] == group:
            lines.append((order_of(row), [row, ROWS[row], f"– ({why})", *("–" for _ in Level)]))
    columns = ["row", "what happens", "diagnosed as", *(f"{level}, s" for level in Level)]
    return table(columns, [cells for _, cells in sorted(lines, key=lambda line: line[0])])


def _seconds(ways: Iterable[Reproduction], level: Level) -> str:
    """When it was named on a level: the soonest and the latest, by what had to run out first."""
    spans: dict[str, list[float]] = {}
    for each in ways:
        if each.level is level:
            spans.setdefault(each.lease, []).append(float("inf") if each.named_s is None else each.named_s)
    said = []
    for lease, seconds in spans.items():
        first, last = f"{min(seconds):.1f}", f"{max(seconds):.1f}"
        said.append((first if first == last else f"{first} to {last}") + _SHORT[lease])
    return ", ".join(said).replace("inf", "never") or "–"


def _reasons(reasons: Iterable[tuple[str, str]]) -> str:
    return table(["row", "what happens", "why"], [[row, ROWS[row], why] for row, why in reasons])


def _inputs(found: Collection[Reproduction]) -> str:
    outcomes = {each.input: each for each in found if each.input}
    lines = []
    for number, (report, what, row) in INPUTS.items():
        each = outcomes.get(number)
        if each is None:
            came_out, when = f"nothing: {NOT_FROM_EVENTS.get(row, 'not reproduced')}", "–"
        else:
            came_out, when = f"{name_of(each)}: {each.sentence}", after(each)
        lines.append([str(number), report, what, row, came_out, when])
    return table(["no.", "report", "events", "expected row", "came out", "s"], lines)


def _ways(found: Collection[Reproduction]) -> Iterator[str]:
    for (row, code), ways in by_row(found).items():
        yield f"* {row or '–'} `{code}`"
        for each in ways:
            if each.level is Level.EVENTS:
                continue
            what = (
                f"`lab fault {each.how}`: {FAULTS[each.how].what}"
                if each.level is Level.ENGINES
                else each.how
            )
            besides = f"; besides {', '.join(f'`{code}`' for code in each.besides)}" if each.besides else ""
            yield f"  * {each.level}: {what.rstrip('.')}: {after(each)}{besides}"
