"""A small process that takes the lab down should the lab itself be killed.

``with Deployment`` cleans up after errors, Ctrl-C and SIGTERM. It can't after SIGKILL, and engines would hold
memory and ports for ever. So their process groups are told to a warden over a pipe; the pipe closes when the
lab is gone, however it went, and the warden ends the groups that are left.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress

from pushscope.lab.environment import python_environment
from pushscope.lab.processes import process_info, stop_groups

_GRACE_S = 2.0


class Warden:
    """Watches over process groups until ``close()`` or the end of this process, whichever comes first."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pushscope.lab.warden"],
            stdin=subprocess.PIPE,
            env=python_environment(),
            start_new_session=True,  # Ctrl-C in the terminal is not for it
            text=True,
        )

    def watch(self, group: int) -> None:
        """End this process group if the lab disappears."""
        info = process_info(group)
        self._tell(f"+{group} {info.start_ticks if info else 0}")

    def forget(self, group: int) -> None:
        """The group has been ended."""
        self._tell(f"-{group}")

    def close(self) -> None:
        """End what is still watched, and the warden."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # somebody killed the warden; the lab works without
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()


def watch(lines: Iterable[str]) -> None:
    """Follow ``+group start_ticks`` and ``-group`` lines to their end, then end the groups that are left."""
    groups: dict[int, int] = {}
    for line in lines:
        group, _, ticks = line[1:].partition(" ")
        if line.startswith("+"):
            groups[int(group)] = int(ticks)
        else:
            groups.pop(int(group), None)
    stop_groups((g for g, ticks in groups.items() if not _is_another(g, ticks)), grace_s=_GRACE_S)


def _is_another(group: int, start_ticks: int) -> bool:
    """Whether the group's number has been given to a new process.

    A leader that is gone still reserves its number.
    """
    info = process_info(group)
    return info is not None and start_ticks not in (0, info.start_ticks)


if __name__ == "__main__":
    watch(sys.stdin)
