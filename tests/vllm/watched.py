"""Real engines in push and pull mode, their agents as on two hosts, and a real Prometheus that watches: one run.

P's rings lie in one folder and D's in another, each with an agent, so that what needs both sides needs a peer, as it
does between hosts. What is asked is asked four times: of agents that don't know each other, of healthy engines under
load, while faults are made, and when an agent is gone.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pushscope.dashboards.alerts import ALERTS
from pushscope.dashboards.boards import boards
from pushscope.dashboards.panel import Board, VariableKind
from pushscope.dashboards.rule_files import rule_files
from pushscope.dashboards.rules import RULES
from pushscope.lab.deployment import Deployment
from pushscope.lab.launch import Launcher
from pushscope.lab.ports import free_ports
from pushscope.telemetry.metrics import catalogue as m

from ..asked import Question, answer, filled, label_values, questions
from ..otlp_sink import OtlpSink
from ..prometheus import Prometheus, Series, installed
from ..unit.agent_process import AgentProcess
from .test_push import pushscope
from .watched_engines import NOBODY, TOO_FAST, Traffic, faults, pushing, specs, too_fast

RATE_INTERVAL = "12s"
SETTLE_S = 13.0
"""Longer than what a rate looks back, so that what was before is out of it."""
CATCH_UP_S, FIRES_S = 60.0, 60.0
BESIDE_VLLM = {
    "failures": ("vllm:nixl_num_failed_transfers_total", m.FAILED.name),
    "expired leases": ("vllm:nixl_num_kv_expired_reqs_total", f'{m.LEASES.name}{{event="expired"}}'),
}
"""vLLM's counter, and ours."""
MADE = frozenset(
    {
        "KVTransferStuck",
        "KVTransferSlowOrHeld",
        "KVTransferFailures",
        "KVTransferHandshakesFailing",
        "KVTransferOldestWaiting",
        "PushscopeEventsLost",
        "PushscopeRecordingOff",
    }
)
"""Alerts whose fault is made here, quickly enough."""


@dataclass
class Look:
    """What was answered at one time: of boards by place and query, of rules and alerts by name."""

    panels: dict[tuple[str, str], Sequence[Series]] = field(default_factory=dict)
    rules: dict[str, Sequence[Series]] = field(default_factory=dict)
    alerts: dict[str, Sequence[Series]] = field(default_factory=dict)
    firing: set[str] = field(default_factory=set)
    chosen: dict[str, dict[str, str]] = field(default_factory=dict)
    """By board, what its variables were."""

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
    chosen = {board.uid: variables(prometheus, board) for board in boards()}
    found = Look(firing=prometheus.firing(), chosen=chosen)
    for question in questions(boards()):
        query = filled(str(question.target.expr), chosen[question.board.uid])
        found.panels[question.place, str(question.target.expr)] = answer(prometheus, question.panel, query)
    for rule in RULES:
        found.rules[rule.record.name] = prometheus.now(rule.record.name)
    for alert in ALERTS:
        found.alerts[alert.name] = prometheus.now(str(alert.watched))
    return found


# -- the run ------------------------------------------------------------------------------------------


