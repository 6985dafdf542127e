"""The pace of what has ended: how near it comes to the exact figures, and which rank it calls slow."""

import random

import msgspec
import pytest

from pushscope.telemetry import units
from pushscope.telemetry.histogram import Histogram
from pushscope.telemetry.pace import (
    ENOUGH,
    MAX_ENGINES,
    MAX_RANKS,
    SHAPE_BOUNDS_S,
    PaceFold,
    times_of,
)
from pushscope.telemetry.transfer import Outcome, Stage, StageTime

from .samples import D1, MS, P1, delivered, one_sided


def taking(*stages: StageTime, **changes: object):
    return msgspec.structs.replace(
        delivered(1), **{"p_engine": P1, "d_engine": D1, "stages": stages, **changes}
    )


def stage(which: Stage, took_ms: float, p: int | None = 0, d: int | None = 0, **changes: object) -> StageTime:
    p_rank, d_rank = (None if tp is None else (0, tp) for tp in (p, d))
    return StageTime(which, 1_000, 1_000 + int(took_ms * MS), p_rank, d_rank, **changes)  # type: ignore[arg-type]


def pace_of(*transfers):
    fold = PaceFold()
    for transfer in transfers:
        fold.add(transfer)
    return fold.pace()


def wires(*took_ms: float, times: int = ENOUGH, **changes: object):
    """Transfers whose n-th rank takes the n-th time."""
    return [taking(*(stage(Stage.WIRE, t, tp, tp) for tp, t in enumerate(took_ms)), **changes)] * times


def test_percentiles_are_five_per_cent_off_at_most():
    draw = random.Random(7)
    values = [int(draw.lognormvariate(16, 2)) + 2_000 for _ in range(5_000)]
    histogram = Histogram(1.1)
    for ns in values:
        histogram.add(ns)
    times = times_of(histogram)
    assert times.count == 5_000
    for percent, told in ((50, times.p50_s), (90, times.p90_s), (99, times.p99_s)):
        assert told == pytest.approx(units.percentile(values, percent) / 1e9, rel=0.05)
    assert times.max_s == max(values) / 1e9


def test_no_percentile_is_above_the_longest():
    times = pace_of(taking(stage(Stage.WIRE, 10.0))).stages[0].times
    assert times.p50_s == times.p99_s == pytest.approx(times.max_s, rel=0.05)
    assert times.p99_s <= times.max_s == 0.010


def test_the_shape_counts_every_time_once():
    times = (
        pace_of(taking(*(stage(Stage.WIRE, t) for t in (0.0005, 0.02, 200, 4_000_000, 4_000_000))))
        .stages[0]
        .times
    )
    assert sum(times.shape) == times.count == 5
    assert len(times.shape) == len(SHAPE_BOUNDS_S) + 1
    assert times.shape[0] == 1
    assert times.shape[-1] == 2
    at = next(i for i, bound in enumerate(SHAPE_BOUNDS_S) if bound >= 0.2)
    assert times.shape[at] == 1


def test_there_is_nothing_to_tell_of_no_transfers():
    assert times_of(Histogram(1.1)).p50_s is None
    pace = PaceFold().pace()
    assert (pace.transfers, pace.exposed, pace.stages, pace.ranks) == (0, {}, (), ())


def test_stages_that_did_not_end_are_not_counted():
    pace = pace_of(taking(StageTime(Stage.WIRE, 0, None, (0, 0), (0, 0)), stage(Stage.WAKE, 2, None, None)))
    assert [found.stage for found in pace.stages] == [Stage.WAKE]
    assert pace.ranks == ()


def test_upper_bounds_are_kept_apart_and_never_a_ranks():
    pace = pace_of(taking(stage(Stage.WIRE, 2)), one_sided(2, "P"))
    wires = [found for found in pace.stages if found.stage is Stage.WIRE]
    assert [(found.upper_bound, found.times.count) for found in wires] == [(False, 1), (True, 1)]
    assert sum(found.times.count for found in pace.ranks if found.stage is Stage.WIRE) == 1


def test_modes_are_kept_apart_in_the_order_of_a_request():
    push = taking(stage(Stage.WIRE, 2), stage(Stage.FLIGHT, 1))
    pace = pace_of(push, msgspec.structs.replace(push, mode="pull", stages=(stage(Stage.RELAY, 1),)))
    assert [(found.mode, found.stage) for found in pace.stages] == [
        ("pull", Stage.RELAY),
        ("push", Stage.FLIGHT),
        ("push", Stage.WIRE),
    ]
    assert set(pace.exposed) == {"pull", "push"}


@pytest.mark.parametrize(
    ("mode", "which", "engine", "rank"),
    [
        ("push", Stage.RENDEZVOUS, P1, (0, 3)),
        ("push", Stage.WIRE, P1, (0, 3)),
        ("push", Stage.FLIGHT, D1, (0, 5)),
        ("push", Stage.NOTIFICATION, D1, (0, 5)),
        ("pull", Stage.WIRE, D1, (0, 5)),
        ("pull", Stage.HANDOFF, D1, (0, 5)),
    ],
)
def test_a_stage_is_its_rank_s_that_is_at_work(mode, which, engine, rank):
    (found,) = pace_of(taking(stage(which, 2, 3, 5), mode=mode)).ranks
    assert (found.engine, found.rank, found.stage) == (engine, rank, which)


def test_a_slow_rank_is_told_from_the_others():
    ranks = pace_of(*wires(10, 10, 30, 11)).ranks
    assert (ranks[0].rank, ranks[0].outlier) == ((0, 2), True)
    assert not any(found.outlier for found in ranks[1:])
    assert ranks[0].others_p50_s == pytest.approx(0.010, rel=0.05)


def test_a_fast_rank_makes_the_others_no_outliers():
    assert not any(found.outlier for found in pace_of(*wires(2, 10, 10, 10)).ranks)


@pytest.mark.parametrize("took_ms", [(10, 14), (0.1, 0.9)], ids=["by less than half", "by less than 1 ms"])
def test_a_little_slower_is_no_outlier(took_ms):
    assert not any(found.outlier for found in pace_of(*wires(*took_ms)).ranks)


def test_of_few_times_nobody_is_called_slow():
    assert not any(found.outlier for found in pace_of(*wires(10, 90, times=ENOUGH - 1)).ranks)


def test_ranks_of_different_engines_are_not_compared():
    ranks = pace_of(*wires(10), *wires(90, p_engine="other")).ranks
    assert [(found.others_p50_s, found.outlier) for found in ranks] == [(None, False)] * 2


def test_what_came_after_it_was_asked_is_told_when_it_is_asked_again():
    fold = PaceFold()
    fold.add(taking(stage(Stage.WIRE, 10)))
    assert fold.pace() is fold.pace()
    fold.add(taking(stage(Stage.WIRE, 30), outcome=Outcome.FAILED))
    assert (fold.pace().transfers, fold.pace().stages[0].times.max_s) == (2, 0.030)
    assert fold.pace().ranks[0].times.count == 2


def test_ranks_are_bounded_and_the_slow_ones_stay():
    fold = PaceFold()
    for n in range(MAX_ENGINES + 40):
        for transfer in wires(1, 1, 1 + n, p_engine=f"p{n}", times=ENOUGH):
            fold.add(transfer)
    ranks = fold.pace().ranks
    assert len(ranks) == MAX_RANKS
    assert ranks[0].engine == f"p{MAX_ENGINES + 39}"
    outliers = [found.outlier for found in ranks]
    assert outliers == sorted(outliers, reverse=True)
    assert "p0" not in {found.engine for found in ranks}
