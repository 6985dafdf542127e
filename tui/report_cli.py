"""The command ``pushscope report``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Final, NamedTuple

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
from pushscope.telemetry.compare import compare, comparison_json
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.gate import StuckCount, figures_of, judge, parse
from pushscope.telemetry.recording import RecordingSource
from pushscope.telemetry.report import Report, report_json, summarize
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.source import Source
from pushscope.telemetry.transfer import Transfer
from pushscope.telemetry.watch import Watcher
from pushscope.tui.compare_view import render_comparison
from pushscope.tui.report_view import render_report

_LOOK_NS: Final = 1_000_000_000


def report(
    replay: Replay = None,
    rings: RingFolder = None,
    connect: Connect = None,
    token: Token = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="CONDITIONS",
            help="Exit status 1 if one holds, e.g. 'stuck>0,exposed_p99>500ms'; repeatable. docs/load-tests.md.",
        ),
    ] = None,
    compare_files: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            "--compare",
            metavar="BEFORE AFTER",
            help="Two recordings, stage by stage: is what differs more than noise?",
        ),
    ] = None,
) -> None:
    """Say where the transfers' time went: per stage and rank, exposed and hidden. Reads what the rings hold.

    Exit status 2 if they, or the recording, can't be read; of a damaged recording what lies before is shown. With
    --fail-if 1 if a condition holds, 2 if that can't be told.
    """
    with sentences():
        if compare_files is not None:
            if fail_if or replay or rings or connect:
                raise PushscopeError(
                    "--compare reads two recordings and nothing else; give it alone, or with --json"
                )
            _compare(*compare_files, as_json=as_json)
            return
        conditions = parse(fail_if or ())
        stuck = StuckCount() if any(condition.name == "stuck" for condition in conditions) else None
        told = where(replay, rings, connect, token)
        told.check()
        with closing(told.open()) as source:
            found = reported(source, stuck.note if stuck else None)
        for notice in found.report.notices:
            if notice != str(found.damage):  # which comes last, below what is good
                say(notice)
        if as_json:
            write_out(report_json(found.report) + b"\n")
        else:
            print_out(lambda console: render_report(found.report, console, found.names))
        judged = judge(
            conditions, figures_of(found.report, stuck.number if stuck else None, found.events_lost)
        )
        for sentence in (*judged.held, *judged.untold):
            say(sentence)
        if found.damage is not None:
            raise found.damage
    raise typer.Exit(judged.exit_status)


def _compare(before: Path, after: Path, *, as_json: bool) -> None:
    runs = []
    for path in (before, after):
        with closing(RecordingSource(path)) as source:
            read = _read(source)
        if read.damage is not None:
            raise read.damage
        runs.append((str(path), read.transfers))
        for notice in read.snapshot.notices:
            say(f"{path}: {notice}")
    comparison = compare(*runs)
    if as_json:
        write_out(comparison_json(comparison) + b"\n")
    else:
        print_out(lambda console: render_comparison(comparison, console))


class Reported(NamedTuple):
    """A report on all that a source gives."""

    report: Report
    names: dict[str, str]
    """Engine ids -> short names."""
    events_lost: int
    damage: PushscopeError | None
    """What ended it early."""


def reported(source: Source, look: Callable[[Snapshot], None] | None = None) -> Reported:
    """Read a source to its end (rings: what they hold now). ``look`` is called with how it stood at each second of a
    recording, and at the end."""
    transfers, snapshot, damage = _read(source, look)
    notices = snapshot.notices if damage is None else (*snapshot.notices, str(damage))
    summary = summarize(transfers)
    return Reported(
        report=msgspec.structs.replace(summary, notices=notices),
        names={engine.engine_id: engine.name for engine in snapshot.engines},
        events_lost=snapshot.totals.events_lost,
        damage=damage,
    )


class _Read(NamedTuple):
    transfers: list[Transfer]
    snapshot: Snapshot
    damage: PushscopeError | None


def _read(source: Source, look: Callable[[Snapshot], None] | None = None) -> _Read:
    """All transfers of a source, ended and open, how it stood at its end, and what ended it early."""
    ended: list[Transfer] = []
    watcher = Watcher(source, on_closed=ended.append)
    damage: PushscopeError | None = None
    try:
        if look is not None and source.ends:
            for snapshot in _seconds(watcher):
                look(snapshot)
        else:
            watcher.read_all()
    except PushscopeError as e:
        damage = e
    last = watcher.snapshot()
    if look is not None:
        look(last)
    return _Read([*ended, *watcher.assembler.open_transfers()], last, damage)


def _seconds(watcher: Watcher) -> Iterator[Snapshot]:
    """How it stood after each second of a recording."""
    next_ns = 0
    while watcher.poll():
        if watcher.reading is not None and watcher.reading.t_ns >= next_ns:
            next_ns = watcher.reading.t_ns + _LOOK_NS
            yield watcher.snapshot()
