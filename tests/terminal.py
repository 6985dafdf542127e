"""A program on a real terminal: tmux draws what it writes and presses the keys.

with Terminal([sys.executable, "-m", ...], size=(120, 40)) as terminal:
    terminal.until("In flight")
    terminal.press("2", "Enter")
"""

from __future__ import annotations

import secrets
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest


class Terminal:
    """One program in a tmux of its own. Skips the test where tmux is not installed."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        size: tuple[int, int] = (120, 40),
        folder: Path | None = None,
        env: Mapping[str, str] | None = None,
    ):
        program = shutil.which("tmux")
        if program is None:
            pytest.skip("tmux is not installed (Debian: apt install tmux)")
        self._tmux = [program, "-L", f"pushscope-test-{secrets.token_hex(4)}", "-f", "/dev/null"]
        self._command, self._size, self._folder, self._env = command, size, folder, env

    def __enter__(self) -> Self:
        # The shell goes on when the program has ended: what it printed last can still be read.
        shell = f"{shlex.join(self._command)}; echo; echo exit-status $?; exec sleep 600"
        width, height = self._size
        folder = ["-c", str(self._folder)] if self._folder else []
        arguments = ["new-session", "-d", "-x", str(width), "-y", str(height), *folder, shell]
        env = None if self._env is None else {**self._env, "TERM": "screen-256color"}
        subprocess.run([*self._tmux, *arguments], check=True, timeout=20, env=env)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, timeout=20)

    def screen(self) -> str:
        """What is on the screen."""
        return self._said("capture-pane", "-p")

    def history(self) -> str:
        """The screen, and what was scrolled off it."""
        return self._said("capture-pane", "-p", "-S", "-500")

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names for them."""
        for key in keys:
            self._said("send-keys", key)
            time.sleep(0.05)  # an escape and what comes at once behind it would be one key

    def until(self, *words: str, seconds: float = 30.0, gone: bool = False) -> str:
        """The screen as soon as it has all of these words (or ``gone``: none of them)."""
        end = time.monotonic() + seconds
        while True:
            screen = self.screen()
            if not any(word in screen for word in words) if gone else all(word in screen for word in words):
                return screen
            if time.monotonic() > end:
                raise AssertionError(
                    f"expected {'no ' if gone else ''}{words} within {seconds:g} s:\n{screen}"
                )
            time.sleep(0.1)

    def _said(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._tmux, *arguments], check=True, timeout=20, capture_output=True, text=True
        )
        return done.stdout
