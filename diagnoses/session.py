"""A run of the tests: what they reproduce is noted, held against the committed table, and may become the new one."""

from __future__ import annotations

from collections.abc import Container, Iterator

from bench.machine import this_machine

from diagnoses import result
from diagnoses.judge import differs, incomplete, wrong_with
from diagnoses.page import lines_of, page_of
from diagnoses.result import Reproduction, Run, merged


class Session:
    """What was reproduced so far. With ``writes`` the committed table does not count: it is written anew."""

    def __init__(self, *, writes: bool) -> None:
        self.writes = writes
        self.noted: list[Reproduction] = []
        self._committed = result.read().reproductions if result.JSON.exists() else ()

    def note(self, each: Reproduction) -> list[str]:
        """Keep it; what is wrong with it."""
        self.noted.append(each)
        committed = {told.key: told for told in self._committed}
        return [*wrong_with(each), *(() if self.writes else differs(each, committed))]

    def missing(self, whole: Container[str]) -> list[str]:
        """What the committed table has of the test files that ran as a whole, and none of them reproduced."""
        noted = {each.key for each in self.noted}
        return [
            f"{told.level}, {told.how}: the committed table has it, {told.test} did not make it: run `make table`"
            for told in self._committed
            if told.test in whole and told.key not in noted and not self.writes
        ]

    def finish(self, whole: Container[str]) -> Iterator[str]:
        """What this run reproduced, for a terminal, beside what is known of other levels; written to the docs if it
        is to be."""
        run = Run(this_machine(), merged(self._committed, self.noted, whole))
        yield from lines_of(run.all(), self.noted)
        if self.writes:
            result.write(run, page_of(run))
            yield f"written to {result.PAGE}"
            yield from incomplete(run.all())
