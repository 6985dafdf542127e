"""The pictures of the boards: there for each, shown in the docs, small, and of boards that look so still."""

from __future__ import annotations

import copy
import json
import struct
from pathlib import Path

import pytest

from pushscope.dashboards.boards import boards
from pushscope.dashboards.grafana_json import dashboard

from ..pictures import IMAGES, RECORD, looks

ROOT = Path(__file__).parents[2]
BOARDS = pytest.mark.parametrize("board", boards(), ids=lambda board: board.uid)
RECORDED = json.loads(RECORD.read_text())
MOST_BYTES = 400 * 1024


@BOARDS
def test_a_board_looks_as_in_its_pictures(board):
    assert RECORDED["boards"][board.uid]["looks"] == looks(dashboard(board)), "run `make pictures`"


@BOARDS
def test_the_docs_show_its_pictures(board):
    page = (ROOT / "docs" / "dashboards.md").read_text()
    pictures = RECORDED["boards"][board.uid]["pictures"]
    assert pictures
    for picture in pictures:
        assert f"](images/{picture})" in page


def test_there_are_no_others_and_all_are_small_pngs():
    recorded = {picture for board in RECORDED["boards"].values() for picture in board["pictures"]}
    assert recorded == {path.name for path in IMAGES.glob("pushscope-*.png")}
    assert RECORDED["boards"].keys() == {board.uid for board in boards()}
    for picture in recorded:
        content = (IMAGES / picture).read_bytes()
        width, height = struct.unpack(">II", content[16:24])
        assert content.startswith(b"\x89PNG")
        assert len(content) < MOST_BYTES
        assert (width, height > 500) == (1400, True)


def test_the_docs_say_of_which_day_they_are():
    assert RECORDED["date"] in (ROOT / "docs" / "dashboards.md").read_text()


def test_what_shows_counts_and_nothing_else():
    board = dashboard(boards()[0])
    panel = next(place for place, panel in enumerate(board["panels"]) if panel["type"] == "timeseries")

    def changed(**keys: object) -> str:
        other = copy.deepcopy(board)
        other["panels"][panel] |= keys
        return looks(other)

    assert changed(description="other words") == looks(board)
    assert changed(title="another") != looks(board)
    assert changed(fieldConfig={"defaults": {"unit": "bytes"}, "overrides": []}) != looks(board)
    linked = copy.deepcopy(board["panels"][panel]["fieldConfig"])
    linked["defaults"]["links"] = [{"title": "elsewhere", "url": "/"}]
    assert changed(fieldConfig=linked) == looks(board)
