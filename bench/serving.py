"""TTFT, TPOT and CPU per request of real engines, recording over plain vLLM, with an agent beside them or without.

Four engines of one deployment: P1 and D1 record, P2 and D2 are plain vLLM. A pair is the same load on both,
request by request in turns, so that whatever else the machine does meets both alike; who goes first changes
with each request. Two processes of one program are never equally fast, by some percent and for as long as they
live: the pairs are spread over many bring-ups, in each of which other processes play the parts, and the
intervals are drawn over bring-ups. Drawn over pairs, as if each stood for itself, they would be too narrow: the
control, plain vLLM against plain vLLM, shows it.

The agent works when a transfer is over, which would be while the plain engines have their turn, and meet both
alike. So it is stopped then, and does all its work in the turns of the engines that it watches.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

import httpx
import msgspec

from bench.agent_process import Receiver
from bench.estimate import differences, geometric_mean_of, mean_of
from bench.figure import BenchError, Figure, Progress, Settings
from bench.rings import ring_folder
from pushscope.lab.deployment import Deployment
from pushscope.lab.launch import Zygote
from pushscope.lab.legs import DirectTarget
from pushscope.lab.load import LoadPlan
from pushscope.lab.model import make_model
from pushscope.lab.spec import EngineSpec
from pushscope.telemetry.presence import present_agent

BUDGET = 1.01
PAIRS_PER_BRING_UP = 3
REQUESTS = 8
PROMPT_TOKENS = 200
OUTPUT_TOKENS = 16
SETTLE_S = 0.01
"""After a request, in which its engines see it off, before its CPU is taken."""
AGENT_START_S = 60.0
_CPUCLOCK_SCHED = 2

Ours = Literal["plain", "recording", "agent"]
"""What P1 and D1 are: ``agent`` records, and has an agent that exports every transfer."""


class Load(msgspec.Struct, frozen=True):
    """One request, or the requests of one load, on one P and D.

    Of a load ``ttft_s`` is the median and ``tpot_s`` the mean; ``cpu_us`` is the CPU of the engines' processes
    for each request.
    """

    ttft_s: float
    tpot_s: float
    cpu_us: float


class Pair(msgspec.Struct, frozen=True):
    """The same load twice, on the engines of one bring-up."""

    bring_up: int
    ours: Load
    plain: Load


def run(settings: Settings, progress: Progress) -> list[Figure]:
    """Recording on over plain vLLM."""
    return _figures("recording on", _measured(settings.pairs, progress, "recording"))


def run_agent(settings: Settings, progress: Progress) -> list[Figure]:
    """Recording, and the agent that the connector starts exporting it all to this machine, over plain vLLM."""
    return _figures("recording and agent", _measured(settings.pairs, progress, "agent"))


def _figures(what: str, pairs: Sequence[Pair]) -> list[Figure]:
    ttft, tpot = (
        _ratio(f"TTFT, {what}", pairs, lambda load: load.ttft_s),
        _ratio(f"TPOT, {what}", pairs, lambda load: load.tpot_s),
    )
    return [_budgeted(ttft), _budgeted(tpot), *_cpu(f"CPU per request, {what}", pairs)]


def run_control(settings: Settings, progress: Progress) -> list[Figure]:
    """Plain vLLM over plain vLLM: what the method says where there is nothing to find."""
    pairs = _measured(settings.pairs, progress, "plain")
    return [
        _ratio("TTFT, control", pairs, lambda load: load.ttft_s),
        _ratio("TPOT, control", pairs, lambda load: load.tpot_s),
        *_cpu("CPU per request, control", pairs),
    ]


# -- what is said -------------------------------------------------------------------------------------


def _ratio(what: str, pairs: Sequence[Pair], value: Callable[[Load], float]) -> Figure:
    return _compared(what, "ms", pairs, lambda load: value(load) * 1e3)


def _compared(what: str, unit: str, pairs: Sequence[Pair], value: Callable[[Load], float]) -> Figure:
    groups = [pair.bring_up for pair in pairs]
    ours, reference = [value(pair.ours) for pair in pairs], [value(pair.plain) for pair in pairs]
    return Figure(
        what=what,
        unit=unit,
        measured=mean_of(ours, groups),
        reference=mean_of(reference, groups),
        reference_is=f"plain vLLM, {len(pairs)} pairs",
        ratio=geometric_mean_of([a / b for a, b in zip(ours, reference, strict=True)], groups),
    )


def _budgeted(figure: Figure) -> Figure:
    assert figure.ratio is not None
    return figure.against(f"95 % interval holds or lies below {BUDGET}", held=figure.ratio.low <= BUDGET)


def _cpu(what: str, pairs: Sequence[Pair]) -> list[Figure]:
    """The ratio, and what is added to each request."""
    added = differences([pair.ours.cpu_us for pair in pairs], [pair.plain.cpu_us for pair in pairs])
    return [
        _compared(what, "us", pairs, lambda load: load.cpu_us),
        Figure(what=f"{what}: added", unit="us", measured=mean_of(added, [pair.bring_up for pair in pairs])),
    ]


# -- what is done -------------------------------------------------------------------------------------


def _measured(num_pairs: int, progress: Progress, ours: Ours) -> list[Pair]:
    pairs: list[Pair] = []

    def took(pair: Pair) -> None:
        pairs.append(pair)
        progress(len(pairs) / num_pairs, f"pair {len(pairs)} of {num_pairs}")

    with tempfile.TemporaryDirectory() as name, ring_folder() as rings, closing(Receiver()) as receiver:
        folder = Path(name)
        make_model(folder / "model")
        progress(0.0, "importing vLLM")
        with Zygote(log=folder / "zygote.log") as zygote:
            while len(pairs) < num_pairs:
                progress(len(pairs) / num_pairs, "bringing up four engines")
                specs = _specs(ours, receiver, plain_first=bool(len(pairs) // PAIRS_PER_BRING_UP % 2))
                with Deployment(
                    specs,
                    folder / "model",
                    log_dir=folder / "logs",
                    router=None,
                    launcher=zygote,
                    ring_dir=rings,
                ) as deployment:
                    wanted = min(PAIRS_PER_BRING_UP, num_pairs - len(pairs))
                    agent = _agent_of(rings) if ours == "agent" else None
                    asyncio.run(_pairs(deployment, agent, wanted, 1_000 * len(pairs), took))
        if ours == "agent" and not receiver.num_bytes:
            raise BenchError("the agent exported nothing, so there is nothing to compare")
    return pairs


def _specs(ours: Ours, receiver: Receiver, *, plain_first: bool) -> list[EngineSpec]:
    """P1 and D1 are what is asked for, P2 and D2 plain vLLM."""
    recording, agent = ours != "plain", ours == "agent"
    # The agent exports to it; vLLM itself takes no notice of this variable.
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.port}"} if agent else {}
    specs = [
        EngineSpec("P1", "prefill", instrumented=recording, agent=agent, env=env),
        EngineSpec("D1", "decode", instrumented=recording, agent=agent, env=env),
        EngineSpec("P2", "prefill", instrumented=False),
        EngineSpec("D2", "decode", instrumented=False),
    ]
    return specs[2:] + specs[:2] if plain_first else specs


def _agent_of(rings: Path) -> int:
    """The process that the engines started for these rings, once it reads them.

    Raises BenchError if it does not come.
    """
    end = time.monotonic() + AGENT_START_S
    while not ((note := present_agent(rings)) and note.pid):
        if time.monotonic() > end:
            raise BenchError(f"no agent reads {rings}; its log is there")
        time.sleep(0.1)
    return note.pid


async def _pairs(
    deployment: Deployment, agent: int | None, num_pairs: int, seed: int, took: Callable[[Pair], None]
) -> None:
    """Each pair has a seed, thus prompts, of its own; the first one warms up and does not count."""
    limits = httpx.Limits(max_keepalive_connections=16)
    async with httpx.AsyncClient(timeout=None, limits=limits, trust_env=False) as client:
        ours = _Half(deployment, client, "P1", "D1", agent)
        plain = _Half(deployment, client, "P2", "D2")
        try:
            for number in range(num_pairs + 1):
                plan = LoadPlan(
                    num_requests=REQUESTS,
                    prompt_tokens=PROMPT_TOKENS,
                    output_tokens=OUTPUT_TOKENS,
                    seed=seed + number,
                )
                for index in range(REQUESTS):
                    for half in (ours, plain) if index % 2 else (plain, ours):
                        await half.serve(plan, index)
                pair = Pair(seed, ours.load(), plain.load())
                if number:
                    took(pair)
        finally:
            ours.let_agent_go()


class _Half:
    """A P and a D that serve together, and the agent that runs only while they do."""

    def __init__(
        self, deployment: Deployment, client: httpx.AsyncClient, p: str, d: str, agent: int | None = None
    ):
        specs = deployment.specs
        self._target = DirectTarget([specs[p].url], [specs[d].url], order="both")
        self._client = client
        self._agent = agent
        self._pids = [info.pid for name in (p, d) for info in deployment.processes(name)]
        self._pids += [agent] if agent else []
        self._tell_agent(signal.SIGSTOP)
        self._served: list[Load] = []

    async def serve(self, plan: LoadPlan, index: int) -> None:
        """Serve one request to its end.

        Raises BenchError if it fails.
        """
        before_ns = self._cpu_ns()
        self._tell_agent(signal.SIGCONT)
        result = await self._target.send(self._client, plan.request(index), time.perf_counter())
        await asyncio.sleep(SETTLE_S)
        self._tell_agent(signal.SIGSTOP)
        cpu_us = (self._cpu_ns() - before_ns) / 1e3
        if result.ttft_s is None or result.tpot_s is None:
            raise BenchError(f"a request failed, so there is nothing to compare: {result.error}")
        self._served.append(Load(result.ttft_s, result.tpot_s, cpu_us))

    def load(self) -> Load:
        """What was served since the last call, summed up."""
        served, self._served = self._served, []
        return Load(
            ttft_s=statistics.median(each.ttft_s for each in served),
            tpot_s=statistics.fmean(each.tpot_s for each in served),
            cpu_us=statistics.fmean(each.cpu_us for each in served),
        )

    def let_agent_go(self) -> None:
        """It runs on: a process that is stopped can't end in order."""
        self._tell_agent(signal.SIGCONT)

    def _tell_agent(self, number: signal.Signals) -> None:
        if self._agent:
            os.kill(self._agent, number)

    def _cpu_ns(self) -> int:
        return sum(_process_cpu_ns(pid) for pid in self._pids)


def _process_cpu_ns(pid: int) -> int:
    """CPU time of another process in nanoseconds; /proc/<pid>/stat tells the same in ticks of 10 ms.

    The clock's number is what ``clock_getcpuclockid(3)`` gives for a process (Linux, posix-timers.h).
    """
    return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)
