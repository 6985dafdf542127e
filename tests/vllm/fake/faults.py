"""Failures made on vLLM's own classes, each with what it must be named by."""

from __future__ import annotations

from typing import Any

from faults.result import Wait

from tests.vllm.fake.fault import FAULTS, Fault, fault, in_place_of
from tests.vllm.fake.layout import Layout
from tests.vllm.fake.scenarios import (
    D1,
    D2,
    P1,
    P2,
    SCENARIOS,
    failing,
    pull,
    registration_first,
    warmed,
)
from tests.vllm.fake.world import World

GUESSED = "cmpl-a-0"
"""P's request as a router names it that dispatches both legs at once: nobody knows P's own id yet."""


_RUN_OUT: dict[str, Wait] = {
    "heartbeats name another id": "whole",
    "D comes when the lease is over": "whole",
    "the decode leg never comes": "half",
    "pull, nobody reads": "half",
}


def of_scenario(name: str, code: str) -> None:
    s = SCENARIOS[name]
    FAULTS[name] = (code, Fault(s.play, s.p, s.d, s.mode, s.beside, lease=_RUN_OUT.get(name, "")))


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


@fault(
    "a failed push whose D heartbeats: the third renews the lease",
    "heartbeats_keep_failed_push",
    begins_s=10.0,
)
def _(w: World) -> None:
    w.fabric.fault = failing("transfer", who="P")
    registration_first(w)
    w.pass_time(6, turns=3)


@fault("the write hangs", "write_never_finished")
def _(w: World) -> None:
    w.fabric.held = lambda _agent, _handle: True
    registration_first(w)


@fault("P hangs amid the prefill that D has registered for", "waiting", p=Layout(max_tokens_a_step=32))
def _(w: World) -> None:
    w.decode(D1, 100, of=P1)
    w.settle(3)
    w.prefill(P1, 100)
    w.turn()
    in_place_of(w, w.engines["P"], "step", lambda: None)


@fault("one P rank's writer hangs", "registration_lost_to_rank", p=Layout(tp=2))
def _(w: World) -> None:
    in_place_of(w, w.engines["P"].workers[1], "writer_turn", lambda: None)
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


@fault("D comes late, and can't name P's request", "lease_over_before_decode", begins_s=31.0)
def _(w: World) -> None:
    w.prefill(P1, 100)
    w.settle()
    w.pass_time(31, turns=3)
    w.decode(D1, 100, of=P1, remote_request_id=GUESSED)
    w.settle(4)


@fault(
    "D comes when P's request is long closed, and can't name it",
    "lease_over_before_decode",
    begins_s=80.0,
)
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


@fault("a choice of n > 1 is not claimed", "siblings_unclaimed", lease="half")
def _(w: World) -> None:
    for choice in range(2):
        w.prefill(f"{choice}_{P1}", 100)
    w.decode(f"0_{D1}", 100, of=f"0_{P1}")
    w.settle()
    w.pass_time(31, turns=3)


@fault("the lease ends amid a write", "lease_ended_during_write", lease="whole")
def _(w: World) -> None:
    w.fabric.held = lambda _agent, _handle: True
    w.decode(D1, 100, of=P1, remote_request_id=GUESSED)
    w.settle(4)
    w.prefill(P1, 100)
    w.settle()
    w.pass_time(31, turns=3)


@fault("the handshake outlasts the lease", "write_after_lease", lease="whole")
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


@fault("pull: D reads when the lease is over", "read_after_lease", mode="Pull", lease="whole")
def _(w: World) -> None:
    w.prefill(P1, 100)
    w.settle(3)
    w.fabric.held = lambda _agent, _handle: True
    w.decode(D1, 100, of=P1, remote_request_id=P1)
    w.settle(4)
    w.engines["D"].nixl_scheduler._heartbeat_by_engine = {}  # it renews no lease
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


# -- D's waits ----------------------------------------------------------------------------------------


@fault(
    "one of two P ranks never writes; D alone is observed",
    "notifications_missing",
    p=Layout(tp=2),
    observed="D",
)
def _(w: World) -> None:
    in_place_of(w, w.engines["P"].workers[1], "writer_turn", lambda: None)
    registration_first(w)


@fault(
    "the watchdog fires after 4 s; D alone is observed",
    "watchdog_fired",
    d=Layout(extra={"push_registration_timeout": 4}),
    observed="D",
)
def _(w: World) -> None:
    w.decode(D1, 100, of=P1)
    w.pass_time(5)


@fault(
    "D had the whole prompt, is preempted, and registers when P has let go",
    "registered_again_after_preemption",
    begins_s=31.0,
    d=Layout(num_blocks=10, prefix_caching=True),
)
def _(w: World) -> None:
    d = w.engines["D"]
    for engine in w.engines.values():
        engine.nixl_scheduler._prefill_backoff = lambda: (
            1
        )  # as hybrid models have it: D computes the last token
    warmed(w, "D", 97)
    d.add("neighbour", [400 - n for n in range(90)], 160)
    w.settle(2)
    w.prefill(P1, 97)
    w.settle(3)
    w.decode(D1, 97, of=P1, max_tokens=100)
    w.settle(3)
    w.clock.advance(31)
    w.settle(120)  # the neighbour takes what was cached
    assert d.preempted == [D1]
    d.abort("neighbour")
    w.settle(3)


@fault("P's blocks are clipped to none", "nothing_to_push")
def _(w: World) -> None:
    writer = w.engines["P"].workers[0].nixl
    start = writer._do_start_push_kv
    in_place_of(
        w,
        writer,
        "_do_start_push_kv",
        lambda request, _blocks, registration: start(request, (), registration),
    )
    registration_first(w)


