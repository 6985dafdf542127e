"""The command ``pushscope doctor``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from pushscope.telemetry.cli import RingFolder, print_out, sentences, write_out
from pushscope.telemetry.doctor.check import EXIT_STATUS, Examination, worst
from pushscope.telemetry.doctor.checks import checks_of
from pushscope.telemetry.doctor.gather import gather
from pushscope.telemetry.doctor.view import render
from pushscope.telemetry.ring import default_folder


def doctor(
    rings: RingFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Don't load vLLM and NIXL to see whether they fit.")
    ] = False,
) -> None:
    """Check what stands in the way of seeing transfers on this host, and say what to do.

    Exit status: 0 if all is well or only worth knowing, 1 with a warning, 2 with a failure.
    """
    with sentences(), _progress() as say:
        checks = checks_of(gather(rings or default_folder(), quick=quick, on_progress=say))
    level = worst(checks)
    with sentences():
        if as_json:
            write_out(msgspec.json.encode(Examination(level, checks)) + b"\n")
        else:
            print_out(lambda console: render(checks, console))
    raise typer.Exit(EXIT_STATUS[level])


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Says on a terminal what goes on; elsewhere nothing."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("looking around") as status:
        yield status.update
