"""Two ways to start an API server: as a user would, or forked from a process that has imported vLLM
already."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

from pushscope.lab.engine.zygote import SERVER_MODULE
from pushscope.lab.environment import engine_environment
from pushscope.lab.processes import is_running, process_info, stop_groups
from pushscope.lab.readiness import start_error
from pushscope.lab.warden import Warden

LaunchMode = Literal["forked", "plain"]


@dataclass(frozen=True, slots=True)
class Process:
    """A started process that leads a process group of its own."""

    pid: int
    start_ticks: int
    popen: subprocess.Popen[bytes] | None = None
    """Set for our own children, which have to be reaped."""

    def alive(self) -> bool:
        """Whether the leader still runs."""
        if self.popen is not None:
            return self.popen.poll() is None
        return is_running(self.pid, self.start_ticks)

    def exit_status(self) -> str:
        """How it ended, for a message."""
        code = self.popen.poll() if self.popen is not None else None
        if code is None:
            return "ended"
        return f"was ended by signal {-code}" if code < 0 else f"ended with exit status {code}"


class Launcher(Protocol):
    """Starts API servers."""

    imports_vllm: bool
    """Whether each server spends its first seconds importing vLLM."""

    @property
    def ready(self) -> bool:
        """Whether a server can be started now without waiting.

        Raises StartError if it never can.
        """
        ...

    def start(self, arguments: Sequence[str], env: Mapping[str, str], log: Path) -> Process:
        """Start a server that appends its output to ``log``."""
        ...


def start_command(command: Sequence[str], env: Mapping[str, str], log: Path) -> Process:
    """Start a program in a session of its own, with its output appended to ``log``."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            list(command),
            env=dict(env),
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    info = process_info(child.pid)
    return Process(pid=child.pid, start_ticks=info.start_ticks if info else 0, popen=child)


class PlainLauncher:
    """``python -m vllm.entrypoints.openai.api_server``; each server imports vLLM, 15 to 30 s on a small
    machine."""

    imports_vllm = True
    ready = True

    def start(self, arguments: Sequence[str], env: Mapping[str, str], log: Path) -> Process:
        return start_command([sys.executable, "-m", SERVER_MODULE, *arguments], env, log)


class Zygote:
    """A launcher that forks servers from one process that imported vLLM. A context manager; it may serve many
    deployments.

    ``start`` waits for the import to be done. Servers that still run at the end are left to their deployment.
    ``log`` is kept; without one the output goes to a temporary file.
    """

    imports_vllm = False

    def __init__(self, *, log: Path | None = None, timeout_s: float = 180.0) -> None:
        self._timeout_s = timeout_s
        self._folder = Path(
            tempfile.mkdtemp(prefix="pushscope-")
        )  # short: a socket's path has at most 107 bytes
        self._socket = self._folder / "zygote"
        self._log = log or self._folder / "zygote.log"
        self._process: Process | None = None
        self._warden: Warden | None = None

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self) -> None:
        """Start importing, and return at once."""
        command = [sys.executable, "-m", "pushscope.lab.engine.zygote", str(self._socket)]
        self._warden = Warden()
        self._process = start_command(command, engine_environment(), self._log)
        self._warden.watch(self._process.pid)

    @property
    def ready(self) -> bool:
        """Whether a server can be forked now.

        Raises StartError if the import failed.
        """
        if self._process is None:
            raise RuntimeError(
                "Expected the zygote to be started, found that it isn't: use it in a with block."
            )
        if not self._process.alive():
            raise start_error("the process that imports vLLM", self._process.exit_status(), self._log)
        return self._socket.exists()

    def start(self, arguments: Sequence[str], env: Mapping[str, str], log: Path) -> Process:
        deadline = time.monotonic() + self._timeout_s
        while not self.ready:
            if time.monotonic() > deadline:
                found = f"was not after {self._timeout_s:g} s"
                raise start_error("the process that imports vLLM", found, self._log)
            time.sleep(0.05)
        request = {"args": list(arguments), "env": dict(env), "log": str(log), "cwd": str(log.parent)}
        with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rw") as stream:
            self._connect(connection)
            stream.write(json.dumps(request) + "\n")
            stream.flush()
            pid = int(json.loads(stream.readline())["pid"])
        info = process_info(pid)
        return Process(pid=pid, start_ticks=info.start_ticks if info else 0)

    def _connect(self, connection: socket.socket) -> None:
        """The socket's file appears between bind and listen: try again for a moment."""
        for attempt in range(20):
            try:
                connection.connect(str(self._socket))
            except ConnectionRefusedError:
                if attempt == 19:
                    raise
                time.sleep(0.05)
            else:
                return

    def close(self) -> None:
        """End the zygote."""
        if self._process is not None:
            stop_groups([self._process.pid], grace_s=1.0)
            self._process.alive()  # reaps
            self._process = None
        if self._warden is not None:
            self._warden.close()
            self._warden = None
        shutil.rmtree(self._folder, ignore_errors=True)
