"""The state file of a running lab, by which ``pushscope lab load`` in another terminal finds it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from pushscope.lab.deployment import ROUTER, Deployment
from pushscope.lab.otlp import Otlp
from pushscope.lab.processes import is_running, process_info
from pushscope.lab.spec import Role

_FILE = "lab.json"


class EngineState(msgspec.Struct, frozen=True):
    """One running engine."""

    name: str
    role: Role | None
    url: str
    side_channel_port: int
    tensor_parallel_size: int
    pid: int
    log: str


class LabState(msgspec.Struct, frozen=True):
    """What another terminal needs to know of a lab. ``pid`` is that of ``lab up``."""

    pid: int
    start_ticks: int
    router_url: str | None
    router_pid: int | None
    engines: list[EngineState]
    model: str
    log_dir: str
    ring_dir: str | None
    """Where the engines were told to record; None: the default."""
    control: str | None = None
    """The socket on which the lab takes orders; None: it takes none."""
    otlp: Otlp | None = None
    """Where its engines send their spans."""

    def urls(self, role: Role) -> list[str]:
        """The URLs of the engines of a role."""
        return [engine.url for engine in self.engines if engine.role == role]

    def first(self, role: Role) -> EngineState:
        """The first engine of a role.

        Raises NoLabError if there is none.
        """
        for engine in self.engines:
            if engine.role == role:
                return engine
        raise NoLabError(f"Expected the running lab to have a {role} engine, found none.")


class NoLabError(RuntimeError):
    """No lab runs, or not one that can be used."""


def lab_state(deployment: Deployment, control: Path | None = None) -> LabState:
    """The state of a deployment that is up, run by this process, which takes orders at ``control``."""
    engines = [
        EngineState(
            name=spec.name,
            role=spec.role,
            url=spec.url,
            side_channel_port=spec.side_channel_port,
            tensor_parallel_size=spec.tensor_parallel_size,
            pid=deployment.pid(spec.name),
            log=str(deployment.log(spec.name)),
        )
        for spec in deployment.specs.values()
    ]
    info = process_info(os.getpid())
    return LabState(
        pid=os.getpid(),
        start_ticks=info.start_ticks if info else 0,
        router_url=deployment.router.url if deployment.router else None,
        router_pid=deployment.pid(ROUTER) if deployment.router else None,
        engines=engines,
        model=str(deployment.model),
        log_dir=str(deployment.log_dir),
        ring_dir=str(deployment.ring_dir) if deployment.ring_dir else None,
        control=str(control) if control else None,
        otlp=next((spec.otlp for spec in deployment.specs.values() if spec.otlp), None),
    )


def write_state(directory: Path, state: LabState) -> Path:
    """Write the state file, whole or not at all; returns its path."""
    path = directory / _FILE
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=2))
    partial.rename(path)
    return path


def remove_state(directory: Path) -> None:
    """The lab is down."""
    (directory / _FILE).unlink(missing_ok=True)


def running_lab(directory: Path) -> LabState | None:
    """The lab whose state file is in ``directory``, if it still runs.

    A file that a killed lab left says nothing.
    """
    try:
        state = msgspec.json.decode((directory / _FILE).read_bytes(), type=LabState)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return state if is_running(state.pid, state.start_ticks) else None


def find_lab(directory: Path) -> LabState:
    """The running lab of ``directory``.

    Raises NoLabError with what to do if there is none.
    """
    state = running_lab(directory)
    if state is None:
        raise NoLabError(
            f"Expected a running lab in {directory}, found none: start one with `pushscope lab up`, "
            "or name the servers with --url, or with --prefill and --decode."
        )
    return state
