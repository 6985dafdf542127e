"""A board as Grafana's JSON (schema 39, of Grafana 10.4 and newer). What is not said here, Grafana fills in."""

from __future__ import annotations

from typing import Final

from pushscope.dashboards import names
from pushscope.dashboards.frame import RUNBOOKS
from pushscope.dashboards.grafana_kinds import COLOURED_BY, Json, custom, options
from pushscope.dashboards.layout import places
from pushscope.dashboards.panel import (
    Annotation,
    Board,
    Column,
    Draw,
    Link,
    Panel,
    Row,
    Target,
    Variable,
    VariableKind,
    ref_id,
)

SCHEMA_VERSION: Final = 39
GRAFANA: Final = "10.4.0"
"""The oldest that reads it."""
SOURCE: Final[Json] = {"type": "prometheus", "uid": "${datasource}"}
_ALL: Final = {"selected": True, "text": ["All"], "value": ["$__all"]}
_REFRESH_ON_LOAD, _REFRESH_ON_TIME_RANGE = 1, 2
_SORT_BY_NAME = 1


def dashboard(board: Board) -> Json:
    """The whole of it. Anything that brings it to a Grafana (upload, file, API) gets the same board, by its uid."""
    panels: list[Json] = []
    for number, (what, place) in enumerate(places(board), 1):
        grid = {"h": place.height, "w": place.width, "x": place.x, "y": place.y}
        panels.append(
            {"id": number, "gridPos": grid} | (_row(what) if isinstance(what, Row) else _panel(what))
        )
    return {
        "id": None,
        "uid": board.uid,
        "title": board.title,
        "description": board.description,
        "tags": [names.TAG, "vllm", "kv-transfer"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "timepicker": {},
        "fiscalYearStartMonth": 0,
        "weekStart": "",
        "links": [_to_boards(), *(_board_link(link) for link in board.links)],
        "annotations": {"list": [_BUILT_IN, *(_annotation(each) for each in board.annotations)]},
        "templating": {"list": [_variable(variable) for variable in board.variables]},
        "panels": panels,
    }


def with_runbooks(board: Json, url: str) -> Json:
    """The same with its links to runbooks leading elsewhere."""
    listed = [
        variable | {"query": url} if variable["name"] == RUNBOOKS.name else variable
        for variable in board["templating"]["list"]
    ]
    return board | {"templating": {"list": listed}}


# -- panels -------------------------------------------------------------------------------------------


def _row(row: Row) -> Json:
    return {"type": "row", "title": row.title, "collapsed": False, "panels": []}


def _panel(panel: Panel) -> Json:
    return {
        "type": panel.draw.value,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "targets": [_target(panel, target, place) for place, target in enumerate(panel.targets)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "options": options(panel),
        **_more(panel),
    }


def _more(panel: Panel) -> Json:
    """Keys that only some kinds of panels have."""
    if panel.draw is Draw.TABLE:
        return {"transformations": _transformations(panel)}
    found: Json = {"transformations": [_SHORT_IDS]} if _names_engines(panel) else {}
    if panel.draw is Draw.GRID:
        found["maxDataPoints"] = 120  # a cell each: more are too small to see
    return found


def _names_engines(panel: Panel) -> bool:
    return any(
        f"{{{{{label}}}}}" in target.legend for target in panel.targets for label in ("engine", "peer")
    )


_SHORT_IDS: Final[Json] = {
    "id": "renameByRegex",
    "options": {"regex": r"/(?<=\b[0-9a-f]{8})(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g", "renamePattern": ""},
}
"""vLLM makes engine ids up as UUIDs; a legend has room for 8 digits. Labels, and links made of them, keep all."""


def _target(panel: Panel, target: Target, place: int) -> Json:
    at_once = panel.draw in (Draw.TABLE, Draw.BARS)
    form = {Draw.TABLE: "table", Draw.HEAT: "heatmap"}.get(panel.draw, "time_series")
    return {
        "refId": ref_id(place),
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": target.expr.text,
        "legendFormat": "{{le}}" if panel.draw is Draw.HEAT else target.legend or "__auto",
        "format": form,
        "instant": at_once,
        "range": not at_once,
        "exemplar": target.exemplars,
    }


def _defaults(panel: Panel) -> Json:
    steps = [{"color": "green", "value": None}, *({"color": c, "value": v} for v, c in panel.steps)]
    found: Json = {
        "unit": panel.unit,
        "color": {"mode": COLOURED_BY[panel.draw]},
        "thresholds": {"mode": "absolute", "steps": steps},
        "custom": custom(panel),
        "links": [_link(link) for link in panel.links],
    }
    if panel.minimum is not None and panel.draw is not Draw.TABLE and not panel.logarithmic:
        found["min"] = panel.minimum
    if panel.maximum is not None:
        found["max"] = panel.maximum
    if panel.decimals is not None:
        found["decimals"] = panel.decimals
    if panel.no_value:
        found["noValue"] = panel.no_value
    if panel.words:
        options = {
            f"{value:g}": {"color": colour, "index": index, "text": text}
            for index, (value, text, colour) in enumerate(panel.words)
        }
        found["mappings"] = [{"type": "value", "options": options}]
    return found


# -- tables -------------------------------------------------------------------------------------------


def _overrides(panel: Panel) -> list[Json]:
    return [_column(panel, column) for column in panel.columns]


def _column(panel: Panel, column: Column) -> Json:
    properties: list[Json] = [{"id": "displayName", "value": column.title}]
    if isinstance(column.of, int):
        shown = {"unit": column.unit or panel.unit, "min": 0, "noValue": "–"}
        properties += [{"id": name, "value": value} for name, value in shown.items()]
    if column.width is not None:
        properties.append({"id": "custom.width", "value": column.width})
    if column.links:
        properties.append({"id": "links", "value": [_link(link) for link in column.links]})
    return {"matcher": {"id": "byName", "options": _field(panel, column)}, "properties": properties}


def _field(panel: Panel, column: Column) -> str:
    """One query alone has its value in a field without the query's letter."""
    return "Value" if column.of == 0 and len(panel.targets) == 1 else column.field


def _transformations(panel: Panel) -> list[Json]:
    """One table of all queries, with the columns that are named, in their order, and no other."""
    order = {_field(panel, column): place for place, column in enumerate(panel.columns)}
    labels = {label for target in panel.targets for label in target.expr.labels}
    hidden = dict.fromkeys(sorted({"Time", *labels} - order.keys()), True)
    organise = {"excludeByName": hidden, "indexByName": order, "renameByName": {}}
    merge = [{"id": "merge", "options": {}}] if len(panel.targets) > 1 else []
    return [*merge, {"id": "organize", "options": organise}]


# -- the board around ---------------------------------------------------------------------------------


def _link(link: Link) -> Json:
    return {"title": link.title, "url": link.url, "targetBlank": True}


def _board_link(link: Link) -> Json:
    return {
        "type": "link",
        "title": link.title,
        "url": link.url,
        "icon": "external link",
        "tooltip": "",
        "tags": [],
        "asDropdown": False,
        "targetBlank": True,
        "includeVars": False,
        "keepTime": False,
    }


def _to_boards() -> Json:
    """To the others, with the variables and the time that are chosen here."""
    return {
        "type": "dashboards",
        "title": "KV transfer",
        "url": "",
        "icon": "external link",
        "tooltip": "",
        "tags": [names.TAG],
        "asDropdown": False,
        "targetBlank": False,
        "includeVars": True,
        "keepTime": True,
    }


_BUILT_IN: Final[Json] = {
    "builtIn": 1,
    "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    "enable": True,
    "hide": True,
    "iconColor": "rgba(0, 211, 255, 1)",
    "name": "Annotations & Alerts",
    "type": "dashboard",
}


def _annotation(annotation: Annotation) -> Json:
    return {
        "name": annotation.name,
        "datasource": SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": annotation.colour,
        "expr": annotation.expr.text,
        "titleFormat": annotation.title,
        "textFormat": annotation.text,
        "step": "15s",
    }


def _variable(variable: Variable) -> Json:
    found: Json = {
        "type": variable.kind.value,
        "name": variable.name,
        "label": variable.label,
        "description": variable.description,
        "query": variable.query,
        "hide": 0,
        "skipUrlSync": False,
    }
    chosen = {"selected": True, "text": variable.chosen, "value": variable.chosen}
    match variable.kind:
        case VariableKind.CONSTANT:
            return found | {"hide": 2, "skipUrlSync": True}
        case VariableKind.DATASOURCE:
            return found | {
                "current": {},
                "includeAll": False,
                "multi": False,
                "options": [],
                "refresh": _REFRESH_ON_LOAD,
                "regex": "",
            }
    found |= {
        "current": chosen if variable.chosen else _ALL,
        "includeAll": True,
        "multi": True,
        "options": [],
    }
    if variable.everything is not None:
        found["allValue"] = variable.everything
    if variable.kind is VariableKind.QUERY:
        found |= {
            "datasource": SOURCE,
            "definition": variable.query,
            "refresh": _REFRESH_ON_TIME_RANGE,
            "regex": "",
            "sort": _SORT_BY_NAME,
        }
    return found
