"""The proof has teeth: let any seam alter one thing on its way to vLLM, and some scenario comes out differently."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import queue
from collections.abc import Callable
from typing import Any

import pytest

from pushscope.connector import nixl_proxy, queues, scheduler_seams, weave
from pushscope.connector.pull_seams import PULL
from pushscope.connector.push_seams import PUSH
from pushscope.connector.scheduler_seams import SCHEDULER
from pushscope.connector.worker_seams import WORKER
from tests.vllm.fake.play import plain, play

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]  # vLLM's and torch's own

Change = Callable[[dict[str, Any]], None]


def to(**values: Any) -> Change:
    """Put something else in the place of arguments."""
    return lambda arguments: arguments.update(values)


def by(name: str, change: Callable[[Any], Any]) -> Change:
    """Change one argument."""

    def alter(arguments: dict[str, Any]) -> None:
        arguments[name] = change(arguments[name])

    return alter


def _another_id(request: Any) -> Any:
    if (request.kv_transfer_params or {}).get("remote_request_id"):
        request.kv_transfer_params["remote_request_id"] += "x"
    return request


def _without(**nothing: Any) -> Callable[[Any], Any]:
    def change(value: Any) -> Any:
        value = copy.copy(value)
        for name, empty in nothing.items():
            setattr(value, name, empty)
        return value

    return change


FIRST = "registration first"
SEAMS: dict[str, tuple[str, Change | None]] = {
    # method: (the scenario that tells, what is altered; None: the call is left out)
    "on_new_request": ("heartbeats extend the lease", by("request", _another_id)),
    "update_state_after_alloc": (FIRST, to(num_external_tokens=0)),
    "request_finished": (FIRST, by("block_ids", lambda ids: tuple(group[:-1] for group in ids))),
    "build_connector_meta": ("host buffer", by("scheduler_output", _without(scheduled_new_reqs=[]))),
    "update_connector_output": ("a long decode", by("connector_output", _without(finished_recving=None))),
    "shutdown": ("engines shut down", None),
    "start_load_kv": (FIRST, by("metadata", _without(push_registrations={}))),
    "get_transfer_results": (FIRST, None),
    "get_finished": (FIRST, None),
    "_handle_failed_transfer": ("pull, the read fails on its way", by("req_id", lambda id_: id_ + "x")),
    "_get_new_notifs": (FIRST, None),
    "_reap_expired_send_leases": ("the decode leg never comes", by("done_sending", lambda _: set())),
    "_handle_heartbeat": ("heartbeats extend the lease", by("payload", lambda ids: ids + "x")),
    "_log_failure": ("the write fails on its way", to(failure_type="failure")),
    "_ensure_handshake": (FIRST, to(engine_id="somebody-else")),
    "_nixl_handshake": (FIRST, to(expected_engine_id="somebody-else")),
    "_cleanup_remote_engine": ("a peer silent for too long is forgotten", None),
    "_send_registration_to_p": (FIRST, by("reg_data", lambda data: data | {"decode_host": "127.0.0.2"})),
    "_do_send_reg_notif": (FIRST, by("reg_data", lambda data: data | {"decode_host": "127.0.0.2"})),
    "_handle_push_reg_notif": (FIRST, by("notif", lambda notif: notif[:-1])),
    "_pop_matching_registration": (FIRST, to(request_id="another")),
    "_pop_matching_finished_blocks": ("blocks first", to(request_id="another")),
    "_do_start_push_kv": (FIRST, by("request_id", lambda id_: id_ + "x")),
    "_xfer_blocks": (FIRST, by("remote_request_id", lambda id_: id_ + "x")),
    "_background_nixl_handshake": ("pull, TP 1 to 1", by("req_id", lambda id_: id_ + "x")),
    "_read_blocks_for_req": ("pull, TP 1 to 1", by("req_id", lambda id_: id_ + "x")),
    "_read_blocks": ("pull, TP 1 to 1", by("remote_request_id", lambda id_: id_ + "x")),
}
AGENT: dict[str, tuple[str, Change | None]] = {
    "get_new_notifs": (FIRST, None),
    "send_notif": (FIRST, by("kwargs", lambda given: {"notif_msg": given["notif_msg"] + b"x"})),
    "make_prepped_xfer": (FIRST, by("args", lambda args: ("READ", *args[1:]))),
    "transfer": (FIRST, None),
    "check_xfer_state": (FIRST, None),
    "get_xfer_telemetry": (FIRST, None),
    "release_xfer_handle": (FIRST, None),
}


def altered(original: Callable[..., Any], change: Change | None) -> Callable[..., Any]:
    """``original``, reached with other arguments, or not at all."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if change is None:
            return None
        bound = signature.bind(*args, **kwargs)
        change(bound.arguments)
        return original(*bound.args, **bound.kwargs)

    return call


