"""The boards: every name exists, every query parses, nothing overlaps, every panel explains itself, files agree."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path

import pytest

from pushscope.dashboards import names, vllm
from pushscope.dashboards.boards import boards
from pushscope.dashboards.files import FOLDER, IMPORTED, files, for_catalogue
from pushscope.dashboards.frame import PEER_OF_PAIR
from pushscope.dashboards.grafana_json import dashboard
from pushscope.dashboards.layout import COLUMNS, places
from pushscope.dashboards.panel import NEEDS_A_PEER, Board, Draw, Panel, VariableKind
from pushscope.dashboards.reference import PAGE, page
from pushscope.telemetry.diagnosis.catalogue import CATALOGUE
from pushscope.telemetry.metrics import catalogue as m

from .parsed_promql import parse, selectors

ROOT = Path(__file__).parents[2]
BOARDS = pytest.mark.parametrize("board", boards(), ids=lambda board: board.uid)
EXPORTED = {
    sample: {"job", "instance", *family.labels, *(["le"] if sample.endswith("_bucket") else [])}
    for family in (*m.FAMILIES, *vllm.FAMILIES)
    for sample in family.samples
}


def queries(board: Board) -> list[str]:
    """Of panels, annotations and variables."""
    asked = [target.expr.text for panel in board.panels for target in panel.targets]
    asked += [str(annotation.expr) for annotation in board.annotations]
    asked += [
        found[1]
        for v in board.variables
        if v.kind is VariableKind.QUERY and (found := re.fullmatch(r"label_values\((.+), \w+\)", v.query))
    ]
    return asked


def unknown_names(query: str) -> set[str]:
    """Metrics, and labels of them, that neither an agent nor vLLM exports."""
    found = set()
    for selector in selectors(query):
        if selector.name == "ALERTS":  # Prometheus' own, of alerts that fire
            continue
        labels = {label for label, _, _ in selector.matchers}
        if selector.name not in EXPORTED:
            found.add(selector.name)
        else:
            found |= {f"{selector.name}{{{label}}}" for label in labels - EXPORTED[selector.name]}
    return found


@BOARDS
def test_every_query_parses_and_names_only_what_is_exported(board):
    assert len(queries(board)) > 40
    for query in queries(board):
        assert unknown_names(query) == set(), query


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("rate(kv_transfer_transfer_total[5m])", "kv_transfer_transfer_total"),
        ('kv_transfer_waiting{engin="x"}', "kv_transfer_waiting{engin}"),
        ("vllm:nixl_transfers", "vllm:nixl_transfers"),
        ("1 - sum(nothing)", "nothing"),
    ],
)
def test_a_wrong_name_is_found(query, name):
    assert unknown_names(query) == {name}


@BOARDS
def test_legends_and_labels_by_which_is_summed_are_those_of_what_is_named(board):
    for panel in board.panels:
        for target in panel.targets:
            exported = set().union(*(EXPORTED[each.name] for each in selectors(target.expr.text)))
            assert target.expr.labels <= exported, target.expr


@BOARDS
def test_nothing_overlaps_and_nothing_stands_out(board):
    standing = [place for _, place in places(board)]
    assert all(place.x >= 0 and place.x + place.width <= COLUMNS for place in standing)
    assert not [pair for pair in combinations(standing, 2) if pair[0].overlaps(pair[1])]
    grids = [panel["gridPos"] for panel in dashboard(board)["panels"]]
    assert [(g["x"], g["y"], g["w"], g["h"]) for g in grids] == [tuple(place) for place in standing]


@BOARDS
def test_every_panel_says_what_good_looks_like_what_it_is_made_of_and_its_unit(board):
    for panel in board.panels:
        assert len(panel.good) > 40, panel.title
        assert panel.good.endswith(".")
        assert panel.unit
        made_of = {family.name for family in panel.families}
        assert made_of
        assert all(f"`{name}`" in panel.description for name in made_of)
    titles = [panel.title for panel in board.panels]
    assert len(set(titles)) == len(titles)


@BOARDS
def test_what_needs_both_sides_says_so_and_nothing_else_does(board):
    for panel in board.panels:
        joined = [family.joined for family in panel.families]
        if all(joined):
            assert panel.no_value
            assert NEEDS_A_PEER in panel.description
        if all(family in vllm.FAMILIES for family in panel.families):
            assert "not scraped" in panel.no_value
        assert (any(joined)) == ("(--peer URL)" in panel.description), panel.title


def test_exemplars_are_asked_once_in_a_panel_and_wherever_a_histogram_has_them():
    drawn = (Draw.LINES, Draw.HEAT)
    for panel in (panel for board in boards() for panel in board.panels if panel.draw in drawn):
        carrying = [t for t in panel.targets if t.exemplars]
        assert len(carrying) <= 1, panel.title
        for target in carrying:
            assert all(family.exemplars for family in target.families)
            assert all(each.name.endswith("_bucket") for each in selectors(target.expr.text))
    titles = {
        panel.title for board in boards() for panel in board.panels if any(t.exemplars for t in panel.targets)
    }
    assert {"Exposed time", "Exposed time, spread", "Stage $stage", "push: exposed time"} <= titles


def test_uids_and_titles_are_what_links_and_bookmarks_say():
    assert [(board.uid, board.title) for board in boards()] == [
        ("pushscope-overview", "KV transfer overview"),
        ("pushscope-stages", "Stages and ranks"),
        ("pushscope-modes", "Push against pull"),
        ("pushscope-pair", "Engine pair"),
    ]
    assert all(len(board.uid) <= 40 for board in boards())


@BOARDS
def test_a_board_comes_to_any_grafana_by_its_uid_alone(board):
    made = dashboard(board)
    assert (made["id"], made["uid"], made["schemaVersion"]) == (None, board.uid, 39)
    assert names.TAG in made["tags"]
    to_boards = made["links"][0]
    assert (to_boards["tags"], to_boards["includeVars"], to_boards["keepTime"]) == ([names.TAG], True, True)
    ids = [panel["id"] for panel in made["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in made["panels"]:
        letters = [target["refId"] for target in panel.get("targets", ())]
        assert len(set(letters)) == len(letters)
    assert "__inputs" not in made


@BOARDS
def test_a_variable_is_there_for_all_that_is_named_and_stands_before_what_builds_on_it(board):
    variables = [variable.name for variable in board.variables]
    assert variables[:6] == ["datasource", "tempo_datasource", "job", "role", "engine", "peer"]
    text = json.dumps(dashboard(board))
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval", "__url_time_range", "__field", "__data"}
    assert used - {"__value", "__from", "__to", "__all"} == set(variables)
    for place, variable in enumerate(board.variables):
        if variable.kind is VariableKind.QUERY:
            assert set(re.findall(r"\$(\w+)", variable.query)) <= set(variables[:place])
    if board.uid == names.PAIR:
        assert PEER_OF_PAIR in board.variables  # a wildcard would take in engines that nobody chose


@BOARDS
def test_links_to_runbooks_lead_to_a_section(board):
    sections = set(re.findall(r"^### (\S+)", (ROOT / "docs" / "runbooks.md").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"runbooks?: ([\w, ]+)\)", " ".join(panel.good for panel in board.panels)))
    linked = set(re.findall(r"\$\{runbooks\}#([a-z_]+)", json.dumps(dashboard(board))))
    assert linked <= sections == set(CATALOGUE)
    assert {code for each in named for code in each.split(", ")} <= sections


@BOARDS
def test_links_to_boards_lead_to_one(board):
    found = set(re.findall(r'"/d/([\w-]+)', json.dumps(dashboard(board))))
    assert found <= {each.uid for each in boards()}


def test_a_table_shows_all_labels_but_those_that_it_hides():
    for panel in (panel for board in boards() for panel in board.panels if panel.draw is Draw.TABLE):
        labels = set().union(*(target.expr.labels for target in panel.targets))
        named = {column.of for column in panel.columns if isinstance(column.of, str)}
        assert named <= labels
        values = {column.of for column in panel.columns if isinstance(column.of, int)}
        assert values <= set(range(len(panel.targets)))
        assert values or panel.title == "The engines"


def test_the_committed_files_are_what_the_code_makes():
    committed = {
        path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8")
        for folder in ("grafana", IMPORTED)
        for path in (FOLDER / folder).rglob("*.json")
    }
    made = {path: content for path, content in files().items() if path.endswith(".json")}
    assert committed.keys() == made.keys()
    for path, content in made.items():
        assert committed[path] == content, f"{path}: run `make dashboards`"


def test_the_reference_is_what_the_boards_say():
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page(), "run `make references`"


@BOARDS
def test_the_form_for_the_catalogue_asks_for_the_data_source_and_uses_no_variable_for_it(board):
    form = for_catalogue(board)
    assert [each["name"] for each in form["__inputs"]] == ["DS_PROMETHEUS", "VAR_RUNBOOKS"]
    assert "datasource}" not in json.dumps(form).replace("tempo_datasource}", "")
    assert '"uid": "${DS_PROMETHEUS}"' in json.dumps(form)
    kinds = {panel["type"] for panel in form["panels"]} - {"row"}
    assert kinds == {each["id"] for each in form["__requires"] if each["type"] == "panel"}
    assert (FOLDER / IMPORTED / f"{board.uid}.json").is_file()


@pytest.mark.filterwarnings("ignore:Prefer using dashboardv2:DeprecationWarning")
@BOARDS
def test_grafanas_own_schema_loses_no_key(board):
    """The foundation SDK knows every key of the schema: one that is not there again is a slip of the pen."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()

    def lost(made: dict) -> list[str]:
        again = json.loads(JSONEncoder().encode(Dashboard.from_json(json.loads(json.dumps(made)))))
        return list(differences(made, again))

    assert lost(dashboard(board)) == ["id"]  # null: it is as good as absent
    slip = dashboard(board)
    slip["panels"][1]["fieldConfig"]["defaults"]["units"] = "s"
    assert lost(slip) == ["id", "panels.1.fieldConfig.defaults.units"]


