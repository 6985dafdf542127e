"""What is exported: rows as data, a table as it is read, the screen as a picture; or why it can't be."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from textual.pilot import Pilot

from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.transfer import Outcome
from pushscope.tui.app import TopApp
from pushscope.tui.export import as_csv, as_json, write
from pushscope.tui.query import EVERYTHING, Query, parse
from pushscope.tui.selection import select
from pushscope.tui.table_kind import TableKind
from pushscope.tui.tables import ENDED, IN_FLIGHT, RECENT

from . import samples
from .test_tui_keys import running

LIMIT = 1 << 40


def as_shown(kind: TableKind[Any], snapshot: Snapshot, query: Query = EVERYTHING) -> Any:
    return kind, select(kind, snapshot, kind.sorts[0], query, LIMIT)


def rows_of(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode())))


def test_json_has_each_table_with_its_rows_as_data() -> None:
    snapshot = samples.watched()
    document = json.loads(
        as_json("live", [as_shown(IN_FLIGHT, snapshot), as_shown(RECENT, snapshot)], snapshot, "p:p1")
    )
    assert document["view"] == "live"
    assert document["filter"] == "p:p1"
    assert document["taken_ns"] == samples.NOW
    in_flight, recent = document["tables"]
    assert (in_flight["title"], in_flight["sorted_by"]) == ("In flight", "age")
    assert [row["base_id"] for row in in_flight["rows"]] == [t.base_id for t in snapshot.in_flight]
    assert recent["total"] == len(snapshot.recent)


def test_csv_has_the_titles_and_nothing_cut() -> None:
    snapshot = samples.watched()
    rows = rows_of(as_csv(as_shown(IN_FLIGHT, snapshot), snapshot))
    assert list(rows[0]) == [column.title for column in IN_FLIGHT.columns]
    assert [row["request"] for row in rows] == [t.base_id for t in snapshot.in_flight]
    assert all(len(row["its time so far"]) == 48 for row in rows if row["its time so far"])


@pytest.mark.parametrize("evil", ["=1+1", "+1", "@SUM(A1)", "-1+1", "\t=1", "\x1b[2J=1", "\r\n=1"])
def test_no_cell_of_csv_is_a_formula(evil: str) -> None:
    snapshot = samples.busy(in_flight=(samples.in_flight(1, samples.Stage.WIRE, base=evil),))
    (row,) = rows_of(as_csv(as_shown(IN_FLIGHT, snapshot), snapshot))
    assert row["request"][0] not in "=+-@\t\r"
    assert "\x1b" not in row["request"]


def test_what_is_not_known_stays_a_dash_in_csv() -> None:
    snapshot = samples.busy(recent=(samples.ended(1, Outcome.LOST),))
    (row,) = rows_of(as_csv(as_shown(RECENT, snapshot), snapshot))
    assert row["exposed"] == "-"


def test_a_file_is_named_after_view_and_time_and_none_is_overwritten(tmp_path: Path) -> None:
    paths = [write(tmp_path, "live", "json", b"x", now=samples.UNIX_NOW) for _ in range(3)]
    assert len(set(paths)) == 3
    assert all(path.name.startswith("pushscope-live-") and path.suffix == ".json" for path in paths)
    assert all(path.read_bytes() == b"x" for path in paths)


def test_a_hundred_files_of_one_second_are_enough(tmp_path: Path) -> None:
    for _ in range(100):
        write(tmp_path, "live", "csv", b"", now=0)
    with pytest.raises(PushscopeError, match="hundred exports of this second"):
        write(tmp_path, "live", "csv", b"", now=0)


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(PushscopeError, match=r"cannot write .*No such file.*start it in a folder"):
        write(tmp_path / "gone", "live", "csv", b"")


async def exported(pilot: Pilot[None], kind: str) -> Path:
    """The one file that a press of ``e`` and the letter of a format makes."""
    before = set(Path.cwd().iterdir())
    await pilot.press("e", kind)
    await pilot.pause()
    (path,) = set(Path.cwd().iterdir()) - before
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
async def test_the_keys_write_all_rows_not_only_those_that_have_a_place() -> None:
    async with running(lambda: samples.crowd(500)) as (_, pilot):
        assert len(rows_of((await exported(pilot, "c")).read_bytes())) == 500
        document = json.loads((await exported(pilot, "j")).read_bytes())
        assert len(document["tables"][0]["rows"]) == 500


@pytest.mark.usefixtures("folder")
async def test_what_is_exported_is_filtered_as_what_is_shown() -> None:
    async with running() as (_, pilot):
        await pilot.press("slash", *"p:p2", "enter")
        document = json.loads((await exported(pilot, "j")).read_bytes())
        assert document["filter"] == "p:p2"
        assert {row["p_engine"] for row in document["tables"][0]["rows"]} == {samples.P2}


@pytest.mark.usefixtures("folder")
async def test_the_outcome_that_recent_is_narrowed_to_is_in_the_file() -> None:
    async with running() as (_, pilot):
        await pilot.press("3", "o")
        document = json.loads((await exported(pilot, "j")).read_bytes())
        (table,) = document["tables"]
        outcomes = {row["outcome"] for row in table["rows"]}
        assert len(outcomes) == 1
        assert document["filter"] == f"outcome:{outcomes.pop()}"


@pytest.mark.usefixtures("folder")
async def test_the_picture_is_of_the_screen_without_the_question() -> None:
    async with running() as (_, pilot):
        text = (await exported(pilot, "s")).read_text()
        ET.fromstring(text)
        plain = text.replace("&#160;", " ")
        assert "In flight" in plain
        assert "Export what is shown" not in plain


async def test_a_folder_that_is_gone_is_a_sentence_on_the_screen(folder: Path) -> None:
    async with running() as (app, pilot):
        folder.rmdir()
        await pilot.press("e", "c")
        await pilot.pause()
        assert any("cannot write pushscope-live-" in n.message for n in notifications(app))


def notifications(app: TopApp) -> list[Any]:
    return list(app._notifications)


def test_a_narrowed_table_exports_what_fits() -> None:
    snapshot = samples.watched()
    data = as_csv(as_shown(ENDED, snapshot, parse("outcome:failed")), snapshot)
    assert [row["outcome"].split(":")[0] for row in rows_of(data)] == ["failed"]


def test_rows_of_a_hostile_snapshot_decode() -> None:
    snapshot = samples.hostile()
    data = as_json("live", [as_shown(IN_FLIGHT, snapshot)], snapshot, "")
    assert msgspec.json.decode(data)["tables"][0]["total"] == len(snapshot.in_flight)
