"""The command ``pushscope report``."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Annotated

import typer
from rich.console import Console

from pushscope.telemetry.cli import Replay, RingFolder, open_source, sentences
from pushscope.telemetry.report import Report, report_json, summarize
from pushscope.telemetry.source import Source
from pushscope.telemetry.transfer import Transfer
from pushscope.telemetry.watch import Watcher
from pushscope.tui.report_view import render_report


def report(
    replay: Replay = None,
    rings: RingFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say where the transfers' time went: per stage and rank, exposed and hidden. Reads what the rings hold."""
    with sentences(), closing(open_source(replay, rings)) as source:
        summary, names = reported(source)
    if as_json:
        sys.stdout.buffer.write(report_json(summary) + b"\n")
    else:
        render_report(summary, Console(), names)


def reported(source: Source) -> tuple[Report, dict[str, str]]:
    """A report on all that a source gives, to its end (rings: what they hold now), and the engines' names."""
    ended: list[Transfer] = []
    watcher = Watcher(source, on_closed=ended.append)
    watcher.poll()
    if source.ends:
        watcher.run_to_end()
    names = {engine.engine_id: engine.name for engine in watcher.snapshot().engines}
    return summarize([*ended, *watcher.assembler.open_transfers()]), names
