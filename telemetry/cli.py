"""Commands that need nothing but telemetry, and what all reading commands share."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.marks import write_mark
from pushscope.telemetry.recorder import SWITCH_NAME
from pushscope.telemetry.recording import RecordingWriter
from pushscope.telemetry.ring import default_folder, opened_folder
from pushscope.telemetry.source import Source
from pushscope.telemetry.units import age, clean, count, size
from pushscope.telemetry.where import TOKEN_VARIABLE, Where

POLL_S = 0.05
_QUIET_LINE_S = 10.0

RingFolder = Annotated[
    Path | None,
    typer.Option(
        "--rings",
        metavar="DIR",
        help="Folder of rings (default: $PUSHSCOPE_DIR, else /dev/shm/pushscope-UID).",
    ),
]
Replay = Annotated[
    Path | None,
    typer.Option("--replay", metavar="FILE", help="Read a recording instead of this host's engines."),
]


Connect = Annotated[
    list[str] | None,
    typer.Option(
        "--connect",
        metavar="URL",
        help="Read the engines of an agent's host; repeatable. With --rings, that folder too.",
    ),
]
Token = Annotated[
    str | None,
    typer.Option("--token", metavar="TOKEN", help=f"The agents' token (default: ${TOKEN_VARIABLE})."),
]


def where(replay: Path | None, rings: Path | None, connect: list[str] | None, token: str | None) -> Where:
    """What the options of a reading command say."""
    return Where(replay=replay, rings=rings, connect=tuple(connect or ()), token=token)


@contextmanager
def sentences() -> Iterator[None]:
    """Turns an error that is a sentence into just that sentence, and exit code 2."""
    try:
        yield
    except BrokenPipeError:  # of stdout: whoever reads it has seen enough
        raise typer.Exit(0) from None
    except PushscopeError as e:
        say(str(e))
        raise typer.Exit(2) from None


def say(sentence: str) -> None:
    """A sentence on stderr, in one line, with nothing in it that a terminal would obey."""
    Console(stderr=True).print(Text(f"pushscope: {clean(sentence)}"), soft_wrap=True)


def print_out(render: Callable[[Console], None]) -> None:
    """Print what ``render`` draws, as wide as the terminal (80 columns in a pipe; COLUMNS overrides).

    What stdout's encoding lacks (a dot or an ellipsis in ASCII) is a question mark. Raises as ``write_out``.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    with _stdout_errors():
        console = Console()
        with console.capture() as drawn:
            render(console)
        sys.stdout.write(drawn.get())
        sys.stdout.flush()


def write_out(out: bytes) -> None:
    """Write to stdout, now. Raises BrokenPipeError, or PushscopeError if it cannot be written otherwise."""
    with _stdout_errors():
        sys.stdout.buffer.write(out)
        sys.stdout.flush()


@contextmanager
def _stdout_errors() -> Iterator[None]:
    try:
        yield
    except OSError as e:
        # Python flushes what is left at exit, and would complain once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(e, BrokenPipeError):
            raise
        raise PushscopeError(f"cannot write the output: {e.strerror}") from e


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, so that a command can end in order."""
    stop = threading.Event()
    before: dict[signal.Signals, Any] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, lambda *_: stop.set())
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def record(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="A new file; never overwritten.")
    ],
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", min=0, help="Stop by itself.")
    ] = None,
    rings: RingFolder = None,
    connect: Connect = None,
    token: Token = None,
) -> None:
    """Record what this host's engines say, until Ctrl-C. Every reading command replays it with --replay."""
    with sentences(), stopped_by_signals() as stop:
        source = where(None, rings, connect, token).open()
        writer = RecordingWriter(output)
        try:
            _record(source, writer, stop, seconds)
        finally:
            writer.close()
            source.close()
    typer.echo(f"{output}: {count(writer.num_events)} events, {size(writer.num_bytes)}")


def _record(source: Source, writer: RecordingWriter, stop: threading.Event, seconds: float | None) -> None:
    began = time.monotonic()
    with _progress() as say:
        while not stop.is_set():
            reading = source.poll()
            if reading is None:
                return
            writer.write(reading)
            elapsed = time.monotonic() - began
            if seconds is not None and elapsed >= seconds:
                return
            alive = sum(ring.alive for ring in reading.rings)
            lost = sum(ring.lost + ring.torn for ring in reading.rings)
            say(
                f"recording {age(elapsed)} · {alive} of {len(reading.rings)} rings live · "
                f"{count(writer.num_events)} events · {size(writer.num_bytes)} · {count(lost)} lost"
                + "".join(f"\n{notice}" for notice in reading.notices)
            )
            stop.wait(POLL_S)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Says what is going on: one line in place on a terminal, else a line every ten seconds."""
    console = Console(stderr=True)
    if console.is_terminal:
        with Live(console=console, transient=True, refresh_per_second=4) as live:
            yield lambda line: live.update(Text(line))
        return
    said_at = -_QUIET_LINE_S

    def say(line: str) -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= _QUIET_LINE_S:
            said_at = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    yield say


def mark(
    label: Annotated[
        str, typer.Argument(metavar="LABEL", help="What happens at this moment, as 'rate 8/s'; one line.")
    ],
    rings: RingFolder = None,
) -> None:
    """Mark this moment, for everybody who watches or records the engines that use the ring folder."""
    folder = rings or default_folder()
    with sentences():
        made = write_mark(folder, label, "mark")
    typer.echo(f"marked in {folder}: {made.label}")


class Switch(StrEnum):
    """Whether engines record."""

    ON = "on"
    OFF = "off"


def recording(to: Annotated[Switch, typer.Argument(help="on or off")], rings: RingFolder = None) -> None:
    """Switch recording on or off in all engines that use the ring folder.

    An engine looks at its next step, at most once a second; one without requests notices when it has some.
    """
    folder = rings or default_folder()
    flag = folder / SWITCH_NAME
    with sentences(), opened_folder(folder):
        try:
            if to is Switch.OFF:
                flag.touch(mode=0o600)
            else:
                flag.unlink(missing_ok=True)
        except OSError as e:
            raise PushscopeError(
                f"cannot switch recording {to.value} in {folder}: {e.strerror}; run it as the engines' user"
            ) from e
    typer.echo(f"recording is {to.value} for engines that use {folder}")
