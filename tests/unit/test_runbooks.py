"""The runbooks have a section for each code that can be diagnosed, whole and in the catalogue's words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pushscope.dashboards import alerts
from pushscope.dashboards.alerts import ALERTS
from pushscope.telemetry.diagnosis.catalogue import CATALOGUE, Entry
from pushscope.telemetry.metrics.catalogue import FAILURES

TEXT, _, OF_ALERTS = (
    (Path(__file__).parents[2] / "docs" / "runbooks.md").read_text().partition("\n## Alerts\n")
)
ITEMS = ["Looks like", "Why", "Confirm", "Now", "For good", "Reports"]


OF_AN_ALERT = ["Means", "Look", "Now", "For good", "Threshold"]


def sections(text: str = TEXT) -> dict[str, str]:
    _, *parts = re.split(r"^### ", text, flags=re.MULTILINE)
    return {part.split("\n", 1)[0]: part.split("\n## ")[0] for part in parts}


def head(entry: Entry) -> str:
    about = {"transfer": "a transfer", "engine": "an engine"}[entry.about.value]
    rows = f" · {' '.join(entry.rows)}" if entry.rows else ""
    return f"*{entry.title}* · {entry.severity.value} · about {about}{rows}"


def test_every_code_has_a_section_and_every_section_a_code() -> None:
    assert list(sections()) == list(CATALOGUE)


@pytest.mark.parametrize("code", CATALOGUE)
def test_a_section_says_what_the_catalogue_says_and_answers_every_question(code: str) -> None:
    section = sections()[code]
    assert section.split("\n")[2] == head(CATALOGUE[code])
    found = re.findall(r"^\* \*\*(.+?):\*\* (.+)", section, flags=re.MULTILINE)
    assert [name for name, _ in found] == ITEMS
    assert all(len(words) > 3 for _, words in found)


def test_links_within_lead_to_a_section() -> None:
    targets = re.findall(r"\]\(#([^)]+)\)", TEXT + OF_ALERTS)
    assert targets
    assert set(targets) <= {*CATALOGUE, "alerts"}


def test_every_alert_has_a_section_that_answers_every_question() -> None:
    assert list(sections(OF_ALERTS)) == [alert.name for alert in ALERTS]
    for name, section in sections(OF_ALERTS).items():
        found = re.findall(r"^\* \*\*(.+?):\*\* (.+)", section, flags=re.MULTILINE)
        assert [item for item, _ in found] == OF_AN_ALERT, name


def test_the_alert_on_failures_leads_on_from_each_type() -> None:
    section = sections(OF_ALERTS)["KVTransferFailures"]
    assert {name for name in FAILURES if f"`{name}`" in section} == set(FAILURES)


def test_thresholds_that_sections_of_alerts_name_are_those_of_the_code() -> None:
    named = set(re.findall(r"`([A-Z_]{4,})`", "".join(re.findall(r"\*\*Threshold:.*", OF_ALERTS))))
    assert named
    assert all(hasattr(alerts, name) for name in named)


def test_no_two_sections_say_the_same_of_how_it_looks() -> None:
    looks = [re.search(r"\*\*Looks like:\*\* (.+)", section) for section in sections().values()]
    assert len({found[1] for found in looks if found}) == len(CATALOGUE)
