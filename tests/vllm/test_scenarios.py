"""Push: what becomes of requests on engine cores with real NIXL between them, against expectations by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from pushscope.telemetry import events as ev
from pushscope.telemetry.transfer import Outcome, Transfer

from .pair import BLOCK, LEASE_S, Engine
from .scenes import (
    CACHE_BLOCKS,
    DESCRIPTORS,
    GREEDY_N,
    NEEDS_NOTHING,
    Scene,
    assert_moved,
    assert_nothing_moved,
    needs_nothing,
)

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]
MODE = "Push"


def staged_at_p(scene: Scene) -> bool:
    return bool(scene.p.agent.connector_worker._push_finished_blocks)


def registered_at_p(scene: Scene, count: int = 1) -> bool:
    return len(scene.p.agent.connector_worker._pending_d_registrations) >= count


def drained_at_p(scene: Scene, count: int = 1) -> None:
    """Step until P has this many registrations: it drains them at its steps."""
    scene.until(lambda: registered_at_p(scene, count))


def stands(t: Transfer) -> tuple[int, int | None, Outcome, str]:
    return t.attempt, t.p_attempt, t.outcome, t.waits


class TestPrefixHits:
    def test_a_partial_hit_moves_the_rest(self, scene):
        prompt = scene.prompt(320)
        longer = prompt + scene.prompt(50)
        scene.request("cmpl-hit-0", prompt)
        scene.finish("cmpl-hit-0")
        assert_moved(scene.only(), 10, 320)
        scene.request("cmpl-hit-1", longer)
        scene.finish("cmpl-hit-1")
        assert_moved(scene.seen[1], 2, 50)
        assert scene.tokens["cmpl-hit-1"] == [scene.pair.alone(longer)]

    def test_a_full_hit_still_fetches_the_last_block(self, scene):
        """vLLM computes the last token again, and with whole blocks that is a block."""
        prompt = scene.prompt(256)
        for number in range(2):
            scene.request(f"cmpl-full-{number}", prompt)
            scene.finish(f"cmpl-full-{number}")
        first, second = scene.seen
        assert_moved(first, 8, 256)
        assert_moved(second, 1, BLOCK)
        assert scene.tokens["cmpl-full-0"] == scene.tokens["cmpl-full-1"] == [scene.pair.alone(prompt)]

    def test_what_nixl_merges_are_neighbours_on_both_sides(self, scene, base, monkeypatch):
        agent = scene.p.agent.connector_worker.nixl_wrapper._agent
        prepare, written = agent.make_prepped_xfer, []

        def listen(operation, local, local_ids, remote, remote_ids, *args, **kwargs):
            written.append(list(zip(local_ids, remote_ids, strict=True)))
            return prepare(operation, local, local_ids, remote, remote_ids, *args, **kwargs)

        monkeypatch.setattr(agent, "make_prepped_xfer", listen)
        scene.request(base, scene.prompt(650))
        scene.finish(base)
        (pairs,) = written
        runs = 1 + sum(a[0] + 1 != b[0] or a[1] + 1 != b[1] for a, b in pairwise(pairs))
        assert (scene.only().descriptors, scene.only().descriptors_merged) == (21 * DESCRIPTORS, runs)

    @pytest.mark.parametrize("num_tokens", [1, 10, BLOCK - 1])
    def test_a_prompt_of_less_than_a_block_moves_a_block(self, scene, base, num_tokens):
        scene.request(base, scene.prompt(num_tokens))
        scene.finish(base)
        assert_moved(scene.only(), 1, num_tokens)


class TestNothingToReceive:
    """D registers nothing and tells nobody; P keeps its blocks until the lease runs out. One transfer."""

    @pytest.fixture(params=NEEDS_NOTHING)
    def sampling(self, request, scene, monkeypatch) -> dict[str, int]:
        return needs_nothing(request.param, scene, monkeypatch)

    def test_it_is_no_loss_and_nobody_waits(self, scene, base, sampling):
        prompt = scene.prompt(321)
        scene.request(base, prompt, **sampling)
        scene.finish(base)
        t = scene.of(base)
        assert_nothing_moved(t)
        assert t.p_request is not None
        assert t.d_request is not None
        scene.expire()
        assert_nothing_moved(scene.of(base))
        assert scene.of(base).p_request == t.p_request
        assert scene.tokens[base] == [scene.pair.alone(prompt)]


class TestChunksAndPreemption:
    def test_a_prompt_in_chunks(self, scene, base):
        scene.request(base, scene.prompt(900))
        scene.finish(base)
        assert_moved(scene.only(), 29, 900)
        assert scene.tokens[base] == [scene.pair.alone(scene.prompt(900))]
        (scheduled,) = scene.events(ev.PrefillScheduled)
        assert scheduled.num_tokens == 256

    def test_preempted_on_d(self, scene):
        """Two requests that fit together at first, and then no longer: one is computed again, by D alone."""
        prompts = {"cmpl-pre-0": scene.prompt(480), "cmpl-pre-1": scene.prompt(481)}
        for base, prompt in prompts.items():
            scene.request(base, prompt, 200)
        scene.finish(*prompts)
        (preempted, *_) = scene.events(ev.RequestPreempted)
        one, two = scene.seen
        assert preempted.request_id in (one.d_request, two.d_request)
        assert_moved(one, 15, 480)
        assert_moved(two, 16, 481)
        for base, prompt in prompts.items():
            assert scene.tokens[base] == [scene.pair.alone(prompt, 200)]

    def test_preempted_on_p(self, scene):
        """P takes the blocks of a half-computed prompt away for an older request, and computes it again."""
        scene.p.add("other", scene.prompt(420), 60)
        scene.step(scene.p)
        (other,) = scene.p.scheduler.requests.values()
        scene.until(lambda: other.num_tokens >= 446, scene.p)
        left = scene.free_blocks()[0]
        assert left == CACHE_BLOCKS - 14
        prompt = scene.prompt(left * BLOCK)
        scene.request("cmpl-pre-2", prompt)
        scene.finish("cmpl-pre-2")
        t = scene.only()
        assert [e.request_id for e in scene.events(ev.RequestPreempted)] == [t.p_request]
        assert_moved(t, left, left * BLOCK)
        assert scene.tokens["cmpl-pre-2"] == [scene.pair.alone(prompt)]


class TestRetries:
    def test_after_the_first_was_delivered(self, scene, base):
        prompt = scene.prompt(101)
        for attempt in range(2):
            scene.request(base, prompt)
            scene.until(lambda attempt=attempt: len(scene.tokens.get(base, ())) > attempt)
            scene.settle()
            scene.seen  # noqa: B018 - closes what has ended
        first, second = scene.seen
        assert [stands(t) for t in (first, second)] == [
            (1, 1, Outcome.DELIVERED, ""),
            (2, 2, Outcome.DELIVERED, ""),
        ]
        assert_moved(first, 4, 101)
        assert_moved(second, 1, 101 - 96)
        assert scene.tokens[base] == [scene.pair.alone(prompt)] * 2

    def test_while_the_first_waits_the_second_prefill_goes_to_the_first_registration(self, scene, base):
        """Its own prefill was lost. Another prefill for the second, whose blocks went to the first, frees it."""
        prompt = scene.prompt(102)
        scene.pair.decode(base, prompt)
        scene.step(times=20)
        scene.request(base, prompt)
        scene.finish(base)
        crossed = "P's blocks of attempt 2 met D's registration of attempt 1"
        first, second = scene.seen
        assert stands(first) == (1, 2, Outcome.DELIVERED, "")
        assert first.pairing == crossed
        assert stands(second) == (2, None, Outcome.WAITING, "D waits for blocks that P gave to attempt 1")
        scene.pair.prefill(base, prompt)
        scene.until(lambda: len(scene.tokens[base]) == 2)
        scene.settle()
        first, second = scene.seen
        assert stands(first) == (1, 2, Outcome.DELIVERED, "")
        assert stands(second) == (2, 2, Outcome.DELIVERED, "")
        assert not second.pairing
        assert scene.tokens[base] == [scene.pair.alone(prompt)] * 2

    def test_the_first_registration_was_given_up(self, scene, base):
        """P writes into blocks that D holds for nobody, and the retry waits."""
        prompt = scene.prompt(103)
        scene.pair.decode(base, prompt)
        drained_at_p_after_a_wake(scene)
        scene.d.abort(base)
        scene.step(times=3)
        scene.request(base, prompt)
        scene.settle()
        first, second = scene.seen
        assert stands(first) == (1, 2, Outcome.ABORTED, "")
        assert first.pairing == (
            "P's blocks of attempt 2 met D's registration of attempt 1, which D had ended"
        )
        assert (first.num_blocks, first.num_bytes) == (4, 4 * 32768)
        assert stands(second) == (2, None, Outcome.WAITING, "D waits for blocks that P gave to attempt 1")
        scene.pair.prefill(base, prompt)
        scene.finish(base)
        assert scene.tokens[base] == [scene.pair.alone(prompt)]

    def test_the_prefill_alone_again(self, scene, base):
        prompt = scene.prompt(104)
        scene.pair.decode(base, prompt)
        scene.step(times=5)
        scene.pair.prefill(base, prompt)
        scene.p.abort(base)
        scene.step(times=3)
        assert stands(scene.only()) == (1, 1, Outcome.WAITING, "D waits for a prefill that P gave up")
        scene.pair.prefill(base, prompt)
        scene.finish(base)
        t = scene.only()
        assert stands(t) == (1, 2, Outcome.DELIVERED, "")
        assert t.pairing == "P's blocks of attempt 2 met D's registration of attempt 1"
        assert scene.tokens[base] == [scene.pair.alone(prompt)]

    def test_the_decode_alone_again(self, scene, base):
        """The first went to an engine that does not exist; P's blocks are still there."""
        prompt = scene.prompt(105)
        scene.pair.prefill(base, prompt)
        scene.until(lambda: staged_at_p(scene))
        scene.pair.decode(base, prompt, remote_engine_id="somebody-else")
        scene.until(lambda: bool(scene.events(ev.ReceiveFailed)))
        scene.step(times=3)
        scene.pair.decode(base, prompt)
        scene.finish(base)
        first, second = scene.seen
        assert stands(first) == (1, None, Outcome.FAILED, "")
        assert first.p_engine == "somebody-else"
        assert stands(second) == (2, 1, Outcome.DELIVERED, "")
        assert second.pairing == "P's blocks of attempt 1 met D's registration of attempt 2"
        assert scene.tokens[base] == [scene.pair.alone(prompt)]


