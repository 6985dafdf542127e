"""``python -m upstream FOLDER [--page] [pytest arguments]``: run vLLM's tests twice and compare.

Exits 0 only if every test came out alike and pushscope was there. Tests that came out otherwise run again; one
that is then always alike is said to be unsteady, and is no difference.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from bench.machine import this_machine

from upstream.compare import Comparison, compare, settled
from upstream.hub import make_hub
from upstream.page import Result, page_of, summary_of
from upstream.run import RunError, files_concerned, run

_DOCS = Path(__file__).parents[1] / "docs" / "reference"
JSON, PAGE = _DOCS / "upstream-tests.json", _DOCS / "upstream-tests.md"
ALIKE, DIFFERENT, NO_RESULT = 0, 1, 2
AGAIN = 3
"""How often tests that came out otherwise run again, alone: some of vLLM's wait a fixed time for a thread."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the summary, and with ``--page`` write the result and the page that the docs hold."""
    parser = argparse.ArgumentParser(prog="python -m upstream", description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder `tests` of vLLM's source distribution")
    parser.add_argument("--page", action="store_true", help="write docs/reference/upstream-tests.{json,md}")
    options, for_pytest = parser.parse_known_args(arguments)
    try:
        result = _both_runs(options.folder, for_pytest)
    except RunError as e:
        print(e, file=sys.stderr)
        return NO_RESULT
    print(summary_of(result))
    if options.page:
        JSON.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
        PAGE.write_text(page_of(result), encoding="utf-8")
    alike = result.comparison.proven and not result.comparison.differences
    return ALIKE if alike else DIFFERENT


def committed() -> Result:
    """The result as it lies in the repository."""
    return msgspec.json.decode(JSON.read_bytes(), type=Result)


def _both_runs(folder: Path, for_pytest: Sequence[str]) -> Result:
    files = files_concerned(folder)
    machine = this_machine()
    with tempfile.TemporaryDirectory(prefix="upstream-") as temporary:
        at = Path(temporary)
        environment = make_hub(at / "hub") | {"VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}

        def compared(tests: Sequence[str], name: str, arguments: Sequence[str] = ()) -> Comparison:
            plain, in_place = (
                run(
                    folder,
                    tests,
                    at / f"{name}-{way}",
                    in_place=ours,
                    environment=environment,
                    arguments=arguments,
                )
                for way, ours in (("plain", False), ("in-place", True))
            )
            return compare(plain, in_place)

        comparison = compared(files, "all", for_pytest)
        if different := [d.test for d in comparison.differences]:
            comparison = settled(comparison, [compared(different, f"again-{n}") for n in range(AGAIN)])
    return Result(machine, comparison)


if __name__ == "__main__":
    sys.exit(main())
