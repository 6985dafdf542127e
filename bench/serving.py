"""TTFT, TPOT and CPU per request of real engines, recording over plain vLLM.

Four engines of one deployment: P1 and D1 record, P2 and D2 are plain vLLM. A pair is the same load on the one
and on the other, right after each other, and the next pair the other way round. Two processes of the same
program are never equally fast, so the pairs are spread over several bring-ups, in each of which other
processes play the parts.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from bench.estimate import differences, geometric_mean_of, mean_of
from bench.figure import BenchError, Figure, Progress, Settings
from bench.rings import ring_folder
from pushscope.lab.deployment import Deployment
from pushscope.lab.launch import Zygote
from pushscope.lab.legs import DirectTarget
from pushscope.lab.load import LoadPlan, run_load
from pushscope.lab.model import make_model
from pushscope.lab.spec import EngineSpec

BUDGET = 1.01
PAIRS_PER_BRING_UP = 10
REQUESTS = 8
WARM_REQUESTS = 6
PROMPT_TOKENS = 200
OUTPUT_TOKENS = 16
_CPUCLOCK_SCHED = 2


class Load(msgspec.Struct, frozen=True):
    """One load on one P and D: seconds, and CPU microseconds of their processes for each request."""

    ttft_s: float
    """Median over the load's requests."""
    tpot_s: float
    """Mean."""
    cpu_us: float


class Pair(msgspec.Struct, frozen=True):
    """The same load twice."""

    recording: Load
    plain: Load


def run(settings: Settings, progress: Progress) -> list[Figure]:
    """Recording on over plain vLLM."""
    pairs = _measured(settings.pairs, progress, recording=True)
    ttft, tpot = (
        _ratio("TTFT, recording on", pairs, lambda load: load.ttft_s),
        _ratio("TPOT, recording on", pairs, lambda load: load.tpot_s),
    )
    return [_budgeted(ttft), _budgeted(tpot), *_cpu("CPU per request, recording on", pairs)]


def run_control(settings: Settings, progress: Progress) -> list[Figure]:
    """Plain vLLM over plain vLLM: what the method says where there is nothing to find."""
    pairs = _measured(settings.pairs, progress, recording=False)
    return [
        _ratio("TTFT, control", pairs, lambda load: load.ttft_s),
        _ratio("TPOT, control", pairs, lambda load: load.tpot_s),
        *_cpu("CPU per request, control", pairs),
    ]


# -- what is said -------------------------------------------------------------------------------------


def _ratio(what: str, pairs: Sequence[Pair], value: Callable[[Load], float]) -> Figure:
    ours = [value(pair.recording) for pair in pairs]
    reference = [value(pair.plain) for pair in pairs]
    return Figure(
        what=what,
        unit="ms",
        measured=mean_of([each * 1e3 for each in ours]),
        reference=mean_of([each * 1e3 for each in reference]),
        reference_is=f"plain vLLM, {len(pairs)} pairs",
        ratio=geometric_mean_of([a / b for a, b in zip(ours, reference, strict=True)]),
    )


def _budgeted(figure: Figure) -> Figure:
    assert figure.ratio is not None
    return figure.against(f"95 % interval holds or lies below {BUDGET}", held=figure.ratio.low <= BUDGET)


def _cpu(what: str, pairs: Sequence[Pair]) -> list[Figure]:
    """The ratio, and what is added to each request."""
    ours, reference = [p.recording.cpu_us for p in pairs], [p.plain.cpu_us for p in pairs]
    figure = Figure(
        what=what,
        unit="us",
        measured=mean_of(ours),
        reference=mean_of(reference),
        reference_is=f"plain vLLM, {len(pairs)} pairs",
        ratio=geometric_mean_of([a / b for a, b in zip(ours, reference, strict=True)]),
    )
    added = Figure(what=f"{what}: added", unit="us", measured=mean_of(differences(ours, reference)))
    return [figure, added]


