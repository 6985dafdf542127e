"""Three cures that let several CPU engines share a small machine.

vLLM and NIXL assume a core for each of their polling loops. On two cores P and D then starve each other: at
concurrency 4 a TTFT of 0.3 s becomes 15 s. Each cure is off unless its environment variable is set; the lab
sets all three for the engines it starts, and nobody else should.

``PUSHSCOPE_LAB_NIXL_POLL_US`` Sleep of NIXL's UCX progress thread, in microseconds. ``nixl_agent.__init__``
sets ``pthrDelay = 0``, which polls without a pause: one core per agent, for ever. ``PUSHSCOPE_LAB_NO_PIN``
``1``: vLLM's NIXL worker no longer pins itself to the last core of its NUMA node, where P and D would meet
(``base_worker.py``, ``os.sched_setaffinity``). ``PUSHSCOPE_LAB_QUEUE_SLEEP_US`` Sleep of vLLM's shared-memory
queue between two looks, in microseconds, in place of ``os.sched_yield()`` (``shm_broadcast.py``; only with
tensor parallelism).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

NIXL_POLL_US = "PUSHSCOPE_LAB_NIXL_POLL_US"
NO_PIN = "PUSHSCOPE_LAB_NO_PIN"
QUEUE_SLEEP_US = "PUSHSCOPE_LAB_QUEUE_SLEEP_US"

ALL_CURES: Mapping[str, str] = {NIXL_POLL_US: "1000", NO_PIN: "1", QUEUE_SLEEP_US: "200"}
"""The settings with which a pair of engines was measured on two cores."""


def apply(environ: Mapping[str, str]) -> None:
    """Apply the cures that ``environ`` asks for to this process. Call it before vLLM or NIXL are imported."""
    if delay := environ.get(NIXL_POLL_US):
        sys.meta_path.insert(0, _NixlApiFinder(int(delay)))
    if environ.get(NO_PIN) == "1" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity = _leave_affinity
    if delay := environ.get(QUEUE_SLEEP_US):
        seconds = float(delay) * 1e-6
        os.sched_yield = lambda: time.sleep(seconds)


def _leave_affinity(pid: int, mask: Iterable[int], /) -> None:
    """Stands in for ``os.sched_setaffinity`` and leaves the process where the kernel puts it."""


class _NixlApiFinder(MetaPathFinder):
    """Lets ``nixl_cu12._api`` (or another flavour) load as ever, then gives its agent config a poll
    time-out."""

    def __init__(self, delay_us: int) -> None:
        self._delay_us = delay_us

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if not (fullname.startswith("nixl_cu") and fullname.endswith("._api")):
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _NixlApiLoader(spec.loader, self._delay_us)
        return spec


class _NixlApiLoader(Loader):
    def __init__(self, inner: Loader, delay_us: int) -> None:
        self._inner = inner
        self._delay_us = delay_us

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        delay_us = self._delay_us
        base: Any = module.nixlBind.nixlAgentConfig

        def set_attribute(config: object, name: str, value: object) -> None:
            base.__setattr__(config, name, delay_us if name == "pthrDelay" else value)

        module.nixlBind.nixlAgentConfig = type("nixlAgentConfig", (base,), {"__setattr__": set_attribute})
