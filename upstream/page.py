"""The result as text for a terminal, and as the page in the docs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from bench.machine import Machine

from upstream.compare import RESULTS, Comparison, Row


class Result(msgspec.Struct, frozen=True):
    """What is kept of a comparison."""

    machine: Machine
    comparison: Comparison


def summary_of(result: Result) -> str:
    """What the command prints; Markdown, as the page is."""
    return "\n\n".join(_sections(result.comparison))


def page_of(result: Result) -> str:
    """Markdown, all figures from the result."""
    totals = _total(result.comparison.rows)
    head = _HEAD.format(
        machine=result.machine.line(),
        ran=sum(totals.plain.values()),
        plain=totals.plain["passed"],
        in_place=totals.in_place["passed"],
        instrumented=totals.instrumented,
        alike=_alike(result.comparison),
    )
    return "\n\n".join([head, *_sections(result.comparison), _NOTES]) + "\n"


_HEAD = """\
<!-- Written by `python -m upstream FOLDER --page`: all from upstream-tests.json and upstream/page.py. -->
# vLLM's own tests of its NIXL connectors

vLLM tests its connectors, schedulers and workers with a fake NIXL agent. Here these tests run twice in one
environment: plain, and with pushscope's classes in place of vLLM's. {ran} ran; {plain} passed plain, {in_place} with
pushscope. {alike} In {instrumented} of them pushscope instrumented at least one scheduler or worker, and recorded.

{machine}

## Run it

The tests are vLLM's and not in this repository. Take the folder `tests` from the source distribution of the release
that is installed; beside the development environment they want `ray` and `tblib`.

```sh
python -m upstream FOLDER             # all of them, twice; exits 0 only if none differs and pushscope was there
python -m upstream FOLDER -k push     # what follows the folder goes to pytest
python -m upstream FOLDER --page      # write this page anew
```

No model hub is asked: the configurations that the tests want are written to a temporary cache, and where they start
an engine it is on a tiny model with random weights. Rings go to a temporary folder.

## What "in place" means

`NixlPushConnector`, `NixlPullConnector` and `NixlConnector` are pushscope's in every module of vLLM. Most of the
tests make no connector: they make a scheduler or a worker by hand, often without its `__init__`, and set what they
need. Such an instance is instrumented by the same functions after its `__init__`, or at the first call of a method
that has a seam. A fake agent stands behind pushscope's proxy, whenever it is put there; the test sees its fake, vLLM
the proxy. What was recorded is read back from the rings after each test."""

_NOTES = """\
## What this does not say

A fake agent moves no bytes, and an instance without `__init__` has no more than its test gave it. What real agents
and engines do is the matter of `tests/vllm`. Engines that a test starts in processes of their own are vLLM's.

Some of the tests wait a fixed time for another thread, which is not enough on a busy machine. So tests that come out
otherwise run again, three times each way.

A registration that a test malforms cannot be recorded: vLLM drops it too."""


def _alike(comparison: Comparison) -> str:
    if comparison.differences:
        return "Not all came out alike."
    return (
        "All came out alike, some only when they ran again." if comparison.unsteady else "All came out alike."
    )


def _sections(comparison: Comparison) -> Iterable[str]:
    yield "## Test by test"
    yield _table(
        [
            "file",
            *(f"{result} plain" for result in RESULTS),
            *(f"{r} with pushscope" for r in RESULTS),
            "instrumented",
        ],
        [_cells(row) for row in (*comparison.rows, _total(comparison.rows))],
    )
    if comparison.differences:
        yield "Different:\n\n" + "\n".join(f"* `{d.test}` {d.sentence}" for d in comparison.differences)
    else:
        yield _alike(comparison)
    if comparison.unsteady:
        yield "Different once, and alike each time they ran again alone:\n\n" + "\n".join(
            f"* `{d.test}` {d.sentence}" for d in comparison.unsteady
        )
    if comparison.not_passed:
        yield "Why tests of the plain run failed or were skipped:\n\n" + _list(comparison.not_passed)
    yield "## What pushscope did meanwhile"
    if comparison.proven:
        instances, events = comparison.instances, comparison.events
        yield (
            f"It instrumented {sum(instances.values())} schedulers and workers "
            f"({', '.join(f'{n} {way}' for way, n in instances.items())}), and their rings held "
            f"{sum(events.values())} events of {len(events)} kinds: "
            f"{', '.join(f'{kind} {n}' for kind, n in events.items())}."
        )
    else:
        yield "Nothing: no scheduler or worker was instrumented that recorded an event. This run proves nothing."
    yield from _told("Events that could not be recorded", comparison.lost)
    yield from _told(
        "Events that could not be recorded, of instances without `__init__`", comparison.lost_bare
    )
    yield from _told("What could not be instrumented", comparison.refused)


def _told(what: str, reasons: Mapping[str, int]) -> Iterable[str]:
    yield f"{what}:\n\n{_list(reasons)}" if reasons else f"{what}: none."


def _list(reasons: Mapping[str, int]) -> str:
    return "\n".join(f"* {n} × `{why}`" for why, n in reasons.items())


def _cells(row: Row) -> list[str]:
    counts = [*row.plain.values(), *row.in_place.values(), row.instrumented]
    return [row.file.removeprefix("v1/kv_connector/unit/"), *map(str, counts)]


def _total(rows: Iterable[Row]) -> Row:
    rows = list(rows)

    def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
        counts = list(counts)
        return {result: sum(each[result] for each in counts) for result in RESULTS}

    plain, in_place = added(r.plain for r in rows), added(r.in_place for r in rows)
    return Row("all", plain, in_place, sum(r.instrumented for r in rows))


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