# -- what is done -------------------------------------------------------------------------------------


def _measured(num_pairs: int, progress: Progress, *, recording: bool) -> list[Pair]:
    pairs: list[Pair] = []
    with tempfile.TemporaryDirectory() as name, ring_folder() as rings:
        model = Path(name) / "model"
        make_model(model)
        progress(0.0, "importing vLLM")
        with Zygote(log=Path(name) / "zygote.log") as zygote:
            while len(pairs) < num_pairs:
                progress(len(pairs) / num_pairs, "bringing up four engines")
                specs = _specs(recording=recording, plain_first=bool(len(pairs) // PAIRS_PER_BRING_UP % 2))
                with Deployment(
                    specs, model, log_dir=Path(name) / "logs", router=None, launcher=zygote, ring_dir=rings
                ) as deployment:
                    wanted = min(PAIRS_PER_BRING_UP, num_pairs - len(pairs))
                    for pair in islice(_pairs(deployment, seed=1_000 * len(pairs)), wanted):
                        pairs.append(pair)
                        progress(len(pairs) / num_pairs, f"pair {len(pairs)} of {num_pairs}")
    return pairs


def _specs(*, recording: bool, plain_first: bool) -> list[EngineSpec]:
    """P1 and D1 record (or, in the control, do not), P2 and D2 never do."""
    first = [EngineSpec("P1", "prefill", instrumented=recording), EngineSpec("D1", "decode", instrumented=recording)]
    second = [EngineSpec("P2", "prefill", instrumented=False), EngineSpec("D2", "decode", instrumented=False)]
    return second + first if plain_first else first + second


def _pairs(deployment: Deployment, seed: int) -> Iterator[Pair]:
    """Pairs without end. Both loads of a pair have one seed, thus the same prompts, which no other pair has."""
    ours, plain = _Half(deployment, "P1", "D1"), _Half(deployment, "P2", "D2")
    for half in (ours, plain):
        half.load(seed, WARM_REQUESTS)
    while True:
        seed += 1
        if seed % 2:
            first = ours.load(seed, REQUESTS)
            yield Pair(first, plain.load(seed, REQUESTS))
        else:
            second = plain.load(seed, REQUESTS)
            yield Pair(ours.load(seed, REQUESTS), second)


class _Half:
    """A P and a D that serve together."""

    def __init__(self, deployment: Deployment, p: str, d: str):
        specs = deployment.specs
        self._target = DirectTarget([specs[p].url], [specs[d].url], order="both")
        self._pids = [info.pid for name in (p, d) for info in deployment.processes(name)]

    def load(self, seed: int, num_requests: int) -> Load:
        """Serve requests one after the other.

        Raises BenchError if one fails.
        """
        plan = LoadPlan(
            num_requests=num_requests, prompt_tokens=PROMPT_TOKENS, output_tokens=OUTPUT_TOKENS, seed=seed
        )
        before_ns = self._cpu_ns()
        results = asyncio.run(run_load(plan, self._target))
        spent_ns = self._cpu_ns() - before_ns
        if failed := [result.error for result in results if not result.ok]:
            raise BenchError(f"{len(failed)} of {len(results)} requests failed: {failed[0]}")
        ttft_s = [result.ttft_s for result in results if result.ttft_s is not None]
        tpot_s = [result.tpot_s for result in results if result.tpot_s is not None]
        return Load(statistics.median(ttft_s), statistics.fmean(tpot_s), spent_ns / 1e3 / len(results))

    def _cpu_ns(self) -> int:
        return sum(_process_cpu_ns(pid) for pid in self._pids)


def _process_cpu_ns(pid: int) -> int:
    """CPU time of another process in nanoseconds; /proc/<pid>/stat tells the same in ticks of 10 ms.

    The clock's number is what ``clock_getcpuclockid(3)`` gives for a process (Linux, posix-timers.h).
    """
    return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)
