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
import time
from collections.abc import Iterable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

from pushscope.lab.engine.nixl_api import when_nixl_loads

NIXL_POLL_US = "PUSHSCOPE_LAB_NIXL_POLL_US"
NO_PIN = "PUSHSCOPE_LAB_NO_PIN"
QUEUE_SLEEP_US = "PUSHSCOPE_LAB_QUEUE_SLEEP_US"

ALL_CURES: Mapping[str, str] = {NIXL_POLL_US: "1000", NO_PIN: "1", QUEUE_SLEEP_US: "200"}
"""The settings with which a pair of engines was measured on two cores."""


def apply(environ: Mapping[str, str]) -> None:
    """Apply the cures that ``environ`` asks for to this process. Call it before vLLM or NIXL are imported."""
    if delay := environ.get(NIXL_POLL_US):
        when_nixl_loads(partial(_set_poll, int(delay)))
    if environ.get(NO_PIN) == "1" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity = _leave_affinity
    if delay := environ.get(QUEUE_SLEEP_US):
        seconds = float(delay) * 1e-6
        os.sched_yield = lambda: time.sleep(seconds)


def _leave_affinity(pid: int, mask: Iterable[int], /) -> None:
    """Stands in for ``os.sched_setaffinity`` and leaves the process where the kernel puts it."""


def _set_poll(delay_us: int, module: ModuleType) -> None:
    """Give NIXL's agent config a poll time-out, whatever ``nixl_agent`` asks for."""
    base: Any = module.nixlBind.nixlAgentConfig

    def set_attribute(config: object, name: str, value: object) -> None:
        base.__setattr__(config, name, delay_us if name == "pthrDelay" else value)

    module.nixlBind.nixlAgentConfig = type("nixlAgentConfig", (base,), {"__setattr__": set_attribute})
