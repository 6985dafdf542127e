"""The instrumented connector on vLLM's own engine cores with real NIXL between them."""

from __future__ import annotations

import importlib
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from types import ModuleType, SimpleNamespace

import msgspec
import pytest

from pushscope.lab.demo import ALWAYS_SEEN
from pushscope.lab.ports import free_ports
from pushscope.telemetry import events as ev
from pushscope.telemetry.recorder import SWITCH_NAME, now
from pushscope.telemetry.source import RingsSource
from pushscope.telemetry.transfer import Outcome, Stage, Transfer
from pushscope.telemetry.watch import Watcher

from .pair import BLOCK, LEASE_S, BrokenSeamError, Pair, make_pair

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]

SEAMS = [
    "on_new_request",
    "update_state_after_alloc",
    "request_finished",
    "build_connector_meta",
    "update_connector_output",
    "start_load_kv",
    "get_transfer_results",
    "_reap_expired_send_leases",
    "_send_registration_to_p",
    "_do_send_reg_notif",
    "_handle_push_reg_notif",
    "_pop_matching_registration",
    "_pop_matching_finished_blocks",
    "_do_start_push_kv",
    "_xfer_blocks",
    "_ensure_handshake",
]
"""Seams that every transfer passes through, in one order of the rendezvous or the other."""

