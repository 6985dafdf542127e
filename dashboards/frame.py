"""What all boards have in common: variables, links to each other, marks of alerts and restarts."""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import quote

import msgspec

from pushscope.dashboards import names, vllm
from pushscope.dashboards.panel import Annotation, Column, Link, Variable, VariableKind
from pushscope.dashboards.promql import Expr, Like, Scope, UnknownNameError, highest
from pushscope.telemetry.metrics import catalogue as m
from pushscope.telemetry.spans.attributes import RECEIVE

RATE_INTERVAL: Final = "$__rate_interval"
_JOB: Final = ("job", Like("$job"))
BOARD: Final = Scope(
    RATE_INTERVAL,
    (_JOB, ("engine", Like("$engine")), ("peer", Like("$peer")), ("role", Like("$role"))),
)
"""Selectors of the engines that are chosen."""
ENGINES: Final = Scope(RATE_INTERVAL, BOARD.always[:2])
"""The same whatever role: `role` of kv_transfer_engine_info may be both."""
BOTH: Final = "$engine|$peer"
PAIR: Final = Scope(RATE_INTERVAL, (_JOB, ("engine", Like(BOTH)), ("peer", Like(BOTH)), BOARD.always[3]))
"""Selectors of what chosen engines have with chosen peers, told by either of them."""
PAIR_ENGINES: Final = Scope(RATE_INTERVAL, PAIR.always[:2])
VLLM: Final = Scope(RATE_INTERVAL, (("job", Like("$vllm_job")),))
"""Selectors of vLLM's own metrics, which are of other targets."""

# -- variables ----------------------------------------------------------------------------------------


def _values(label: str, series: Expr) -> str:
    """What Grafana asks for the values of a label."""
    if label not in series.labels:
        raise UnknownNameError(f"{series} has no label {label}")
    return f"label_values({series}, {label})"


_ANY: Final = Scope("")
_OF_JOB: Final = Scope("", (_JOB,))
DATASOURCE: Final = Variable(
    name="datasource",
    label="Prometheus data source",
    kind=VariableKind.DATASOURCE,
    query="prometheus",
    description="The Prometheus that scrapes the agents, and vLLM.",
)
TRACES: Final = Variable(
    name="tempo_datasource",
    label="Tempo data source",
    kind=VariableKind.DATASOURCE,
    query="tempo",
    description="Where traces are looked for. The links of exemplars are set in the Prometheus data source.",
)
JOB: Final = Variable(
    name="job",
    label="Job",
    kind=VariableKind.QUERY,
    query=_values("job", _ANY.series(m.ENGINE_UP)),
    description="The deployment: Prometheus' job of its agents.",
    everything=".+",
)
ROLE: Final = Variable(
    name="role",
    label="Role",
    kind=VariableKind.QUERY,
    query=_values("role", _OF_JOB.series(m.WAITING)),
    description="P computes prompts, D goes on with them. An engine can be both.",
    everything=".+",
)
ENGINE: Final = Variable(
    name="engine",
    label="Engine",
    kind=VariableKind.QUERY,
    query=_values("engine", _OF_JOB.series(m.WAITING, role=Like("$role"))),
    description="Engines of the job that have the role, by their engine ids.",
)
PEER: Final = Variable(
    name="peer",
    label="Peer",
    kind=VariableKind.QUERY,
    query=_values("peer", _OF_JOB.series(m.PEER_TRANSFERS, engine=Like("$engine"))),
    description="Engines on the other side of transfers of the chosen ones, watched or not.",
    everything=".*",
)
PEER_OF_PAIR: Final = msgspec.structs.replace(PEER, everything=None)
"""The same where All means these engines and no others."""
VLLM_JOB: Final = Variable(
    name="vllm_job",
    label="vLLM's job",
    kind=VariableKind.QUERY,
    query=_values("job", _ANY.series(vllm.FAILED_TRANSFERS)),
    description="Prometheus' job of vLLM's own /metrics, whose figures stand beside ours.",
    everything=".+",
)
RUNBOOKS: Final = Variable(
    name="runbooks",
    label="Runbooks",
    kind=VariableKind.CONSTANT,
    query=names.RUNBOOKS,
    description="Where a copy of docs/runbooks.md can be read; links to its sections begin with it.",
)


