"""Failures reproduced on vLLM's own classes are named in seconds and clear; healthy runs are left alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from pushscope.telemetry.diagnosis.model import Severity
from tests.vllm.fake.layout import Layout
from tests.vllm.fake.lookout import Lookout, watched
from tests.vllm.fake.scenarios import D1, D2, P1, P2, SCENARIOS, crowded, failing, registration_first
from tests.vllm.fake.world import World

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]  # vLLM's and torch's own
NAMED_WITHIN_S = 10.0
CAUSED_BY = {
    "ranks_paired_differently": "registration_lost_to_rank",
    "lease_ended_during_write": "write_never_finished",
}
"""What comes before them, as they are reproduced here."""
GUESSED = "cmpl-a-0"
"""P's request as a router names it that dispatches both legs at once: nobody knows P's own id yet."""


@dataclass(frozen=True)
class Fault:
    play: Callable[[World], None]
    p: Layout = field(default_factory=Layout)
    d: Layout = field(default_factory=Layout)
    mode: str = "Push"
    beside: Mapping[str, Any] | None = None


FAULTS: dict[str, tuple[str, Fault]] = {}
"""What is done -> the code that it must be named by."""


def fault(what: str, code: str, **changes: Any) -> Callable[[Callable[[World], None]], None]:
    def declare(play: Callable[[World], None]) -> None:
        FAULTS[what] = (code, Fault(play, **changes))

    return declare


def of_scenario(name: str, code: str) -> None:
    s = SCENARIOS[name]
    FAULTS[name] = (code, Fault(s.play, s.p, s.d, s.mode, s.beside))


for scenario, named in {
    "P aborts in the queue": "registration_without_prefill",
    "P aborts amid the prefill": "registration_without_prefill",
    "the prefill leg never comes": "registration_without_prefill",
    "the write cannot be posted": "write_not_posted",
    "the write cannot be prepared": "write_not_posted",
    "the write fails on its way": "write_failed",
    "the write fails, and cannot be released at first": "write_failed",
    "one rank's write fails": "write_failed",
    "the registration cannot be sent": "registration_lost",
    "D knocks at the wrong engine": "engine_id_mismatch",
    "an exception reaches the writer": "push_abandoned",
    "a retry meets an older registration": "retry_met_older_registration",
    "two ranks pair differently": "ranks_paired_differently",
    "fewer KV heads than ranks, 2 to 4": "unsupported_tp_pair",
    "fewer KV heads than ranks, 4 to 2": "unsupported_tp_pair",
    "blocks of 32 at P and 64 at D": "block_sizes_differ",
    "heartbeats name another id": "heartbeat_id_mismatch",
    "D comes when the lease is over": "lease_over_before_decode",
    "the decode leg never comes": "prefill_unclaimed",
    "pull, nobody reads": "prefill_unclaimed",
    "pull, the read fails on its way": "write_failed",
    "pull, the read cannot be posted": "write_not_posted",
    "D needs nothing": "full_hit_held_until_lease",
}.items():
    of_scenario(scenario, named)


@fault("P cannot reach D", "reverse_handshake_failed")
def _(w: World) -> None:
    w.fabric.fault = failing("add_remote_agent", times=9, who="P")
    registration_first(w)


@fault("a failed push whose D heartbeats", "heartbeats_keep_failed_push")
def _(w: World) -> None:
    w.fabric.fault = failing("transfer", who="P")
    registration_first(w)
    w.pass_time(6, turns=3)


@fault("the write hangs", "write_never_finished")
def _(w: World) -> None:
    w.fabric.held = lambda _agent, _handle: True
    registration_first(w)


@fault("one P rank's writer hangs", "registration_lost_to_rank", p=Layout(tp=2))
def _(w: World) -> None:
    w.engines["P"].workers[1].writer_turn = lambda: None  # type: ignore[method-assign]
    registration_first(w)


@fault("a completion comes before the rank has the request", "early_notification_dropped", d=Layout(tp=2))
def _(w: World) -> None:
    w.prefill("cmpl-first-0-11111111", 100)  # so that P knows D
    w.decode("cmpl-first-0-22222222", 100, of="cmpl-first-0-11111111")
    w.settle(10)
    w.prefill(P1, 100)
    w.settle(3)
    slow = w.engines["D"].workers[1].nixl
    start, kept = slow.start_load_kv, []
    slow.start_load_kv = kept.append  # its step has not come to it yet
    w.decode(D1, 100, of=P1)
    w.settle(4)
    slow.start_load_kv = start
    for metadata in kept:
        start(metadata)
    w.settle(3)


@fault("the registration reaches one of two P ranks", "registration_lost_to_rank", p=Layout(tp=2))
def _(w: World) -> None:
    w.fabric.fault = failing("send_notif", who="D", about=b"PUSH_REG", after=1)
    registration_first(w)


@fault("the two legs have different ids", "request_ids_differ")
def _(w: World) -> None:
    w.decode("cmpl-b-0-22222222", 100, of=P1)
    w.settle(3)
    w.prefill(P1, 100)
    w.settle(4)


@fault("a retry's decode leg comes when its blocks went elsewhere", "retry_met_older_registration")
def _(w: World) -> None:
    w.decode(D1, 100, of=P1)
    w.settle(4)
    w.engines["D"].abort(D1)
    w.settle(2)
    w.prefill(P2, 100)  # pairs with the registration of the first try
    w.settle()
    w.pass_time(3)
    w.decode(D2, 100, of=P2, remote_request_id=GUESSED)
    w.settle(4)


@fault("D comes late, and can't name P's request", "lease_over_before_decode")
def _(w: World) -> None:
    w.prefill(P1, 100)
    w.settle()
    w.pass_time(31, turns=3)
    w.decode(D1, 100, of=P1, remote_request_id=GUESSED)
    w.settle(4)


@fault("D comes when P's request is long closed, and can't name it", "lease_over_before_decode")
def _(w: World) -> None:
    w.prefill(P1, 100)
    w.settle()
    for _ in range(8):
        w.pass_time(10, turns=3)
    w.decode(D1, 100, of=P1, remote_request_id=GUESSED)
    w.settle(4)


@fault("a push is posted to one rank, and then raises", "partial_post_untracked", d=Layout(tp=2))
def _(w: World) -> None:
    w.prefill("cmpl-first-0-11111111", 100)
    w.decode("cmpl-first-0-22222222", 100, of="cmpl-first-0-11111111")
    w.settle(10)
    del w.engines["P"].workers[0].nixl.dst_xfer_side_handles["engine-D"][1]
    w.fabric.held = lambda _agent, _handle: True
    registration_first(w)


@fault("NIXL has no telemetry", "telemetry_missing", mode="Pull")
def _(w: World) -> None:
    w.fabric.fault = failing("get_xfer_telemetry", times=9)
    w.prefill(P1, 100)
    w.settle(3)
    w.decode(D1, 100, of=P1)
    w.settle()


@fault("a choice of n > 1 is not claimed", "siblings_unclaimed")
def _(w: World) -> None:
    for choice in range(2):
        w.prefill(f"{choice}_{P1}", 100)
    w.decode(f"0_{D1}", 100, of=f"0_{P1}")
    w.settle()
    w.pass_time(31, turns=3)


@fault("the lease ends amid a write", "lease_ended_during_write")
def _(w: World) -> None:
    w.fabric.held = lambda _agent, _handle: True
    w.decode(D1, 100, of=P1, remote_request_id=GUESSED)
    w.settle(4)
    w.prefill(P1, 100)
    w.settle()
    w.pass_time(31, turns=3)


@fault("the handshake outlasts the lease", "write_after_lease")
def _(w: World) -> None:
    w.decode(D1, 100, of=P1, remote_request_id=GUESSED)
    w.settle(4)
    shakes = w.engines["P"].workers[0].handshakes
    run, shakes.run = shakes.run, lambda: 0  # type: ignore[method-assign]
    w.prefill(P1, 100)
    w.settle(4)
    w.pass_time(31, turns=3)
    shakes.run = run  # type: ignore[method-assign]
    w.settle()


@fault("pull: D reads when the lease is over", "read_after_lease", mode="Pull")
def _(w: World) -> None:
    w.prefill(P1, 100)
    w.settle(3)
    w.fabric.held = lambda _agent, _handle: True
    w.decode(D1, 100, of=P1, remote_request_id=P1)
    w.settle(4)
    w.engines["D"].nixl_scheduler._heartbeats_by_engine = {}
    w.pass_time(31, turns=3)
    w.fabric.land()
    w.settle()


@fault("P is gone while D waits", "engine_gone")
def _(w: World) -> None:
    w.decode(D1, 100, of=P1)
    w.settle(4)
    w.prefill(P1, 100)
    w.engines["P"].step()
    w.engines.pop("P").shut_down()
    w.settle()


@pytest.fixture
def played(request, tmp_path):
    """A fault, played and looked at, and what it must be named."""
    code, f = FAULTS[request.param]
    with World(tmp_path / "rings", instrumented=True, mode=f.mode, beside=f.beside) as world:
        world.engine("P", f.p)
        world.engine("D", f.d)
        with watched(world) as lookout:
            f.play(world)
            yield code, lookout


def named(lookout: Lookout, code: str) -> None:
    """Let time pass until it is named; fail if that is too late."""
    for _ in range(int(NAMED_WITHIN_S)):
        if code in lookout.first:
            break
        lookout.world.pass_time(1.0)
    assert code in lookout.first, f"only {list(lookout.first)} was named"


@pytest.mark.parametrize("played", FAULTS, indirect=True)
def test_is_named_within_seconds_and_clears_when_it_is_undone(played):
    code, lookout = played
    world = lookout.world
    named(lookout, code)
    _, found = lookout.first[code]
    assert found.evidence
    assert found.certain or " or " in found.sentence
    if found.severity is Severity.ERROR:
        assert lookout.now[0] in (code, CAUSED_BY.get(code))

    # Undone: what hangs is ended by its client, the faults are gone, time passes.
    world.fabric.fault = lambda *_: None
    world.fabric.held = lambda *_: False
    world.fabric.land()
    for engine in world.engines.values():
        for request_id in list(engine.scheduler.requests):
            engine.abort(request_id)
    for _ in range(5):
        world.pass_time(20.0, turns=2)
    assert lookout.now == []


HEALTHY = [
    name
    for name, s in SCENARIOS.items()
    if {seen.outcome for seen in s.seen} <= {"delivered", "nothing to receive", "aborted"}
    and name != "the state of a write cannot be had"
]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_is_left_alone(name, tmp_path):
    s = SCENARIOS[name]
    with World(tmp_path / "rings", instrumented=True, mode=s.mode, beside=s.beside) as world:
        world.engine("P", s.p)
        world.engine("D", s.d)
        with watched(world) as lookout:
            s.play(world)
            for seconds in (1.0, 2.0, 4.0, 8.0, 16.0):
                world.pass_time(seconds, turns=2)
            assert lookout.errors == []


def test_concurrent_dispatch_whose_heartbeats_never_match_is_left_alone(tmp_path):
    """Every heartbeat names the router's id, which P ignores; as long as D is in time that means nothing."""
    with World(tmp_path / "rings", instrumented=True) as world:
        world.engine("P", Layout())
        world.engine("D", Layout(num_blocks=9))
        with watched(world) as lookout:
            crowded(world, "D")
            world.prefill(P1, 100)
            world.decode(D1, 100, of=P1, remote_request_id=GUESSED)
            for _ in range(4):
                world.pass_time(5.0)
            world.engines["D"].abort("neighbour")
            world.settle()
            assert world.engines["D"].finished[D1] == "length"
            assert lookout.errors == []
