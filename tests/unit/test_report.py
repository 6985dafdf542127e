"""A report's numbers, computed by hand."""

from __future__ import annotations

import msgspec
import pytest

from pushscope.telemetry.report import Report, exposed_window, report_json, split, summarize
from pushscope.telemetry.transfer import Outcome, Rank, Stage, StageTime, Transfer

MS = 1_000_000
R0: Rank = (0, 0)
R1: Rank = (0, 1)


def transfer(**changes: object) -> Transfer:
    """Blocks staged at 100 ms, decode scheduled at 160 ms; D was early by 90 ms; two ranks.

    Critical path: registration 0-5, flight 5-10, rendezvous 10-104, descriptors 104-110, wire of rank 1
    110-150, notification 150-152, wake 152-160 (ms).
    """
    fields: dict[str, object] = {
        "base_id": "r",
        "d_engine": "D",
        "d_request": "r-d",
        "p_engine": "P",
        "p_request": "r-p",
        "sides": ("P", "D"),
        "outcome": Outcome.DELIVERED,
        "opened_ns": 0,
        "since_ns": 160 * MS,
        "closed_ns": 160 * MS,
        "order": "registration first",
        "num_bytes": 1000,
        "descriptors": 64,
        "descriptors_merged": 4,
        "exposed_ns": 60 * MS,
        "hidden_ns": 100 * MS,
        "stages": (
            StageTime(Stage.REGISTRATION, 0, 5 * MS),
            StageTime(Stage.FLIGHT, 5 * MS, 10 * MS, R0, R0),
            StageTime(Stage.RENDEZVOUS, 10 * MS, 104 * MS, R0, R0),
            StageTime(Stage.HANDOFF, 100 * MS, 103 * MS),
            StageTime(Stage.DESCRIPTORS, 104 * MS, 110 * MS, R0, R0),
            StageTime(Stage.SUBMIT, 110 * MS, 111 * MS, R0, R0),
            StageTime(Stage.WIRE, 110 * MS, 130 * MS, R0, R0),
            StageTime(Stage.WIRE, 110 * MS, 150 * MS, R1, R1),
            StageTime(Stage.NOTIFICATION, 150 * MS, 152 * MS, R1, R1),
            StageTime(Stage.WAKE, 152 * MS, 160 * MS),
        ),
        "path": (
            StageTime(Stage.REGISTRATION, 0, 5 * MS),
            StageTime(Stage.FLIGHT, 5 * MS, 10 * MS),
            StageTime(Stage.RENDEZVOUS, 10 * MS, 104 * MS),
            StageTime(Stage.DESCRIPTORS, 104 * MS, 110 * MS),
            StageTime(Stage.WIRE, 110 * MS, 150 * MS),
            StageTime(Stage.NOTIFICATION, 150 * MS, 152 * MS),
            StageTime(Stage.WAKE, 152 * MS, 160 * MS),
        ),
    }
    fields.update(changes)
    return Transfer(**fields)  # type: ignore[arg-type]


def stages_of(report: Report) -> dict[str, tuple[int, float, float, float | None]]:
    """Per stage: count, exposed ms, hidden ms, share of the critical path in per cent."""
    return {
        s.stage.value: (
            s.times.count,
            round(s.exposed_s * 1e3, 6),
            round(s.hidden_s * 1e3, 6),
            None if s.path_share is None else round(s.path_share * 100, 1),
        )
        for s in report.stages
    }


def test_no_transfers_make_an_empty_report() -> None:
    assert summarize([]) == Report()


def test_the_window_ends_when_decode_is_scheduled_and_is_as_long_as_the_exposed_time() -> None:
    assert exposed_window(transfer()) == (100 * MS, 160 * MS)
    assert exposed_window(transfer(exposed_ns=None)) is None
    assert exposed_window(transfer(stages=())) is None


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (10, 90, (0, 80)),  # before the window
        (90, 110, (10, 10)),  # across its start
        (120, 130, (10, 0)),  # inside
        (150, 170, (10, 10)),  # across its end
        (170, 180, (0, 10)),  # after
        (50, 200, (60, 90)),  # all of it, and more
        (120, 120, (0, 0)),
    ],
)
def test_a_stage_is_split_at_the_borders_of_the_window(
    start: int, end: int, expected: tuple[int, int]
) -> None:
    assert split(StageTime(Stage.WIRE, start, end), (100, 160)) == expected