def differences(made, again, path=""):
    """Keys and values that did not come back."""
    if isinstance(made, dict):
        for key, value in made.items():
            where = f"{path}.{key}".lstrip(".")
            if key not in again:
                yield where
            else:
                yield from differences(value, again[key], where)
    elif isinstance(made, list):
        if len(made) != len(again):
            yield path
        for place, (one, other) in enumerate(zip(made, again, strict=False)):
            yield from differences(one, other, f"{path}.{place}")
    elif made != again:
        yield path


@BOARDS
def test_rates_in_variables_and_annotations_need_no_interval_of_a_panel(board):
    for variable in board.variables:
        assert "$__rate_interval" not in variable.query
    for annotation in board.annotations:
        assert "$__rate_interval" not in str(annotation.expr)


def test_what_is_drawn_fits_what_is_asked():
    for panel in (panel for board in boards() for panel in board.panels):
        for target in panel.targets:
            assert ("le" in target.expr.labels) == (panel.draw is Draw.HEAT), panel.title
            parse(target.expr.text)
        if panel.draw in (Draw.LINES, Draw.BARS, Draw.GRID, Draw.STATES):
            _a_legend_tells_series_apart(panel)


def _a_legend_tells_series_apart(panel: Panel) -> None:
    for target in panel.targets:
        named = set(re.findall(r"{{(\w+)}}", target.legend))
        assert target.legend, panel.title
        assert bool(named) == bool(target.expr.labels), (panel.title, target.legend)
    legends = [target.legend for target in panel.targets]
    assert len(set(legends)) == len(legends), panel.title
