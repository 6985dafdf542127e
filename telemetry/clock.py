"""Which clock an event's time belongs to, and how it becomes wall time.

Every process of one host (one boot, one time namespace) shares CLOCK_MONOTONIC, so events of one host are
compared as they are. Wall time comes from one pair of readings in the ring's header.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path
from typing import NamedTuple


class Anchor(NamedTuple):
    """The two clocks, read at one moment: nanoseconds each."""

    monotonic_ns: int
    unix_ns: int


class Host(NamedTuple):
    """What a CLOCK_MONOTONIC reading is comparable within: one boot of one host, one time namespace."""

    name: str
    boot_id: str
    time_namespace: str


def read_anchor() -> Anchor:
    """Both clocks, as close together as three tries get them."""
    tries = []
    for _ in range(3):
        before = time.monotonic_ns()
        unix_ns = time.time_ns()
        after = time.monotonic_ns()
        tries.append((after - before, Anchor((before + after) // 2, unix_ns)))
    return min(tries)[1]


def this_host() -> Host:
    boot_id = time_namespace = ""
    with contextlib.suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with contextlib.suppress(OSError):
        time_namespace = os.readlink("/proc/self/ns/time")
    return Host(socket.gethostname(), boot_id, time_namespace)
