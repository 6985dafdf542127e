"""Recording rules and alerts: the files are what the code says, and each alert fires when it must, only then."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from pushscope.dashboards import alerts_reference, files, names
from pushscope.dashboards.alerts import ALERTS, Alert
from pushscope.dashboards.promql import Expr, Recorded, Scope
from pushscope.dashboards.rule_files import rule_files
from pushscope.dashboards.rules import RULES, Rule
from pushscope.telemetry.diagnosis.catalogue import CATALOGUE
from pushscope.telemetry.metrics import catalogue as m

from .promtool import promtool

ROOT = Path(__file__).parents[2]
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text()
FOLDER = files.FOLDER / files.RULES
TESTS = FOLDER / "tests"
QUIET = ("healthy", "idle")
Check = tuple[str, list[dict[str, Any]]]
"""When it is looked, and what must fire then."""


def checks(name: str, alert: str) -> list[Check]:
    """What a file of promtool says of an alert, in the order of time."""
    tests = yaml.safe_load((TESTS / f"{name}.yml").read_text())["tests"]
    return [
        (each["eval_time"], each["exp_alerts"])
        for test in tests
        for each in test["alert_rule_test"]
        if each["alertname"] == alert
    ]


@pytest.mark.parametrize("name", rule_files())
def test_the_files_are_what_the_code_says(name: str):
    assert (FOLDER / name).read_text() == rule_files()[name], "make dashboards"


def test_the_reference_is_what_the_code_says():
    assert (ROOT / alerts_reference.PAGE).read_text() == alerts_reference.page(), "make references"


@pytest.mark.parametrize("name", rule_files())
def test_promtool_takes_them(name: str):
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", FOLDER / name)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", [*(alert.name for alert in ALERTS), *QUIET])
def test_alerts_fire_when_they_must_and_only_then(name: str):
    done = promtool("test", "rules", TESTS / f"{name}.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_file_of_tests_is_of_an_alert():
    assert {path.stem for path in TESTS.iterdir()} == {alert.name for alert in ALERTS} | set(QUIET)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
class TestAlert:
    def test_is_tested_before_while_and_after_and_on_healthy_and_idle_engines(self, alert: Alert):
        expected = [bool(fires) for _, fires in checks(alert.name, alert.name)]
        assert (expected[0], expected[-1]) == (False, False), "silent at first, and when it is over"
        assert expected.count(True) == 1
        for name in QUIET:
            looked = checks(name, alert.name)
            assert len(looked) >= 2
            assert not any(fires for _, fires in looked)

    def test_its_test_fails_when_it_never_fires_and_when_it_always_does(self, alert: Alert, tmp_path: Path):
        text = rule_files()["alerts.yml"]
        for expr in ("vector(1) > 1", "vector(1)"):
            before, of_it, after = parts(text, alert.name)
            altered = re.sub(r"expr: >-\n(?: {10}.*\n)+", f"expr: {expr}\n", of_it, count=1)
            assert altered != of_it
            (tmp_path / "alerts.yml").write_text(before + altered + after)
            (tmp_path / "rules.yml").write_text(rule_files()["rules.yml"])
            shutil.copytree(TESTS, tmp_path / "tests", dirs_exist_ok=True)
            done = promtool("test", "rules", tmp_path / "tests" / f"{alert.name}.yml")
            assert done.returncode == 1, f"{alert.name} with {expr}"
            assert "FAILED" in done.stdout + done.stderr

    def test_is_found_by_boards(self, alert: Alert):
        assert alert.name.startswith(names.ALERT_PREFIXES)

    def test_says_what_it_is_about_and_where_to_go_on(self, alert: Alert):
        words = alert.annotations
        assert list(words) == ["summary", "description", "runbook_url", "dashboard"]
        assert len(words["summary"]) < 110
        assert words["description"].endswith(".")
        named = set(re.findall(r"\$labels\.(\w+)", " ".join(words.values())))
        assert named <= alert.expr.labels
        assert named or not alert.expr.labels

    def test_its_runbook_has_a_section(self, alert: Alert):
        base, _, section = alert.annotations["runbook_url"].partition("#")
        assert base == names.RUNBOOKS
        sections = [heading.lower() for heading in re.findall(r"^### (\S+)$", RUNBOOKS, re.MULTILINE)]
        wanted = CATALOGUE if section == "{{ $labels.code }}" else [section]
        assert set(wanted) <= set(sections)

    def test_what_it_watches_has_the_labels_that_it_fires_with(self, alert: Alert):
        assert alert.watched.labels >= alert.expr.labels


def parts(text: str, name: str) -> tuple[str, str, str]:
    """A file of rules: what is before an alert, the alert, and what is after it."""
    before, head, rest = text.partition(f"      - alert: {name}\n")
    assert head
    of_it, gap, after = rest.partition("\n\n")
    return before, head + of_it + "\n", gap[1:] + after


def test_alerts_are_named_once():
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)


def test_every_name_of_a_recording_rule_is_recorded_once():
    recorded = [rule.record for rule in RULES]
    assert set(recorded) == {value for value in vars(names).values() if isinstance(value, Recorded)}
    assert len({record.name for record in recorded}) == len(recorded)


def test_a_rule_whose_labels_are_not_those_it_names_is_no_rule():
    with pytest.raises(ValueError, match="expected that x has the labels"):
        Rule(record=Recorded("x", ("job",)), expr=Scope("5m").rate(m.LEASES), what="")


def test_an_alert_on_what_has_no_such_label_can_not_be_made():
    with pytest.raises(Exception, match="has no label peer"):
        Scope("5m").now(m.STUCK, peer="x")
    assert isinstance(Scope("5m").now(m.STUCK), Expr)
