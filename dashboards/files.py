"""Everything that people import, as files made from code. ``make dashboards`` writes them, a test holds them to it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from pushscope.dashboards.boards import boards
from pushscope.dashboards.frame import DATASOURCE, RUNBOOKS
from pushscope.dashboards.grafana_json import GRAFANA, dashboard, with_runbooks
from pushscope.dashboards.grafana_kinds import Json
from pushscope.dashboards.panel import Board, Draw
from pushscope.dashboards.rule_files import rule_files

FOLDER: Final = Path(__file__).parent
"""Where they lie, in the repository as in an installed package."""
BOARDS: Final = "grafana"
IMPORTED: Final = "grafana-import"
"""Not below the boards: a Grafana that is provisioned from that folder would find every uid twice."""
RULES: Final = "prometheus"
_INPUT: Final = "DS_PROMETHEUS"
_RUNBOOKS_INPUT: Final = "VAR_RUNBOOKS"
_PANEL_NAMES: Final = {
    Draw.LINES: "Time series",
    Draw.STAT: "Stat",
    Draw.BARS: "Bar gauge",
    Draw.HEAT: "Heatmap",
    Draw.TABLE: "Table",
    Draw.GRID: "Status history",
    Draw.STATES: "State timeline",
}


def files() -> dict[str, str]:
    """What each file holds, by its path below :data:`FOLDER`."""
    found: dict[str, str] = {}
    for board in boards():
        found[f"{BOARDS}/{file_name(board)}"] = text(dashboard(board))
        found[f"{IMPORTED}/{file_name(board)}"] = text(for_catalogue(board))
    return found | {f"{RULES}/{name}": content for name, content in rule_files().items()}


def file_name(board: Board) -> str:
    """By its uid."""
    return f"{board.uid}.json"


def text(board: Json) -> str:
    """As it is committed."""
    return json.dumps(board, indent=2, ensure_ascii=False) + "\n"


def for_catalogue(board: Board) -> Json:
    """The form that Grafana's catalogue wants: the import dialog asks for the data source and fills it in.

    Only that dialog does: provisioning and the API leave ``${DS_PROMETHEUS}`` as it stands.
    """
    form = _with_input(with_runbooks(dashboard(board), f"${{{_RUNBOOKS_INPUT}}}"))
    form["templating"]["list"] = [
        variable for variable in form["templating"]["list"] if variable["name"] != DATASOURCE.name
    ]
    inputs = [
        {
            "name": _INPUT,
            "label": DATASOURCE.label,
            "description": DATASOURCE.description,
            "type": "datasource",
            "pluginId": "prometheus",
            "pluginName": "Prometheus",
        },
        {
            "name": _RUNBOOKS_INPUT,
            "label": RUNBOOKS.label,
            "description": RUNBOOKS.description,
            "type": "constant",
            "value": RUNBOOKS.query,
        },
    ]
    drawn = sorted({panel.draw for panel in board.panels})
    requires = [
        {"type": "grafana", "id": "grafana", "name": "Grafana", "version": GRAFANA},
        {"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"},
        *({"type": "panel", "id": draw.value, "name": _PANEL_NAMES[draw], "version": ""} for draw in drawn),
    ]
    return {"__inputs": inputs, "__elements": {}, "__requires": requires, **form}


def _with_input(value: Any) -> Any:
    """The same with the input in place of the variable, but for links, where no input is filled in."""
    match value:
        case {"uid": "${datasource}", "type": kind}:
            return {"type": kind, "uid": f"${{{_INPUT}}}"}
        case dict():
            return {key: _with_input(each) for key, each in value.items()}
        case list():
            return [_with_input(each) for each in value]
        case str():
            return value.replace("&${datasource:queryparam}", "")
    return value


def main() -> None:
    """Write all of them into the repository, and remove what is none of them."""
    made = files()
    for folder in (BOARDS, IMPORTED):
        for old in (FOLDER / folder).glob("*.json"):
            if old.relative_to(FOLDER).as_posix() not in made:
                old.unlink()
    for path, content in made.items():
        (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / path).write_text(content, encoding="utf-8")
        print(path, file=sys.stdout)


if __name__ == "__main__":
    main()
