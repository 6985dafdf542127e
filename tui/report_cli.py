"""The command ``pushscope report``."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import msgspec
import typer

from pushscope.telemetry.cli import (
    Connect,
    Replay,
    RingFolder,
    Token,
    print_out,
    say,
    sentences,
    where,
    write_out,
)
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.report import Report, report_json, summarize
from pushscope.telemetry.source import Source
from pushscope.telemetry.transfer import Transfer
from pushscope.telemetry.watch import Watcher
from pushscope.tui.report_view import render_report


def report(
    replay: Replay = None,
    rings: RingFolder = None,
    connect: Connect = None,
    token: Token = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say where the transfers' time went: per stage and rank, exposed and hidden. Reads what the rings hold.

    Exit status 2 if they, or the recording, can't be read; of a damaged recording what lies before is shown.
    """
    with sentences():
        told = where(replay, rings, connect, token)
        told.check()
        with closing(told.open()) as source:
            summary, names, damage = reported(source)
        for notice in summary.notices:
            if notice != str(damage):  # which comes last, below what is good
                say(notice)
        if as_json:
            write_out(report_json(summary) + b"\n")
        else:
            print_out(lambda console: render_report(summary, console, names))
        if damage is not None:
            raise damage


def reported(source: Source) -> tuple[Report, dict[str, str], PushscopeError | None]:
    """A report on all that a source gives, to its end (rings: what they hold now), the engines' names, and
    the error that ended it early."""
    ended: list[Transfer] = []
    watcher = Watcher(source, on_closed=ended.append)
    damage: PushscopeError | None = None
    try:
        watcher.read_all()
    except PushscopeError as e:
        damage = e
    snapshot = watcher.snapshot()
    notices = snapshot.notices if damage is None else (*snapshot.notices, str(damage))
    summary = summarize([*ended, *watcher.assembler.open_transfers()])
    names = {engine.engine_id: engine.name for engine in snapshot.engines}
    return msgspec.structs.replace(summary, notices=notices), names, damage
