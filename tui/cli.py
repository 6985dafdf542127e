"""The command ``pushscope top``. Where snapshots come from is the caller's: it gives ``open_source``."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pushscope.telemetry.cli import Connect, Replay, RingFolder, Token, print_out, say, where, write_out
from pushscope.telemetry.live import Watched
from pushscope.telemetry.summary import summary_json
from pushscope.telemetry.units import clean
from pushscope.telemetry.where import Where
from pushscope.tui.feed import SnapshotSource
from pushscope.tui.summary_view import render_summary

OpenSource = Callable[[Where, bool], AbstractContextManager[Watched]]
"""Opens what is to be read for as long as the context lasts. A recording is played, or (True) read to its end at once.
Raises OSError or ValueError with a sentence for the user if it can't."""

CANNOT_TELL = 2
"""Exit code: the source can't be read, or there is no terminal to draw on."""

Once = Annotated[bool, typer.Option("--once", help="Print the present state as text and exit.")]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print snapshots as lines of JSON: with --once one, else one per refresh."),
]
Refresh = Annotated[
    float, typer.Option("--refresh", metavar="SECONDS", min=0.1, max=60, help="Time between two snapshots.")
]
Theme = Annotated[
    str,
    typer.Option(
        "--theme",
        metavar="NAME",
        envvar="PUSHSCOPE_THEME",
        help="colour-blind, textual-dark, textual-light, nord …",
    ),
]
SummaryFile = Annotated[
    Path | None,
    typer.Option("--summary", metavar="FILE", help="On exit, write what all of it amounts to as JSON."),
]


def top_command(open_source: OpenSource) -> Callable[..., None]:
    """The command, ready for ``app.command("top")`` of a typer app."""

    def command(
        once: Once = False,
        json_output: Json = False,
        replay: Replay = None,
        refresh: Refresh = 0.5,
        rings: RingFolder = None,
        connect: Connect = None,
        token: Token = None,
        theme: Theme = "",
        summary: SummaryFile = None,
    ) -> None:
        """Show every KV transfer in flight, who waits for whom, what is stuck and why, and what ended lately.

        When it is left, it prints what all of it amounts to.
        """
        told = where(replay, rings, connect, token)
        look = Look(refresh_s=refresh, theme=theme, summary=summary)
        raise typer.Exit(top(open_source, told, look, once=once, json_output=json_output))

    return command


@dataclass(frozen=True)
class Look:
    """How the screen is wanted."""

    refresh_s: float = 0.5
    theme: str = ""
    summary: Path | None = None
    """Where what all of it amounts to is written on exit."""


def top(
    open_source: OpenSource,
    told: Where,
    look: Look = Look(),
    *,
    once: bool = False,
    json_output: bool = False,
) -> int:
    """Run ``pushscope top`` and give its exit code: 0, ``CANNOT_TELL``, or 143 after SIGTERM on a screen."""
    on_screen = not (once or json_output)
    if on_screen and not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _complain("top draws on a terminal, and this is none: use --once or --json")
    if look.summary is not None and (once or not look.summary.absolute().parent.is_dir()):
        return _complain(
            "--summary is of what was watched for a while; leave out --once"
            if once
            else f"expected a folder for the summary at {look.summary.absolute().parent}, found none; make it first"
        )
    try:
        with open_source(told, once) as watched:
            if json_output:
                _print_json(watched.snapshots, None if once else look.refresh_s)
            elif once:
                _print_text(watched.snapshots)
            else:
                return _run_app(watched, look, "" if told.is_live else f"recording {told.replay}")
            _write_summary(watched, look)
    except BrokenPipeError:
        return 0  # the reader of the pipe has seen enough
    except (OSError, ValueError) as error:
        return _complain(str(error))
    return 0


def _run_app(watched: Watched, look: Look, label: str) -> int:
    from pushscope.tui.app import TopApp, run_screen  # noqa: PLC0415 (Textual takes time that --once needn't spend)
    from pushscope.tui.themes import known  # noqa: PLC0415

    if look.theme and look.theme not in known():
        return _complain(
            f"expected a theme as --theme, found {clean(look.theme, 40)!r}; known: {', '.join(known())}"
        )
    app = TopApp(watched.snapshots, look.refresh_s, label, controls=watched.session, theme=look.theme)
    # Modules and classes stay for good. Left to the collector, they would be walked again and again, in
    # pauses of some 20 ms, which is more than a usual frame takes.
    gc.collect()
    gc.freeze()
    code = run_screen(app)
    if watched.session is not None:
        summary = watched.session.summary()
        if summary.total is not None and summary.total.transfers:
            print_out(lambda console: render_summary(summary, console))
        _write_summary(watched, look)
    return code


def _write_summary(watched: Watched, look: Look) -> None:
    if look.summary is not None and watched.session is not None:
        look.summary.write_bytes(summary_json(watched.session.summary()) + b"\n")


def _print_text(snapshots: SnapshotSource) -> None:
    from pushscope.tui.once import render_snapshot  # noqa: PLC0415

    snapshot = snapshots()
    print_out(lambda console: render_snapshot(snapshot, console))


def _print_json(snapshots: SnapshotSource, refresh: float | None) -> None:
    from pushscope.tui.once import snapshot_json  # noqa: PLC0415

    try:
        while True:
            write_out(snapshot_json(snapshots()) + b"\n")
            if refresh is None:
                return
            time.sleep(refresh)
    except KeyboardInterrupt:
        return


def _complain(sentence: str) -> int:
    say(sentence)
    return CANNOT_TELL
