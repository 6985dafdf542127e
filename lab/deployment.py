"""Prefill and decode engines and their router, as real processes on this machine."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import httpx

from pushscope.lab.environment import LAB_ID, python_environment
from pushscope.lab.launch import Launcher, PlainLauncher, Process, start_command
from pushscope.lab.ports import wait_free
from pushscope.lab.processes import (
    ProcessInfo,
    group_members,
    processes_with_environment,
    signal_group,
    stop_groups,
)
from pushscope.lab.readiness import OnProgress, Progress, Stage, engine_stage, is_healthy, start_error
from pushscope.lab.router import RouterSpec
from pushscope.lab.signals import exit_on_sigterm
from pushscope.lab.spec import EngineSpec, Role
from pushscope.lab.warden import Warden

ROUTER = "router"
_AGENT_GRACE_S = 6.0
"""Five seconds are what it takes at most to send what waits."""

Part = Literal["all", "core", "server"]
"""What of an engine gets a signal: all its processes, its engine core, or its API server."""


@dataclass(slots=True)
class _Running:
    """A started engine or router."""

    name: str
    url: str
    log: Path
    process: Process
    started: float
    """time.monotonic()"""
    stage: Stage = "waiting"
    ready_s: float | None = None


class Deployment:
    """Engines and a router that live as long as the ``with`` block.

    Whatever ends the block (its end, an error, Ctrl-C, SIGTERM), every process is gone afterwards; after
    SIGKILL a warden sees to it. Without prefill or decode engines, or with ``router=None``, no router is
    started.

    ``ring_dir`` is handed to the engines as ``PUSHSCOPE_DIR``. ``on_progress`` is called in this thread.
    """

    def __init__(
        self,
        specs: Sequence[EngineSpec],
        model: Path,
        *,
        log_dir: Path,
        router: RouterSpec | None = RouterSpec(),  # noqa: B008 - frozen
        launcher: Launcher | None = None,
        ring_dir: Path | None = None,
        ready_timeout_s: float = 240.0,
        stop_grace_s: float = 3.0,
        on_progress: OnProgress | None = None,
    ) -> None:
        names = [spec.name for spec in specs]
        if len(set(names)) < len(names) or ROUTER in names:
            raise ValueError(
                f"Expected engines with names of their own, none called {ROUTER}, found {names}."
            )
        if not specs:
            raise ValueError("Expected at least one engine, found none.")
        self.id = uuid.uuid4().hex
        self.model = model
        self.log_dir = log_dir
        self.ring_dir = ring_dir
        self.specs = {spec.name: spec.with_ports() for spec in specs}
        self.router = router.with_ports() if router and self._has_pair() else None
        self._launcher = launcher if launcher is not None else PlainLauncher()
        self._ready_timeout_s = ready_timeout_s
        self._stop_grace_s = stop_grace_s
        self._on_progress = on_progress or _nobody_watches
        self._running: dict[str, _Running] = {}
        self._starts: dict[str, int] = {}
        self._warden: Warden | None = None
        self._exit_stack = ExitStack()

    # Life

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(exit_on_sigterm())
            stack.callback(self.stop)
            self.start()
            self._exit_stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit_stack.close()

    def start(self) -> None:
        """Start everything and wait until it is ready.

        Raises StartError that names the engine, its last errors and its log.
        """
        self.log_dir.mkdir(parents=True, exist_ok=True)
        self._warden = Warden()
        began = time.monotonic()
        while not self._launcher.ready:
            for name in self.specs:
                self._on_progress(Progress(name, "importing", time.monotonic() - began))
            self._check_time(began, "the engines")
            time.sleep(0.1)
        for name in self.specs:
            self._start_engine(name, began)
        self._wait_ready(list(self.specs))
        if self.router:
            self._start_router()
            self._wait_ready([ROUTER])

    def stop(self) -> None:
        """End every process of the deployment. Harmless when repeated."""
        groups = [running.process.pid for running in self._running.values()]
        # An API server that is up ends its engine in order; one that is still starting it doesn't.
        ready = all(running.ready_s is not None for running in self._running.values())
        stop_groups(groups, grace_s=self._stop_grace_s, leaders_first=ready)
        for running in self._running.values():
            running.process.alive()  # reaps
            self._report(running, "stopped")
        self._running.clear()
        # The agent took a session of its own, and still has our mark in its environment. It sends what waits.
        sessions = {info.group for info in processes_with_environment(LAB_ID, self.id)}
        stop_groups(sessions, grace_s=_AGENT_GRACE_S)
        if self._warden is not None:
            self._warden.close()
            self._warden = None

    # What runs

    @property
    def router_url(self) -> str:
        """Where clients send their requests.

        Raises RuntimeError without a router.
        """
        if self.router is None:
            raise RuntimeError("Expected a router, found none: it needs a prefill and a decode engine.")
        return self.router.url

    def urls(self, role: Role) -> list[str]:
        """The URLs of the engines of a role."""
        return [spec.url for spec in self.specs.values() if spec.role == role]

    def log(self, name: str) -> Path:
        """The log of an engine's (or the router's) present run."""
        return self._get(name).log

    def processes(self, name: str) -> list[ProcessInfo]:
        """The live processes of an engine or the router, its leader first."""
        return group_members(self._get(name).process.pid)

    def pid(self, name: str) -> int:
        """The process that was started for an engine or the router; also its process group."""
        return self._get(name).process.pid

    def ready_s(self, name: str) -> float:
        """Seconds from the start of an engine or the router until it was ready."""
        return self._get(name).ready_s or 0.0

    def dead(self) -> list[str]:
        """The engines, or the router, that ended by themselves."""
        return [name for name, running in self._running.items() if not running.process.alive()]

    # Faults

    def kill(self, name: str, number: int = signal.SIGKILL, *, part: Part = "all") -> None:
        """Send a signal to an engine or the router; after SIGKILL to all of it, wait until it is gone.

        Raises ValueError if the engine has no engine core any more.
        """
        process = self._get(name).process
        if part == "server":
            os.kill(process.pid, number)
        elif part == "core":
            cores = [info for info in group_members(process.pid) if "EngineCore" in info.title]
            if not cores:
                raise ValueError(f"Expected {name} to have an engine core, found none: it has ended already.")
            for info in cores:
                os.kill(info.pid, number)
        else:
            signal_group(process.pid, number)
            if number == signal.SIGKILL:
                stop_groups([process.pid], grace_s=self._stop_grace_s)
                process.alive()

    def restart(self, name: str, spec: EngineSpec | None = None) -> None:
        """End an engine or the router if it still runs, start it again on the same ports, and wait until it
        is ready.

        An engine gets a new engine id. The router learns a prefill engine's id only once: restart it too
        after that. ``spec`` is how the engine is to be this time; the next restart is by its own again.
        """
        process = self._get(name).process
        stop_groups([process.pid], grace_s=self._stop_grace_s, leaders_first=True)
        process.alive()
        if self._warden is not None:
            self._warden.forget(process.pid)
        if name == ROUTER:
            self._start_router()
        else:
            wait_free(self.specs[name].ports)
            self._start_engine(name, time.monotonic(), spec)
        self._wait_ready([name])

    # Steps

    def _has_pair(self) -> bool:
        roles = {spec.role for spec in self.specs.values()}
        return {"prefill", "decode"} <= roles

    def _get(self, name: str) -> _Running:
        if name not in self._running:
            raise KeyError(f"Expected one of {sorted(self._running)}, found {name!r}.")
        return self._running[name]

    def _environment(self, env: dict[str, str]) -> dict[str, str]:
        env[LAB_ID] = self.id
        if self.ring_dir is not None:
            env["PUSHSCOPE_DIR"] = str(self.ring_dir)
        return env

    def _start_engine(self, name: str, began: float, spec: EngineSpec | None = None) -> None:
        spec = spec or self.specs[name]
        log = self._new_log(name)
        process = self._launcher.start(spec.arguments(self.model), self._environment(spec.environment()), log)
        self._started(_Running(name, spec.url, log, process, began))

    def _start_router(self) -> None:
        assert self.router is not None
        command = self.router.command(self.urls("prefill"), self.urls("decode"))
        log = self._new_log(ROUTER)
        process = start_command(command, self._environment(python_environment()), log)
        self._started(_Running(ROUTER, self.router.url, log, process, time.monotonic()))

    def _started(self, running: _Running) -> None:
        self._running[running.name] = running
        if self._warden is not None:
            self._warden.watch(running.process.pid)

    def _new_log(self, name: str) -> Path:
        """P1.log, and P1-2.log for a second start: the end of the first run stays readable."""
        start = self._starts[name] = self._starts.get(name, 0) + 1
        log = self.log_dir / (f"{name}.log" if start == 1 else f"{name}-{start}.log")
        log.unlink(missing_ok=True)
        return log.absolute()

    def _wait_ready(self, names: Sequence[str]) -> None:
        began = time.monotonic()
        waiting = [self._running[name] for name in names]
        with httpx.Client(trust_env=False) as client:  # a proxy has no business on loopback
            while waiting:
                waiting = [running for running in waiting if not self._is_ready(running, client)]
                if waiting:
                    self._check_time(began, waiting[0].name, waiting[0].log)
                    time.sleep(0.1)

    def _is_ready(self, running: _Running, client: httpx.Client) -> bool:
        """Look at an engine or the router once, and report how far it has come.

        Raises StartError if it has ended.
        """
        if not running.process.alive():
            raise start_error(running.name, running.process.exit_status(), running.log)
        ready = is_healthy(client, running.url)
        if ready:
            running.ready_s = time.monotonic() - running.started
        imports = self._launcher.imports_vllm and running.name != ROUTER
        self._report(running, "ready" if ready else engine_stage(running.log, imports_vllm=imports))
        return ready

    def _check_time(self, began: float, name: str, log: Path | None = None) -> None:
        if time.monotonic() - began > self._ready_timeout_s:
            found = f"was not after {self._ready_timeout_s:g} s"
            raise start_error(name, found, log or self.log_dir)

    def _report(self, running: _Running, stage: Stage) -> None:
        running.stage = stage
        self._on_progress(Progress(running.name, stage, time.monotonic() - running.started))


def _nobody_watches(_progress: Progress) -> None:
    pass
