"""Real engines in push and pull mode, their agents as on two hosts, and a real Prometheus that watches: one run.

P's rings lie in one folder and D's in another, each with an agent, so that what needs both sides needs a peer, as it
does between hosts. What is asked is asked four times: of agents that don't know each other, of healthy engines under
load, while faults are made, and when an agent is gone.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

import httpx

from pushscope.dashboards.alerts import ALERTS
from pushscope.dashboards.boards import boards
from pushscope.dashboards.panel import Board, VariableKind
from pushscope.dashboards.rule_files import rule_files
from pushscope.dashboards.rules import RULES
from pushscope.lab.completion import RequestError, complete
from pushscope.lab.deployment import Deployment
from pushscope.lab.launch import Launcher
from pushscope.lab.legs import DirectTarget, decode_leg
from pushscope.lab.load import LoadPlan, LoadRequest, run_load
from pushscope.lab.ports import free_ports
from pushscope.lab.prompts import make_prompt
from pushscope.lab.spec import EngineSpec

from ..asked import Question, answer, filled, label_values, questions
from ..otlp_sink import OtlpSink
from ..prometheus import Prometheus, Series, installed
from ..unit.agent_process import AgentProcess
from .test_push import pushscope

LEASE_S = 6.0
PLAN = LoadPlan(num_requests=4, concurrency=2, prompt_tokens=(60, 600), output_tokens=4, timeout_s=30)
RATE_INTERVAL = "10s"
SETTLE_S = 12.0
"""Longer than what a rate looks back, so that what was before is out of it."""
MADE = frozenset(
    {
        "KVTransferStuck",
        "KVTransferSlowOrHeld",
        "KVTransferFailures",
        "KVTransferHandshakesFailing",
        "KVTransferOldestWaiting",
        "PushscopeRecordingOff",
    }
)
"""Alerts whose fault is made here, quickly enough."""

Answers = Mapping[str, Sequence[Series]]
"""By query, with its variables filled in."""


@dataclass
class Look:
    """What was answered at one time: of boards by place and query, of rules and alerts by name."""

    panels: dict[tuple[str, str], Sequence[Series]] = field(default_factory=dict)
    rules: dict[str, Sequence[Series]] = field(default_factory=dict)
    alerts: dict[str, Sequence[Series]] = field(default_factory=dict)
    firing: set[str] = field(default_factory=set)

    def of(self, question: Question) -> Sequence[Series]:
        return self.panels[question.place, str(question.target.expr)]

    def empty(self) -> set[str]:
        """Panels of which no query has an answer."""
        places = {place for place, _ in self.panels}
        return places - {place for (place, _), series in self.panels.items() if series}

    def without_answer(self) -> set[tuple[str, str]]:
        """Queries that have none."""
        return {key for key, series in self.panels.items() if not series}


def variables(prometheus: Prometheus, board: Board) -> dict[str, str]:
    """What its variables are when it is opened: all that there is, or what is chosen at first."""
    values = {"__rate_interval": RATE_INTERVAL}
    for each in board.variables:
        if each.kind is VariableKind.QUERY:
            selector, label = label_values(each.query)
            found = prometheus.label_values(filled(selector, values), label)
            assert found, f"{board.title}: nothing to choose for {each.name}"
            values[each.name] = "|".join(found)
        else:
            values[each.name] = each.chosen or each.everything or each.query
    return values


def look(prometheus: Prometheus) -> Look:
    """Ask everything."""
    found = Look(firing=prometheus.firing())
    chosen = {board.uid: variables(prometheus, board) for board in boards()}
    for question in questions(boards()):
        query = filled(str(question.target.expr), chosen[question.board.uid])
        found.panels[question.place, str(question.target.expr)] = answer(prometheus, question.panel, query)
    for rule in RULES:
        found.rules[rule.record.name] = prometheus.now(rule.record.name)
    for alert in ALERTS:
        found.alerts[alert.name] = prometheus.now(str(alert.watched))
    return found


# -- the engines --------------------------------------------------------------------------------------


def specs(p_rings: Path, d_rings: Path) -> list[EngineSpec]:
    """P1 with two ranks pushes to D1; D2 pulls from P2."""
    common = {"extra_config": {"kv_lease_duration": LEASE_S}}
    at_p, at_d = ({"PUSHSCOPE_DIR": str(folder)} for folder in (p_rings, d_rings))
    pull = {"kv_connector": "NixlPullConnector", **common}
    return [
        EngineSpec("P1", "prefill", tensor_parallel_size=2, env=at_p, **common),
        EngineSpec("D1", "decode", env=at_d, **common),
        EngineSpec("P2", "prefill", env=at_p, **pull),
        EngineSpec("D2", "decode", env=at_d, **pull),
    ]


class Traffic:
    """Requests in both modes, until the block ends."""

    def __init__(self, push: DirectTarget, pull: DirectTarget):
        self._targets = (push, pull)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic")
        self.errors: list[str] = []

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        seed = 0
        while not self._over.is_set():
            seed += 1
            asyncio.run(self._round(replace(PLAN, seed=seed)))

    async def _round(self, plan: LoadPlan) -> None:
        for results in await asyncio.gather(*(run_load(plan, target) for target in self._targets)):
            self.errors += [result.error for result in results if result.error]


@contextmanager
def faults(push: DirectTarget) -> Iterator[None]:
    """Within the block D waits for prefills that never come, P for decodes, and D shakes hands with nobody."""
    over = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_faults(push, over)), name="faults")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def _faults(push: DirectTarget, over: threading.Event) -> None:
    (p_url,), (d_url,) = push.prefill_urls, push.decode_urls

    async def again(order: str, number: int) -> None:
        target = DirectTarget([p_url], [d_url], order=order)  # type: ignore[arg-type]
        while True:
            await run_load(replace(PLAN, num_requests=number, concurrency=number, timeout_s=20), target)
            await asyncio.sleep(1)

    async def with_nobody() -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            peer = await DirectTarget([p_url], [d_url]).learn(client, p_url, d_url)
            number = 0
            while True:
                number += 1
                request = LoadRequest(0, make_prompt(5, number, 100), 1)
                params = {
                    **peer.decode_params(f"nobody-{number}"),
                    "remote_engine_id": "nobody",
                    "remote_port": free_ports(),
                }
                leg = decode_leg(d_url, request, f"nobody-{number}", params)
                with suppress(RequestError, httpx.HTTPError):
                    await complete(client, leg.url, leg.body, headers=leg.headers)
                await asyncio.sleep(1)

    tasks = [asyncio.create_task(each) for each in (again("only-d", 2), again("only-p", 3), with_nobody())]
    while not over.is_set():
        await asyncio.sleep(0.1)
        for task in tasks:
            if task.done():
                task.result()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# -- the run ------------------------------------------------------------------------------------------


@dataclass
class Run:
    """What was seen."""

    alone: Look
    healthy: Look
    faulty: Look
    recording_off: set[str]
    """What fired when recording was off in one engine."""
    agent_gone: set[str]
    """What fired when one agent was gone."""
    rule_health: dict[str, str]
    exemplars: list[dict[str, str]]
    beside_vllm: dict[str, tuple[float, float]]
    """Failures and expired leases, as vLLM counts them and as we do, once both had come to an end."""
    traces: set[str]
    """Trace ids of the spans that were exported."""
    errors: list[str]
    prometheus: Prometheus
    """Still up, to be asked more."""


@contextmanager
def watched(model: Path, launcher: Launcher, folder: Path, settle_s: float = SETTLE_S) -> Iterator[Run]:
    """One run, from engines that start to an agent that is gone. ``settle_s``: how long it is healthy."""
    installed()
    rings = {side: folder / f"{side}-rings" for side in ("p", "d")}
    for each in rings.values():
        each.mkdir(mode=0o700)
    ports = {side: free_ports() for side in rings}
    with ExitStack() as stack:
        sink = stack.enter_context(OtlpSink())
        engines = specs(rings["p"], rings["d"])
        deployment = stack.enter_context(
            Deployment(engines, model, log_dir=folder / "logs", launcher=launcher, router=None)
        )

        def agent(side: str, *options: str) -> AgentProcess:
            bind = f"127.0.0.1:{ports[side]}"
            process = AgentProcess(
                rings[side],
                folder / f"{side}.log",
                *options,
                endpoint=sink.grpc_endpoint,
                PUSHSCOPE_BIND=bind,
            )
            stack.callback(process.process.kill)
            return process.ready()

        of_p, of_d = agent("p"), agent("d")
        rules = {name: re.sub(r"\bfor: \w+", "for: 1s", text) for name, text in rule_files().items()}
        targets = {
            "pushscope": [f"127.0.0.1:{port}" for port in ports.values()],
            "vllm": [f"127.0.0.1:{spec.http_port}" for spec in deployment.specs.values()],
        }
        prometheus = stack.enter_context(Prometheus.scraping(folder / "prometheus", targets, rules))
        urls = {name: spec.url for name, spec in deployment.specs.items()}
        push = DirectTarget([urls["P1"]], [urls["D1"]])
        pull = DirectTarget([urls["P2"]], [urls["D2"]], order="p-first")
        traffic = stack.enter_context(Traffic(push, pull))
        prometheus.until(lambda: _delivered(prometheus) == 4, "each engine has seen transfers", 60)
        time.sleep(settle_s / 2)
        alone = look(prometheus)

        of_d.end()
        agent("d", "--peer", f"http://127.0.0.1:{ports['p']}")
        prometheus.until(
            lambda: len(prometheus.now("kv_transfer_exposed_seconds_count")) == 2, "both modes joined"
        )
        time.sleep(settle_s)
        healthy = look(prometheus)

        with faults(push):
            wanted = MADE - {"PushscopeRecordingOff"}
            prometheus.until(lambda: wanted <= prometheus.firing(), f"{sorted(wanted)} fire", 60)
            faulty = look(prometheus)
        prometheus.until(lambda: _settled(_beside_vllm(prometheus)), "vLLM counts what we count", 40)
        beside_vllm = _beside_vllm(prometheus)
        assert pushscope("recording", "off", rings=rings["d"]).returncode == 0
        prometheus.until(
            lambda: "PushscopeRecordingOff" in prometheus.firing(), "PushscopeRecordingOff fires"
        )
        recording_off = prometheus.firing()
        assert pushscope("recording", "on", rings=rings["d"]).returncode == 0
        exemplars = prometheus.exemplars("kv_transfer_exposed_seconds_bucket", 120)
        of_p.end()
        prometheus.until(lambda: "PushscopeAgentDown" in prometheus.firing(), "PushscopeAgentDown fires")
        yield Run(
            alone=alone,
            healthy=healthy,
            faulty=faulty,
            recording_off=recording_off,
            agent_gone=prometheus.firing(),
            rule_health={name: rule["health"] for name, rule in prometheus.rules().items()},
            beside_vllm=beside_vllm,
            exemplars=exemplars,
            traces={span.trace_id for span in sink.spans},
            errors=traffic.errors,
            prometheus=prometheus,
        )


def _delivered(prometheus: Prometheus) -> int:
    """Engines that have counted a transfer."""
    return len(prometheus.now('kv_transfer_transfers_total{outcome="delivered"} > 0'))


def _beside_vllm(prometheus: Prometheus) -> dict[str, tuple[float, float]]:
    """vLLM's number and ours."""

    def total(query: str) -> float:
        return sum(value for series in prometheus.now(f"sum({query})") for value in series.values)

    return {
        "failures": (total("vllm:nixl_num_failed_transfers_total"), total("kv_transfer_failures_total")),
        "expired": (
            total("vllm:nixl_num_kv_expired_reqs_total"),
            total('kv_transfer_leases_total{event="expired"}'),
        ),
    }


def _settled(numbers: Mapping[str, tuple[float, float]]) -> bool:
    """Whether vLLM has caught up: its figures come with the next step."""
    return all(theirs == ours for theirs, ours in numbers.values())
