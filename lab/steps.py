"""A load in steps, one rate of requests after another; a load without rates is one step."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import msgspec
from rich.console import Console

from pushscope.lab.display import LoadDisplay
from pushscope.lab.load import LoadPlan, Target, run_load
from pushscope.lab.marks import rate_label, start_label, stop_label
from pushscope.lab.results import LoadSummary, RequestResult, summarise
from pushscope.telemetry.units import duration


@dataclass(frozen=True, slots=True)
class Step:
    """One step. It begins when the last request of the one before has ended, so that each is summed up by itself."""

    rate: float | None
    """Requests per second; None: as the plan says."""
    began_s: float
    """Since the start of the load."""
    results: list[RequestResult] = field(default_factory=list)
    """Their times are since the start of the step."""


class StepSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A step as a whole."""

    rate: float
    """Requests per second, as asked for."""
    summary: LoadSummary


def parse_rates(text: str) -> tuple[float, ...]:
    """``"2,4,8"``: requests per second. Raises ValueError for anything else."""
    try:
        rates = tuple(map(float, text.split(",")))
    except ValueError:
        rates = ()
    if not rates or not all(rate > 0 and math.isfinite(rate) for rate in rates):
        raise ValueError(f"Expected --steps to be rates such as 2,4,8, found {text!r}.")
    return rates


def run_steps(
    plan: LoadPlan, rates: Sequence[float], target: Target, *, console: Console, mark: Callable[[str], None]
) -> list[Step]:
    """Run a plan, once for each rate if there are any: no prompt is sent twice. ``mark`` is told what happens.

    Ctrl-C ends it early: what was done by then is there.
    """
    steps: list[Step] = []
    start = time.perf_counter()
    mark(start_label(plan, rates))
    try:
        for number, rate in enumerate(rates or [plan.rate], 1):
            step = Step(rate, time.perf_counter() - start)
            part = replace(plan, rate=rate, first_index=plan.first_index + len(results_of(steps)))
            steps.append(step)
            name = "requests"
            if rates and rate is not None:
                mark(rate_label(rate))
                name = f"requests at {rate:g}/s (step {number} of {len(rates)})"
            with LoadDisplay(console, part, name) as display:

                def take(result: RequestResult, step: Step = step, display: LoadDisplay = display) -> None:
                    step.results.append(result)
                    display(result)

                asyncio.run(run_load(part, target, on_result=take))
    except KeyboardInterrupt:
        console.print(f"Interrupted after {len(results_of(steps))} requests.", highlight=False)
    mark(stop_label(results_of(steps)))
    return steps


def results_of(steps: Sequence[Step]) -> list[RequestResult]:
    """All results in the order of the requests, their times since the start of the load."""
    results = [
        msgspec.structs.replace(result, start_s=step.began_s + result.start_s)
        for step in steps
        for result in step.results
    ]
    return sorted(results, key=lambda result: result.index)


def step_summaries(steps: Sequence[Step], *, seed: int) -> list[StepSummary]:
    """Each step that had a rate of its own, summed up."""
    return [
        StepSummary(rate=step.rate, summary=summarise(step.results, seed=seed))
        for step in steps
        if step.rate is not None
    ]


def steps_text(steps: Sequence[StepSummary]) -> str:
    """The steps for a terminal, a line each."""
    return "\n".join(map(_line, steps))


def _line(step: StepSummary) -> str:
    summary = step.summary
    total, ttft = summary.num_ok + summary.num_failed, summary.ttft_s
    return (
        f"{step.rate:g}/s  {summary.num_ok} of {total} ok in {summary.duration_s:.1f} s"
        f" ({summary.requests_per_s:.2f} requests/s)"
        f"  TTFT p50 {duration(ttft.p50)}  p90 {duration(ttft.p90)}  p99 {duration(ttft.p99)}"
        f"  TPOT p50 {duration(summary.tpot_s.p50)}"
    )