ELSEWHERE = ["shutdown", "_handle_heartbeat", "_log_failure", "_nixl_handshake", "_cleanup_remote_engine"]
"""Seams that a plain transfer does not pass through."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("pair") / "rings", free_ports(2))


@pytest.fixture
def watcher(pair: Pair) -> Iterator[Watcher]:
    """Follows what happens from now on."""
    watcher = Watcher(RingsSource(pair.folder))
    watcher.poll()
    watcher.assembler.close_all()
    watcher.assembler.recent.clear()
    yield watcher
    watcher.source.close()


def seen(watcher: Watcher) -> list[Transfer]:
    watcher.poll()
    s = watcher.snapshot()
    return [*s.in_flight, *s.waiting, *s.recent]


def test_all_seams_fit_this_vllm(pair):
    from pushscope.connector.facade import worker_seams
    from pushscope.connector.scheduler_seams import SCHEDULER

    woven = [
        (SCHEDULER, type(pair.p.scheduler.connector.connector_scheduler)),
        (worker_seams("push"), type(pair.p.agent.connector_worker)),
    ]
    assert [table.missing_in(cls) for table, cls in woven] == [[], []]
    fitting = {seam.method for table, cls in woven for seam in table.fitting(cls)}
    assert sorted(fitting) == sorted({*SEAMS, *ELSEWHERE})


@pytest.mark.parametrize("num_tokens", [1, BLOCK, BLOCK + 1, 300, 2000])
@pytest.mark.parametrize("order", ["both", "p first", "d first"])
def test_tokens_are_those_of_one_engine_and_every_stage_is_seen(pair, watcher, num_tokens, order):
    assert pair.transfer(num_tokens, order=order) == pair.reference(num_tokens)
    (t,) = seen(watcher)
    assert t.outcome is Outcome.DELIVERED
    assert (t.p_engine, t.d_engine) == ("engine-P", "engine-D")
    assert t.num_tokens == num_tokens
    assert t.num_blocks == -(-num_tokens // BLOCK)
    assert t.num_bytes == t.num_blocks * BLOCK * 2 * 2 * 2 * 32 * 4, "layers, K and V, heads, size, float32"
    assert (t.ranks_done, t.ranks) == (1, 1)
    assert {s.stage for s in t.stages} - {Stage.HANDSHAKE} == ALWAYS_SEEN
    assert all(s.end_ns is not None and s.end_ns >= s.start_ns for s in t.stages)
    assert t.exposed_ns is not None
    assert sum(s.seconds or 0 for s in t.path) <= t.exposed_ns / 1e9
    if order != "both":
        assert t.order == ("blocks first" if order == "p first" else "registration first")
    assert watcher.snapshot().totals.events_lost == 0


def test_the_first_transfer_of_a_pair_shows_its_handshake(pair):
    pair.transfer()
    source = RingsSource(pair.folder)
    kinds = [ev.decode(payload) for _, payload in source.poll().events]
    source.close()
    ended = [e for e in kinds if isinstance(e, ev.HandshakeEnded)]
    assert {e.peer_engine for e in ended} == {"engine-P", "engine-D"}
    assert all(e.error == "" and e.num_ranks == 1 for e in ended)
    assert {e.peer_engine for e in kinds if isinstance(e, ev.PeerRank)} == {"engine-P", "engine-D"}
    assert sum(isinstance(e, ev.SideChannelServed) for e in kinds) == 2
    assert any(isinstance(e, ev.TransferDeferred) for e in kinds)
    assert any(isinstance(e, ev.TransferResumed) for e in kinds)


class TestBroken:
    """An exception thrown inside any seam never reaches vLLM."""

    @pytest.mark.parametrize("seam", SEAMS)
    def test_one_seam(self, pair, seam):
        calls = pair.seams.calls[seam]
        dropped = sum(r.dropped for r in pair.recorders)
        with pair.broken(seam):
            tokens = [pair.transfer(100, order=order) for order in ("p first", "d first")]
        assert tokens == [pair.reference(100)] * 2
        assert pair.seams.calls[seam] > calls, "the seam was passed through"
        assert sum(r.dropped for r in pair.recorders) > dropped, "its failure was counted"

    def test_all_seams_at_once(self, pair):
        with pair.broken(*SEAMS, *ELSEWHERE):
            assert pair.transfer(300) == pair.reference(300)

    def test_the_nixl_proxy_and_the_queues(self, pair, monkeypatch):
        def broken(request_id: str) -> str:
            raise BrokenSeamError(request_id)

        dropped = sum(r.dropped for r in pair.recorders)
        for probe in pair.probes:
            monkeypatch.setattr(probe, "id", broken)
        tokens = [pair.transfer(100, order=order) for order in ("p first", "d first")]
        monkeypatch.undo()
        assert tokens == [pair.reference(100)] * 2
        assert sum(r.dropped for r in pair.recorders) > dropped

    def test_a_ring_that_cannot_be_written(self, pair, monkeypatch):
        def broken(payload: bytes) -> None:
            raise OSError("no such luck")

        for recorder in pair.recorders:
            monkeypatch.setattr(recorder._ring, "write", broken)
        assert pair.transfer(300) == pair.reference(300)
        monkeypatch.undo()

    def test_it_records_again_afterwards(self, pair, watcher):
        pair.transfer()
        assert [t.outcome for t in seen(watcher)] == [Outcome.DELIVERED]


class TestFallback:
    """Whatever fails at class creation or import, the user gets vLLM's plain connector and one log line."""

    @pytest.fixture
    def plain(self):
        return importlib.import_module("vllm.distributed.kv_transfer.kv_connector.v1.nixl").NixlPushConnector

    @pytest.fixture
    def connector(self, monkeypatch):
        from pushscope import connector

        monkeypatch.delitem(connector.__dict__, "NixlPushConnector", raising=False)
        return connector

    @pytest.fixture
    def said(self, caplog, monkeypatch):
        monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
        caplog.set_level(logging.WARNING, "vllm.pushscope")
        return lambda: [r.getMessage() for r in caplog.records if r.name == "vllm.pushscope"]

    def test_the_facade_is_vllms_class_under_its_own_name(self, connector, plain):
        cls = connector.NixlPushConnector
        assert cls is not plain
        assert issubclass(cls, plain)
        assert cls.__name__ == "NixlPushConnector"
        assert connector.NixlPushConnector is cls

    def test_at_import(self, connector, plain, monkeypatch, said):
        class Bomb(ModuleType):
            def __getattr__(self, name):
                raise SyntaxError("as if the module were broken")

        monkeypatch.setitem(sys.modules, "pushscope.connector.facade", Bomb("facade"))
        assert connector.NixlPushConnector is plain
        assert said() == ["pushscope could not be loaded; serving with vLLM's plain NixlPushConnector"]

    def test_at_class_creation(self, connector, plain, monkeypatch, said):
        from pushscope.connector import facade

        monkeypatch.setattr(facade, "_facade", lambda upstream, mode: 1 / 0)
        assert connector.NixlPushConnector is plain
        assert said() == ["pushscope could not instrument NixlPushConnector; serving with vLLM's own"]

    @pytest.mark.parametrize("error", [ZeroDivisionError("x"), AttributeError("vLLM moved it")])
    def test_at_instrumenting(self, monkeypatch, said, error):
        from pushscope.connector import facade

        def broken(connector, config, mode):
            raise error

        class Upstream:
            def __init__(self, vllm_config, role, kv_cache_config=None):
                self.made = (vllm_config, role, kv_cache_config)

        monkeypatch.setattr(facade, "_instrument", broken)
        assert facade._facade(Upstream, "push")("config", role="worker").made == ("config", "worker", None)
        assert said() == ["pushscope could not instrument the connector; vLLM's own serves as ever"]

    def test_a_wrong_option_is_named_and_nothing_is_recorded(self, said, tmp_path):
        from pushscope.connector import facade

        class Upstream:
            def __init__(self, vllm_config):
                self.connector_scheduler = self.connector_worker = None

        transfer_config = SimpleNamespace(kv_connector_extra_config={"pushscope": {"dri": str(tmp_path)}})
        facade._facade(Upstream, "push")(SimpleNamespace(kv_transfer_config=transfer_config))
        (line,) = said()
        assert "unknown option 'dri'" in line
        assert list(tmp_path.iterdir()) == []