def drained_at_p_after_a_wake(scene: Scene) -> None:
    """An idle P drains nothing until something else makes it step."""
    scene.step(scene.d, times=10)
    scene.p.add("wake", scene.prompt(5), 2)
    drained_at_p(scene)


class TestSeveralInOne:
    def test_several_prompts(self, scene):
        """The server makes a request of each, with base ids of their own."""
        prompts = {f"cmpl-batch-{i}": scene.prompt(60 + i) for i in range(3)}
        for base, prompt in prompts.items():
            scene.request(base, prompt)
        scene.finish(*prompts)
        assert [t.base_id for t in scene.seen] == list(prompts)
        for i, t in enumerate(scene.seen):
            assert t.attempt == 1
            assert_moved(t, 2, 60 + i)
        for base, prompt in prompts.items():
            assert scene.tokens[base] == [scene.pair.alone(prompt)]

    def test_several_completions_of_one_prompt(self, scene):
        """vLLM makes children ``0_ID`` and ``1_ID`` on either side, and these pair."""
        prompt = scene.prompt(90)
        scene.request("cmpl-n-0", prompt, **GREEDY_N)
        scene.finish("cmpl-n-0")
        assert [(t.base_id, t.attempt) for t in scene.seen] == [("0_cmpl-n-0", 1), ("1_cmpl-n-0", 1)]
        for t in scene.seen:
            assert_moved(t, 3, 90)
        assert scene.tokens["cmpl-n-0"] == [scene.pair.alone(prompt)] * 2

    def test_several_completions_that_only_d_was_asked_for(self, scene, base):
        """The ids share no base: D's children wait for prefills that nobody sent."""
        prompt = scene.prompt(91)
        scene.pair.prefill("cmpl-nd-0", prompt)
        scene.pair.decode("cmpl-nd-0", prompt, sampling=GREEDY_N)
        scene.step(times=20)
        waits = {t.base_id: t.waits for t in scene.seen}
        assert waits == {
            "0_cmpl-nd-0": "D waits for P's prefill",
            "1_cmpl-nd-0": "D waits for P's prefill",
            "cmpl-nd-0": "P waits for D's registration",
        }
        for child in ("0_cmpl-nd-0", "1_cmpl-nd-0"):
            scene.pair.prefill(child, prompt)
        scene.finish("cmpl-nd-0")
        scene.expire()
        assert {t.base_id: t.outcome.value for t in scene.seen} == {
            "0_cmpl-nd-0": "delivered",
            "1_cmpl-nd-0": "delivered",
            "cmpl-nd-0": "expired",
        }


