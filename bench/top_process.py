"""``pushscope top`` on a terminal of its own, as a person has it, to be measured."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from bench.figure import BenchError

_GIVE_UP_S = 30.0
_PROGRAM = "import sys; from pushscope.lab.main import main; sys.argv[0] = 'pushscope'; main()"


class TopProcess:
    """The program, started; what it draws is read and thrown away once nobody waits for it."""

    def __init__(self, environment: Mapping[str, str], *options: str, size: tuple[int, int]):
        self._begin_s = time.perf_counter()
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.environ.update(environment, TERM="xterm-256color")
            os.execv(sys.executable, [sys.executable, "-c", _PROGRAM, "top", *options])
        width, height = size
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self._over = threading.Event()
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._reader is not None:
            self._reader.join()
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._terminal)

    def seen(self, wanted: bytes) -> float:
        """Seconds since its start until it has written ``wanted``."""
        written = b""
        while (left_s := self._begin_s + _GIVE_UP_S - time.perf_counter()) > 0:
            if select.select([self._terminal], [], [], left_s)[0]:
                written += os.read(self._terminal, 1 << 16)
                if wanted in written:
                    return time.perf_counter() - self._begin_s
        raise BenchError(f"pushscope top did not show {wanted.decode()!r} within {_GIVE_UP_S:g} s")

    def look_away(self) -> None:
        """Read what it draws from now on in a thread: a full terminal would stop it."""
        self._reader = threading.Thread(target=self._drain, name="terminal", daemon=True)
        self._reader.start()

    def cpu_s(self) -> float:
        """Seconds of CPU that it has used."""
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def quit(self) -> None:
        """Leave it as a person does, and wait until it has ended."""
        os.write(self._terminal, b"q")
        end = time.monotonic() + _GIVE_UP_S
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > end:
                raise BenchError(f"pushscope top did not end within {_GIVE_UP_S:g} s after q")
            time.sleep(0.02)
        self.pid = 0

    def _drain(self) -> None:
        while not self._over.is_set():
            if select.select([self._terminal], [], [], 0.2)[0]:
                try:
                    os.read(self._terminal, 1 << 16)
                except OSError:
                    return  # it has ended
