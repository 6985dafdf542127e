"""Seams on classes of other releases' forms: older results, leases and ranks, newer matching."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pushscope.connector.push_seams import PUSH
from pushscope.connector.scheduler_seams import ServedMetadata
from pushscope.connector.shapes import num_blocks, pp_and_tp
from pushscope.connector.weave import SeamTable
from pushscope.connector.worker_probe import WorkerProbe
from pushscope.connector.worker_seams import WORKER
from pushscope.telemetry import events as ev

PREFIX = b"PUSH_REG:"
P, D = "cmpl-a-0-11111111", "cmpl-a-0-22222222"
OTHER_P = "chatcmpl-b-0-33333333"
"""No base id in common with D."""


class Recorder:
    """Keeps events as they come."""

    def __init__(self, mode: str = "push"):
        self.origin = SimpleNamespace(mode=mode)
        self.events: list[Any] = []
        self.open: dict[Any, Any] = {}
        self.failures: list[Any] = []
        self.steps = 0

    def record(self, event: Any) -> None:
        self.events.append(event)

    def begin(self, key: Any, event: Any) -> None:
        self.open[key] = event
        self.record(event)

    def end(self, key: Any) -> None:
        self.open.pop(key, None)

    def step(self) -> None:
        self.steps += 1

    def failed(self, error: BaseException, where: str = "") -> None:
        self.failures.append((where, error))

    def took(self, ns: int) -> None: ...

    def of(self, kind: type) -> list[Any]:
        return [e for e in self.events if isinstance(e, kind)]


def instrumented(cls: type, table: SeamTable) -> tuple[Any, Recorder]:
    """An object of ``cls`` with the table's seams, as the facade makes it, and what is recorded of it."""
    worker, recorder = cls(), Recorder()
    probe = WorkerProbe(worker, recorder, lambda request_id: request_id, PREFIX)  # type: ignore[arg-type]
    worker.__class__ = table.woven(cls, probe)
    return worker, recorder


# -- results and leases, by release -------------------------------------------------------------------


@dataclass
class Results:
    finished_sending: set[str] = field(default_factory=set)
    finished_recving: set[str] = field(default_factory=set)
    failed_recving: set[str] = field(default_factory=set)


class Leases:
    """What a worker of any release has, as far as these seams look."""

    def __init__(self) -> None:
        self._reqs_to_send: dict[str, float] = {}
        self.notified: set[str] = set()
        self.received: set[str] = set()
        self.failed: set[str] = set()

    def _get_new_notifs(self) -> set[str]:
        for request_id in self.notified:
            del self._reqs_to_send[request_id]
        done, self.notified = self.notified, set()
        return done

    def _reap(self) -> set[str]:
        expired = {r for r, expiry in self._reqs_to_send.items() if expiry <= time.perf_counter()}
        for request_id in expired:
            del self._reqs_to_send[request_id]
        return expired


class Before030(Leases):
    """``get_finished`` gives sets and reaps; that a receive failed is known to it alone."""

    def _handle_failed_transfer(self, req_id: str, handle: int | None) -> None:
        self.failed.add(req_id)

    def get_finished(self) -> tuple[set[str], set[str]]:
        sent = self._get_new_notifs()
        return sent | self._reap(), self.received | self.failed


class Of030(Leases):
    """``get_transfer_results`` reaps; ``get_finished`` calls it."""

    def _handle_failed_transfer(self, req_id: str, handle: int | None, failed: set[str]) -> bool:
        self.failed.add(req_id)
        return True

    def get_transfer_results(self) -> Results:
        sent = self._get_new_notifs()
        return Results(sent | self._reap(), self.received | self.failed, self.failed)

    def get_finished(self) -> tuple[set[str], set[str]]:
        results = self.get_transfer_results()
        return results.finished_sending, results.finished_recving


class Since031(Of030):
    """Reaping has a method of its own."""

    def _reap_expired_send_leases(self, done_sending: set[str]) -> None:
        done_sending |= self._reap()

    def get_transfer_results(self) -> Results:
        sent = self._get_new_notifs()
        self._reap_expired_send_leases(sent)
        return Results(sent, self.received | self.failed, self.failed)


RELEASES = pytest.mark.parametrize("cls", [Before030, Of030, Since031])


def results_call(worker: Any) -> Any:
    """As that release's connector calls it."""
    return getattr(worker, "get_transfer_results", worker.get_finished)()


@RELEASES
def test_results_are_recorded_once_with_what_failed(cls):
    worker, recorder = instrumented(cls, WORKER)
    worker.received = {"came"}
    extra = () if cls is Before030 else (set(),)
    worker._handle_failed_transfer("failed", None, *extra)
    results_call(worker)
    assert [e.request_id for e in recorder.of(ev.ReceiveDone)] == ["came"]
    assert [e.request_id for e in recorder.of(ev.ReceiveFailed)] == ["failed"]
    assert (recorder.steps, recorder.failures) == (1, [])


