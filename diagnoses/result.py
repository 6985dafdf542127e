"""What the tests reproduced, and what it was named; the run that is committed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from enum import StrEnum

import msgspec
from bench.machine import Machine
from faults.result import FOLDER, Named
from faults.result import read as read_faults

from pushscope.telemetry.diagnosis.catalogue import CATALOGUE

JSON, PAGE = FOLDER / "diagnoses.json", FOLDER / "diagnoses.md"


class Level(StrEnum):
    """What is real in a reproduction."""

    EVENTS = "event list"
    """Only the diagnosis: its input is written by hand."""
    CLASSES = "vLLM's classes"
    """vLLM's schedulers and connectors, with a fake NIXL agent and a clock that the test moves."""
    ENGINES = "real engines"
    """All of it."""


class Reproduction(Named, frozen=True, kw_only=True):
    """A failure mode that was made, and what it was named."""

    row: str
    """Empty: it fits none of the rows."""
    level: Level
    how: str
    """Of a level no two are alike."""
    input: int = 0
    """The number of the small input that it is."""
    test: str = ""
    """The file of the test that made it."""

    @property
    def key(self) -> tuple[Level, str]:
        return self.level, self.how


_LEVELS = {"tests/unit": Level.EVENTS, "tests/vllm/fake": Level.CLASSES}
_NAMED = Named.__struct_fields__


def reproduction(
    named: Named, test: str, how: str, *, row: str | None = None, number: int = 0
) -> Reproduction:
    """What a test made; its folder says on which level. ``row``: of a code that stands for several."""
    fields = {name: getattr(named, name) for name in _NAMED}
    level = _LEVELS[test.rpartition("/")[0]]
    row = row_of(named.code) if row is None else row
    return Reproduction(row=row, level=level, how=how, input=number, test=test, **fields)


class Run(msgspec.Struct, frozen=True):
    """What one run of the tests reproduced, or several on one machine: event lists and vLLM's classes.

    What was reproduced on real engines is in the run of `make faults`.
    """

    machine: Machine
    reproductions: tuple[Reproduction, ...]

    def all(self) -> tuple[Reproduction, ...]:
        """Of every level."""
        return (*self.reproductions, *on_engines())


def on_engines() -> Iterator[Reproduction]:
    """The committed run of `make faults`."""
    for row in read_faults().rows:
        fields = {name: getattr(row, name) for name in _NAMED}
        yield Reproduction(row=row_of(row.code), level=Level.ENGINES, how=row.fault, **fields)


def row_of(code: str) -> str:
    """The row that a code stands for; the first of several."""
    return next(iter(CATALOGUE[code].rows), "")


def read() -> Run:
    """The committed run."""
    return msgspec.json.decode(JSON.read_bytes(), type=Run)


def write(run: Run, page: str) -> None:
    """Commit a run to the docs."""
    JSON.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")
    PAGE.write_text(page)


def merged(
    before: Iterable[Reproduction], new: Iterable[Reproduction], whole: Container[str]
) -> tuple[Reproduction, ...]:
    """What is known after a run, in the order of level and row. Of the test files that ran as a ``whole`` nothing
    but what is ``new`` is left."""
    known = {each.key: each for each in before if each.test not in whole} | {each.key: each for each in new}
    return tuple(sorted(known.values(), key=_place))


def _place(each: Reproduction) -> tuple[object, ...]:
    return (
        list(Level).index(each.level),
        bool(each.input),
        each.input,
        order_of(each.row),
        each.code,
        each.how,
    )


def order_of(row: str) -> tuple[str, int]:
    """A9 before A10; what fits no row last."""
    return (row[0], int(row[1:])) if row else ("~", 0)
