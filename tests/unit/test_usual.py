"""The usual time of a stage between two engines, as it is learned."""

import msgspec
import pytest

from pushscope.telemetry.histogram import Histogram
from pushscope.telemetry.transfer import Outcome, Stage, StageTime
from pushscope.telemetry.usual import ENOUGH, MAX_PAIRS, UsualTimes, usual_ns

from .samples import D1, P1, P2, delivered

MS = 1_000_000


def taking(wire_ms: float, number: int = 1, **changes: object):
    """A delivered transfer with so long a wire."""
    t = delivered(number)
    stages = (StageTime(Stage.WIRE, t.opened_ns, t.opened_ns + int(wire_ms * MS), (0, 0), (0, 0)),)
    return msgspec.structs.replace(t, **{"p_engine": P1, "d_engine": D1, "stages": stages, **changes})


def learned(*transfers) -> UsualTimes:
    usual = UsualTimes()
    for t in transfers:
        usual.learn(t)
    return usual


def test_nothing_is_usual_before_enough_was_seen():
    usual = learned(*[taking(10)] * (ENOUGH - 1))
    assert usual(P1, D1, Stage.WIRE) is None
    usual.learn(taking(10))
    assert usual(P1, D1, Stage.WIRE) is not None


@pytest.mark.parametrize("wire_ms", [0.0001, 0.5, 10, 2_000, 3_600_000])
def test_it_is_the_time_a_quarter_above_at_most(wire_ms):
    ns = learned(*[taking(wire_ms)] * 50)(P1, D1, Stage.WIRE)
    assert wire_ms * MS <= ns <= max(1_000, wire_ms * MS * 1.2501)


def test_one_that_was_slow_is_not_usual():
    usual = learned(*[taking(10)] * 30, taking(60_000))
    assert usual(P1, D1, Stage.WIRE) < 20 * MS


def test_it_is_that_of_a_pair_and_of_what_was_delivered():
    usual = learned(*[taking(10)] * 30, *[taking(10, outcome=Outcome.FAILED, p_engine=P2)] * 30)
    assert usual(P2, D1, Stage.WIRE) is None
    assert usual(P1, D1, Stage.HANDOFF) is None
    assert usual(None, D1, Stage.WIRE) is None


def test_what_was_long_ago_fades():
    histogram = Histogram(1.25, fade_at=4_096)
    for ns in [10 * MS] * 20_000 + [MS] * 40_000:
        histogram.add(ns)
    assert usual_ns(histogram) < 2 * MS


def test_pairs_are_bounded():
    usual = UsualTimes()
    for n in range(MAX_PAIRS + 10):
        for _ in range(ENOUGH):
            usual.learn(taking(10, p_engine=f"p-{n}"))
    assert usual("p-0", D1, Stage.WIRE) is None
    assert usual(f"p-{MAX_PAIRS + 9}", D1, Stage.WIRE) is not None
