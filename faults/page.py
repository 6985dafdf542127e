"""A run as a page for people."""

from __future__ import annotations

from collections.abc import Iterable

from faults.result import WITHIN_LEASE_S, WITHIN_S, Named, Result, Row
from pushscope.lab.faults.table import FAULTS
from pushscope.telemetry.diagnosis.catalogue import CATALOGUE

_HEAD = """\
<!-- Written by `make faults`; what it says comes from faults.json and faults/page.py. -->
# Faults made on real engines

What `pushscope lab fault NAME` does, done one after the other in a lab of real vLLM engines with NIXL between them and
a lease of {lease:g} s; nothing else is sent. *Named* is the time in seconds from the fault until the expected cause was
named, or from the end of the lease (of its half, where nobody claims a prefill) if one must run out first. *Cleared*
is the time from the end of the undoing until that cause, and every other of severity error, was named no more: what was
wrong with a transfer that is over is told for half a minute. *Besides* are other causes of severity error that were
named by then. A slow peer is one that is stopped most of the time: nothing is done to the network.

{held} of {count} were named in time ({within:g} s, {within_lease:g} s after a lease) and cleared by themselves.

{machine}
"""
_COLUMNS = ("row", "fault", "how it is made", "named", "s", "cleared s", "besides")


def page_of(result: Result) -> str:
    """Markdown, all of it from the result and the descriptions of faults and causes."""
    head = _HEAD.format(
        lease=result.lease_s,
        held=sum(row.held for row in result.rows),
        count=len(result.rows),
        within=WITHIN_S,
        within_lease=WITHIN_LEASE_S,
        machine=result.machine.line(),
    )
    said = [f"* `{row.fault}`: {row.sentence}" for row in result.rows if row.sentence]
    undone = [f"* `{row.fault}`: {FAULTS[row.fault].undone}" for row in result.rows]
    sections = [
        head + "\n" + table(_COLUMNS, map(_cells, result.rows)),
        "## What it said\n\n" + "\n".join(said),
    ]
    sections.append("## How each is undone\n\n" + "\n".join(undone))
    return "\n\n".join(sections) + "\n"


def _cells(row: Row) -> list[str]:
    fault = FAULTS[row.fault]
    return [
        " ".join(CATALOGUE[row.code].rows) or "–",
        f"`{row.fault}`",
        fault.what,
        name_of(row, row.error),
        after(row),
        "never" if row.cleared_s is None else f"{row.cleared_s:.1f}",
        " ".join(f"`{code}`" for code in sorted(row.besides)),
    ]


def name_of(named: Named, error: str = "") -> str:
    """The cause; if it was not named, that and why."""
    if named.named_s is not None:
        return f"`{named.code}`"
    return f"NOT `{named.code}`" + (f": {error}" if error else "")


def after(named: Named) -> str:
    """When it was named, in words."""
    if named.named_s is None:
        return ""
    if not named.lease:
        return f"{named.named_s:.1f}"
    order = "after" if named.named_s >= 0 else "before"
    return f"{abs(named.named_s):.1f} {order} {_OVER[named.lease]}"


_OVER = {
    "half": "half of the lease was over",
    "whole": "the lease was over",
    "pile": "it was a pile",
}


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    columns = list(columns)
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