def differs(name: str) -> bool:
    """Whether the scenario comes out differently from plain vLLM, a crash of it included."""
    expected = plain(name)
    try:
        return play(name, instrumented=True).written != expected.written
    except Exception:
        return True


def woven_here() -> set[str]:
    """The methods that carry a seam in the installed release."""
    nixl = "vllm.distributed.kv_transfer.kv_connector.v1.nixl"
    found = set()
    for mode, worker in (("push", WORKER + PUSH), ("pull", WORKER + PULL)):
        for part, table in (("scheduler", SCHEDULER), ("worker", worker)):
            module = importlib.import_module(f"{nixl}.{mode}_{part}")
            cls = getattr(module, f"Nixl{mode.title()}Connector{part.title()}")
            found |= {seam.method for seam in table.fitting(cls)}
    return found


def test_every_seam_is_altered():
    assert SEAMS.keys() == {seam.method for table in (SCHEDULER, WORKER, PUSH, PULL) for seam in table.seams}
    assert len(woven_here()) >= 20
    public = {name for name in vars(nixl_proxy.NixlProxy) if not name.startswith("_")}
    assert AGENT.keys() == public


def test_unaltered_nothing_differs():
    for name in {scenario for scenario, _ in (*SEAMS.values(), *AGENT.values())}:
        assert not differs(name), name


@pytest.mark.parametrize("method", SEAMS)
def test_a_seam_that_alters_something_is_noticed(method, monkeypatch):
    name, change = SEAMS[method]
    if method not in woven_here():
        pytest.skip("another method has its part in this release")
    real = weave.weave

    def weave_altered(original: Any, seam: weave.Seam, probe: Any) -> Any:
        return real(altered(original, change) if seam.method == method else original, seam, probe)

    monkeypatch.setattr(weave, "weave", weave_altered)
    assert differs(name)


@pytest.mark.parametrize("method", AGENT)
def test_a_call_of_nixl_that_is_altered_is_noticed(method, monkeypatch):
    name, change = AGENT[method]
    monkeypatch.setattr(nixl_proxy.NixlProxy, method, altered(getattr(nixl_proxy.NixlProxy, method), change))
    assert differs(name)


@pytest.mark.parametrize(
    ("where", "name"),
    [("eviction", "D comes when the lease is over"), ("notification", "registration first")],
)
def test_a_queue_that_alters_what_is_taken_is_noticed(where, name, monkeypatch):
    def get(self: queues.WatchedQueue) -> Any:
        item = queue.Queue._get(self)
        return item[:-1] if self._where == where else item

    monkeypatch.setattr(queues.WatchedQueue, "_get", get)
    assert differs(name)


def test_a_listener_that_alters_what_it_serves_is_noticed(monkeypatch):
    served = scheduler_seams.ServedMetadata.__getitem__
    monkeypatch.setattr(
        scheduler_seams.ServedMetadata, "__getitem__", lambda self, rank: served(self, rank)[:-1]
    )
    assert differs("registration first")