@RELEASES
def test_the_older_call_is_not_recorded_beside_the_newer(cls):
    worker, recorder = instrumented(cls, WORKER)
    worker.received = {"came"}
    worker.get_finished()
    assert len(recorder.of(ev.ReceiveDone)) == recorder.steps == 1


@RELEASES
def test_only_leases_that_ran_out_are_expired(cls):
    worker, recorder = instrumented(cls, WORKER)
    t = time.perf_counter()
    worker._reqs_to_send = {"over": t - 1, "held": t + 60, "fetched": t + 60, "fetched late": t - 1}
    worker.notified = {"fetched", "fetched late"}
    results_call(worker)
    results_call(worker)
    assert [e.request_id for e in recorder.of(ev.LeaseExpired)] == ["over"]
    assert recorder.failures == []


@RELEASES
def test_no_results_call_is_missed_in_any_release(cls):
    missing = WORKER.missing_in(cls)
    assert not [why for why in missing if why.split()[0] in {"get_transfer_results", "get_finished"}]
    assert not [why for why in missing if "lease" in why or "notifs" in why]


# -- ranks, with and without pipeline stages ----------------------------------------------------------


@pytest.mark.parametrize(("rank", "pair"), [(3, (0, 3)), ((1, 2), (1, 2))])
def test_a_rank_of_either_form_is_a_pair(rank, pair):
    assert pp_and_tp(rank) == pair
    recorder = Recorder()
    worker = SimpleNamespace(_remote_agents={"engine": {rank: "agent"}})
    probe = WorkerProbe(worker, recorder, str, PREFIX)  # type: ignore[arg-type]
    assert probe.rank_of("engine", "agent") == pair
    assert ServedMetadata({rank: b"metadata"}, recorder)[rank] == b"metadata"  # type: ignore[arg-type]
    (served,) = recorder.events
    assert (served.pp, served.tp) == pair
    assert recorder.failures == []


@pytest.mark.parametrize("blocks", [[1, 2, 3], ([1, 2], [3]), []])
def test_blocks_are_counted_in_either_form(blocks):
    assert num_blocks(blocks) == (3 if blocks else 0)


# -- matching -----------------------------------------------------------------------------------------


def base(request_id: str) -> str:
    return request_id[:-9]


class ById:
    """As vLLM matches up to 0.33: by the same id, then by the same base id."""

    def __init__(self) -> None:
        self._pending_d_registrations: dict[str, dict[str, Any]] = {}
        self._push_finished_blocks: dict[str, Any] = {}

    def _pop_matching_registration(self, request_id: str) -> dict[str, Any] | None:
        for d_id in list(self._pending_d_registrations):
            if base(d_id) == base(request_id):
                return self._pending_d_registrations.pop(d_id)
        return None

    def _pop_matching_finished_blocks(self, request_id: str) -> tuple[str, Any] | None:
        for p_id in list(self._push_finished_blocks):
            if base(p_id) == base(request_id):
                return p_id, self._push_finished_blocks.pop(p_id)
        return None

    def _handle_push_reg_notif(self, notif: bytes) -> None:
        registration = msgspec.msgpack.decode(notif[len(PREFIX) :])
        if self._pop_matching_finished_blocks(registration["request_id"]) is None:
            self._pending_d_registrations[registration["request_id"]] = registration

    def finished(self, request_id: str, transfer_id: str | None = None) -> None:
        """Blocks come to the writer."""
        if self._pop_matching_registration(request_id) is None:
            self._push_finished_blocks[request_id] = ["blocks"]


class ByTransferId(ById):
    """By the router's transfer_id, by ids only where a side has none.

    After the design document on vLLM's main branch: its code was not at hand.
    """

    def __init__(self) -> None:
        super().__init__()
        self.transfer_ids: dict[str, str | None] = {}

    def _pop_matching_registration(
        self, request_id: str, transfer_id: str | None = None
    ) -> dict[str, Any] | None:
        for d_id, registration in self._pending_d_registrations.items():
            if transfer_id and registration.get("transfer_id") == transfer_id:
                return self._pending_d_registrations.pop(d_id)
        return super()._pop_matching_registration(request_id)

    def _pop_matching_finished_blocks(
        self, request_id: str, transfer_id: str | None = None
    ) -> tuple[str, Any] | None:
        for p_id in self._push_finished_blocks:
            if transfer_id and self.transfer_ids.get(p_id) == transfer_id:
                return p_id, self._push_finished_blocks.pop(p_id)
        return super()._pop_matching_finished_blocks(request_id)

    def _handle_push_reg_notif(self, notif: bytes) -> None:
        registration = msgspec.msgpack.decode(notif[len(PREFIX) :])
        d_id, transfer_id = registration["request_id"], registration.get("transfer_id")
        if self._pop_matching_finished_blocks(d_id, transfer_id=transfer_id) is None:
            self._pending_d_registrations[d_id] = registration

    def finished(self, request_id: str, transfer_id: str | None = None) -> None:
        if self._pop_matching_registration(request_id, transfer_id=transfer_id) is None:
            self._push_finished_blocks[request_id], self.transfer_ids[request_id] = ["blocks"], transfer_id