class TestUnusual:
    def test_a_hostile_request_id(self, pair, watcher):
        lost = sum(r.dropped for r in pair.recorders)
        hostile = "cmpl-\x1b[31m[bold]\u202e" + "x" * 4096 + "-0"
        assert pair.transfer(100, base=hostile) == pair.reference(100)
        (t,) = seen(watcher)
        assert t.outcome is Outcome.DELIVERED
        assert t.base_id.startswith("cmpl-\x1b[31m[bold]")
        assert len(t.p_request or "") < 100
        assert sum(r.dropped for r in pair.recorders) == lost

    def test_an_expired_lease(self, pair, watcher):
        pair.prefill("cmpl-nobody-0", pair.prompt(100))
        pair.step_until(lambda _: any(t.outcome is Outcome.EXPIRED for t in seen(watcher)))
        (t,) = seen(watcher)
        assert t.sides == ("P",) or t.d_request is None
        assert (t.closed_ns or 0) - t.opened_ns == pytest.approx(LEASE_S * 1e9, rel=0.2)

    def test_an_aborted_prefill_leaves_d_waiting_and_a_late_one_frees_it(self, pair, watcher):
        prompt = pair.prompt(100)
        pair.decode("cmpl-late-0", prompt)
        for _ in range(5):
            pair.d.step()
        pair.prefill("cmpl-late-0", prompt)
        pair.p.abort("cmpl-late-0")
        pair.p.step()
        (t,) = seen(watcher)
        assert (t.outcome, t.waits) == (Outcome.WAITING, "D waits for a prefill that P gave up")
        pair.prefill("cmpl-late-0", prompt)
        pair.step_until(lambda found: any(o.finished for o in found))
        pair.settle()
        assert Outcome.DELIVERED in {t.outcome for t in seen(watcher)}

    def test_a_failed_handshake_fails_the_receive(self, pair, watcher):
        pair.decode("cmpl-wrong-0", pair.prompt(100), remote_engine_id="somebody-else")
        outputs = pair.step_until(lambda found: any(o.finished for o in found))
        assert outputs[0].outputs[0].finish_reason == "error"
        (t,) = seen(watcher)
        assert t.outcome is Outcome.FAILED
        assert "engine ID mismatch" in t.error
        assert t.p_engine == "somebody-else"

    def test_trace_context_travels_to_p(self, pair):
        pair.decode("cmpl-traced-0", pair.prompt(100), transfer_id="t-1")
        for _ in range(3):
            pair.d.step()
        pair.prefill("cmpl-traced-0", pair.prompt(100))
        pair.step_until(lambda found: any(o.finished for o in found))
        told = {
            (o.connector_role, e.transfer_id, e.peer_engine)
            for o, e in said(pair)
            if isinstance(e, ev.TraceContext)
        }
        assert {("scheduler", "t-1", ""), ("worker", "t-1", "engine-D")} <= told


