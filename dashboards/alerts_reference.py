"""docs/reference/alerts.md, made from rules and alerts: ``make references`` writes it anew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pushscope.dashboards.alerts import ALERTS, Alert
from pushscope.dashboards.rules import RULES
from pushscope.telemetry.reference_page import write_page

PAGE: Final = Path("docs/reference/alerts.md")
HEAD: Final = """\
<!-- Written by `make references`; what it says comes from dashboards/alerts.py and dashboards/rules.py. -->

# Alerts and recording rules

What each alert means and what to do: its section of [the runbooks](../runbooks.md#alerts). How to load and change them:
[alerts.md](../alerts.md). Beside its labels every one has `severity`.

"""


def page() -> str:
    """The whole page."""
    return HEAD + "\n".join((*_alerts(), "", "## Recorded\n", *_rules())) + "\n"


def _alerts() -> Iterator[str]:
    yield "| alert | severity | for | says | labels |"
    yield "|---|---|---|---|---|"
    for alert in ALERTS:
        link = f"[{alert.name}](../runbooks.md#{alert.name.lower()})"
        labels = ", ".join(f"`{label}`" for label in sorted(alert.expr.labels))
        yield f"| {link} | {alert.severity} | {alert.wait} | {_in_words(alert)} | {labels} |"
    for alert in ALERTS:
        yield f"\n### {alert.name}\n\n```promql\n{alert.expr}\n```"


def _in_words(alert: Alert) -> str:
    """Its summary, with what is filled in as in a sentence: ``CODE: N at engine ENGINE``."""
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: found[1].upper(), alert.summary)
    return re.sub(r"\{\{ \$value[^}]*\}\}", "N", text)


def _rules() -> Iterator[str]:
    for rule in RULES:
        yield f"### {rule.record.name}\n"
        yield f"{rule.sentence}\n"
        yield f"```promql\n{rule.expr}\n```\n"


def main() -> None:
    """Write the page."""
    write_page(PAGE, page())


if __name__ == "__main__":
    main()
