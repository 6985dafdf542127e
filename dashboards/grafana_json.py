"""A board as Grafana's JSON (schema 39, of Grafana 10.4 and newer). What is not said here, Grafana fills in."""

from __future__ import annotations

from typing import Any, Final

from pushscope.dashboards import names
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

Json = dict[str, Any]

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
        "options": _OPTIONS[panel.draw](panel),
        **_more(panel),
    }


def _more(panel: Panel) -> Json:
    """Keys that only some kinds of panels have."""
    match panel.draw:
        case Draw.TABLE:
            return {"transformations": _transformations(panel)}
        case Draw.GRID:
            return {"maxDataPoints": 120}  # a cell each: more are too small to see
    return {}


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
        "color": {"mode": _COLOURED_BY[panel.draw]},
        "thresholds": {"mode": "absolute", "steps": steps},
        "custom": _custom(panel),
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


_COLOURED_BY: Final = {
    Draw.LINES: "palette-classic",
    Draw.STAT: "thresholds",
    Draw.BARS: "thresholds",
    Draw.HEAT: "thresholds",
    Draw.TABLE: "thresholds",
    Draw.GRID: "continuous-GrYlRd",
    Draw.STATES: "thresholds",
}


def _custom(panel: Panel) -> Json:
    match panel.draw:
        case Draw.LINES:
            return {
                "drawStyle": "line",
                "lineWidth": 1,
                "fillOpacity": 30 if panel.stacked else 0,
                "showPoints": "auto",
                "pointSize": 4,
                "spanNulls": False,
                "stacking": {"group": "A", "mode": "normal" if panel.stacked else "none"},
                "thresholdsStyle": {"mode": "line" if panel.steps else "off"},
                "scaleDistribution": {"type": "log", "log": 10} if panel.logarithmic else {"type": "linear"},
            }
        case Draw.TABLE:
            return {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False}
        case Draw.GRID:
            return {"fillOpacity": 80, "lineWidth": 1}
        case Draw.STATES:
            return {"fillOpacity": 70, "lineWidth": 0}
        case Draw.HEAT:
            return {"scaleDistribution": {"type": "linear"}}
    return {}


def _lines(panel: Panel) -> Json:
    several = len(panel.targets) > 1 or "{{" in panel.targets[0].legend
    legend = {
        "displayMode": "table" if several else "list",
        "placement": "bottom",
        "showLegend": True,
        "calcs": ["mean", "max", "lastNotNull"] if several else [],
    }
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


def _reduced(panel: Panel) -> Json:
    return {"calcs": [panel.reduce], "fields": "", "values": False}


def _stat(panel: Panel) -> Json:
    return {
        "colorMode": "value" if panel.steps or panel.words else "none",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": _reduced(panel),
        "textMode": "value_and_name" if len(panel.targets) > 1 else "auto",
    }


def _bars(panel: Panel) -> Json:
    return {
        "displayMode": "basic",
        "orientation": "horizontal",
        "reduceOptions": _reduced(panel),
        "showUnfilled": True,
        "valueMode": "color",
        "minVizHeight": 10,
        "minVizWidth": 0,
    }


def _heat(panel: Panel) -> Json:
    return {
        "calculate": False,
        "cellGap": 1,
        "cellValues": {"unit": "ops"},
        "color": {
            "mode": "scheme",
            "scheme": "Oranges",
            "scale": "exponential",
            "exponent": 0.5,
            "fill": "dark-orange",
            "reverse": False,
            "steps": 64,
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": False},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": panel.unit},
    }


def _table(_panel: Panel) -> Json:
    footer = {"show": False, "countRows": False, "fields": "", "reducer": ["sum"]}
    return {"cellHeight": "sm", "footer": footer, "showHeader": True}


def _grid(_panel: Panel) -> Json:
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []}
    tooltip = {"mode": "single", "sort": "none"}
    return {"colWidth": 0.95, "rowHeight": 0.9, "showValue": "never", "legend": legend, "tooltip": tooltip}


def _states(_panel: Panel) -> Json:
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []}
    tooltip = {"mode": "single", "sort": "none"}
    return {
        "alignValue": "left",
        "mergeValues": True,
        "rowHeight": 0.8,
        "showValue": "auto",
        "legend": legend,
        "tooltip": tooltip,
    }


_OPTIONS: Final = {
    Draw.LINES: _lines,
    Draw.STAT: _stat,
    Draw.BARS: _bars,
    Draw.HEAT: _heat,
    Draw.TABLE: _table,
    Draw.GRID: _grid,
    Draw.STATES: _states,
}

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