class HandsOverNoTransferId(ByTransferId):
    """The same, by a look-up that is not handed P's transfer_id."""

    def _pop_matching_registration(self, request_id: str) -> dict[str, Any] | None:  # type: ignore[override]
        return super()._pop_matching_registration(request_id, self.transfer_ids.get(request_id))

    def finished(self, request_id: str, transfer_id: str | None = None) -> None:
        self.transfer_ids[request_id] = transfer_id
        if self._pop_matching_registration(request_id) is None:
            self._push_finished_blocks[request_id] = ["blocks"]


def registration(d_id: str, transfer_id: str | None = None) -> bytes:
    fields = {"request_id": d_id, "decode_engine_id": "engine-D", "local_block_ids": [[1, 2]]}
    return PREFIX + msgspec.msgpack.encode(fields | ({"transfer_id": transfer_id} if transfer_id else {}))


def met(cls: type, p_id: str, p_transfer: str | None, d_transfer: str | None, *, blocks_first: bool) -> Any:
    """The match of one request, and that nothing is left open."""
    worker, recorder = instrumented(cls, PUSH)
    if blocks_first:
        worker.finished(p_id, p_transfer)
    worker._handle_push_reg_notif(registration(D, d_transfer))
    if not blocks_first:
        worker.finished(p_id, p_transfer)
    assert recorder.failures == []
    assert recorder.open == {}
    (matched,) = recorder.of(ev.Matched)
    assert (matched.request_id, matched.peer_request_id, matched.peer_engine) == (p_id, D, "engine-D")
    assert matched.blocks_first is blocks_first
    return matched.key


ORDERS = pytest.mark.parametrize("blocks_first", [True, False])


@ORDERS
@pytest.mark.parametrize("cls", [ById, ByTransferId, HandsOverNoTransferId])
def test_ids_match_where_the_router_sets_no_transfer_id(cls, blocks_first):
    assert met(cls, P, None, None, blocks_first=blocks_first) == "base_id"
    assert met(cls, D, None, None, blocks_first=blocks_first) == "exact"


@ORDERS
@pytest.mark.parametrize("cls", [ByTransferId, HandsOverNoTransferId])
def test_requests_without_a_common_id_match_by_their_transfer_id(cls, blocks_first):
    assert met(cls, OTHER_P, "t-1", "t-1", blocks_first=blocks_first) == "transfer_id"


@ORDERS
def test_the_transfer_id_is_what_matched_where_the_ids_do_too(blocks_first):
    assert met(ByTransferId, P, "t-1", "t-1", blocks_first=blocks_first) == "transfer_id"


@ORDERS
@pytest.mark.parametrize(("p_transfer", "d_transfer"), [("t-1", None), (None, "t-1")])
def test_one_side_without_a_transfer_id_matches_by_base_id(p_transfer, d_transfer, blocks_first):
    assert met(ByTransferId, P, p_transfer, d_transfer, blocks_first=blocks_first) == "base_id"


def test_of_two_attempts_the_transfer_id_picks_its_own():
    worker, recorder = instrumented(ByTransferId, PUSH)
    worker._handle_push_reg_notif(registration("cmpl-a-0-aaaaaaaa", "t-1"))
    worker._handle_push_reg_notif(registration("cmpl-a-0-bbbbbbbb", "t-2"))
    worker.finished(P, "t-2")
    (matched,) = recorder.of(ev.Matched)
    assert (matched.peer_request_id, matched.key) == ("cmpl-a-0-bbbbbbbb", "transfer_id")
    assert list(recorder.open) == [("registration", "cmpl-a-0-aaaaaaaa")]


def test_a_registration_tells_its_transfer_id():
    worker, recorder = instrumented(ByTransferId, PUSH)
    worker._handle_push_reg_notif(registration(D, "t-1"))
    (told,) = recorder.of(ev.TraceContext)
    assert (told.request_id, told.transfer_id, told.peer_engine) == (D, "t-1", "engine-D")


def test_no_transfer_id_is_remembered_after_the_match():
    worker, _ = instrumented(ByTransferId, PUSH)
    probe = woven_probe(worker)
    worker.finished(P, "t-1")
    assert probe.transfer_ids == {P: "t-1"}
    worker._handle_push_reg_notif(registration(D, "t-1"))
    assert probe.transfer_ids == {}


def woven_probe(worker: Any) -> Any:
    function = type(worker)._pop_matching_registration
    return function.__closure__[function.__code__.co_freevars.index("probe")].cell_contents
