"""The command ``pushscope stuck``."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from pushscope.telemetry.cli import (
    Connect,
    Replay,
    RingFolder,
    Token,
    print_out,
    say,
    sentences,
    stopped_by_signals,
    where,
    write_out,
)
from pushscope.telemetry.diagnosis.model import Severity
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.playback import Player
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.stuck import (
    EXIT_STATUS,
    Row,
    Stuck,
    Verdict,
    change_json,
    changes,
    stuck_in,
    stuck_json,
)
from pushscope.telemetry.watch import Watcher
from pushscope.telemetry.where import Where
from pushscope.tui.stuck_view import change_line, render_stuck, state_lines, stuck_lines, wall_time

REFRESH_S = 0.5
Show = Callable[[Stuck, Snapshot], None]


def stuck(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON; with --watch a line for each change.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on until Ctrl-C; in a pipe print only what changes.")
    ] = False,
    at_least: Annotated[
        Severity, typer.Option("--at-least", help="What is less severe is neither shown nor counted.")
    ] = Severity.WARNING,
    replay: Replay = None,
    rings: RingFolder = None,
    connect: Connect = None,
    token: Token = None,
) -> None:
    """Say what is stuck, why, and what to do: the worst first, then the oldest.

    Exit status: 0 nothing is stuck, 1 something is, 2 it can't be told (no ring folder, no engine, recording off,
    events lost just now). With --watch it is that of the last look.
    """
    with sentences():
        told = where(replay, rings, connect, token)
        told.check()
        look = _watch if watch else _look_once
        found = look(as_json, at_least, told)
    raise typer.Exit(EXIT_STATUS[found.verdict])


def _look_once(as_json: bool, at_least: Severity, told: Where) -> Stuck:
    damage: PushscopeError | None = None
    with closing(told.open()) as source:
        watcher = Watcher(source)
        try:
            watcher.read_all()
        except PushscopeError as e:
            damage = e
        snapshot = watcher.snapshot()
    found = stuck_in(snapshot, at_least, live=told.is_live)
    for notice in snapshot.notices:
        if not any(notice in why for why in found.unknown):
            say(notice)
    if as_json:
        write_out(stuck_json(found, snapshot) + b"\n")
    else:
        print_out(lambda console: render_stuck(found, snapshot, console))
    if damage is not None:
        raise damage
    return found


# -- watching ----------------------------------------------------------------------------------------


def _watch(as_json: bool, at_least: Severity, told: Where) -> Stuck:
    found = Stuck(verdict=Verdict.UNKNOWN)
    in_place = sys.stdout.isatty() and not as_json
    shown = _in_place() if in_place else nullcontext(_ChangesAsJson() if as_json else _Changes())
    with stopped_by_signals() as stop, shown as show:
        for snapshot in _looks(told, stop):
            found = stuck_in(snapshot, at_least, live=told.is_live)
            show(found, snapshot)
    return found


def _looks(told: Where, stop: threading.Event) -> Iterator[Snapshot]:
    """The present state, again and again, until it is told to stop or a recording is over."""
    recording = told.recording
    player = Player(recording) if recording is not None else None
    with closing(player or told.open()) as source:
        watcher = Watcher(source)
        while not stop.is_set():
            if player is None:
                watcher.poll()
            else:
                player.advance(watcher.poll)
            yield watcher.snapshot()
            if player is not None and player.over:
                if player.damage:
                    raise PushscopeError(player.damage)
                return
            stop.wait(REFRESH_S)


@contextmanager
def _in_place() -> Iterator[Show]:
    """Draws all of it anew in the same place; the last stays."""
    console = Console()
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:

        def show(found: Stuck, snapshot: Snapshot) -> None:
            ending = Text(f"{wall_time(snapshot.taken_unix_s)} · Ctrl-C ends", "dim")
            live.update(Group(*stuck_lines(found, snapshot, console), ending), refresh=True)

        yield show


class _Changes:
    """Prints a line for what is new and what is over, and whenever that changes, how it stands."""

    def __init__(self) -> None:
        self._rows: Sequence[Row] = ()
        self._state: tuple[Verdict, tuple[str, ...]] | None = None

    def __call__(self, found: Stuck, snapshot: Snapshot) -> None:
        lines = [change_line(change, snapshot) for change in changes(self._rows, found.rows)]
        if self._state != (found.verdict, found.unknown):
            lines += state_lines(found, snapshot)
        self._rows, self._state = found.rows, (found.verdict, found.unknown)
        if lines:
            write_out("".join(f"{line}\n" for line in lines).encode(errors="replace"))


class _ChangesAsJson:
    """The same for a program: first how it stands, then a line for each change."""

    def __init__(self) -> None:
        self._rows: Sequence[Row] | None = None
        self._state: tuple[Verdict, tuple[str, ...]] | None = None

    def __call__(self, found: Stuck, snapshot: Snapshot) -> None:
        lines = []
        if self._rows is not None:
            lines += [change_json(change, snapshot) for change in changes(self._rows, found.rows)]
        if self._state != (found.verdict, found.unknown):
            lines.append(stuck_json(found, snapshot))
        self._rows, self._state = found.rows, (found.verdict, found.unknown)
        if lines:
            write_out(b"\n".join(lines) + b"\n")
