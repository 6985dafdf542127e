"""Two runs side by side: the same tests, plain and with pushscope in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from upstream.outcome import Outcome

RESULTS = ("passed", "failed", "skipped")


class Row(msgspec.Struct, frozen=True):
    """One file of tests."""

    file: str
    plain: dict[str, int]
    in_place: dict[str, int]
    instrumented: int
    """Tests in which pushscope instrumented something and recorded an event."""


class Difference(msgspec.Struct, frozen=True):
    """A test that came out otherwise."""

    test: str
    sentence: str


class Comparison(msgspec.Struct, frozen=True):
    """What two runs say together."""

    rows: list[Row]
    differences: list[Difference]
    instances: dict[str, int]
    """Schedulers and workers instrumented, by how they were made."""
    events: dict[str, int]
    """Events found in their rings, by kind."""
    lost: dict[str, int]
    """Failures of observers of whole instances, with how often."""
    lost_bare: dict[str, int]
    """The same of instances made without ``__init__``."""
    refused: dict[str, int]
    not_passed: dict[str, int]
    """Why tests of the plain run failed or were skipped, with how often."""
    unsteady: list[Difference] = []
    """Tests that came out otherwise once, and alike whenever they ran again: they depend on time."""

    @property
    def proven(self) -> bool:
        """Whether pushscope was there: it instrumented schedulers or workers, and they recorded."""
        return sum(self.instances.values()) > 0 and sum(self.events.values()) > 0


def compare(plain: Sequence[Outcome], in_place: Sequence[Outcome]) -> Comparison:
    """The comparison of a run without pushscope and one with it."""
    evidence = [o.evidence for o in in_place if o.evidence is not None]
    return Comparison(
        rows=list(_rows(plain, in_place)),
        differences=list(_differences(plain, in_place)),
        instances=_sum(e.instances for e in evidence),
        events=_sum(e.events for e in evidence),
        lost=_counted(why for e in evidence for why in e.lost),
        lost_bare=_counted(why for e in evidence for why in e.lost_bare),
        refused=_counted(why for e in evidence for why in e.refused),
        not_passed=_counted(f"{o.result}: {o.message}" for o in plain if o.result != "passed"),
    )


def settled(comparison: Comparison, again: Sequence[Comparison]) -> Comparison:
    """``comparison``, with those differences apart that no further run of the same tests shows."""
    recurring = {d.test for each in again for d in each.differences}
    return msgspec.structs.replace(
        comparison,
        differences=[d for d in comparison.differences if d.test in recurring],
        unsteady=[d for d in comparison.differences if d.test not in recurring],
    )


def _rows(plain: Sequence[Outcome], in_place: Sequence[Outcome]) -> Iterable[Row]:
    for file in sorted({o.file for o in (*plain, *in_place)}):
        ours = [o for o in in_place if o.file == file]
        yield Row(
            file,
            _results(o for o in plain if o.file == file),
            _results(ours),
            sum(bool(o.evidence and o.evidence.instances and o.evidence.events) for o in ours),
        )


def _results(outcomes: Iterable[Outcome]) -> dict[str, int]:
    counts = Counter(o.result for o in outcomes)
    return {result: counts[result] for result in RESULTS}


def _differences(plain: Sequence[Outcome], in_place: Sequence[Outcome]) -> Iterable[Difference]:
    before, after = ({o.test: o for o in outcomes} for outcomes in (plain, in_place))
    for test in sorted(before.keys() | after.keys()):
        was, became = before.get(test), after.get(test)
        if was is None or became is None:
            run = "with pushscope" if was is None else "plain"
            yield Difference(test, f"ran only {run}.")
        elif was.result != became.result:
            yield Difference(test, f"{_said(was)} plain, but {_said(became)} with pushscope.")


def _said(outcome: Outcome) -> str:
    return outcome.result + (f" ({outcome.message})" if outcome.message else "")


def _sum(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total.most_common())


def _counted(sentences: Iterable[str]) -> dict[str, int]:
    return dict(Counter(sentences).most_common())
