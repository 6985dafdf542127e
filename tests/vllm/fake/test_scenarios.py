"""In every scenario vLLM does the same with pushscope, and pushscope sees what happened."""

from __future__ import annotations

import pytest
import vllm

from tests.vllm.fake.play import plain, watched
from tests.vllm.fake.scenarios import SCENARIOS
from tests.vllm.fake.seen import as_seen

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]  # vLLM's and torch's own

WRITTEN_FOR = "0.32."
"""The release whose behaviour the expectations describe."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_vllm_does_the_same(name):
    without, with_us = plain(name).written, watched(name).written
    assert without.keys() == with_us.keys()
    for what in without:
        assert with_us[what] == without[what], what


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_seen(name):
    if not vllm.__version__.startswith(WRITTEN_FOR):
        pytest.skip(f"written for vLLM {WRITTEN_FOR}: what others merge, cache or refuse is not the same")
    transfers, expected = watched(name).transfers, SCENARIOS[name].seen
    likes = expected + expected[-1:] * max(0, len(transfers) - len(expected))
    assert tuple(as_seen(t, like) for t, like in zip(transfers, likes, strict=False)) == expected


def test_tokens_tell_whether_the_right_blocks_came():
    """The proof compares tokens: they depend on every block of every rank, in its place."""
    from tests.vllm.fake import fabric

    good = plain("TP 2 to 2").written["tokens"]["D"]
    copy = fabric.ctypes.memmove
    try:
        fabric.ctypes.memmove = lambda to, of, length: copy(to, of, length // 2)
        from tests.vllm.fake.play import play

        bad = play("TP 2 to 2", instrumented=False).written["tokens"]["D"]
    finally:
        fabric.ctypes.memmove = copy
    assert good != bad