# -- P's leases ---------------------------------------------------------------------------------------


@fault("expired leases are not reaped, as before vLLM 0.32", "expired_lease_not_reaped", begins_s=30.0)
def _(w: World) -> None:
    in_place_of(w, w.engines["P"].workers[0].nixl, "_reap_expired_send_leases", lambda _done: None)
    w.prefill(P1, 100)
    w.pass_time(31)


@fault(
    "pushes that are done are not reported, as before vLLM 0.32",
    "finished_write_held_until_lease",
    lease="whole",
)
def _(w: World) -> None:
    nixl = w.engines["P"].workers[0].nixl
    ended = nixl._pop_done_transfers

    def unreported(transfers: Any) -> Any:
        done, failed = ended(transfers)
        return (set(), failed) if transfers is nixl._sending_transfers else (done, failed)

    in_place_of(w, nixl, "_pop_done_transfers", unreported)
    registration_first(w)
    w.pass_time(31)


@fault("the clocks of P's scheduler and worker differ, as before vLLM 0.32", "lease_lost_on_arrival")
def _(w: World) -> None:
    nixl = w.engines["P"].workers[0].nixl
    start = nixl.start_load_kv

    def late(metadata: Any) -> None:
        for request in metadata.reqs_to_send:
            metadata.reqs_to_send[request] -= 28
        start(metadata)

    in_place_of(w, nixl, "start_load_kv", late)
    w.prefill(P1, 100)
    w.settle(4)


# -- wrong data ---------------------------------------------------------------------------------------


@fault("D gives a receive up while P writes", "write_to_untracked_request")
def _(w: World) -> None:
    w.fabric.held = lambda _agent, _handle: True
    registration_first(w)
    w.engines["D"].workers[0].nixl._failed_recv_reqs.put(D1)
    w.settle(3)
    w.fabric.land()
    w.settle(3)


@fault("two requests at once have one id", "concurrent_requests_share_id")
def _(w: World) -> None:
    w.fabric.held = lambda _agent, _handle: True
    for p, d, tokens in ((P1, D1, 100), (P2, D2, 90)):
        w.decode(d, tokens, of=p)
        w.settle(4)
        w.prefill(p, tokens)
        w.settle(4)


@fault("pull: a read that failed counts as done, as before vLLM 0.32", "failed_receive_served", mode="Pull")
def _(w: World) -> None:
    nixl = w.engines["D"].workers[0].nixl
    ended = nixl._pop_done_transfers

    def as_good(transfers: Any) -> Any:
        done, failed = ended(transfers)
        return done | failed, set()

    in_place_of(w, nixl, "_pop_done_transfers", as_good)
    w.fabric.held = lambda _agent, _handle: True
    pull(w)
    w.fabric.land("ERR")
    w.settle()


@fault("D computes the prompt itself when it can't reach P", "computed_by_d")
def _(w: World) -> None:
    w.engines["D"].scheduler.recompute_kv_load_failures = True
    w.decode(D1, 100, of=P1, remote_engine_id="somebody-else")
    w.settle()


@fault("the router names localhost, and D meets itself", "loopback_side_channel")
def _(w: World) -> None:
    w.decode(D1, 100, of=P1, remote_host="localhost", remote_port=w.engines["D"].port)
    w.settle()


# -- slow ---------------------------------------------------------------------------------------------


def posting_takes(w: World, seconds: float) -> None:
    """Every post takes so long."""

    def slow(_agent: Any, call: str, _subject: Any) -> None:
        if call == "transfer":
            w.clock.advance(seconds)

    w.fabric.fault = slow


def ids(n: int) -> tuple[str, str]:
    """(P's, D's) of another request."""
    return f"cmpl-{n}-0-11111111", f"cmpl-{n}-0-22222222"


SMALL_BLOCKS = Layout(block_size=1, num_blocks=3000, max_tokens_a_step=4096)


@fault("10,400 descriptors take 0.5 s to post", "many_descriptors", p=SMALL_BLOCKS, d=SMALL_BLOCKS)
def _(w: World) -> None:
    posting_takes(w, 0.5)
    w.decode(D1, 2600, of=P1)
    w.settle(3)
    w.prefill(P1, 2600)
    w.settle()


@fault("the first handshake of P with D takes long", "cold_handshake")
def _(w: World) -> None:
    in_place_of(w, w.engines["P"].workers[0].handshakes, "run", lambda: 0)
    registration_first(w)


@fault("the decode leg comes 8 s after the prefill", "handover_slow")
def _(w: World) -> None:
    w.prefill(P1, 100)
    w.pass_time(8)
    w.decode(D1, 100, of=P1)
    w.settle()


@fault("the writer posts for 0.3 s in every third of a second", "writer_busy")
def _(w: World) -> None:
    posting_takes(w, 0.3)
    for n in range(28):
        p, d = ids(n)
        w.decode(d, 40, of=p, max_tokens=1)
        w.settle(3)
        w.prefill(p, 40)
        w.settle(6)


@fault("a megabyte is on the wire for a second", "slow_link")
def _(w: World) -> None:
    w.fabric.held = lambda _agent, _handle: True
    for n in range(6):
        p, d = ids(n)
        w.decode(d, 100, of=p, max_tokens=1)
        w.settle(3)
        w.prefill(p, 100)
        w.settle(4)
        w.pass_time(1)
        w.fabric.land()
        w.settle(4)
