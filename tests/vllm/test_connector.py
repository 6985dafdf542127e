"""The instrumented connector on vLLM's own engine cores with real NIXL between them."""

from __future__ import annotations

import importlib
import logging
import socket
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import pytest

from pushscope.telemetry import events as ev
from pushscope.telemetry.source import RingsSource
from pushscope.telemetry.transfer import Outcome, Stage, Transfer
from pushscope.telemetry.watch import Watcher

from .pair import BLOCK, BrokenSeamError, Pair, make_pair

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
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1] % 20_000 + 20_000
    return make_pair(tmp_path_factory.mktemp("pair") / "rings", port)


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
    from pushscope.connector.scheduler_seams import SCHEDULER
    from pushscope.connector.worker_seams import WORKER

    assert SCHEDULER.missing_in(type(pair.p.scheduler.connector.connector_scheduler)) == []
    assert WORKER.missing_in(type(pair.p.agent.connector_worker)) == []
    assert sorted({s.method for t in (SCHEDULER, WORKER) for s in t.seams}) == sorted({*SEAMS, *ELSEWHERE})


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
    stages = {s.stage for s in t.stages} - {Stage.HANDSHAKE}
    assert stages == set(Stage) - {Stage.HANDSHAKE}
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
    assert any(isinstance(e, ev.PushDeferred) for e in kinds)
    assert any(isinstance(e, ev.PushResumed) for e in kinds)


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

        monkeypatch.setattr(facade, "_facade", lambda upstream: 1 / 0)
        assert connector.NixlPushConnector is plain
        assert said() == ["pushscope could not instrument NixlPushConnector; serving with vLLM's own"]

    @pytest.mark.parametrize("error", [ZeroDivisionError("x"), AttributeError("vLLM moved it")])
    def test_at_instrumenting(self, monkeypatch, said, error):
        from pushscope.connector import facade

        def broken(connector, config):
            raise error

        class Upstream:
            def __init__(self, vllm_config, role, kv_cache_config=None):
                self.made = (vllm_config, role, kv_cache_config)

        monkeypatch.setattr(facade, "_instrument", broken)
        assert facade._facade(Upstream)("config", role="worker").made == ("config", "worker", None)
        assert said() == ["pushscope could not instrument the connector; vLLM's own serves as ever"]

    def test_a_wrong_option_is_named_and_nothing_is_recorded(self, said, tmp_path):
        from pushscope.connector import facade

        class Upstream:
            def __init__(self, vllm_config):
                self.connector_scheduler = self.connector_worker = None

        transfer_config = SimpleNamespace(kv_connector_extra_config={"pushscope": {"dri": str(tmp_path)}})
        facade._facade(Upstream)(SimpleNamespace(kv_transfer_config=transfer_config))
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
        assert (t.closed_ns or 0) - t.opened_ns == pytest.approx(3e9, rel=0.2)

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

    def test_trace_context_travels_to_p(self, pair, watcher):
        from pushscope.connector.scheduler_seams import CONTEXT_KEY

        pair.decode("cmpl-traced-0", pair.prompt(100), transfer_id="t-1")
        for _ in range(3):
            pair.d.step()
        scheduler = pair.d.scheduler.connector.connector_scheduler
        assert CONTEXT_KEY == "pushscope"
        assert not scheduler._push_pending_registrations, "shipped"
        pair.prefill("cmpl-traced-0", pair.prompt(100))
        pair.step_until(lambda found: any(o.finished for o in found))
        source = RingsSource(pair.folder)
        reading = source.poll()
        source.close()
        told = [
            (reading.rings[i].origin.connector_role, event.transfer_id)
            for i, payload in reading.events
            if isinstance(event := ev.decode(payload), ev.TraceContext)
        ]
        assert ("scheduler", "t-1") in told
        assert ("worker", "t-1") in told
