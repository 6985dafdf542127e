"""``python -m versions [--offline]``: read every release, write the result and the page made from it."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from versions.needs import attributes_now, seams_now
from versions.page import page_of
from versions.sources import UnreadableError, read_sources
from versions.verdict import LeftOut, Result, Verdict, judged
from versions.wheels import RELEASES, WheelError, fetched_files

_DOCS = Path(__file__).parents[1] / "docs" / "reference"
JSON, PAGE = _DOCS / "versions.json", _DOCS / "versions.md"
FAILED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """A release that lacks something is no failure; one that could not be read is."""
    parser = argparse.ArgumentParser(prog="python -m versions", description=__doc__)
    parser.add_argument("--offline", action="store_true", help="only write the page anew from the result")
    if parser.parse_args(arguments).offline:
        result = committed()
    else:
        result = read_releases(datetime.date.today().isoformat())
        JSON.parent.mkdir(parents=True, exist_ok=True)
        JSON.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    PAGE.write_text(page_of(result), encoding="utf-8")
    return FAILED if result.left_out else 0


def committed() -> Result:
    """The result as it lies in the repository."""
    return msgspec.json.decode(JSON.read_bytes(), type=Result)


def read_releases(today: str) -> Result:
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
    return Result(today, seams_now(), attributes_now(), releases, left_out)


if __name__ == "__main__":
    sys.exit(main())
