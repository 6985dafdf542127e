"""Which transfers have spans."""

from __future__ import annotations

import msgspec
import pytest

from pushscope.telemetry.diagnosis.model import Severity
from pushscope.telemetry.spans.sampling import is_slow, sampled
from pushscope.telemetry.transfer import Stage
from pushscope.telemetry.usual import UsualTimes

from . import samples
from .failures import MET, D, P, expires, fails, posts, prefills
from .scenario import D_ENGINE, ORIGINS, P_ENGINE, assembled, delivered
from .span_scenes import CALLER, SCENES, UNSAMPLED, traced

MS = 1_000_000


def unknown(*_: object) -> None:
    """Nothing is usual yet."""


def is_sampled(
    said, origins=ORIGINS, *, ratio=0.0, diagnoses=(), usual=unknown, gone=(), seen=(P_ENGINE, D_ENGINE)
):
    rings = tuple(o for o in origins if o.engine_id in seen)
    assembler = assembled([(o, e) for o, e in said if o.engine_id in seen], rings, gone=gone)
    (transfer,) = assembler.open_transfers()
    sides = assembler.sides_of(transfer)
    assert sides is not None
    return sampled(transfer, sides, diagnoses, usual, ratio)


def named(n: int):
    """A delivered transfer of its own, with ids as vLLM makes them."""
    return delivered(f"cmpl-{n:032x}")


def test_a_good_one_goes_by_the_ratio():
    assert not is_sampled(delivered(), ratio=0.0)
    assert is_sampled(delivered(), ratio=1.0)


def test_the_ratio_is_kept_over_many():
    kept = sum(is_sampled(named(n), ratio=0.25) for n in range(2_000))
    assert 400 < kept < 600


@pytest.mark.parametrize("scene", ["delivered, D early", "TP 2 to 1", "pull"])
def test_two_hosts_that_never_talk_pick_the_same(scene):
    said, origins = SCENES[scene]
    for n in range(200):
        ids = {P: f"cmpl-{n:032x}-aaaaaaaa", D: f"cmpl-{n:032x}-bbbbbbbb"}
        renamed = [
            (o, msgspec.structs.replace(e, **{
                f: ids[getattr(e, f)]
                for f in ("request_id", "peer_request_id")
                if getattr(e, f, None) in ids
            }))
            for o, e in said
        ]  # fmt: skip
        views = ((P_ENGINE,), (D_ENGINE,), (P_ENGINE, D_ENGINE))
        assert len({is_sampled(renamed, origins, ratio=0.5, seen=seen) for seen in views}) == 1


@pytest.mark.parametrize(
    ("said", "gone"),
    [
        (MET + posts() + fails(29, "transfer_failed", number=1), ()),
        (prefills() + expires(30_000), ()),
        (MET + posts(), (P_ENGINE,)),
    ],
    ids=["failed", "expired", "lost"],
)
def test_what_went_wrong_is_kept(said, gone):
    assert is_sampled(said, gone=gone)


def test_what_was_stuck_is_kept_and_what_is_only_worth_knowing_is_not():
    def of(severity):
        return is_sampled(delivered(), diagnoses=(samples.diagnosis("x", severity, "cmpl-r"),))

    assert [of(severity) for severity in Severity] == [False, True, True]


class TestSlow:
    def usual(self, wire_ms):
        return lambda p, d, stage: wire_ms * MS if (p, d, stage) == (P_ENGINE, D_ENGINE, Stage.WIRE) else None

    def test_it_is_by_what_is_usual_between_the_two(self):
        """The wire took 5 ms."""
        assert is_sampled(delivered(), usual=self.usual(2))
        assert not is_sampled(delivered(), usual=self.usual(3))

    def test_by_what_was_learned(self):
        usual = UsualTimes()
        (transfer,) = assembled(delivered()).open_transfers()
        for _ in range(30):
            usual.learn(transfer)
        assert not is_slow(transfer, usual)
        stretched = tuple(
            msgspec.structs.replace(s, end_ns=(s.end_ns or 0) + 20 * MS) if s.stage is Stage.WIRE else s
            for s in transfer.stages
        )
        assert is_slow(msgspec.structs.replace(transfer, stages=stretched), usual)


def test_what_the_caller_decided_stands():
    went_wrong = MET + posts() + fails(29, "transfer_failed", number=1)
    good = MET + posts()
    assert is_sampled(traced(good), ratio=0.0)
    assert not is_sampled(traced(good, d=UNSAMPLED), ratio=1.0)
    assert not is_sampled(traced(went_wrong, d=UNSAMPLED), ratio=1.0)
    assert is_sampled(traced(good, d=UNSAMPLED, p=CALLER)), "P's caller wants P's spans"
