"""Causes on engines, reproduced on vLLM's own schedulers and connectors; and what is healthy stays unnamed."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import msgspec
import pytest

from pushscope.telemetry.diagnosis.model import Severity
from pushscope.telemetry.ids import base_id
from tests.vllm.fake.layout import Layout
from tests.vllm.fake.lookout import watched
from tests.vllm.fake.scenarios import D1, D2, P1, P2, SCENARIOS, failing, registration_first

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]  # vLLM's and torch's own

PUSH_REG = b"PUSH_REG:"

# -- A14 ----------------------------------------------------------------------------------------------


def knock(port: int, message: bytes) -> None:
    """A side-channel request; nobody waits for an answer."""
    import zmq

    with zmq.Context() as context, context.socket(zmq.REQ) as socket:
        socket.connect(f"tcp://127.0.0.1:{port}")
        socket.send(message)
        time.sleep(0.3)
        socket.close(linger=0)


@pytest.mark.parametrize(
    ("message", "died_of"),
    [
        (msgspec.msgpack.encode((b"get_meta_msg", 0, 7)), "KeyError((0, 7))"),
        (b"GET / HTTP/1.1", "malformed"),
    ],
    ids=["a rank that does not exist", "malformed"],
)
def test_a_bad_request_ends_the_handshake_listener(tmp_path: Path, message: bytes, died_of: str, reproduced):
    with watched(tmp_path) as (w, lookout):
        registration_first(w)
        assert lookout.codes() == []
        lookout.begins()
        knock(w.engines["P"].port, message)
        deadline = time.monotonic() + 10
        while w.engines["P"].listening and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not w.engines["P"].listening
        d = lookout.only("handshake_listener_dead")
        assert d.subject == "engine-P"
        assert f"P1's side channel at 127.0.0.1:{w.engines['P'].port} accepts connections" in d.sentence
        assert died_of in d.sentence
        reproduced(lookout.named(d.code), f"a side-channel request ends P's listener: {died_of}")
        w.decode(D2, 100, of=P2)
        w.settle(4)
        w.prefill(P2, 100)
        w.settle()
        assert w.engines["D"].finished[D2], "an old peer goes on"
        lookout.only("handshake_listener_dead")
        w.engines["P"].shut_down()
        w.engine("P", Layout())
        assert "handshake_listener_dead" not in lookout.codes(), "a restart ends it"


# -- A8 -----------------------------------------------------------------------------------------------


def test_a_message_that_the_writer_fails_on_takes_the_batch_with_it(tmp_path: Path, reproduced):
    with watched(tmp_path) as (w, lookout):
        registration_first(w)
        w.prefill(P2, 100)
        w.settle(3)
        w.decode("cmpl-b-0-66666666", 100, of="cmpl-b-0-55555555")
        bad = PUSH_REG + msgspec.msgpack.encode({"request_id": D2})  # names nobody to push to
        p, d = w.engines["P"].workers[0], w.engines["D"]
        w.fabric.deliver(d.workers[0].agent.name, p.agent.name, bad)
        d.step()
        d.workers[0].writer_turn()  # D's registration comes into the same batch
        p.writer_turn()
        w.settle(3)
        w.prefill("cmpl-b-0-55555555", 100)
        w.settle()
        found = lookout.only("writer_exception")
        reproduced(lookout.named(found.code), "a registration names nobody to push to")
        assert (found.subject, found.severity) == ("engine-P", Severity.ERROR)
        assert "KeyError('decode_engine_id')" in found.sentence
        assert "It dropped 1 notification of the same batch." in found.sentence
        assert "it costs 2 requests" in found.sentence, "the one that it was about, and the one behind it"
        assert "cmpl-b-0-66666666" not in d.finished


# -- of no row ----------------------------------------------------------------------------------------


def test_d_makes_no_step(tmp_path: Path, reproduced):
    with watched(tmp_path) as (w, lookout):
        w.decode(D1, 100, of=P1)
        w.pass_time(2)
        w.prefill(P1, 100)
        assert lookout.codes() == [], "D steps"
        lookout.begins()
        for _ in range(20):
            w.clock.advance(0.25)
            w.engines["P"].step()
            for worker in w.workers:  # the writer threads go on
                worker.writer_turn()
            lookout.look()
        d = lookout.only("engine_silent")
        assert (d.subject, d.severity) == ("engine-D", Severity.WARNING)
        assert d.costs == ((base_id(D1), 1),)
        reproduced(lookout.named(d.code), "D makes no step while P writes to it")
        w.settle()
        assert w.engines["D"].finished[D1]
        assert lookout.codes() == [], "it goes on"


# -- A16 ----------------------------------------------------------------------------------------------


def test_handshakes_wait_behind_a_peer_that_does_not_answer(tmp_path: Path, reproduced):
    with watched(tmp_path) as (w, lookout):
        d = w.engines["D"]
        worker = d.workers[0]
        nobody = {"remote_engine_id": "nobody", "remote_port": w.free_port()}
        for n in range(2):
            w.decode(f"cmpl-n-{n}-22222222", 100, of="x", **nobody)
            d.step()
            worker.writer_turn()
            knocking = threading.Thread(target=worker.handshakes.run)
            knocking.start()  # vLLM's time-out for an answer: five real seconds
            if n == 0:
                knocking.join()
                lookout.wait(40)
                w.turn()
        time.sleep(0.2)
        lookout.begins()
        w.decode(D1, 100, of=P1)
        d.step()
        worker.writer_turn()
        assert "handshake_queue_blocked" not in lookout.codes(), "it has just begun"
        lookout.wait(4)
        blocked = lookout.engines()[-1]
        assert blocked.code == "handshake_queue_blocked"
        reproduced(lookout.named(blocked.code), "a peer that does not answer is before P in D's queue")
        assert blocked.subject == "engine-D"
        assert (
            "to shake hands with P1: its one thread for handshakes is held up by engine nobody"
            in blocked.sentence
        )
        assert "it costs 1 request" in blocked.sentence
        knocking.join()
        worker.handshakes.run()
        w.prefill(P1, 100)
        w.settle()
        assert d.finished[D1]
        assert "handshake_queue_blocked" not in lookout.codes()
        lookout.wait(40)
        w.turn()
        assert lookout.codes() == []


# -- A17 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", ["P", "D"])
def test_a_peer_restarted_under_its_old_id(tmp_path: Path, restarted: str, reproduced):
    survivor = "D" if restarted == "P" else "P"
    with watched(tmp_path) as (w, lookout):
        registration_first(w)
        assert lookout.codes() == []
        w.engines[restarted].shut_down()
        w.clock.advance(5)
        lookout.begins()
        w.engine(restarted, Layout())
        quiet = lookout.only("stale_agent_after_restart")
        reproduced(lookout.named(quiet.code), f"{restarted} is restarted under its old engine id")
        assert (quiet.subject, quiet.severity) == (f"engine-{survivor}", Severity.WARNING)
        w.decode(D2, 100, of=P2)
        w.settle(4)
        w.prefill(P2, 100)
        w.settle()
        assert D2 not in w.engines["D"].finished, "it hangs"
        hangs = lookout.only("stale_agent_after_restart")
        assert hangs.severity is Severity.ERROR
        assert f"{restarted}1 was restarted under its old engine id" in hangs.sentence
        assert "it costs 1 request" in hangs.sentence
        for name in "PD":  # who talked to the survivor meanwhile knows it by an agent that ends too
            w.engines[name].shut_down()
        w.engine("P", Layout())
        w.engine("D", Layout())
        w.decode("cmpl-c-0-66666666", 100, of="cmpl-c-0-55555555")
        w.settle(4)
        w.prefill("cmpl-c-0-55555555", 100)
        w.settle()
        assert w.engines["D"].finished["cmpl-c-0-66666666"]
        assert "stale_agent_after_restart" not in lookout.codes()


# -- B ------------------------------------------------------------------------------------------------


def test_aborted_requests_hold_d_s_blocks_until_the_push_comes(tmp_path: Path, reproduced):
    with watched(tmp_path) as (w, lookout):
        for n in range(3):
            w.decode(f"cmpl-{n}-0-22222222", 100, of="x")
        w.settle(4)
        lookout.begins()
        for n in range(3):
            w.engines["D"].abort(f"cmpl-{n}-0-22222222")
        w.settle(2)
        assert lookout.codes() == []
        w.pass_time(2)
        w.pass_time(2)
        d = lookout.only("aborted_requests_pin_blocks")
        reproduced(lookout.named(d.code), "D aborts three requests that wait for P")
        assert (d.subject, d.severity) == ("engine-D", Severity.INFO)
        assert d.sentence.startswith("12 blocks of D1's KV cache are held by 3 requests")
        for n in range(3):
            w.prefill(f"cmpl-{n}-0-11111111", 100)
        w.settle()
        w.pass_time(2)
        assert lookout.codes() == []


def test_entries_of_requests_that_had_nothing_to_receive(tmp_path: Path, reproduced):
    with watched(tmp_path) as (w, lookout):
        for n in range(25):
            w.decode(f"cmpl-{n}-0-22222222", 40, of="x")
            w.engines["D"].abort(f"cmpl-{n}-0-22222222")
        w.settle(3)
        assert len(w.engines["D"].workers[0].nixl._recving_metadata) == 25
        lookout.begins()
        for _ in range(20):
            w.pass_time(1)
        d = lookout.only("notify_only_entries_leak")
        reproduced(lookout.named(d.code, "pile"), "25 requests end before D schedules them")
        assert "D1's worker (tp0) keeps 25 entries" in d.sentence


def test_d_with_more_ranks_leaves_registrations_at_p(tmp_path: Path, reproduced):
    with watched(tmp_path, d=Layout(tp=2)) as (w, lookout):
        for n in range(22):
            w.prefill(f"cmpl-{n}-0-11111111", 40)
            w.settle(2)
            w.decode(f"cmpl-{n}-0-22222222", 40, of=f"cmpl-{n}-0-11111111", max_tokens=1)
            w.settle(5)
        assert len(w.engines["P"].workers[0].nixl._pending_d_registrations) >= 20
        lookout.begins()
        for _ in range(20):
            w.pass_time(1)
        found = lookout.engines()
        assert {d.code for d in found} <= {"stale_registrations_pile_up", "serial_router"}
        assert all(d.severity is Severity.WARNING for d in found)
        reproduced(lookout.named(found[0].code, "pile"), "22 transfers from one P rank to two D ranks")
        assert found[0].code == "stale_registrations_pile_up"


def test_p_polls_for_prefills_that_nobody_claims(tmp_path: Path, reproduced):
    with watched(tmp_path) as (w, lookout):
        w.prefill(P1, 100)
        w.settle(3)
        w.pass_time(5)
        assert lookout.codes() == []
        for _ in range(6):
            w.pass_time(2)
        d = lookout.only("polling_for_unmatched")
        reproduced(lookout.named(d.code, "half"), "a prefill is not claimed")
        assert d.severity is Severity.INFO
        for _ in range(10):
            w.pass_time(2)
        assert lookout.codes() == [], "the lease is over"


# -- D, E ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "missing", ["remote_engine_id", "remote_host", "remote_port", "tp_size", "remote_request_id"]
)
def test_a_request_without_a_parameter_ends_d(tmp_path: Path, missing: str, reproduced):
    with watched(tmp_path) as (w, lookout):
        registration_first(w)
        p, d = w.engines["P"], w.engines["D"]
        params = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_engine_id": p.engine_id,
            "remote_request_id": "x",
            "remote_host": "127.0.0.1",
            "remote_port": p.port,
            "tp_size": 1,
            "remote_block_ids": [],
        }
        lookout.begins()
        d.add(D2, list(range(4, 90)), 3, {k: v for k, v in params.items() if k != missing})
        with pytest.raises(KeyError):
            d.step()
        found = lookout.only("incomplete_transfer_params")
        reproduced(lookout.named(found.code), f"kv_transfer_params without {missing}")
        assert (found.subject, found.severity) == ("engine-D", Severity.ERROR)
        assert f"D1 got a request whose kv_transfer_params lack {missing}" in found.sentence


@pytest.mark.parametrize("notification", [b"no colon", b"\xff\xfe:1"])
def test_a_notification_of_another_release_ends_the_engine(tmp_path: Path, notification: bytes, reproduced):
    with watched(tmp_path) as (w, lookout):
        registration_first(w)
        d = w.engines["D"]
        lookout.begins()
        w.decode(D2, 100, of=P2)
        w.settle(2)
        w.fabric.deliver(w.engines["P"].workers[0].agent.name, d.workers[0].agent.name, notification)
        d.workers[0].writer_turn()
        with pytest.raises(ValueError, match=r".*"):
            d.step()
        found = lookout.engines()[0]
        how = f"D gets the notification {notification!r}"
        reproduced(lookout.named(found.code), how, row="D3")
        assert found.code == "engine_main_thread_exception"
        assert "got a notification that it cannot read" in found.sentence


def test_several_prompts_over_one_handoff_end_d(tmp_path: Path, reproduced):
    with watched(tmp_path, mode="Pull") as (w, lookout):
        w.prefill(P1, 60)
        w.settle(3)
        lookout.begins()
        w.decode(D1, 100, of=P1)  # the second of two prompts is given the blocks of the first
        with pytest.raises(AssertionError):
            w.settle()
        found = lookout.engines()[0]
        reproduced(lookout.named(found.code), "pull: D has more blocks to fill than P hands over", row="D2")
        assert "start_load_kv raised AssertionError()" in found.sentence
        assert "several prompts over one handoff" in found.remedy


def test_the_router_names_an_engine_that_is_gone(tmp_path: Path, reproduced):
    with watched(tmp_path) as (w, lookout):
        SCENARIOS["D knocks at the wrong engine"].play(w)
        d = lookout.only("engine_id_mismatch")
        reproduced(lookout.named(d.code), "the router names an engine that is gone")
        assert d.subject == "engine-D"
        assert "for engine somebody-else, but P1 answers there" in d.sentence
        w.pass_time(60)
        assert lookout.codes() == []


def test_the_router_names_a_port_where_nobody_listens(tmp_path: Path, reproduced):
    with watched(tmp_path) as (w, lookout):
        port = w.free_port()
        w.decode(D1, 100, of=P1, remote_port=port)
        w.settle()  # vLLM's time-out for an answer: five real seconds
        d = lookout.only("peer_unreachable")
        reproduced(lookout.named(d.code), "the router names a port where nobody listens")
        own = f"P1 advertises 127.0.0.1:{w.engines['P'].port}: the router names another address"
        assert f"D1 gets no answer from P1's side channel at 127.0.0.1:{port}; {own}" in d.sentence
        w.decode(D2, 100, of=P2)
        w.settle(4)
        w.prefill(P2, 100)
        w.settle()
        assert lookout.codes() == []


def test_unequal_blocks(tmp_path: Path, reproduced):
    with watched(tmp_path, p=Layout(block_size=32), d=Layout(block_size=64)) as (w, lookout):
        registration_first(w)
        d = lookout.only("block_sizes_differ")
        reproduced(lookout.named(d.code), "P refuses blocks of another size")
        assert (d.subject, d.severity) == ("engine-P", Severity.ERROR)
        assert "P1 has blocks of 32 tokens, D1 blocks of 64: P1 refuses to shake hands." in d.sentence
        assert "it costs 1 request" in d.sentence


@pytest.mark.parametrize(("mode", "poster", "severity"), [("Push", "P", "warning"), ("Pull", "D", "error")])
def test_nixl_without_telemetry(tmp_path: Path, mode: str, poster: str, severity: str, reproduced):
    with watched(tmp_path, mode=mode) as (w, lookout):
        w.fabric.fault = failing("get_xfer_telemetry", times=99, who=poster)
        if mode == "Push":
            registration_first(w)
        else:
            w.prefill(P1, 100)
            w.settle(3)
            w.decode(D1, 100, of=P1)
            w.settle()
        d = lookout.only("telemetry_missing")
        reproduced(lookout.named(d.code), f"{mode.lower()}: NIXL of {poster} has no telemetry")
        assert (d.subject, d.severity.value) == (f"engine-{poster}", severity)


def test_an_incompatible_peer(tmp_path: Path, reproduced):
    with watched(tmp_path) as (w, lookout):
        w.engines["D"].workers[0].nixl.compat_hash = "of another model"
        w.decode(D1, 100, of=P1)
        w.settle()
        d = lookout.only("incompatible_engines")
        reproduced(lookout.named(d.code), "D's compatibility hash is of another model")
        assert "D1 refuses to shake hands with P1" in d.sentence


# -- F ------------------------------------------------------------------------------------------------


def test_a_serial_router(tmp_path: Path, reproduced):
    with watched(tmp_path) as (w, lookout):
        for n in range(12):
            w.prefill(f"cmpl-{n}-0-11111111", 40)
            w.settle(3)
            w.pass_time(0.02)
            w.decode(f"cmpl-{n}-0-22222222", 40, of=f"cmpl-{n}-0-11111111", max_tokens=1)
            w.settle(6)
        d = lookout.only("serial_router")
        reproduced(lookout.named(d.code), "12 requests, each sent to P first and then to D")
        assert d.subject == "engine-P"
        for n in range(12, 24):
            w.decode(f"cmpl-{n}-0-22222222", 40, of="x", max_tokens=1)
            w.settle(3)
            w.prefill(f"cmpl-{n}-0-11111111", 40)
            w.settle(6)
        assert lookout.codes() == [], "both at once now"


# -- healthy ------------------------------------------------------------------------------------------

HEALTHY = [
    name
    for name, s in SCENARIOS.items()
    if all(t.outcome in ("delivered", "nothing to receive") and not t.error and not t.pairing for t in s.seen)
]


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_named_where_nothing_is_wrong(tmp_path: Path, name: str):
    s = SCENARIOS[name]
    with watched(tmp_path, s.p, s.d, s.mode, beside=s.beside) as (w, lookout):
        lookout.often = False
        s.play(w)
        named = {d.code: d.severity for d in lookout.engines()}
        assert not any(severity is Severity.ERROR for severity in named.values()), named
        if name != "the state of a write cannot be had":
            assert named.keys() <= {"polling_for_unmatched"}
