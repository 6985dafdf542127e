"""What transfers are diagnosed with: one event list for each code, and one that nearly yields it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushscope.telemetry.diagnosis.catalogue import CATALOGUE, About

from .failures import (
    D_SIDE,
    FAILURES,
    P_SIDE,
    Failure,
    diagnosed,
    stepping,
)
from .scenario import ms, only

CODES = {entry.code for entry in CATALOGUE.values() if entry.about is About.TRANSFER}


def test_every_code_of_a_transfer_is_shown_here():
    assert FAILURES.keys() == CODES


@pytest.mark.parametrize("code", FAILURES)
def test_is_named(code):
    f = FAILURES[code]
    found = diagnosed(f.said, f.at_s, f.origins, gone=f.gone, usual=f.usual)
    codes = [d.code for d in found]
    assert code in codes
    d = next(d for d in found if d.code == code)
    assert f.sentence in d.sentence
    assert d.certain == f.certain
    assert d.remedy == CATALOGUE[code].remedy
    assert all(a.t_ns <= b.t_ns for a, b in zip(d.evidence, d.evidence[1:], strict=False))
    assert set(codes[: codes.index(code)]) <= {*f.after, code}


@pytest.mark.parametrize("code", FAILURES)
def test_what_only_looks_like_it_is_not(code):
    f = FAILURES[code]
    found = diagnosed(f.near, f.near_s or f.at_s, f.near_origins or f.origins)
    assert code not in [d.code for d in found]


@pytest.mark.parametrize("code", FAILURES)
@settings(max_examples=5, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_reading_is_no_matter(code, rng: random.Random):
    f = FAILURES[code]
    shuffled = list(f.said)
    rng.shuffle(shuffled)
    whole = diagnosed(f.said, f.at_s, f.origins, gone=f.gone, usual=f.usual)
    assert diagnosed(shuffled, f.at_s, f.origins, gone=f.gone, usual=f.usual) == whole


class TestOneSide:
    """What only one side was seen of is less than certain, and the sentence says so."""

    @pytest.mark.parametrize(
        "code",
        [
            "write_not_posted",
            "reverse_handshake_failed",
            "nothing_to_push",
            "push_abandoned",
            "write_failed",
            "write_never_finished",
        ],
    )
    def test_p_alone(self, code):
        f = FAILURES[code]
        found = {d.code: d for d in diagnosed(only(f.said, *P_SIDE), f.at_s, P_SIDE)}
        assert not found[code].certain
        assert found[code].sentence.endswith("D is not observed: what it did is not known.")

    @pytest.mark.parametrize(
        ("code", "instead"),
        [
            ("registration_without_prefill", "waiting"),
            ("registration_lost", "waiting"),
            ("request_ids_differ", "waiting"),
            ("watchdog_fired", "watchdog_fired"),
        ],
    )
    def test_d_alone(self, code, instead):
        f = FAILURES[code]
        said = only(f.said, *D_SIDE)
        (found,) = diagnosed(said, 10, D_SIDE)
        assert (found.code, found.certain) == (instead, False)
        assert found.sentence.endswith("P is not observed: what it did is not known.")
        assert diagnosed(said, 5, D_SIDE) == () or instead != "waiting", (
            "half the knowledge, twice the patience"
        )

    def test_what_d_saw_of_its_own_handshake_is_certain(self):
        f = FAILURES["handshake_failed"]
        (found,) = diagnosed(only(f.said, *D_SIDE), f.at_s, D_SIDE)
        assert found.certain


class TestWhatMayStillComeRight:
    """A warning until it has lasted long enough that it will not: a busy front, a link that tries again."""

    @pytest.mark.parametrize(("waited_s", "severity"), [(4, "warning"), (10, "warning"), (13, "error")])
    def test_a_prefill_leg_that_is_late(self, waited_s, severity):
        f = FAILURES["registration_without_prefill"]
        assert severities(f, waited_s) == {"registration_without_prefill": severity}

    @pytest.mark.parametrize(("waited_s", "severity"), [(4, "warning"), (12, "warning"), (16, "error")])
    @pytest.mark.parametrize("usual", [0, 30])
    def test_a_link_that_stalls(self, waited_s, severity, usual):
        f = FAILURES["write_never_finished"]
        assert severities(f, waited_s, usual) == {"write_never_finished": severity}


def severities(f: Failure, at_s: float, usual: int = 0) -> dict[str, str]:
    said = [(o, e) for o, e in f.said if e.t <= ms(at_s * 1000)] + stepping(at_s)
    return {d.code: str(d.severity) for d in diagnosed(said, at_s, f.origins, usual=usual)}
