"""Free TCP ports on the loopback interface."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Collection

_FIRST, _LAST = 20000, 32000
"""Below the range that Linux gives to outgoing connections, which would take a port between choosing and
using it."""

_given: set[int] = set()
_random = random.SystemRandom()


def free_ports(count: int = 1) -> int:
    """The first of ``count`` consecutive free ports; none is given twice by one process.

    Raises RuntimeError if there are none.
    """
    for _ in range(1000):
        first = _random.randrange(_FIRST, _LAST - count)
        ports = range(first, first + count)
        if _given.isdisjoint(ports) and all(map(is_free, ports)):
            _given.update(ports)
            return first
    raise RuntimeError(
        f"Expected {count} consecutive free ports on 127.0.0.1 between {_FIRST} and {_LAST}, found none: "
        "end some of the programs that listen there."
    )


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def wait_free(ports: Collection[int], timeout_s: float = 5.0) -> None:
    """Wait until a server could listen on all of these, at most so long: sockets outlive their process by a
    moment."""
    deadline = time.monotonic() + timeout_s
    while not all(map(is_free, ports)) and time.monotonic() < deadline:
        time.sleep(0.05)