class TestAborts:
    """The client gives up, at every stage on either side."""

    def abort(self, engine: Engine, scene: Scene, base: str) -> None:
        engine.abort(base)
        scene.step(times=3)

    def test_queued_at_d(self, scene, base):
        prompt = scene.prompt(110)
        scene.pair.decode(base, prompt)
        scene.d.abort(base)
        scene.pair.prefill(base, prompt)
        scene.settle()
        t = scene.only()
        assert (t.outcome, t.error) == (Outcome.ABORTED, "D ended the request: finished_aborted")
        scene.expire()
        assert scene.only().outcome is Outcome.ABORTED

    @pytest.mark.parametrize("stage", ["registered", "prefill queued", "prefill running", "staged"])
    def test_waiting_at_d(self, scene, base, stage):
        """D keeps the blocks until P's write has arrived, and frees them then."""
        prompt = scene.prompt(700)
        scene.pair.decode(base, prompt)
        scene.step(scene.d, times=10)
        if stage != "registered":
            scene.pair.prefill(base, prompt)
        if stage == "prefill running":
            scene.p.step()
            assert len(scene.events(ev.PrefillScheduled)) == 1
        if stage == "staged":
            with_held_writer(scene, lambda: scene.until(lambda: bool(scene.events(ev.BlocksStaged)), scene.p))
        self.abort(scene.d, scene, base) if stage == "registered" else scene.d.abort(base)
        if stage == "registered":
            assert stands(scene.only()) == (1, None, Outcome.ABORTED, "")
            scene.pair.prefill(base, prompt)
        scene.until(lambda: bool(scene.events(ev.ReceiveFinished)))
        scene.settle()
        t = scene.only()
        assert (t.outcome, t.error) == (Outcome.ABORTED, "D ended the request: finished_aborted")
        assert (t.ranks_done, t.ranks, t.num_blocks) == (1, 1, 22)
        assert scene.answered[base] == 0

    def test_in_flight(self, scene, base):
        """P's write is done, D has not looked yet."""
        scene.request(base, scene.prompt(112))
        scene.step(scene.d, times=10)
        scene.until(lambda: bool(scene.events(ev.TransferDone)), scene.p)
        self.abort(scene.d, scene, base)
        scene.settle()
        t = scene.only()
        assert (t.outcome, t.error) == (Outcome.ABORTED, "D ended the request: finished_aborted")
        assert t.ranks_done == 1

    def test_received_and_not_yet_decoded(self, scene, base):
        scene.request(base, scene.prompt(113))
        scene.until(lambda: bool(scene.d.scheduler.finished_recving_kv_req_ids))
        self.abort(scene.d, scene, base)
        t = scene.only()
        assert (t.outcome, t.ranks_done) == (Outcome.ABORTED, 1)

    def test_decoding(self, scene, base):
        scene.request(base, scene.prompt(114), 300)
        scene.until(lambda: bool(scene.events(ev.DecodeScheduled)))
        self.abort(scene.d, scene, base)
        scene.settle()
        assert_moved(scene.only(), 4, 114)

    @pytest.mark.parametrize("stage", ["queued", "running"])
    def test_at_p(self, scene, base, stage):
        """D is not told, and waits."""
        prompt = scene.prompt(700 if stage == "running" else 115)
        scene.pair.decode(base, prompt)
        scene.step(scene.d, times=10)
        scene.pair.prefill(base, prompt)
        if stage == "running":
            scene.p.step()
        self.abort(scene.p, scene, base)
        t = scene.only()
        assert stands(t) == (1, 1, Outcome.WAITING, "D waits for a prefill that P gave up")
        scene.pair.prefill(base, prompt)
        scene.finish(base)

    def test_at_p_when_its_part_is_done(self, scene, base):
        """P has answered: there is nothing left to abort."""
        prompt = scene.prompt(116)
        scene.pair.prefill(base, prompt)
        scene.until(lambda: staged_at_p(scene))
        self.abort(scene.p, scene, base)
        scene.pair.decode(base, prompt)
        scene.finish(base)
        assert_moved(scene.only(), 4, 116)


