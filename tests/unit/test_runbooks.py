"""The runbooks have a section for each code that can be diagnosed, whole and in the catalogue's words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pushscope.telemetry.diagnosis.catalogue import CATALOGUE, Entry

TEXT = (Path(__file__).parents[2] / "docs" / "runbooks.md").read_text()
ITEMS = ["Looks like", "Why", "Confirm", "Now", "For good", "Reports"]


def sections() -> dict[str, str]:
    _, *parts = re.split(r"^### ", TEXT, flags=re.MULTILINE)
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
    targets = re.findall(r"\]\(#([^)]+)\)", TEXT)
    assert targets
    assert set(targets) <= set(CATALOGUE)


def test_no_two_sections_say_the_same_of_how_it_looks() -> None:
    looks = [re.search(r"\*\*Looks like:\*\* (.+)", section) for section in sections().values()]
    assert len({found[1] for found in looks if found}) == len(CATALOGUE)