def said(pair: Pair) -> list[tuple[ev.Origin, ev.AnyEvent]]:
    """Everything in the rings."""
    with closing(RingsSource(pair.folder)) as source:
        reading = source.poll()
        return [(reading.rings[index].origin, ev.decode(payload)) for index, payload in reading.events]


class TestEveryKind:
    """Events that a plain transfer does not make, each brought about on real engines.

    The last test looks whether any kind of the vocabulary was never recorded.
    """

    def new(self, pair: Pair, kind: type[ev.Event], before: int) -> list[ev.Event]:
        return [e for _, e in said(pair) if isinstance(e, kind) and e.t >= before]

    def test_heartbeats_that_match_extend_the_lease_and_others_do_not(self, pair):
        before = now()
        prompt = pair.prompt(100)
        pair.prefill("cmpl-beats-0", prompt)
        for _ in range(3):
            pair.p.step()
        (p_id,) = pair.p.agent.connector_worker._reqs_to_send
        pair.decode("cmpl-other-0", prompt, remote_request_id=p_id)
        pair.step_until(lambda _: bool(self.new(pair, ev.LeaseExtended, before)))
        (extended, *_) = self.new(pair, ev.LeaseExtended, before)
        assert extended.request_id == p_id
        assert extended.lease_s == pytest.approx(LEASE_S * 2 // 3, abs=0.2), "vLLM extends by two thirds"
        assert any(b.num_ids == 1 and b.first_id == p_id for b in self.new(pair, ev.HeartbeatSent, before))
        assert any(b.applied == 1 and b.ignored == 0 for b in self.new(pair, ev.HeartbeatDrained, before))
        pair.prefill("cmpl-other-0", prompt)
        pair.step_until(lambda found: any(o.finished for o in found))
        pair.decode("cmpl-beats-1", prompt)
        pair.step_until(lambda _: any(b.ignored for b in self.new(pair, ev.HeartbeatDrained, before)))
        pair.prefill("cmpl-beats-1", prompt)
        pair.step_until(lambda found: any(o.finished for o in found))
        pair.step_until(lambda _: not pair.p.agent.connector_worker._reqs_to_send)

    def test_the_watchdog_fires_and_changes_nothing(self, pair, watcher):
        before = now()
        pair.decode("cmpl-dog-0", pair.prompt(100))
        pair.step_until(lambda _: bool(self.new(pair, ev.WatchdogFired, before)))
        (t,) = [t for t in seen(watcher) if t.base_id == "cmpl-dog-0"]
        assert (t.outcome, t.waits) == (Outcome.WAITING, "D waits for P's prefill")
        pair.prefill("cmpl-dog-0", pair.prompt(100))
        pair.step_until(lambda found: any(o.finished for o in found))

    def test_blocks_that_nobody_takes_expire_and_are_evicted(self, pair):
        before = now()
        pair.prefill("cmpl-evicted-0", pair.prompt(100))
        pair.step_until(lambda _: bool(self.new(pair, ev.Evicted, before)))
        (evicted,) = self.new(pair, ev.Evicted, before)
        assert (evicted.had_blocks, evicted.had_registration) == (True, False)
        (expired,) = self.new(pair, ev.LeaseExpired, before)
        assert expired.request_id == evicted.request_id

    def test_a_notification_that_nobody_knows(self, pair):
        before = now()
        pair.p.agent.connector_worker.nixl_wrapper.send_notif(agent_of(pair), notif_msg=b"nobody:1")
        pair.transfer()
        assert [e.request_id for e in self.new(pair, ev.NotificationUnrecognised, before)] == ["nobody"]

    def test_a_preempted_request(self, pair):
        before = now()
        base = "cmpl-preempted-0"
        pair.decode(base, pair.prompt(100), max_tokens=200)
        pair.prefill(base, pair.prompt(100))
        pair.step_until(lambda found: any(len(o.outputs[0].token_ids) > 3 for o in found))
        pair.d.scheduler.reset_prefix_cache(reset_running_requests=True)
        pair.step_until(lambda found: any(o.finished for o in found))
        assert [e.request_id[:16] for e in self.new(pair, ev.RequestPreempted, before)] == [base]

    def test_a_request_that_d_drops_before_it_is_scheduled(self, pair):
        before = now()
        pair.decode("cmpl-dropped-0", pair.prompt(100))
        pair.d.abort("cmpl-dropped-0")
        pair.d.step()
        assert [e.reason for e in self.new(pair, ev.NothingToReceive, before)] == ["not_scheduled"]

    def test_a_registration_that_cannot_be_sent_to_a_rank(self, pair, monkeypatch):
        before = now()
        worker = pair.d.agent.connector_worker

        def refuse(*args, **kwargs):
            raise ConnectionError("no route")

        monkeypatch.setattr(
            worker.nixl_wrapper, "_agent", Instead(worker.nixl_wrapper._agent, send_notif=refuse)
        )
        pair.decode("cmpl-unsent-0", pair.prompt(100))
        pair.step_until(lambda _: bool(self.new(pair, ev.RegistrationFailed, before)))
        (failed, *_) = self.new(pair, ev.RegistrationFailed, before)
        assert (failed.error_type, failed.to_rank, failed.peer_tp) == ("push_reg_notif_failed", True, 0)
        assert "no route" in failed.error
        pair.d.abort("cmpl-unsent-0")
        pair.d.step()

    def test_a_write_that_cannot_be_posted(self, pair, watcher, monkeypatch):
        proxy = pair.p.agent.connector_worker.nixl_wrapper

        def refuse(handle, *args):
            raise RuntimeError("NIXL_ERR_BACKEND")

        monkeypatch.setattr(proxy, "_agent", Instead(proxy._agent, transfer=refuse))
        pair.decode("cmpl-unposted-0", pair.prompt(100))
        pair.prefill("cmpl-unposted-0", pair.prompt(100))
        pair.step_until(lambda _: Outcome.FAILED in {t.outcome for t in seen(watcher)})
        (t,) = [t for t in seen(watcher) if t.outcome is Outcome.FAILED]
        assert t.error == "transfer_setup_failed: RuntimeError('NIXL_ERR_BACKEND')"
        assert Stage.SUBMIT in {s.stage for s in t.stages}
        monkeypatch.undo()
        pair.d.abort("cmpl-unposted-0")
        pair.step_until(lambda _: not pair.p.agent.connector_worker._reqs_to_send)
        assert pair.transfer() == pair.reference()

    def test_vllms_own_log_lines_name_their_own_file(self, pair, caplog, monkeypatch):
        monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
        pair.decode("cmpl-logged-0", pair.prompt(100), remote_engine_id="somebody-else")
        pair.step_until(lambda found: any(o.finished for o in found))
        failures = [r for r in caplog.records if "NIXL transfer failure" in r.getMessage()]
        assert {r.filename for r in failures} == {"base_worker.py", "push_worker.py"}

    def test_a_push_of_nothing(self, pair):
        before = now()
        worker = pair.p.agent.connector_worker
        worker._do_start_push_kv("cmpl-empty-0-aaaaaaaa", (), {"decode_engine_id": "engine-D"})
        assert [e.request_id for e in self.new(pair, ev.NothingToPush, before)] == ["cmpl-empty-0-aaaaaaaa"]

    def test_an_exception_in_the_writer_and_what_was_lost_with_it(self, pair):
        before = now()
        worker = pair.p.agent.connector_worker
        pair.prefill("cmpl-victim-0", pair.prompt(100))
        pair.step_until(lambda _: bool(worker._push_finished_blocks))
        prefix = worker.nixl_wrapper._registration_prefix
        broken = prefix + msgspec.msgpack.encode(
            {"request_id": "cmpl-victim-0-bbbbbbbb", "local_block_ids": [[1]]}
        )
        notifications = {"agent": [broken, b"later:1", b"latest:1"]}
        real = worker.nixl_wrapper._agent
        once = iter([notifications])
        worker.nixl_wrapper._agent = Instead(real, get_new_notifs=lambda *_: next(once, {}))
        pair.step_until(lambda _: bool(self.new(pair, ev.WriterException, before)))
        worker.nixl_wrapper._agent = real
        (exception,) = self.new(pair, ev.WriterException, before)
        assert exception.where in ("_do_start_push_kv", "_handle_push_reg_notif")
        assert exception.request_id.startswith("cmpl-victim-0")
        assert exception.notifications_lost == 2
        assert "decode_engine_id" in exception.error
        assert pair.transfer() == pair.reference()

    def test_what_vllm_raises_on_the_main_thread_is_said_and_goes_on_its_way(self, pair):
        before = now()
        with pytest.raises(AttributeError):
            pair.d.scheduler.connector.connector_scheduler.update_connector_output(None)
        (raised,) = self.new(pair, ev.ConnectorRaised, before)
        assert raised.where == "update_connector_output"
        assert raised.error.startswith("AttributeError(")

    def test_switched_off_and_failing(self, pair):
        recorder = pair.recorders[0]
        recorder.failed(BrokenSeamError("on purpose"))
        flag = pair.folder / SWITCH_NAME
        flag.touch()
        pair.step_until(
            lambda _: recorder.record is not recorder._record and recorder.record != recorder._record
        )
        flag.unlink()
        pair.step_until(lambda _: recorder.record == recorder._record)
        end = time.monotonic() + 2.5
        pair.step_until(lambda _: time.monotonic() > end)
        kinds = {type(e) for _, e in said(pair)}
        assert {ev.RecordingSwitched, ev.EventsDropped, ev.Loop, ev.Tables} <= kinds

    def test_a_side_channel_request_that_kills_the_listener(self, pair):
        import zmq

        before = now()
        with zmq.Context() as context, context.socket(zmq.REQ) as sock:
            sock.connect(f"tcp://127.0.0.1:{pair.d.port}")
            sock.send(b"\xc1 is no msgpack")
            end = time.monotonic() + 10
            while not self.new(pair, ev.ListenerDead, before) and time.monotonic() < end:
                time.sleep(0.05)
        (dead,) = self.new(pair, ev.ListenerDead, before)
        assert dead.error
        assert pair.transfer() == pair.reference(), "peers that know it go on"

    def test_every_kind_of_the_vocabulary_was_recorded(self, pair):
        pair.p.scheduler.connector.shutdown()
        pair.d.scheduler.connector.shutdown()
        kinds = {type(e) for _, e in said(pair)}
        pull_only = {ev.ReadStaged, ev.ReadHandedOff, ev.NotificationSent}
        assert sorted(k.__name__ for k in ev.KINDS if k not in kinds | pull_only) == []
        with closing(RingsSource(pair.folder)) as source:
            alive = {r.origin.connector_role: r.alive for r in source.poll().rings}
        assert alive == {"scheduler": False, "worker": True}


class Instead:
    """An agent some of whose calls are replaced."""

    def __init__(self, agent, **calls):
        self._agent = agent
        self.__dict__.update(calls)

    def __getattr__(self, name):
        return getattr(self._agent, name)


def agent_of(pair: Pair) -> str:
    """D's NIXL agent as P knows it."""
    return pair.p.agent.connector_worker._remote_agents["engine-D"][(0, 0)]
