"""The command ``pushscope agent``, and what the connector starts."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from pushscope.telemetry.cli import RingFolder, sentences, stopped_by_signals
from pushscope.telemetry.ring import default_folder
from pushscope.telemetry.units import clean


def agent(
    rings: RingFolder = None,
    bind: Annotated[
        str,
        typer.Option(
            metavar="ADDR:PORT",
            envvar="PUSHSCOPE_BIND",
            help="Where to answer over HTTP; an address that other hosts can reach needs a token.",
        ),
    ] = "127.0.0.1:9479",
    any_port: Annotated[
        bool, typer.Option("--any-port", help="Where the port is taken, use a free one.")
    ] = False,
    token: Annotated[
        str,
        typer.Option(
            metavar="TOKEN",
            envvar="PUSHSCOPE_TOKEN",
            help="What others must present; better in the environment than here, where `ps` shows it.",
        ),
    ] = "",
    open_metrics: Annotated[
        bool,
        typer.Option(
            "--open-metrics",
            envvar="PUSHSCOPE_OPEN_METRICS",
            help="Show /metrics to who has no token, too.",
        ),
    ] = False,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            envvar="PUSHSCOPE_PEERS",
            help="Another host's agent, to join what both saw (repeatable).",
        ),
    ] = None,
    sample: Annotated[
        float | None,
        typer.Option(
            metavar="RATIO",
            min=0,
            max=1,
            help="Of the transfers that went well, the part whose spans are exported.",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar="PUSHSCOPE_STATE",
            help="Where to note what was exported and counted, if the folder of rings may only be read.",
        ),
    ] = None,
    exit_with_engines: Annotated[
        bool, typer.Option("--exit-with-engines", help="End when no engine records any more.")
    ] = False,
    grace: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="How long no engine must have recorded for that.")
    ] = 30.0,
) -> None:
    """Read this host's engines, export spans over OTLP (by the OTEL_* variables), and answer over HTTP.

    Ends on Ctrl-C or SIGTERM, when it has sent what waits. One agent reads a folder: a second one ends with status 2.
    """
    from pushscope.telemetry.agent.process import AgentOptions, run_agent  # noqa: PLC0415 - not for other commands
    from pushscope.telemetry.agent.server import parse_address  # noqa: PLC0415

    say = log_to_stderr()
    with sentences(), stopped_by_signals() as stop:
        options = AgentOptions(
            folder=rings or default_folder(),
            address=parse_address(bind),
            any_port=any_port,
            token=token,
            open_metrics=open_metrics,
            peers=tuple(peer or ()),
            sample=sample,
            state=state,
            exit_with_engines=exit_with_engines,
            grace_s=grace,
        )
        run_agent(options, os.environ, stop, say)


class _Say:
    """A line in the log, with nothing in it that a terminal would obey."""

    def __init__(self, logger: logging.Logger):
        self._logger = logger

    def __call__(self, sentence: str) -> None:
        self._logger.info("%s", clean(sentence))


def log_to_stderr() -> _Say:
    """Lines with the time before them; of other libraries only what is a warning."""
    logging.basicConfig(format="%(asctime)s pushscope agent: %(message)s", level=logging.WARNING)
    logger = logging.getLogger("pushscope.agent")
    logger.setLevel(logging.INFO)
    return _Say(logger)


def main() -> None:
    """``python -m pushscope.telemetry.agent``: what the connector starts."""
    from pushscope.telemetry.watch import rest_the_collector  # noqa: PLC0415

    rest_the_collector()
    typer.run(agent)
