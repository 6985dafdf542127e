"""The report's tables, in a pipe of 80 columns."""

from __future__ import annotations

import io

import msgspec
from rich.cells import cell_len
from rich.console import Console

from pushscope.telemetry.report import Report, summarize
from pushscope.tui.report_view import render_report

from . import samples


def printed(report: Report, width: int = 80, names: dict[str, str] | None = None) -> str:
    out = io.StringIO()
    render_report(report, Console(file=out, width=width), names)
    return out.getvalue()


def everything() -> Report:
    snapshot = samples.busy()
    return summarize((*snapshot.recent, *snapshot.in_flight, *snapshot.waiting))


def test_no_line_is_longer_than_80_columns_and_no_number_is_cut() -> None:
    text = printed(everything(), names={samples.P1: "P1", samples.P2: "P2", samples.D1: "D1"})
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    assert "…" not in text
    assert "\x1b" not in text


def test_it_says_where_the_time_went_by_rank_and_what_was_not_seen() -> None:
    text = printed(everything(), names={samples.P1: "P1", samples.P2: "P2", samples.D1: "D1"})
    assert "46 transfers in 412 s" in text
    assert "rendezvous: registration first 35" in text
    assert "exposed time: p50 33.6 ms" in text
    assert "P2/tp1 -> D1/tp1" in text
    assert "≤ wire" in text
    assert "P not observed" in text


def test_retries_and_pairs_across_attempts_are_counted() -> None:
    one, two, *rest = samples.busy().recent
    again = msgspec.structs.replace(two, attempt=2, p_attempt=1, pairing="P's blocks of attempt 1 met ...")
    assert "retries: 1 · paired across attempts: 1" in printed(summarize([one, again, *rest]))


def test_without_names_an_engine_is_the_start_of_its_id() -> None:
    assert samples.P1[:8] in printed(everything(), width=100)


def test_an_empty_report_says_so() -> None:
    assert printed(summarize([])) == "No transfers were seen.\n"


def test_hostile_engine_names_are_shown_literally() -> None:
    text = printed(everything(), names={samples.P1: "[red]x[/]\x1b[2J"})
    assert "[red]x[/]" in text
    assert "\x1b" not in text
