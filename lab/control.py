"""Orders that another terminal gives to a running lab: kill an engine, start it again, perhaps otherwise.

Only the process of `pushscope lab up` knows how its engines are started, and it takes the end of one for an
error; so whoever wants an engine ended or restarted asks it. It listens on a Unix socket that the state file
names, and serves one order at a time between two looks at its engines. An order is one JSON line, and so is the
answer: ``{"error": ""}`` when it is done.
"""

from __future__ import annotations

import select
import shutil
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from pushscope.lab.deployment import ROUTER, Deployment
from pushscope.lab.readiness import StartError
from pushscope.lab.spec import EngineSpec
from pushscope.lab.state import lab_state, write_state

_ANSWER_S = 300.0
"""Longer than any engine takes to start."""


class OrderError(RuntimeError):
    """The lab could not do what it was asked for, or does not take orders."""


class Changes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """In what an engine differs from what the lab was started with, until it is restarted once more."""

    block_size: int | None = None
    kv_cache_bytes: int | None = None
    max_model_len: int | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    kv_transfer: Mapping[str, Any] = {}
    """Top-level keys of ``--kv-transfer-config``, such as ``engine_id``."""

    def of(self, spec: EngineSpec) -> EngineSpec:
        """That engine with these changes."""
        return replace(
            spec,
            block_size=self.block_size or spec.block_size,
            kv_cache_bytes=self.kv_cache_bytes or spec.kv_cache_bytes,
            max_model_len=self.max_model_len or spec.max_model_len,
            args=(*spec.args, *self.args),
            env={**spec.env, **self.env},
            kv_transfer={**spec.kv_transfer, **self.kv_transfer},
        )


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is to be done with an engine or the router. ``let_end``: it is going to end, and that is no error."""

    do: Literal["kill", "restart", "let_end"]
    name: str
    changes: Changes = Changes()


class _Answer(msgspec.Struct, frozen=True):
    error: str = ""


class Control:
    """The lab's end: a context manager, within which orders are taken whenever ``serve`` runs.

    The state file in ``directory`` names the socket, and is written anew after each order: an engine has
    another process then.
    """

    def __init__(self, deployment: Deployment, directory: Path) -> None:
        self.meant_to_end: set[str] = set()
        """Engines that have ended, or will, by order."""
        self._deployment = deployment
        self._directory = directory
        self._folder = Path(tempfile.mkdtemp(prefix="pushscope-"))  # a socket's path has at most 107 bytes
        self._path = self._folder / "control"
        self._server = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Self:
        self._server.bind(str(self._path))
        self._server.listen()
        self._write_state()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def serve(self, timeout_s: float) -> None:
        """Wait for an order, at most so long, and do it."""
        asked = select.poll()  # select() knows no file descriptor above 1023
        asked.register(self._server, select.POLLIN)
        if not asked.poll(timeout_s * 1000):
            return
        connection, _ = self._server.accept()
        with connection, connection.makefile("rwb") as stream:
            answer = self._answer(stream.readline())
            try:
                stream.write(msgspec.json.encode(answer) + b"\n")
                stream.flush()
            except BrokenPipeError:
                pass  # whoever asked has gone; it is done all the same

    def _answer(self, line: bytes) -> _Answer:
        try:
            self._do(msgspec.json.decode(line, type=Order))
        except (msgspec.MsgspecError, KeyError, ValueError, StartError) as error:
            return _Answer(str(error) or type(error).__name__)
        return _Answer()

    def _do(self, order: Order) -> None:
        deployment, name = self._deployment, order.name
        if name != ROUTER and name not in deployment.specs:
            raise ValueError(f"Expected one of {', '.join(deployment.specs)}, found {name!r}.")
        if order.do == "restart":
            deployment.restart(name, order.changes.of(deployment.specs[name]) if name != ROUTER else None)
            self.meant_to_end.discard(name)
            self._write_state()
            return
        self.meant_to_end.add(name)
        if order.do == "kill":
            deployment.kill(name)

    def _write_state(self) -> None:
        write_state(self._directory, lab_state(self._deployment, self._path))


def give(control: str | None, order: Order) -> None:
    """Have the lab that listens at ``control`` do something, and wait until it is done.

    Raises OrderError.
    """
    if control is None:
        raise OrderError(
            "Expected a lab that takes orders, found one that doesn't: start it with `pushscope lab up`."
        )
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_S)
        try:
            connection.connect(control)
            with connection.makefile("rwb") as stream:
                stream.write(msgspec.json.encode(order) + b"\n")
                stream.flush()
                line = stream.readline()
        except OSError as error:
            raise OrderError(f"Expected the lab to answer at {control}, found: {error}.") from error
    if not line:
        raise OrderError(f"Expected the lab to {order.do} {order.name}, found that it went down.")
    answer = msgspec.json.decode(line, type=_Answer)
    if answer.error:
        raise OrderError(answer.error)
