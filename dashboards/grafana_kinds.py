"""How Grafana is told to draw each kind of panel."""

from __future__ import annotations

from typing import Any, Final

from pushscope.dashboards.panel import Draw, Panel

Json = dict[str, Any]

_NARROW: Final = 8
"""Up to this width, of 24 columns, a legend has room for a name and two figures."""


def options(panel: Panel) -> Json:
    """Of the whole panel."""
    return _OPTIONS[panel.draw](panel)


COLOURED_BY: Final = {
    Draw.LINES: "palette-classic",
    Draw.STAT: "thresholds",
    Draw.BARS: "thresholds",
    Draw.HEAT: "thresholds",
    Draw.TABLE: "thresholds",
    Draw.GRID: "continuous-GrYlRd",
    Draw.STATES: "thresholds",
}


_SOFT_MAX: Final = {"percentunit": 0.01, "ops": 0.1}
"""By unit, how far an axis goes at least: where all is zero, Grafana goes to 100, which is 10,000 %."""


def custom(panel: Panel) -> Json:
    """Of each series, what only this kind of panel knows."""
    match panel.draw:
        case Draw.LINES:
            soft = {"axisSoftMax": _SOFT_MAX[panel.unit]} if panel.unit in _SOFT_MAX else {}
            return soft | {
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
    several = _several(panel)
    figures = ["mean", "max", "lastNotNull"] if panel.width > _NARROW else ["max", "lastNotNull"]
    legend = {
        "displayMode": "table" if several else "list",
        "placement": "bottom",
        "showLegend": True,
        "calcs": figures if several else [],
    }
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


def _several(panel: Panel) -> bool:
    """Whether there can be more than one series."""
    return len(panel.targets) > 1 or "{{" in panel.targets[0].legend


def _reduced(panel: Panel) -> Json:
    return {"calcs": [panel.reduce], "fields": "", "values": False}


def _stat(panel: Panel) -> Json:
    return {
        "colorMode": "value" if panel.steps or panel.words else "none",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "horizontal",  # figures below each other, each with its name on the left
        "reduceOptions": _reduced(panel),
        "textMode": "value_and_name" if len(panel.targets) > 1 else "auto",
        **({"text": {"titleSize": 14, "valueSize": 24}} if _several(panel) else {}),
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


_ROWS: Final[Json] = {
    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
    "tooltip": {"mode": "single", "sort": "none"},
}
"""Of rows that have their names beside them."""


def _grid(_panel: Panel) -> Json:
    return {"colWidth": 0.95, "rowHeight": 0.9, "showValue": "never", **_ROWS}


def _states(_panel: Panel) -> Json:
    return {
        "alignValue": "left",
        "mergeValues": True,
        "rowHeight": 0.8,
        "showValue": "auto",
        **_ROWS,
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
