"""The rules of Grafana's dashboard-linter, by their names and meaning; of Prometheus targets, as ours all are.

Each rule is a function from a dashboard's JSON to what is wrong with it. What is excepted stands in
``dashboards/grafana/.lint``, in the linter's own form, so that the linter itself reads it too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import promql_parser
import yaml
from grafana_foundation_sdk.models import units

from pushscope.dashboards.files import FOLDER

from .parsed_promql import RATE_INTERVAL, nodes, parse, selectors

EXCEPTIONS = FOLDER / "grafana" / ".lint"
WITH_WORDS = {"stat", "singlestat", "graph", "table", "timeseries", "gauge"}
WITH_DATA_SOURCE = {"singlestat", "graph", "table", "timeseries"}
WITH_QUERIES = {"singlestat", "gauge", "table", "stat", "state-timeline", "timeseries"}
UNITS = {value for name, value in vars(units).items() if not name.startswith("_") and isinstance(value, str)}

Json = dict[str, Any]


class Wrong(NamedTuple):
    """Something that a rule forbids."""

    rule: str
    board: str
    says: str
    panel: str = ""
    target: int | None = None


def lint(board: Json) -> list[Wrong]:
    """All that is wrong with it, by all rules."""
    return [Wrong(rule, board["title"], *found) for rule, check in RULES.items() for found in check(board)]


class Excepted(NamedTuple):
    """What is allowed, and why; a place that is not said is any."""

    rule: str
    reason: str
    board: str | None = None
    panel: str | None = None
    target: str | None = None

    def covers(self, wrong: Wrong) -> bool:
        return (
            self.rule == wrong.rule
            and self.board in (None, wrong.board)
            and self.panel in (None, wrong.panel)
            and self.target in (None, str(wrong.target))
        )


def exceptions(path: Path = EXCEPTIONS) -> list[Excepted]:
    """As the linter reads them: a rule without entries is off altogether."""
    found = []
    for rule, entry in yaml.safe_load(path.read_text())["exclusions"].items():
        for each in entry.get("entries", [{}]):
            reason = each.get("reason") or entry.get("reason", "")
            found.append(
                Excepted(rule, reason, each.get("dashboard"), each.get("panel"), each.get("targetIdx"))
            )
    return found


# -- what a dashboard has -----------------------------------------------------------------------------


def _panels(board: Json) -> Iterator[Json]:
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", ())


def _targets(board: Json) -> Iterator[tuple[Json, int, str]]:
    for panel in _panels(board):
        for place, target in enumerate(panel.get("targets", ())):
            yield panel, place, target.get("expr", "")


def _parsed(board: Json) -> Iterator[tuple[str, int, Any, str, str]]:
    """Targets that parse: panel, place, tree, query, type of panel."""
    for panel, place, query in _targets(board):
        try:
            yield panel["title"], place, parse(query), query, panel["type"]
        except ValueError:
            continue  # target-promql-rule says so


def _variables(board: Json, kind: str) -> list[Json]:
    return [each for each in board["templating"]["list"] if each["type"] == kind]


# -- rules --------------------------------------------------------------------------------------------

Found = Iterator[tuple[Any, ...]]


def _template_datasource(board: Json) -> Found:
    sources = _variables(board, "datasource")
    if not sources:
        yield ("has no variable for the data source",)
    for each in sources:
        query = each["query"]
        allowed = {f"{query}_datasource": f"{query.title()} data source"}
        if len(sources) == 1:
            allowed["datasource"] = "Data source"
        if each["name"] not in allowed:
            yield (f"calls a data source {each['name']}, expected {' or '.join(allowed)}",)
        if each["label"] not in allowed.values():
            yield (f"labels a data source {each['label']}, expected {' or '.join(allowed.values())}",)


def _template(name: str) -> Callable[[Json], Found]:
    def check(board: Json) -> Found:
        found = [each for each in board["templating"]["list"] if each["name"] == name]
        if not found:
            yield (f"has no variable {name}",)
        for each in found:
            if each.get("datasource", {}).get("uid") not in ("$datasource", "${datasource}"):
                yield (f"{name} asks another data source",)
            if each["type"] != "query":
                yield (f"{name} is no query",)
            if each["label"] != name.title():
                yield (f"{name} is labelled {each['label']}",)
            if not each.get("multi"):
                yield (f"{name} takes one value only",)
            if each.get("allValue") != ".+":
                yield (f"{name} has {each.get('allValue')} for All",)

    return check


def _template_label_promql(board: Json) -> Found:
    for each in _variables(board, "query"):
        found = re.fullmatch(r"([a-z_]+)\((.+?)(?:, ?\w+)?\)", each["query"])
        if not found or found[1] not in ("label_names", "label_values", "metrics", "query_result"):
            yield (f"{each['name']} asks {each['query']}",)
            continue
        try:
            parse(found[2])
        except ValueError as e:
            yield (f"{each['name']}: {e}",)


def _template_reload(board: Json) -> Found:
    for each in _variables(board, "query"):
        if each.get("refresh") != 2:
            yield (f"{each['name']} is not asked anew when the time range changes",)


def _panel_datasource(board: Json) -> Found:
    known = {
        f for each in _variables(board, "datasource") for f in (f"${each['name']}", f"${{{each['name']}}}")
    }
    for panel in _panels(board):
        uid = panel.get("datasource", {}).get("uid")
        if panel["type"] in WITH_DATA_SOURCE and uid not in known:
            yield f"uses the data source {uid}", panel["title"]


def _panel_title_description(board: Json) -> Found:
    for panel in _panels(board):
        if panel["type"] in WITH_WORDS and not (panel.get("title") and panel.get("description")):
            yield "has no title or no description", panel.get("title", "")


def _panel_units(board: Json) -> Found:
    for panel in _panels(board):
        fields = panel.get("fieldConfig", {"defaults": {}, "overrides": []})
        set_to = [p for each in fields["overrides"] for p in each["properties"]]
        mapped = fields["defaults"].get("mappings") or any(p["id"] == "mappings" for p in set_to)
        words = panel["type"] == "stat" and panel["options"]["reduceOptions"]["fields"]
        if panel["type"] not in WITH_WORDS or mapped or words:
            continue
        unit = next(
            (p["value"] for p in reversed(set_to) if p["id"] == "unit"), fields["defaults"].get("unit")
        )
        if unit not in UNITS:
            yield f"has the unit {unit}", panel["title"]


def _panel_no_targets(board: Json) -> Found:
    for panel in _panels(board):
        if panel["type"] in WITH_WORDS and not panel.get("targets"):
            yield "asks nothing", panel["title"]


def _target_promql(board: Json) -> Found:
    for panel, place, query in _targets(board):
        if panel["type"] in WITH_QUERIES:
            try:
                parse(query)
            except ValueError as e:
                yield f"{query}: {e}", panel["title"], place


def _target_rate_interval(board: Json) -> Found:
    for title, place, tree, query, kind in _parsed(board):
        for node, parents in nodes(tree) if kind in WITH_QUERIES else ():
            if not isinstance(node, promql_parser.MatrixSelector) or node.range == RATE_INTERVAL:
                continue
            in_call = parents and isinstance(parents[-1], promql_parser.Call)
            if parents and (not in_call or parents[-1].func.name in ("rate", "irate")):
                yield f"{query} has a rate of another window", title, place


def _target_matcher(label: str) -> Callable[[Json], Found]:
    def check(board: Json) -> Found:
        for title, place, _, query, _ in _parsed(board):
            for selector in selectors(query):
                if (label, "=~", f"${label}") not in selector.matchers:
                    yield f'{selector.name} in {query} lacks {label}=~"${label}"', title, place

    return check


def _target_counter_agg(board: Json) -> Found:
    for title, place, _, query, _ in _parsed(board):
        for selector in selectors(query):
            above = selector.parents[-2:]
            counted = (
                len(above) == 2
                and isinstance(above[1], promql_parser.MatrixSelector)
                and isinstance(above[0], promql_parser.Call)
                and above[0].func.name in ("rate", "irate", "increase")
            )
            if selector.name.endswith("_total") and not counted:
                yield f"{selector.name} in {query} is neither a rate nor an increase", title, place


def _no_logql(board: Json) -> Found:
    """We have no Loki targets; the linter's rules for them hold if there are none."""
    for panel, place, _ in _targets(board):
        if panel["targets"][place].get("datasource", {}).get("type") == "loki":
            yield "asks Loki: port the linter's rules for LogQL", panel["title"], place


def _uneditable(board: Json) -> Found:
    if board.get("editable", True):
        yield ("can be edited",)


RULES: dict[str, Callable[[Json], Found]] = {
    "template-datasource-rule": _template_datasource,
    "template-job-rule": _template("job"),
    "template-instance-rule": _template("instance"),
    "template-label-promql-rule": _template_label_promql,
    "template-on-time-change-reload-rule": _template_reload,
    "panel-datasource-rule": _panel_datasource,
    "panel-title-description-rule": _panel_title_description,
    "panel-units-rule": _panel_units,
    "panel-no-targets-rule": _panel_no_targets,
    "target-logql-rule": _no_logql,
    "target-logql-auto-rule": _no_logql,
    "target-promql-rule": _target_promql,
    "target-rate-interval-rule": _target_rate_interval,
    "target-job-rule": _target_matcher("job"),
    "target-instance-rule": _target_matcher("instance"),
    "target-counter-agg-rule": _target_counter_agg,
    "uneditable-dashboard": _uneditable,
}
