"""Every query of every board, rule and alert, on real engines, by a real Prometheus.

What only a fault fills is filled by one; what this run can't show is in not_in_the_run.toml, with the reason.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pushscope.dashboards.alerts import ALERTS, Alert
from pushscope.dashboards.boards import boards
from pushscope.dashboards.panel import NEEDS_A_PEER, NEEDS_BOTH, Draw
from pushscope.dashboards.rules import RULES, Rule
from pushscope.lab.launch import Zygote

from ..asked import Question, filled, missing, questions, wrong
from .watched import MADE, Run, watched

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

QUESTIONS = questions(boards())
NOT_SHOWN = tomllib.loads((Path(__file__).parent / "not_in_the_run.toml").read_text())
"""Of a run: ``always``, or while it is ``healthy``."""
ALWAYS, HEALTHY = (NOT_SHOWN[when] for when in ("always", "healthy"))


@pytest.fixture(scope="module")
def run(model: Path, zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with watched(model, zygote, tmp_path_factory.mktemp("watched")) as run:
        yield run


def each(question: Question) -> str:
    return f"{question.place} {question.panel.targets.index(question.target)}"


@pytest.mark.parametrize("question", QUESTIONS, ids=each)
class TestPanels:
    def test_names_what_is_exported(self, run: Run, question: Question):
        query = filled(str(question.target.expr), run.faulty.chosen[question.board.uid])
        assert missing(run.prometheus, query) == [] or question.place in ALWAYS

    def test_is_answered_with_what_the_panel_draws(self, run: Run, question: Question):
        """While faults are made, or else on the healthy run: some gauges have moved on by then."""
        series = run.faulty.of(question) or run.healthy.of(question)
        if question.place not in ALWAYS:
            assert series, question.target.expr
            assert wrong(question.panel.draw, question.target.expr, series) == ""

    def test_is_answered_on_a_healthy_run_or_said_to_need_a_fault(self, run: Run, question: Question):
        listed = question.place in (*ALWAYS, *HEALTHY)
        assert run.healthy.of(question) or listed, question.target.expr

    def test_without_a_peer_it_is_answered_if_one_side_can_and_with_one_it_fills(
        self, run: Run, question: Question
    ):
        """Who needs both sides says so."""
        if question.place in (*ALWAYS, *HEALTHY):
            return
        needs_both = all(family.joined for family in question.target.families)
        assert bool(run.alone.of(question)) != needs_both, question.target.expr
        assert run.healthy.of(question)
        if question.panel.joined:
            assert NEEDS_A_PEER in question.panel.description
            assert question.panel.no_value in (NEEDS_A_PEER, NEEDS_BOTH)


def test_what_is_listed_as_not_shown_is_a_panel_and_is_not_shown(run: Run):
    assert set(ALWAYS) | set(HEALTHY) <= {question.place for question in QUESTIONS}
    assert not set(ALWAYS) & set(HEALTHY)
    unanswered = {place for place, _ in run.faulty.without_answer() & run.healthy.without_answer()}
    assert set(ALWAYS) <= unanswered
    assert set(HEALTHY) <= {place for place, _ in run.healthy.without_answer()}
    assert all(len(reason) > 20 for reason in (*ALWAYS.values(), *HEALTHY.values()))


def test_panels_without_an_answer_say_why(run: Run):
    """Not Grafana's bare "No data"."""
    silent = {question.place for question in QUESTIONS if not question.panel.no_value}
    assert not silent & (run.healthy.empty() | run.alone.empty())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.record.name)
def test_rules_record_what_they_say(run: Run, rule: Rule):
    assert run.rule_health[rule.record.name] == "ok"
    assert missing(run.prometheus, str(rule.expr)) == []
    assert run.healthy.rules[rule.record.name]
    assert wrong(Draw.LINES, rule.expr, run.healthy.rules[rule.record.name]) == ""


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
class TestAlerts:
    def test_watches_what_is_exported(self, run: Run, alert: Alert):
        assert run.rule_health[alert.name] == "ok"
        assert missing(run.prometheus, str(alert.expr)) == []
        assert run.healthy.alerts[alert.name]
        assert wrong(Draw.LINES, alert.watched, run.healthy.alerts[alert.name]) == ""

    def test_is_silent_on_a_healthy_run_and_fires_with_its_fault(self, run: Run, alert: Alert):
        """The other faults take longer, or more engines: `promtool test rules` has them."""
        assert alert.name not in run.healthy.firing
        if alert.name in MADE:
            assert alert.name in run.faulty.firing | run.recording_off


def test_an_agent_that_is_gone_is_missed(run: Run):
    assert "PushscopeAgentDown" in run.agent_gone


def test_nothing_failed_that_was_to_go_well(run: Run):
    assert run.errors == []


def test_failures_and_leases_agree_with_vllms_own(run: Run):
    for what, (theirs, ours) in run.beside_vllm.items():
        assert theirs == ours > 0, what


def test_exemplars_lead_to_traces_that_were_exported(run: Run):
    """Scraped as OpenMetrics, kept by Prometheus, and of spans that a collector has."""
    assert {frozenset(labels) for labels in run.exemplars} == {frozenset({"trace_id", "span_id"})}
    assert {labels["trace_id"] for labels in run.exemplars} <= run.traces


class TestTheTestSees:
    def test_a_metric_that_nobody_exports(self, run: Run):
        (found,) = missing(run.prometheus, "sum (rate(kv_transfer_lease_total[5m])) > 0")
        assert found == "nobody exports kv_transfer_lease_total"

    def test_a_label_that_nobody_exports(self, run: Run):
        (found,) = missing(run.prometheus, '1 - max by (job) (up{deployment="a"})')
        assert found == "up has no label deployment"

    def test_an_answer_without_an_expected_label(self, run: Run):
        question = next(q for q in QUESTIONS if q.target.expr.labels == {"engine"})
        series = run.healthy.alerts["KVTransferStuck"]
        assert "expected the labels ['engine']" in wrong(question.panel.draw, question.target.expr, series)
