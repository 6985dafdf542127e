"""The command ``pushscope top``. Where snapshots come from is the caller's: it gives ``open_source``."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Annotated

import typer

from pushscope.telemetry.cli import Connect, Replay, RingFolder, Token, print_out, say, where, write_out
from pushscope.telemetry.where import Where
from pushscope.tui.feed import SnapshotSource

OpenSource = Callable[[Where, bool], AbstractContextManager[SnapshotSource]]
"""Opens what is to be read for as long as the context lasts. A recording is played at its own speed, or (True) read
to its end at once. Raises OSError or ValueError with a sentence for the user if it can't."""

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
    ) -> None:
        """Show every KV transfer in flight, who waits for whom, and what ended lately."""
        told = where(replay, rings, connect, token)
        code = top(open_source, told, once=once, json_output=json_output, refresh=refresh)
        raise typer.Exit(code)

    return command


def top(
    open_source: OpenSource,
    told: Where,
    *,
    once: bool = False,
    json_output: bool = False,
    refresh: float = 0.5,
) -> int:
    """Run ``pushscope top`` and give its exit code: 0, ``CANNOT_TELL``, or 143 after SIGTERM on a screen."""
    if not (once or json_output or (sys.stdin.isatty() and sys.stdout.isatty())):
        return _complain("top draws on a terminal, and this is none: use --once or --json")
    try:
        with open_source(told, once) as snapshots:
            if json_output:
                _print_json(snapshots, None if once else refresh)
            elif once:
                _print_text(snapshots)
            else:
                return _run_app(snapshots, refresh, "" if told.is_live else f"recording {told.replay}")
    except BrokenPipeError:
        return 0  # the reader of the pipe has seen enough
    except (OSError, ValueError) as error:
        return _complain(str(error))
    return 0


def _run_app(snapshots: SnapshotSource, refresh: float, label: str) -> int:
    from pushscope.tui.app import TopApp, run_screen  # noqa: PLC0415 (Textual takes time that --once needn't spend)

    app = TopApp(snapshots, refresh, label)
    # Modules and classes stay for good. Left to the collector, they would be walked again and again, in
    # pauses of some 20 ms, which is more than a usual frame takes.
    gc.collect()
    gc.freeze()
    return run_screen(app)


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