def with_held_writer(scene: Scene, do) -> None:
    """While P's writer thread does not take finished blocks."""
    worker = scene.p.agent.connector_worker
    inbox, worker._finished_blocks_inbox = worker._finished_blocks_inbox, type("Hold", (), {})()
    held: list[object] = []
    worker._finished_blocks_inbox.put = held.append

    def nothing():
        import queue

        raise queue.Empty

    worker._finished_blocks_inbox.get_nowait = nothing
    try:
        do()
    finally:
        worker._finished_blocks_inbox = inbox
        for item in held:
            inbox.put(item)


@contextmanager
def d_full(scene: Scene) -> Iterator[None]:
    """While D's cache has no room for another request."""
    pool = scene.d.scheduler.kv_cache_manager.block_pool
    held = pool.get_new_blocks(pool.get_num_free_blocks() - 2)
    yield
    pool.free_blocks(held)


class TestLeases:
    def test_heartbeats_of_a_queued_request_put_the_end_of_the_lease_off(self, scene, base):
        """In serial order D knows P's request id, and its heartbeats carry it."""
        with d_full(scene):
            prompt = scene.prompt(420)
            scene.pair.prefill(base, prompt)
            scene.pair.decode(base, prompt, **scene.pair.handed_over())
            scene.step()
            staged = scene.events(ev.BlocksStaged)[0].t
            until = scene.only().lease_until_ns or 0
            assert until / 1e9 == pytest.approx(staged / 1e9 + LEASE_S, abs=0.5)
            assert scene.only().waits == "P waits for D's registration, D has the request queued"
            later = staged + int((LEASE_S + 1.5) * 1e9)
            scene.until(lambda: (scene.only().lease_until_ns or 0) > later)
            scene.until(lambda: scene.events(ev.HeartbeatDrained)[-1].t > staged + LEASE_S * 1e9)
            assert not scene.events(ev.LeaseExpired)
            assert all(e.ignored == 0 for e in scene.events(ev.HeartbeatDrained))
        scene.finish(base)
        assert_moved(scene.only(), 14, 420)
        assert scene.only().lease_until_ns is None
        assert scene.tokens[base] == [scene.pair.alone(prompt)]

    def test_a_lease_that_ran_out_before_d_could_register(self, scene, base):
        """When both legs are fired at once nobody knows P's id, and no heartbeat fits."""
        with d_full(scene):
            prompt = scene.prompt(421)
            scene.request(base, prompt)
            scene.until(lambda: staged_at_p(scene))
            scene.expire()
            t = scene.only()
            assert stands(t) == (
                1,
                1,
                Outcome.WAITING,
                "D has the request queued, P has released its blocks",
            )
        scene.step(times=20)
        assert stands(scene.only()) == (1, 1, Outcome.WAITING, "D waits for blocks that P has released")
        scene.pair.prefill(base, prompt)
        scene.finish(base)
        delivered, *rest = [t for t in scene.seen if t.d_request]
        assert rest == []
        assert stands(delivered) == (1, 2, Outcome.DELIVERED, "")
        assert scene.tokens[base] == [scene.pair.alone(prompt)]

    def test_blocks_that_nobody_asks_for(self, scene, base):
        scene.pair.prefill(base, scene.prompt(100))
        scene.until(lambda: staged_at_p(scene))
        assert stands(scene.only()) == (1, 1, Outcome.WAITING, "P waits for D's registration")
        scene.expire()
        t = scene.only()
        assert (t.outcome, t.error) == (Outcome.EXPIRED, "P's lease ran out before the blocks were taken")
