"""``python -m versions``: read every release and run those that can be, write the result and its page."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from versions.environments import ENVIRONMENTS, Environment, default_cache
from versions.needs import attributes_now, seams_now
from versions.page import page_of
from versions.runs import SELECTIONS, ran
from versions.sources import UnreadableError, read_sources
from versions.verdict import LeftOut, Result, Run, Verdict, judged
from versions.wheels import RELEASES, WheelError, fetched_files

_DOCS = Path(__file__).parents[1] / "docs" / "reference"
JSON, PAGE = _DOCS / "versions.json", _DOCS / "versions.md"
FAILED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """A release that lacks something is no failure; one that could not be read is, and a test that failed."""
    parser = argparse.ArgumentParser(prog="python -m versions", description=__doc__)
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--offline", action="store_true", help="only write the page anew from the result")
    part.add_argument("--read", action="store_true", help="only read the wheels")
    part.add_argument(
        "--run", nargs="*", metavar="RELEASE", help="only run: all releases that can be, or those named"
    )
    parser.add_argument(
        "--select", action="append", choices=SELECTIONS, help="only run these tests (may be repeated)"
    )
    parser.add_argument(
        "--cache", type=Path, default=default_cache(), help="where environments are kept (%(default)s)"
    )
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.run or ()) - {e.vllm for e in ENVIRONMENTS}
    if unknown:
        known = ", ".join(dict.fromkeys(e.vllm for e in ENVIRONMENTS))
        parser.error(f"cannot run {', '.join(sorted(unknown))}; these can be run: {known}")
    today = datetime.date.today().isoformat()
    result = committed()
    if not chosen.offline:
        if chosen.run is None:
            result = read_releases(today, result.runs)
            write(result)
        if not chosen.read:
            for environment in ENVIRONMENTS:
                if not chosen.run or environment.vllm in chosen.run:
                    run = ran(environment, chosen.select or SELECTIONS, chosen.cache.absolute(), today)
                    print(said_of(run), flush=True)
                    result = with_run(result, run)
                    write(result)  # each at once: what was run is not lost
    PAGE.write_text(page_of(result), encoding="utf-8")
    return FAILED if result.left_out or any(not went_well(run) for run in result.runs) else 0


def committed() -> Result:
    """The result as it lies in the repository."""
    return msgspec.json.decode(JSON.read_bytes(), type=Result)


def write(result: Result) -> None:
    """In the form in which it is committed."""
    JSON.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")


def read_releases(today: str, runs: list[Run]) -> Result:
    """Fetch and judge all releases, one after the other: each wheel takes a hundred megabytes and more."""
    releases: list[Verdict] = []
    left_out: list[LeftOut] = []
    for distribution, version in RELEASES:
        try:
            verdict = judged(distribution, version, read_sources(fetched_files(distribution, version)))
        except (WheelError, UnreadableError) as e:
            left_out.append(LeftOut(distribution, version, str(e)))
            print(f"{distribution} {version}: {e}", flush=True)
            continue
        releases.append(verdict)
        off = len({why for reasons in verdict.seams_off.values() for why in reasons})
        print(f"{distribution} {version}: {f'seams off: {off}' if off else 'all seams fit'}", flush=True)
    return Result(today, seams_now(), attributes_now(), releases, left_out, runs)


def with_run(result: Result, run: Run, environments: Iterable[Environment] = ENVIRONMENTS) -> Result:
    """The result with ``run`` in the place of what was known of its environment.

    What was not run this time stays, if it was run with the same seams; what is no environment any more goes.
    """
    runs = {old.environment: old for old in result.runs}
    old = runs.get(run.environment)
    if old and not run.why_not and old.seams == run.seams:
        run = msgspec.structs.replace(run, outcomes=old.outcomes | run.outcomes)
    runs[run.environment] = run
    return msgspec.structs.replace(result, runs=[runs[e.name] for e in environments if e.name in runs])


def went_well(run: Run) -> bool:
    """Whether the environment was there and no test failed in it."""
    return bool(run.outcomes) and not any(outcome.failed for outcome in run.outcomes.values())


def said_of(run: Run) -> str:
    """One line for the terminal."""
    parts = [
        f"{name} {outcome.passed} passed"
        + (f", failed: {', '.join(outcome.failed)}" if outcome.failed else "")
        for name, outcome in run.outcomes.items()
    ]
    return f"{run.environment}: {run.why_not or '; '.join(parts)}"


if __name__ == "__main__":
    sys.exit(main())
