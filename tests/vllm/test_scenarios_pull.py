"""Pull: what becomes of requests on engine cores with real NIXL between them, against expectations by hand."""

from __future__ import annotations

from typing import Any

import pytest

from pushscope.telemetry import events as ev
from pushscope.telemetry.transfer import Outcome

from .pair import BLOCK
from .scenes import (
    GREEDY_N,
    NEEDS_NOTHING,
    Scene,
    assert_moved,
    assert_nothing_moved,
    needs_nothing,
)

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]
MODE = "Pull"


def prefilled(scene: Scene, base: str, prompt: list[int]) -> dict[str, Any]:
    """P's part, and what its answer tells D."""
    scene.pair.prefill(base, prompt)
    return scene.pair.handed_over()


def test_hits_at_d_read_the_rest(scene):
    prompt = scene.prompt(320)
    longer = prompt + scene.prompt(50)
    for number, (tokens, num_blocks, num_tokens) in enumerate(
        [(prompt, 10, 320), (prompt, 1, BLOCK), (longer, 2, 50)]
    ):
        base = f"cmpl-hit-{number}"
        scene.request(base, tokens)
        scene.finish(base)
        assert_moved(scene.of(base), num_blocks, num_tokens)
        assert scene.tokens[base] == [scene.pair.alone(tokens)]


@pytest.mark.parametrize("how", NEEDS_NOTHING)
def test_nothing_to_receive(scene, base, how, monkeypatch):
    """D tells P, which lets its blocks go."""
    sampling = needs_nothing(how, scene, monkeypatch)
    prompt = scene.prompt(321)
    scene.request(base, prompt, **sampling)
    scene.finish(base)
    t = scene.of(base)
    assert_nothing_moved(t)
    assert t.p_request is not None
    assert not t.tentative
    assert t.p_request in {e.request_id for e in scene.events(ev.SendFinished)}
    assert scene.tokens[base] == [scene.pair.alone(prompt)]


@pytest.mark.parametrize(("num_tokens", "num_blocks"), [(10, 1), (900, 29)])
def test_less_than_a_block_and_many_chunks(scene, base, num_tokens, num_blocks):
    scene.request(base, scene.prompt(num_tokens))
    scene.finish(base)
    assert_moved(scene.only(), num_blocks, num_tokens)
    assert scene.tokens[base] == [scene.pair.alone(scene.prompt(num_tokens))]


def test_preempted_on_d(scene):
    prompts = {"cmpl-pre-0": scene.prompt(480), "cmpl-pre-1": scene.prompt(481)}
    for base, prompt in prompts.items():
        scene.request(base, prompt, 200)
    scene.finish(*prompts)
    one, two = scene.seen
    assert {e.request_id for e in scene.events(ev.RequestPreempted)} <= {one.d_request, two.d_request}
    assert scene.events(ev.RequestPreempted)
    assert_moved(one, 15, 480)
    assert_moved(two, 16, 481)
    for base, prompt in prompts.items():
        assert scene.tokens[base] == [scene.pair.alone(prompt, 200)]


class TestRetries:
    def test_after_the_first_was_delivered(self, scene, base):
        prompt = scene.prompt(101)
        for attempt in range(2):
            scene.request(base, prompt)
            scene.until(lambda attempt=attempt: len(scene.tokens.get(base, ())) > attempt)
            scene.settle()
        first, second = scene.seen
        assert [(t.attempt, t.p_attempt) for t in (first, second)] == [(1, 1), (2, 2)]
        assert_moved(first, 4, 101)
        assert_moved(second, 1, 101 - 96)

    def test_d_again_with_what_p_answered_first(self, scene, base):
        """The first was dropped at D, which told P; P's answer is used once more."""
        prompt = scene.prompt(102)
        params = prefilled(scene, base, prompt)
        scene.pair.decode(base, prompt, remote_engine_id="somebody-else", **without_engine(params))
        scene.until(lambda: bool(scene.events(ev.RequestEnded)[1:]))
        scene.pair.decode(base, prompt, **params)
        scene.finish(base)
        first, second = scene.seen
        assert (first.attempt, first.outcome, first.p_engine) == (1, Outcome.FAILED, "somebody-else")
        assert (second.attempt, second.p_attempt, second.outcome) == (2, 1, Outcome.DELIVERED)
        assert second.pairing == "attempt 2 read P's blocks of attempt 1"
        assert scene.tokens[base] == [scene.pair.alone(prompt)]


def without_engine(params: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in params.items() if k != "remote_engine_id"}


def test_several_completions_of_one_prompt(scene, base):
    """P makes two children and answers with one: both of D's read that, and nobody takes the other."""
    prompt = scene.prompt(90)
    scene.request(base, prompt, **GREEDY_N)
    scene.finish(base)
    *delivered, left = sorted(scene.seen, key=lambda t: (t.outcome.value, t.d_request or ""))
    assert [t.d_request and t.d_request[:2] for t in delivered] == ["0_", "1_"]
    assert {t.p_request for t in delivered} == {delivered[0].p_request}
    assert [(t.outcome, t.attempt, t.pairing) for t in delivered] == [(Outcome.DELIVERED, 1, "")] * 2
    assert (left.d_request, left.waits) == (None, "P waits for D to read")
    assert scene.tokens[base] == [scene.pair.alone(prompt)] * 2


class TestAborts:
    def test_queued_at_d(self, scene, base):
        """D tells P, which lets its blocks go."""
        prompt = scene.prompt(110)
        scene.pair.decode(base, prompt, **prefilled(scene, base, prompt))
        scene.d.abort(base)
        scene.settle()
        t = scene.only()
        assert (t.outcome, t.error) == (Outcome.ABORTED, "D ended the request: finished_aborted")
        assert len(scene.events(ev.SendFinished)) == 1
        assert not scene.events(ev.LeaseExpired)

    def test_reading(self, scene, base):
        prompt = scene.prompt(111)
        scene.pair.decode(base, prompt, **prefilled(scene, base, prompt))
        scene.step(scene.d)
        scene.d.abort(base)
        scene.settle()
        t = scene.only()
        assert (t.outcome, t.error) == (Outcome.ABORTED, "D ended the request: finished_aborted")
        assert (t.ranks_done, t.ranks, t.num_blocks) == (1, 1, 4)

    def test_decoding(self, scene, base):
        scene.request(base, scene.prompt(112), 300)
        scene.until(lambda: bool(scene.events(ev.DecodeScheduled)))
        scene.d.abort(base)
        scene.settle()
        assert_moved(scene.only(), 4, 112)

    def test_at_p_while_it_computes(self, scene, base):
        scene.pair.prefill(base, scene.prompt(700))
        scene.p.step()
        scene.p.abort(base)
        scene.settle()
        assert scene.seen == []
        (dropped,) = scene.events(ev.PrefillNotProcessed)
        assert dropped.status == "finished_aborted"

    def test_nobody_reads(self, scene, base):
        prefilled(scene, base, scene.prompt(113))
        scene.settle()
        assert (scene.only().outcome, scene.only().waits) == (Outcome.WAITING, "P waits for D to read")
        scene.expire()
        assert scene.only().outcome is Outcome.EXPIRED