@dataclass
class Run:
    """What was seen."""

    prometheus: Prometheus
    """Still up when everything else is gone, to be asked more."""
    alone: Look = field(default_factory=Look)
    """D's agent has no peer."""
    healthy: Look = field(default_factory=Look)
    faulty: Look = field(default_factory=Look)
    recording_off: set[str] = field(default_factory=set)
    """What fired when recording was off in D's engines."""
    agent_gone: set[str] = field(default_factory=set)
    """What fired when P's agent was gone."""
    rule_health: dict[str, str] = field(default_factory=dict)
    beside_vllm: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Failures and expired leases, as vLLM counts them and as we do, once both had come to an end."""
    exemplars: list[dict[str, str]] = field(default_factory=list)
    traces: set[str] = field(default_factory=set)
    """Trace ids of the spans that were exported."""
    errors: list[str] = field(default_factory=list)
    """Of requests that were to go well."""


@contextmanager
def watched(model: Path, launcher: Launcher, folder: Path, healthy_s: float = SETTLE_S) -> Iterator[Run]:
    """One run, from engines that start to an agent that is gone. ``healthy_s``: how long all is well and seen."""
    installed()
    rings = {side: folder / f"{side}-rings" for side in ("p", "d")}
    for each in rings.values():
        each.mkdir(mode=0o700)
    engines = [spec.with_ports() for spec in specs(rings["p"], rings["d"])]
    ports = {side: free_ports() for side in rings}
    targets = {
        "pushscope": [f"127.0.0.1:{port}" for port in ports.values()],
        "vllm": [f"127.0.0.1:{spec.http_port}" for spec in engines],
    }
    rules = {name: re.sub(r"\bfor: \w+", "for: 1s", text) for name, text in rule_files().items()}
    with Prometheus.scraping(folder / "prometheus", targets, rules) as prometheus:
        run = Run(prometheus)
        with ExitStack() as stack:
            sink = stack.enter_context(OtlpSink())
            deployment = stack.enter_context(
                Deployment(engines, model, log_dir=folder / "logs", launcher=launcher, router=None)
            )

            def agent(side: str, *options: str) -> AgentProcess:
                process = AgentProcess(
                    rings[side],
                    folder / f"{side}.log",
                    *options,
                    endpoint=sink.grpc_endpoint,
                    PUSHSCOPE_BIND=f"127.0.0.1:{ports[side]}",
                )
                stack.callback(process.process.wait)
                stack.callback(process.process.kill)
                return process.ready()

            of_p, of_d = agent("p"), agent("d")
            traffic = stack.enter_context(Traffic(deployment))
            # One side alone takes a transfer as over when a lease and a little more have passed.
            prometheus.until(lambda: _delivered(prometheus) == 4, "each engine has seen transfers end", 90)
            time.sleep(SETTLE_S)
            run.alone = look(prometheus)

            of_d.end()
            agent("d", "--peer", f"http://127.0.0.1:{ports['p']}")
            prometheus.until(lambda: _joined(prometheus) == 2, "both modes joined")
            time.sleep(healthy_s)
            run.healthy = look(prometheus)

            with faults(pushing(deployment)), too_fast(rings["p"]) as burst:
                lost = f'{m.EVENTS_LOST.name}{{engine="{TOO_FAST}"}}'
                prometheus.until(lambda: prometheus.now(lost), "a new engine is seen")
                burst()
                fired = _fired(prometheus, MADE - {"PushscopeRecordingOff"})
                prometheus.until(lambda: _failed_twice(prometheus), "D failed to shake hands again and again")
                run.faulty = look(prometheus)
                run.faulty.firing |= fired
            run.beside_vllm = _beside_vllm(prometheus)

            assert pushscope("recording", "off", rings=rings["d"]).returncode == 0
            prometheus.until(lambda: "PushscopeRecordingOff" in prometheus.firing(), "recording off is told")
            run.recording_off = prometheus.firing()

            run.exemplars = prometheus.exemplars("kv_transfer_exposed_seconds_bucket", 120)
            of_p.end(signal.SIGKILL)
            prometheus.until(lambda: "PushscopeAgentDown" in prometheus.firing(), "an agent down is told")
            run.agent_gone = prometheus.firing()
            run.rule_health = {name: rule["health"] for name, rule in prometheus.rules().items()}
            run.traces = {span.trace_id for span in sink.spans}
            run.errors = traffic.errors
        yield run


def _fired(prometheus: Prometheus, wanted: Set[str]) -> set[str]:
    """What fires until all that is wanted has, or when there was time enough."""
    fired: set[str] = set()
    end = time.monotonic() + FIRES_S
    while not wanted <= fired and time.monotonic() < end:
        time.sleep(0.5)
        fired |= prometheus.firing()
    return fired


def _failed_twice(prometheus: Prometheus) -> bool:
    """Whether boards can choose who is nobody, and a rate of handshakes with it is known."""
    ended = prometheus.now(f'{m.PEER_TRANSFERS.name}{{peer="{NOBODY}"}}')
    shaken = prometheus.now(f'rate({m.HANDSHAKE_SECONDS.name}_count{{peer="{NOBODY}"}}[30s]) > 0')
    return bool(ended and shaken)


def _delivered(prometheus: Prometheus) -> int:
    """Engines that have counted a transfer."""
    return len(prometheus.now('kv_transfer_transfers_total{outcome="delivered"} > 0'))


def _joined(prometheus: Prometheus) -> int:
    """Pairs of engines of which D's agent knows both sides."""
    return len(prometheus.now("kv_transfer_exposed_seconds_count"))


def _beside_vllm(prometheus: Prometheus) -> dict[str, tuple[float, float]]:
    """vLLM's number and ours, once they agree, or when there was time enough: vLLM's come with the next step."""
    end = time.monotonic() + CATCH_UP_S
    while True:
        numbers = {
            what: (_total(prometheus, theirs), _total(prometheus, ours))
            for what, (theirs, ours) in BESIDE_VLLM.items()
        }
        if all(theirs == ours for theirs, ours in numbers.values()) or time.monotonic() > end:
            return numbers
        time.sleep(1)


def _total(prometheus: Prometheus, query: str) -> float:
    return sum(value for series in prometheus.now(f"sum({query})") for value in series.values)
