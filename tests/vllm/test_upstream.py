"""In place: what a test of vLLM's imports, makes by hand or dresses up is what pushscope makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from upstream.hub import CONFIGURATIONS, ENGINES, make_hub
from upstream.outcome import Outcome
from upstream.run import run

pytestmark = pytest.mark.vllm

PLAIN_IF_NOT_IN_PLACE = """
from queue import Queue
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import nixl
from vllm.distributed.kv_transfer.kv_connector.v1.nixl import NixlConnector
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_worker import NixlPushConnectorWorker as Worker
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_scheduler import NixlPushConnectorScheduler


def ours(cls):
    return cls.__init__.__globals__["__name__"] == "pushscope.connector.facade"


def test_names():
    for name in ("NixlPushConnector", "NixlPullConnector", "NixlConnector"):
        assert ours(getattr(nixl, name))
        assert KVConnectorFactory.get_connector_class_by_name(name) is getattr(nixl, name)
    assert ours(NixlConnector)


class Stub(Worker):
    def _reap_expired_send_leases(self, done_sending):
        self.reaped = True
        super()._reap_expired_send_leases(done_sending)


def bare(cls=Worker):
    w = object.__new__(cls)
    w._reqs_to_send, w._reqs_to_process = {"p-1": 0.0}, {"p-1"}
    w._evict_finished_inbox = Queue()
    w._evict_finished_inbox.put("d-9")
    w._push_finished_blocks, w._pending_d_registrations = {}, {"d-9": {}}
    w.consumer_notification_counts_by_req, w.expected_consumer_notifications_by_req = {}, {}
    w.xfer_stats = MagicMock()
    return w


def test_made_without_init():
    w = bare()
    done = set()
    w._reap_expired_send_leases(done)
    assert done == {"p-1"}
    assert type(w) is not Worker and type(w).__name__ == "NixlPushConnectorWorker"
    assert w._evict_finished_inbox.get_nowait() == "d-9"


def test_a_subclass_of_the_tests_own():
    w = bare(Stub)
    w._reap_expired_send_leases(set())
    assert w.reaped
    assert isinstance(w, Stub) and type(w) is not Stub


def test_called_on_something_else():
    w = SimpleNamespace(_reqs_to_send={}, _reqs_to_process=set())
    Worker._reap_expired_send_leases(w, set())


def test_the_fake_agent_is_the_tests_and_calls_to_it_go_through_the_proxy():
    w = bare()
    assert not hasattr(w, "nixl_wrapper")
    w._reap_expired_send_leases(set())
    assert not hasattr(w, "nixl_wrapper")
    w.nixl_wrapper = fake = MagicMock()
    assert w.nixl_wrapper is fake
    seen_by_vllm = {"__name__": "vllm.anything", "w": w}
    exec("agent = w.nixl_wrapper", seen_by_vllm)
    assert type(seen_by_vllm["agent"]).__mro__[1].__module__ == "pushscope.connector.nixl_proxy"
    fake.check_xfer_state = lambda handle: f"state of {handle}"
    assert seen_by_vllm["agent"].check_xfer_state(7) == "state of 7"


def test_what_a_bare_instance_lacks_is_lost_to_the_recording_alone():
    s = object.__new__(NixlPushConnectorScheduler)
    with pytest.raises(AttributeError):
        s.update_connector_output(None)
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    tests = tmp_path_factory.mktemp("vllm") / "tests"
    tests.mkdir()
    (tests / "__init__.py").touch()
    (tests / "test_place.py").write_text(PLAIN_IF_NOT_IN_PLACE)
    at = tmp_path_factory.mktemp("runs") / "in-place"
    outcomes = run(tests, ["test_place.py"], at, in_place=True, environment={})
    assert not list((at / "rings").glob("*.ring")), "read and removed after each test"
    return {o.test.removeprefix("test_place.py::"): o for o in outcomes}


def test_what_such_a_test_relies_on_holds(outcomes):
    assert {name: (o.result, o.message) for name, o in outcomes.items() if o.result != "passed"} == {}
    assert len(outcomes) == PLAIN_IF_NOT_IN_PLACE.count("\ndef test_")


def test_the_evidence_is_each_tests_own(outcomes):
    evidence = {name: o.evidence for name, o in outcomes.items()}
    assert evidence["test_names"].instances == {}
    assert evidence["test_called_on_something_else"].instances == {}
    bare = evidence["test_made_without_init"]
    assert bare.instances == {"made without __init__": 1}
    assert bare.events == {"EngineUp": 1, "LeaseExpired": 1, "Evicted": 1}
    assert bare.lost == bare.refused == []


@pytest.mark.parametrize("model", [*CONFIGURATIONS, *ENGINES])
def test_the_hub_is_laid_out_as_its_clients_look_for_it(model, tmp_path):
    from huggingface_hub import constants, try_to_load_from_cache

    environment = make_hub(tmp_path / "home")
    cache = Path(environment["HF_HOME"]) / Path(constants.HF_HUB_CACHE).name
    assert try_to_load_from_cache(model, "config.json", cache_dir=cache)
