"""The marks that a load leaves in the ring folder of the engines that it loads: when it started, rose and stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from pushscope.lab.load import LoadPlan
from pushscope.lab.prompts import TokenCount
from pushscope.lab.results import RequestResult
from pushscope.lab.state import LabState
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.marks import write_mark
from pushscope.telemetry.ring import default_folder
from pushscope.telemetry.units import age, count


class LoadMarks:
    """Call it with the label of a mark. Where none can be made, it says so once, and the load goes on."""

    def __init__(self, folder: Path, by: str, say: Callable[[str], None]) -> None:
        """``by``: the command that loads."""
        self._folder, self._by, self._say = folder, f"{by} (pid {os.getpid()})", say
        self._off = False

    def __call__(self, label: str) -> None:
        if self._off:
            return
        try:
            write_mark(self._folder, label, self._by)
        except PushscopeError as problem:
            self._off = True
            self._say(f"No marks are made of this load: {problem}.")


def marks_folder(state: LabState | None) -> Path:
    """Where to mark a load of that lab's engines; None: of engines elsewhere, which may record here all the same."""
    return Path(state.ring_dir) if state is not None and state.ring_dir else default_folder()


def rate_label(rate: float) -> str:
    """``rate 8/s``."""
    return f"rate {rate:g}/s"


def start_label(plan: LoadPlan, rates: Sequence[float] = ()) -> str:
    """A plan in words: ``start: 200 requests at 8/s, 1,000 tokens``. ``rates``: those of its steps."""
    return f"start: {_load(plan, rates)}, {_tokens(plan.prompt_tokens)} tokens"


def stop_label(results: Sequence[RequestResult]) -> str:
    """What became of a load: ``stop: 198 ok, 2 failed``."""
    num_ok = sum(result.ok for result in results)
    return f"stop: {count(num_ok)} ok, {count(len(results) - num_ok)} failed"


def _load(plan: LoadPlan, rates: Sequence[float]) -> str:
    lasts = None if plan.duration_s is None else age(plan.duration_s)
    at_most = f", at most {plan.concurrency} at once" if plan.concurrency else ""
    if rates:
        return f"{', '.join(f'{rate:g}' for rate in rates)}/s for {lasts} each{at_most}"
    pace = f", {plan.concurrency or 1} at once" if plan.rate is None else f" at {plan.rate:g}/s{at_most}"
    if plan.num_requests is None:
        return f"requests for {lasts}{pace}"
    number = "1 request" if plan.num_requests == 1 else f"{count(plan.num_requests)} requests"
    return f"{number}{pace}" + (f", for at most {lasts}" if lasts else "")


def _tokens(tokens: TokenCount) -> str:
    return count(tokens) if isinstance(tokens, int) else "-".join(map(count, tokens))
