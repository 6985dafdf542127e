"""rules.yml and alerts.yml, as Prometheus reads them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pushscope.dashboards.alerts import ALERTS, Alert
from pushscope.dashboards.rules import RULES, Rule

_WRITTEN_BY: Final = "# Written by `make dashboards`; what it says comes from dashboards/{}.py.\n"
_WIDTH: Final = 110


def rule_files() -> Mapping[str, str]:
    """The files by name, with their content."""
    return {
        "rules.yml": _file("rules", {"pushscope-recorded": map(_rule, RULES)}),
        "alerts.yml": _file(
            "alerts",
            {
                "kv-transfer": (_alert(alert) for alert in ALERTS if alert.name.startswith("KVTransfer")),
                "pushscope": (_alert(alert) for alert in ALERTS if alert.name.startswith("Pushscope")),
            },
        ),
    }


def _file(module: str, groups: Mapping[str, Iterable[str]]) -> str:
    head = _WRITTEN_BY.format(module) + "groups:\n"
    return head + "\n".join(
        f"  - name: {name}\n    rules:\n" + "\n".join(entries) for name, entries in groups.items()
    )


def _rule(rule: Rule) -> str:
    return (
        f"      # {rule.sentence}\n      - record: {rule.record.name}\n{_folded('expr', str(rule.expr), 8)}"
    )


def _alert(alert: Alert) -> str:
    return "".join(_alert_lines(alert))


def _alert_lines(alert: Alert) -> Iterator[str]:
    yield f"      - alert: {alert.name}\n"
    yield _folded("expr", str(alert.expr), 8)
    yield f"        for: {alert.wait}\n"
    yield f"        labels: {{severity: {alert.severity}}}\n"
    yield "        annotations:\n"
    for name, text in alert.annotations.items():
        if name.endswith(("url", "dashboard")):
            yield f"          {name}: {json.dumps(text)}\n"
        else:
            yield _folded(name, text, 10)


def _folded(key: str, text: str, indent: int) -> str:
    """A text over several lines, which YAML joins with spaces again."""
    margin = " " * indent
    lines = textwrap.wrap(text, _WIDTH - indent - 2, break_long_words=False, break_on_hyphens=False)
    return f"{margin}{key}: >-\n" + "".join(f"{margin}  {line}\n" for line in lines)
