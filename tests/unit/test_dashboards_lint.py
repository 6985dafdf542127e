"""The boards pass the rules of Grafana's dashboard-linter, but for what is excepted, with a reason."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from pushscope.dashboards.boards import boards
from pushscope.dashboards.grafana_json import dashboard

from .grafana_lint import RULES, exceptions, lint

WRONG = [wrong for board in boards() for wrong in lint(dashboard(board))]
EXCEPTIONS = exceptions()


def test_nothing_is_wrong_but_what_is_excepted():
    assert [wrong for wrong in WRONG if not any(each.covers(wrong) for each in EXCEPTIONS)] == []


@pytest.mark.parametrize("exception", EXCEPTIONS, ids=lambda e: f"{e.rule} {e.panel or ''} {e.target or ''}")
def test_every_exception_is_needed_and_has_a_reason(exception):
    assert any(exception.covers(wrong) for wrong in WRONG)
    assert len(exception.reason) > 40
    assert exception.rule in RULES


def variable(board: dict, name: str) -> dict:
    (found,) = (each for each in board["templating"]["list"] if each["name"] == name)
    return found


def first(board: dict, kind: str) -> dict:
    return next(panel for panel in board["panels"] if panel["type"] == kind)


def ask(board: dict, query: str) -> None:
    first(board, "timeseries")["targets"][0]["expr"] = query


BREAK: dict[str, Callable[[dict[str, Any]], object]] = {
    "template-datasource-rule": lambda b: variable(b, "tempo_datasource").update(name="traces"),
    "template-job-rule": lambda b: variable(b, "job").update(multi=False),
    "template-instance-rule": lambda b: variable(b, "peer").update(name="instance"),
    "template-label-promql-rule": lambda b: variable(b, "peer").update(query="label_values(up{, peer)"),
    "template-on-time-change-reload-rule": lambda b: variable(b, "job").update(refresh=1),
    "panel-datasource-rule": lambda b: first(b, "timeseries").update(datasource={"uid": "prom"}),
    "panel-title-description-rule": lambda b: first(b, "stat").update(description=""),
    "panel-units-rule": lambda b: first(b, "stat")["fieldConfig"]["defaults"].update(unit="seconds"),
    "panel-no-targets-rule": lambda b: first(b, "stat").update(targets=[]),
    "target-logql-rule": lambda b: first(b, "stat")["targets"][0].update(datasource={"type": "loki"}),
    "target-logql-auto-rule": lambda b: first(b, "stat")["targets"][0].update(datasource={"type": "loki"}),
    "target-promql-rule": lambda b: ask(b, "sum by (rate("),
    "target-rate-interval-rule": lambda b: ask(b, 'rate(x{job=~"$job"}[5m])'),
    "target-job-rule": lambda b: ask(b, 'x{job="$job"}'),
    "target-instance-rule": lambda b: ask(b, "x + y + z + w + x + y + z + w"),
    "target-counter-agg-rule": lambda b: ask(b, 'sum(x_total{job=~"$job"})'),
    "uneditable-dashboard": lambda b: b.update(editable=True),
}


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_finds_what_breaks_it(rule):
    board = dashboard(boards()[0])
    broken = copy.deepcopy(json.loads(json.dumps(board)))
    BREAK[rule](broken)
    before, after = ([wrong for wrong in lint(each) if wrong.rule == rule] for each in (board, broken))
    assert set(after) - set(before)
