"""The benches: their names, what each is about, and where it is."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.figure import BenchError, Figure, Progress, Settings

Run = Callable[[Settings, Progress], list[Figure]]


class Bench(NamedTuple):
    """One bench. Its module is imported only where it runs: some need vLLM."""

    module: str
    about: str
    function: str = "run"
    by_default: bool = True

    def load(self) -> Run:
        """Import what it needs.

        Raises BenchError if that is not installed.
        """
        try:
            run: Run = getattr(importlib.import_module(self.module), self.function)
        except ModuleNotFoundError as e:
            raise BenchError(f"{e.name} is not installed; make install brings all that benches need") from e
        return run


BENCHES: dict[str, Bench] = {
    "record": Bench("bench.record", "one event recorded, against one OpenTelemetry span"),
    "step": Bench("bench.step", "what recording adds to an engine step, and to a write polled"),
    "read": Bench("bench.read", "events read and assembled per second of one core"),
    "memory": Bench("bench.memory", "memory of a watcher with 10,000 transfers in flight"),
    "metrics": Bench("bench.metrics", "metrics counted while events are read, and a scrape of 64 engines"),
    "agent": Bench("bench.agent", "CPU of the agent per transfer, and its memory with 10,000 in flight"),
    "outage": Bench(
        "bench.outage",
        "the agent while its OTLP endpoint is down for a minute (only by name)",
        by_default=False,
    ),
    "screen": Bench("bench.screen", "first paint and frames of pushscope top"),
    "watching": Bench("bench.watching", "CPU of pushscope top beside idle engines, and 50,000 events/s"),
    "serving": Bench("bench.serving", "TTFT, TPOT and CPU of engines, recording over plain vLLM"),
    "watched": Bench(
        "bench.serving",
        "the same with an agent that exports every transfer, too, over plain vLLM",
        "run_agent",
    ),
    "control": Bench(
        "bench.serving",
        "the same with plain vLLM on both sides (only by name)",
        "run_control",
        by_default=False,
    ),
}


def chosen(names: Sequence[str]) -> list[str]:
    """The named benches, or those that run by default, in the order of the catalogue.

    Raises BenchError that names what is not known.
    """
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        near = difflib.get_close_matches(unknown[0], BENCHES, n=1)
        raise BenchError(
            f"unknown bench {', '.join(map(repr, unknown))}; known are {', '.join(BENCHES)}"
            + (f" (did you mean {near[0]!r}?)" if near else "")
        )
    return [name for name, bench in BENCHES.items() if (name in names if names else bench.by_default)]