def test_an_open_stage_cannot_be_split() -> None:
    with pytest.raises(ValueError, match="still open"):
        split(StageTime(Stage.WIRE, 0), (0, 1))


def test_exposed_and_hidden_time_of_each_stage() -> None:
    report = summarize([transfer()])
    assert stages_of(report) == {
        "registration": (1, 0, 5, 0.0),
        "flight": (1, 0, 5, 0.0),
        "handoff": (1, 3, 0, 0.0),
        "rendezvous": (1, 4, 90, 6.7),
        "descriptors": (1, 6, 0, 10.0),
        "submit": (1, 1, 0, 0.0),
        "wire": (2, 60, 0, 66.7),  # two ranks: 20 + 40 ms; on the path only the slower one
        "notification": (1, 2, 0, 3.3),
        "wake": (1, 8, 0, 13.3),
    }
    rendezvous = next(s for s in report.stages if s.stage is Stage.RENDEZVOUS)
    assert rendezvous.exposed_share == pytest.approx(4 / 94)
    # The path is disjoint and covers the window, so its shares make a whole.
    assert sum(s.path_share or 0 for s in report.stages) == pytest.approx(1)


def test_percentiles_of_a_stage_are_nearest_rank() -> None:
    transfers = [
        transfer(stages=(StageTime(Stage.SUBMIT, 0, ms * MS, R0, R0),), exposed_ns=None)
        for ms in range(1, 101)
    ]
    times = summarize(transfers).stages[0].times
    assert (times.count, times.p50_s, times.p90_s, times.p99_s, times.max_s) == (100, 0.05, 0.09, 0.099, 0.1)
    assert times.total_s == pytest.approx(5.05)


def test_time_without_a_window_is_neither_exposed_nor_hidden() -> None:
    (handoff,) = summarize(
        [transfer(stages=(StageTime(Stage.HANDOFF, 0, 3 * MS),), exposed_ns=None, sides=("P",))]
    ).stages
    assert (handoff.exposed_s, handoff.hidden_s, handoff.unsplit_s) == (0, 0, 0.003)
    assert handoff.exposed_share is None


def test_upper_bounds_are_kept_apart_from_measured_times() -> None:
    bound = StageTime(Stage.WIRE, 0, 50 * MS, R0, R0, upper_bound=True)
    report = summarize([transfer(), transfer(stages=(bound,), exposed_ns=None, sides=("P",))])
    wires = [s for s in report.stages if s.stage is Stage.WIRE]
    assert [(s.upper_bound, s.times.count, s.times.max_s) for s in wires] == [
        (False, 2, 0.04),
        (True, 1, 0.05),
    ]


def test_ranks_have_their_own_times_and_a_scheduler_stage_has_none() -> None:
    report = summarize([transfer()])
    assert [(r.p_engine, r.d_engine, r.rank, r.peer_rank) for r in report.ranks] == [
        ("P", "D", R0, R0),
        ("P", "D", R1, R1),
    ]
    second = {s.stage: s for s in report.ranks[1].stages}
    assert set(second) == {Stage.WIRE, Stage.NOTIFICATION}
    assert second[Stage.WIRE].times.max_s == 0.04
    assert second[Stage.WIRE].exposed_s == 0.04


def test_a_rank_without_a_peer_is_a_row_of_its_own() -> None:
    alone = StageTime(Stage.RENDEZVOUS, 0, MS, R1)
    (rank,) = summarize([transfer(stages=(alone,), d_engine=None)]).ranks
    assert (rank.p_engine, rank.d_engine, rank.rank, rank.peer_rank) == ("P", None, R1, None)


def test_open_stages_and_open_transfers_are_counted_but_not_timed() -> None:
    waiting = transfer(
        outcome=Outcome.WAITING,
        closed_ns=None,
        since_ns=500 * MS,
        stages=(StageTime(Stage.RENDEZVOUS, 500 * MS),),
        path=(),
        exposed_ns=None,
        hidden_ns=None,
        order="",
        num_bytes=None,
    )
    report = summarize([transfer(), waiting])
    assert (report.transfers, report.open) == (2, 1)
    assert report.outcomes == {"delivered": 1, "waiting": 1}
    assert stages_of(report)["rendezvous"][0] == 1
    assert report.duration_s == 0.5


