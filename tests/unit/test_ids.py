import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushscope.telemetry.ids import MAX_ID_BYTES, base_id, recorded_engine_id, recorded_id

SUFFIX = st.from_regex(r"-[0-9a-f]{8}", fullmatch=True)


def test_a_usual_id_is_recorded_as_it_is():
    rid = "cmpl-0d6bd5e5-3a0b-4c7a-9f5e-2b1f6ad9c001-0-1a2b3c4d"
    assert recorded_id(rid) == rid
    assert base_id(rid) == "cmpl-0d6bd5e5-3a0b-4c7a-9f5e-2b1f6ad9c001-0"


def test_96_bytes_are_kept_and_97_are_shortened():
    base = "x" * 87
    assert recorded_id(base + "-abcdef12") == base + "-abcdef12"
    longer = recorded_id(base + "y-abcdef12")
    assert longer.startswith("x" * 48 + "~")
    assert longer.endswith("-abcdef12")
    assert len(longer) == 48 + 1 + 16 + 9


@given(base=st.text(max_size=5000), p=SUFFIX, d=SUFFIX, hashed=st.booleans())
def test_whatever_the_client_sends_p_and_d_keep_one_base_id(base, p, d, hashed):
    base = base_id(base)  # a base that itself looks suffixed would be stripped once more by vLLM too
    while base_id(base) != base:
        base = base_id(base)
    p_id, d_id = recorded_id(base + p, hashed=hashed), recorded_id(base + d, hashed=hashed)
    assert base_id(p_id) == base_id(d_id)
    assert len(p_id.encode()) <= MAX_ID_BYTES
    assert p_id[-9:] == p


@given(a=st.text(max_size=300), b=st.text(max_size=300))
def test_different_requests_stay_different(a, b):
    a, b = a.encode("utf-8", "ignore").decode(), b.encode("utf-8", "ignore").decode()
    assert (recorded_id(a) == recorded_id(b)) == (a == b)


def test_a_user_may_look_up_the_shortened_form():
    rid = "ü" * 3000 + "-abcdef12"
    assert recorded_id(recorded_id(rid)) == recorded_id(rid)


@pytest.mark.parametrize("engine", ["0d6bd5e5-3a0b-4c7a-9f5e-2b1f6ad9c001", "x" * 40])
def test_engine_ids_are_kept(engine):
    assert recorded_engine_id(engine) == engine


def test_long_engine_ids_are_shortened_to_40_bytes_and_stay_apart():
    a, b = recorded_engine_id("x" * 500 + "a"), recorded_engine_id("x" * 500 + "b")
    assert a != b
    assert len(a) == len(b) == 40
