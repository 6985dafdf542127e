"""What is wrong with a reproduction, or with all of them together: sentences; none if all is well."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from diagnoses.result import Level, Reproduction, order_of
from diagnoses.rows import INPUTS, ONLY_EVENTS, ROWS
from pushscope.telemetry.diagnosis.catalogue import CATALOGUE, NOT_FROM_EVENTS


def wrong_with(each: Reproduction) -> Iterator[str]:
    """Whether it was named, as the catalogue says, in time."""
    what = f"{each.row or 'no row'}, {each.level}, {each.how}"
    entry = CATALOGUE.get(each.code)
    if entry is None:
        yield f"{what}: expected a code of the catalogue, found {each.code}"
    elif each.row not in (entry.rows or ("",)):
        yield f"{what}: expected a code that the catalogue has for this row, found {each.code}"
    if each.named_s is None:
        yield f"{what}: expected {each.code}, was named {', '.join(each.besides) or 'nothing'}"
    elif not each.in_time:
        since = f" after {each.lease}" if each.lease else ""
        yield f"{what}: expected {each.code} within {each.limit_s:g} s{since}, was named after {each.named_s:g} s"


def differs(each: Reproduction, committed: Mapping[tuple[Level, str], Reproduction]) -> Iterator[str]:
    """Whether the committed table says another thing of it."""
    told = committed.get(each.key)
    what = f"{each.level}, {each.how}"
    if told is None:
        yield f"{what}: expected it in the committed table, found it isn't there: run `make table`"
    elif (told.row, told.code, told.input) != (each.row, each.code, each.input):
        before, now = (f"{one.row or 'no row'} {one.code}" for one in (told, each))
        yield f"{what}: the committed table says {before}, this run {now}"


def incomplete(reproductions: Collection[Reproduction]) -> Iterator[str]:
    """Rows, codes and small inputs that are left out, or for which a reason is given that isn't needed."""
    rows = {each.row for each in reproductions}
    for row in ROWS:
        if (row in rows) == (row in NOT_FROM_EVENTS):
            found = "both" if row in rows else "neither"
            yield f"{row}: expected either a reproduction or the reason why events can't tell, found {found}"
    made = {level: {each.code for each in reproductions if each.level is level} for level in Level}
    beyond = made[Level.CLASSES] | made[Level.ENGINES]
    for code in CATALOGUE:
        if code not in made[Level.EVENTS]:
            yield f"{code}: expected an event list that yields it, found none"
        if (code in beyond) == (code in ONLY_EVENTS):
            found = "both" if code in beyond else "neither"
            yield f"{code}: expected it on vLLM's classes or real engines, or the reason why not, found {found}"
    inputs = {each.input: each for each in reproductions if each.input}
    for number, expected in INPUTS.items():
        found = inputs[number].row if number in inputs else "nothing"
        if expected.row not in NOT_FROM_EVENTS and found != expected.row:
            yield f"small input {number}: expected {expected.row}, found {found}"


def by_row(reproductions: Collection[Reproduction]) -> dict[tuple[str, str], list[Reproduction]]:
    """What was reproduced of each row and code, in the rows' order; small inputs left out."""
    found: dict[tuple[str, str], list[Reproduction]] = {}
    for each in sorted(
        reproductions, key=lambda each: (order_of(each.row), list(CATALOGUE).index(each.code))
    ):
        if not each.input:
            found.setdefault((each.row, each.code), []).append(each)
    return found