def variables(*more: Variable, peer: Variable = PEER) -> tuple[Variable, ...]:
    """Those of every board, each choosing among what those before it leave, and some of its own."""
    return (DATASOURCE, TRACES, JOB, ROLE, ENGINE, peer, *more, RUNBOOKS)


# -- links --------------------------------------------------------------------------------------------


def _traces() -> str:
    """Grafana's address of a search for transfers among the traces, for the time that is shown."""
    source = "${tempo_datasource}"
    query = {
        "refId": "A",
        "datasource": {"type": "tempo", "uid": source},
        "queryType": "traceql",
        "query": f'{{ name = "{RECEIVE}" }}',
    }
    shown = {"from": "${__from}", "to": "${__to}"}
    panes = json.dumps({"kv": {"datasource": source, "queries": [query], "range": shown}})
    address = quote(panes, safe="")
    for placeholder in (source, *shown.values()):
        address = address.replace(quote(placeholder, safe=""), placeholder)
    return f"/explore?schemaVersion=1&panes={address}"


TRACES_LINK: Final = Link("Traces of transfers", _traces())
RUNBOOK_OF_CODE: Final = Link("Runbook of ${__field.labels.code}", "${runbooks}#${__field.labels.code}")
RUNBOOK_OF_CELL: Final = Link("Runbook", "${runbooks}#${__value.raw}")
_KEPT: Final = "${__url_time_range}&${datasource:queryparam}&${job:queryparam}"
PAIR_OF_ROW: Final = Link(
    "This pair",
    f"{names.board_path(names.PAIR)}?{_KEPT}"
    "&var-engine=${__data.fields.engine}&var-peer=${__data.fields.peer}",
)
ENGINE_OF_ROW: Final = Link(
    "Stages and ranks of this engine",
    f"{names.board_path(names.STAGES)}?{_KEPT}&var-engine=${{__data.fields.engine}}",
)
STUCK_COLUMNS: Final = (
    Column("severity", "Severity", width=90),
    Column("code", "Diagnosis", links=(RUNBOOK_OF_CELL,), width=240),
    Column("engine", "Engine", links=(ENGINE_OF_ROW,)),
    Column(0, "How many", width=100),
)
"""Of a table of what is stuck."""
LINKS: Final = (Link("Runbooks", "${runbooks}"), TRACES_LINK)


def runbook(section: str) -> Link:
    """A section of the runbooks."""
    return Link(f"Runbook: {section}", f"${{runbooks}}#{section}")


# -- marks --------------------------------------------------------------------------------------------

_UP: Final = ENGINES.now(m.ENGINE_UP)
_BEFORE: Final = Scope("5m", ENGINES.always, "1m")
"""Long enough that a scrape or two may have failed."""
_ALERTS: Final = "|".join(f"{prefix}.+" for prefix in names.ALERT_PREFIXES)
ANNOTATIONS: Final = (
    Annotation(
        "Alerts",
        Expr(f'ALERTS{{alertstate="firing", alertname=~"{_ALERTS}"}}'),  # Prometheus' own
        "{{alertname}}",
        "{{severity}} {{engine}} {{code}}",
        "red",
    ),
    Annotation(
        "Engines that came",
        highest((_UP > 0).unless(_BEFORE.over_gauge("max_over_time", m.ENGINE_UP)), "engine"),
        "{{engine}} came",
        "An engine that was not there before: a start, or a restart under a new id.",
        "blue",
    ),
    Annotation(
        "Engines that are down",
        highest((1 - _UP) > 0, "engine"),
        "{{engine}} is down",
        "kv_transfer_engine_up is 0: a process of the engine is gone.",
        "orange",
    ),
)
