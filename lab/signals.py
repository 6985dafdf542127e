"""SIGTERM as an ordinary end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Within the block SIGTERM raises SystemExit, so that ``with`` blocks end as they should.

    Does nothing outside the main thread, where Python allows no signal handlers, nor where somebody handles
    SIGTERM already.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def interrupted_status(end: BaseException) -> int:
    """The exit status of a command that Ctrl-C (130) or SIGTERM (143) ended."""
    return end.code if isinstance(end, SystemExit) and isinstance(end.code, int) else 128 + signal.SIGINT


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
