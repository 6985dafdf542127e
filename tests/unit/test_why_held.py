"""Which recorded requests a text may mean."""

from __future__ import annotations

import pytest

from pushscope.telemetry.ids import recorded_id
from pushscope.telemetry.why.held import Closeness, Held, closest

UUID = "7d1c4a7e-b5f0-4d0e-9a53-3f2f7f1f8a01"
P, D = f"cmpl-{UUID}-0-aaaaaaaa", f"cmpl-{UUID}-0-bbbbbbbb"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("text", "closeness"),
    [
        (P, Closeness.EXACT),
        (f"  {P}\n", Closeness.EXACT),
        (f"cmpl-{UUID}-0", Closeness.EXACT),
        (D, Closeness.BASE),
        (f"cmpl-{UUID}", Closeness.BASE),
        (UUID, Closeness.BASE),
        (f"cmpl-{UUID}-0-aaaa", Closeness.PART),
        ("cmpl-7d1c4a7e", Closeness.PART),
        ("7d1c4a7e", Closeness.PART),
        ("cmpl-7d1…8a01-0", Closeness.PART),
        ("cmpl-7d1...8a01-0", Closeness.PART),
        ("chatcmpl-" + UUID, Closeness.NONE),
        ("4a7e", Closeness.NONE),
        ("cmpl-7d1…8a02-0", Closeness.NONE),
        (f"cmpl-{UUID}-1", Closeness.NONE),
    ],
)
def test_any_id_of_a_completion(text, closeness):
    assert Held(text).request(P) is closeness


@pytest.mark.parametrize(
    "text", ["job-7", "chatcmpl-job-7", "chatcmpl-job-7-0123abcd", "chatcmpl-job-7-ffffffff"]
)
def test_a_chat_request_of_a_client_that_names_its_own(text):
    assert Held(text).request("chatcmpl-job-7-0123abcd") >= Closeness.BASE


def test_an_id_of_the_client_that_looks_like_one_of_ours():
    assert Held("job-deadbeef").request("chatcmpl-job-deadbeef-0123abcd") is Closeness.BASE
    assert Held("job-deadbeef").request("cmpl-job-deadbeef-0-0123abcd") is Closeness.BASE


def test_one_choice_of_several():
    assert Held(f"cmpl-{UUID}").request(f"3_cmpl-{UUID}-0-aaaaaaaa") is Closeness.BASE


LONG = "tenant/" + "x" * 120 + "/call"


@pytest.mark.parametrize("text", [LONG, f"cmpl-{LONG}", f"cmpl-{LONG}-0", f"cmpl-{LONG}-0-aaaaaaaa"])
@pytest.mark.parametrize("hashed", [False, True])
def test_an_id_that_was_too_long_or_hashed(text, hashed):
    recorded = recorded_id(f"cmpl-{LONG}-0-aaaaaaaa", hashed=hashed)
    assert recorded != f"cmpl-{LONG}-0-aaaaaaaa"
    assert Held(text).request(recorded) >= Closeness.BASE
    assert Held(recorded).request(recorded) is Closeness.EXACT
    assert Held(text + "y").request(recorded) < Closeness.BASE


def test_of_an_id_that_was_cut_its_beginning_is_compared():
    recorded = recorded_id(f"cmpl-{LONG}-0-aaaaaaaa")
    assert Held(LONG[:100]).request(recorded) is Closeness.PART
    assert Held(LONG[:10]).request(recorded) is Closeness.PART
    assert Held("tenant/y" + LONG[8:100]).request(recorded) is Closeness.NONE


def test_hashed_ids_of_short_requests():
    assert Held(UUID).request(recorded_id(P, hashed=True)) is Closeness.BASE
    assert Held(P).request(recorded_id(P, hashed=True)) is Closeness.EXACT


@pytest.mark.parametrize(
    ("text", "closeness"),
    [
        (TRACE, Closeness.EXACT),
        (TRACE.upper(), Closeness.EXACT),
        ("0af7651916cd43dd8448eb211c80319c", Closeness.EXACT),
        ("b7ad6b7169203331", Closeness.EXACT),
        ("0af76519", Closeness.PART),
        ("transfer-1", Closeness.EXACT),
        ("transfer", Closeness.PART),
        ("ffffffff", Closeness.NONE),
    ],
)
def test_a_trace_or_a_transfer_id(text, closeness):
    assert Held(text).trace(TRACE, "transfer-1") is closeness


@pytest.mark.parametrize("traceparent", ["", "no traceparent"])
def test_nothing_fits_where_nothing_is_known(traceparent):
    assert Held("a").trace(traceparent, "") is Closeness.NONE


def test_the_best_of_all_names_counts():
    assert closest(Held(D), [P, D, ""]) is Closeness.EXACT
    assert closest(Held("transfer-1"), [P], [(TRACE, "transfer-1")]) is Closeness.EXACT
    assert closest(Held("x"), []) is Closeness.NONE