def test_totals_and_rates() -> None:
    report = summarize(
        [
            transfer(),
            transfer(order="blocks first", attempt=2, closed_ns=2_000 * MS, exposed_ns=20 * MS),
            transfer(outcome=Outcome.FAILED, order="", num_bytes=7, descriptors=None, tentative=True),
        ]
    )
    assert report.outcomes == {"delivered": 2, "failed": 1}
    assert report.orders == {"registration first": 1, "blocks first": 1}
    assert (report.retries, report.tentative) == (1, 1)
    assert report.num_bytes == 2000  # what a failed transfer was to move is not counted
    assert (report.descriptors, report.descriptors_merged) == (128, 8)
    assert report.duration_s == 2.0
    assert report.delivered_per_s == 1.0
    assert report.bytes_per_s == 1000.0
    assert (report.exposed.count, report.exposed.p50_s, report.exposed.max_s) == (3, 0.06, 0.06)


def test_attempts_at_one_request() -> None:
    crossed = transfer(
        base_id="again", p_attempt=2, outcome=Outcome.ABORTED, pairing="P's blocks of attempt 2 met ..."
    )
    retry = transfer(base_id="again", attempt=2, p_attempt=3, opened_ns=5 * MS, pairing="...")
    report = summarize([retry, transfer(), crossed])
    assert (report.retries, report.mispaired) == (1, 2)
    (again,) = report.retried
    assert again.base_id == "again"
    assert [(a.attempt, a.p_attempt, a.outcome) for a in again.attempts] == [
        (1, 2, Outcome.ABORTED),
        (2, 3, Outcome.DELIVERED),
    ]


def test_a_single_moment_has_no_rates() -> None:
    report = summarize([transfer(stages=(), opened_ns=5, since_ns=5, closed_ns=5)])
    assert (report.duration_s, report.delivered_per_s, report.bytes_per_s) == (0.0, None, None)


def test_what_was_not_seen_is_named_with_its_reason() -> None:
    d_only = transfer(
        sides=("D",),
        exposed_ns=None,
        stages=(
            StageTime(Stage.REGISTRATION, 0, 5 * MS),
            StageTime(Stage.NOTIFICATION, 150 * MS, 152 * MS),
            StageTime(Stage.WAKE, 152 * MS, 160 * MS),
        ),
    )
    report = summarize([transfer(), d_only, d_only])
    assert report.sides == {"D only": 2, "P and D": 1}
    assert {(u.stage.value, u.transfers, u.reason) for u in report.unobserved} == {
        (stage, 2, "P not observed")
        for stage in ("flight", "handoff", "rendezvous", "descriptors", "submit", "wire")
    }


def test_a_gap_in_an_observed_side_points_to_lost_events() -> None:
    whole = transfer()
    gap = transfer(stages=tuple(s for s in whole.stages if s.stage is not Stage.SUBMIT))
    (unobserved,) = summarize([gap]).unobserved
    assert (unobserved.stage, unobserved.transfers) == (Stage.SUBMIT, 1)
    assert unobserved.reason.startswith("observed, but not seen")


def test_a_transfer_that_was_not_delivered_misses_nothing() -> None:
    assert summarize([transfer(outcome=Outcome.FAILED, stages=())]).unobserved == ()


def test_pull_misses_only_its_own_stages_and_they_are_all_of_d() -> None:
    report = summarize([transfer(mode="pull", sides=("P",), stages=(), exposed_ns=None)])
    assert {(u.stage.value, u.reason) for u in report.unobserved} == {
        (stage, "D not observed")
        for stage in ("relay", "allocation", "handoff", "descriptors", "submit", "wire", "wake")
    }


def test_json_has_plain_keys_and_seconds() -> None:
    decoded = msgspec.json.decode(report_json(summarize([transfer()])))
    assert decoded["transfers"] == 1
    assert decoded["exposed"]["p50_s"] == 0.06
    assert decoded["stages"][0]["stage"] == "registration"
    assert decoded["ranks"][1]["rank"] == [0, 1]
    assert msgspec.json.decode(report_json(summarize([transfer()])), type=Report) == summarize([transfer()])
