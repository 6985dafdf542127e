"""Contenders that take turns: thread CPU time of one call, over many interleaved rounds."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping

from bench.figure import Progress

Call = Callable[[], object]
OTHER_WORK_BYTES = 8 << 20


def interleaved(
    contenders: Mapping[str, Call],
    *,
    rounds: int,
    calls: int,
    progress: Progress,
    between: Call | None = None,
) -> dict[str, list[float]]:
    """Microseconds of CPU per call for each contender, one value a round; the cost of the loop is taken off.

    Each round starts with another contender. ``between`` is called before each turn, outside the clock.
    """
    names = list(contenders)
    found: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        _timed(contenders[name], calls // 4 + 1)  # warm
    for number in range(rounds):
        progress(number / rounds, f"round {number + 1} of {rounds}")
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            if between is not None:
                between()
            found[name].append(_timed(contenders[name], calls) - _loop(calls))
    return found


def interleaved_cold(contenders: Mapping[str, Call], *, rounds: int, calls: int) -> dict[str, list[float]]:
    """The same for calls that find the processor's caches full of something else, as between model steps.

    Before each call megabytes of memory are walked through, outside the clock.
    """
    found: dict[str, list[float]] = {name: [] for name in contenders}
    other_work = bytearray(OTHER_WORK_BYTES)
    for number in range(rounds):
        names = list(contenders)
        turn = number % len(names)
        spent = dict.fromkeys(names, 0)
        for _ in range(calls):
            for name in names[turn:] + names[:turn]:
                call = contenders[name]
                other_work.count(1)
                start = time.thread_time_ns()
                call()
                spent[name] += time.thread_time_ns() - start
        for name in names:
            found[name].append(spent[name] / calls / 1e3)
    return found


def _timed(call: Call, calls: int) -> float:
    """Mean microseconds of this thread's CPU for one call, among ``calls``."""
    gc.collect()
    start = time.thread_time_ns()
    for _ in range(calls):
        call()
    return (time.thread_time_ns() - start) / calls / 1e3


def _loop(calls: int) -> float:
    """Microseconds of the loop itself, for each of its turns."""
    start = time.thread_time_ns()
    for _ in range(calls):
        pass
    return (time.thread_time_ns() - start) / calls / 1e3
