"""``python -m faults``: make every fault on real engines, and write what was seen to docs/reference."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from bench.machine import this_machine

from faults.page import page_of
from faults.result import JSON, PAGE, Result, Row, read
from faults.run import LEASE_S, run
from pushscope.lab.faults.table import FAULTS
from pushscope.lab.launch import Zygote
from pushscope.lab.signals import exit_on_sigterm

MISUSED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 if all were named in time and cleared, 1 if not, 2 for a wrong call."""
    parser = argparse.ArgumentParser(
        prog="faults", description="Make faults on real engines, see them named."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which (default: all, and write the page)")
    parser.add_argument("--keep", type=Path, help="folder for logs and recordings, kept (default: a new one)")
    parser.add_argument("--update", action="store_true", help="write what was seen of NAMEs into the page")
    chosen = parser.parse_args(arguments)
    if unknown := [name for name in chosen.names if name not in FAULTS]:
        print(f"faults: unknown {', '.join(unknown)}; known are {', '.join(FAULTS)}", file=sys.stderr)
        return MISUSED
    names = chosen.names or list(FAULTS)
    machine = this_machine()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder, exit_on_sigterm(), Zygote() as zygote:
        rows = run([FAULTS[name] for name in names], (chosen.keep or Path(folder)).absolute(), zygote, _say)
    result = Result(machine, LEASE_S, tuple(rows))
    if chosen.update:
        result = read().updated(rows)
    if chosen.update or not chosen.names:
        JSON.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
        PAGE.write_text(page_of(result))
    print(f"{sum(row.held for row in rows)} of {len(rows)} named in time, and cleared")
    return 0 if all(row.held for row in rows) else 1


def _say(row: Row) -> None:
    named = f"named after {row.named_s:.1f} s" if row.named_s is not None else f"NOT NAMED {row.error}"
    cleared = f"cleared after {row.cleared_s:.1f} s" if row.cleared_s is not None else "NOT CLEARED"
    besides = f"; besides {', '.join(row.besides)}" if row.besides else ""
    print(f"{row.fault:26} {row.code:34} {named}, {cleared}{besides}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
