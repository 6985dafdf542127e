"""A bench in a fresh interpreter: no bench meets the heap, the threads or the environment of another."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection

import msgspec

from bench.catalogue import BENCHES
from bench.figure import BenchError, Figure, Progress, Settings

_LAST_LINES = 15


class _Done(msgspec.Struct, frozen=True, tag="done"):
    figures: list[Figure]


class _Failed(msgspec.Struct, frozen=True, tag="failed"):
    why: str


class _Step(msgspec.Struct, frozen=True, tag="step"):
    done: float
    text: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Done | _Failed | _Step).decode


def run_apart(name: str, settings: Settings, progress: Progress) -> list[Figure]:
    """Run a bench in a process of its own; what it prints goes to a file, whose end is shown if it fails.

    Raises BenchError if it fails.
    """
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe(duplex=False)
    with tempfile.NamedTemporaryFile("r", prefix=f"bench-{name}-", suffix=".log") as log:
        process = spawn.Process(target=_run, args=(name, settings.pairs, theirs, log.name))
        process.start()
        theirs.close()
        try:
            return _followed(ours, progress)
        except EOFError:
            process.join()
            why = f"its process ended with exit status {process.exitcode}"
            raise BenchError("\n".join([why, *log.read().splitlines()[-_LAST_LINES:]])) from None
        finally:
            process.join()


def _followed(connection: Connection, progress: Progress) -> list[Figure]:
    while True:
        told = _decode(connection.recv_bytes())
        if isinstance(told, _Done):
            return told.figures
        if isinstance(told, _Failed):
            raise BenchError(told.why)
        progress(told.done, told.text)


def _run(name: str, pairs: int, connection: Connection, log: str) -> None:
    """In the child."""
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    tell: Callable[[msgspec.Struct], None] = lambda told: connection.send_bytes(_encode(told))  # noqa: E731
    try:
        figures = BENCHES[name].load()(Settings(pairs), lambda done, text: tell(_Step(done, text)))
    except BenchError as e:
        tell(_Failed(str(e)))
    else:
        tell(_Done(figures))
