"""Seams of the push worker (vLLM's ``nixl/push_worker.py`` and ``base_worker.py``), P's and D's.

Three threads come by: the engine's main thread (``start_load_kv``, ``get_transfer_results`` and what they
call), the ``nixl-push-writer`` (registrations, matching, writes) and the handshake executor.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import msgspec

from pushscope.connector.nixl_proxy import HEARTBEAT, Write, agent_name
from pushscope.connector.scheduler_seams import CONTEXT_KEY, num_blocks
from pushscope.connector.weave import Observation, SeamTable
from pushscope.telemetry.events import (
    BlocksHandedOff,
    BlocksPickedUp,
    DescriptorsStarted,
    EngineDown,
    Event,
    Evicted,
    HandshakeEnded,
    HandshakeQueued,
    HandshakeStarted,
    HeartbeatDrained,
    LeaseExpired,
    LeaseExtended,
    LeaseSet,
    Matched,
    NothingToPush,
    NotificationCounted,
    NotificationUnrecognised,
    PeerRank,
    PushDeferred,
    PushResumed,
    ReceiveDone,
    ReceiveFailed,
    RegistrationDrained,
    RegistrationFailed,
    RegistrationHandedOff,
    Tables,
    TraceContext,
    WriteFailed,
    WriterException,
    cut,
    error_text,
)
from pushscope.telemetry.ids import recorded_engine_id
from pushscope.telemetry.recorder import Recorder, now

WORKER = SeamTable()

_FAILED_BEFORE_A_WRITE = frozenset({"push_handshake_failed", "transfer_setup_failed"})


class _Registration(msgspec.Struct, frozen=True):
    """What is read of a PUSH_REG payload (``push_scheduler.update_state_after_alloc``)."""

    request_id: str
    decode_engine_id: str
    decode_host: str = ""
    decode_port: int = 0
    decode_tp_size: int = 1
    local_block_ids: Any = ()
    pushscope: dict[str, str] | None = None


_decode_registration = msgspec.msgpack.Decoder(_Registration).decode
assert CONTEXT_KEY in _Registration.__struct_fields__


class WorkerProbe:
    """What the observers of one worker share."""

    def __init__(
        self, worker: Any, recorder: Recorder, request_id: Callable[[str], str], registration_prefix: bytes
    ):
        self.worker = worker
        self.recorder = recorder
        self.id = request_id
        self.registration_prefix = registration_prefix

        # Writer thread only.
        self.registering = ("", "")
        """(D request id, P engine id) of the registration that is being sent."""
        self.registrations_tried = 0
        self.drained_engine = ""
        """D's engine, while one of its registrations is handled."""
        self.writing: Write | None = None
        self.writes = 0
        self.pushing: tuple[int, str, str] | None = None
        """(thread, P request id, D engine) in ``_do_start_push_kv``: a handshake that is not done defers it."""
        self.deferred: set[str] = set()
        self._batch: dict[bytes, tuple[str, int]] = {}
        self._lost_with = 0
        self._excepted: BaseException | None = None

        self.sent: defaultdict[str, list[tuple[str, str, str]]] = defaultdict(list)
        """Open registrations of a D request: the recorder's keys."""
        self.handshakes: dict[str, Any] = {}
        """The last handshake future of each peer engine, to tell a new one from one waited for again."""
        recorder.has_work = self._has_work
        recorder.on_tick = self._tables

    # -- looking -----------------------------------------------------------------------------------

    def _has_work(self) -> bool:
        w = self.worker
        return bool(w._recving_metadata or w._reqs_to_send or w._sending_transfers)

    def _tables(self) -> None:
        w = self.worker
        self.recorder.record(
            Tables(
                now(),
                0,
                len(w._push_finished_blocks),
                len(w._pending_d_registrations),
                len(w._sending_transfers),
                len(w._reqs_to_send),
                len(w._recving_metadata),
            )
        )

    def rank_of(self, engine_id: str, agent: Any) -> tuple[int, int]:
        """(pp, tp) of the peer's rank that ``agent`` speaks for."""
        for rank, name in self.worker._remote_agents.get(engine_id, {}).items():
            if name == agent:
                return int(rank[0]), int(rank[1])
        return 0, 0

    def lease_left(self, request_id: str) -> float | None:
        expiry = self.worker._reqs_to_send.get(request_id)
        return None if expiry is None else float(expiry) - time.perf_counter()

    def received(self, request_id: str, event: Event) -> None:
        """The blocks of a D request are there, or will not come: close what was open for it, record why."""
        self.recorder.end(("receive", request_id))
        for key in self.sent.pop(request_id, ()):
            self.recorder.end(key)
        self.recorder.record(event)

    # -- the writer's batch ------------------------------------------------------------------------

    def batch_drained(self, registrations: dict[bytes, tuple[str, int]]) -> None:
        """Registrations just drained: by message, the NIXL agent it came from and how many came after it."""
        self._batch = registrations

    def handling(self, notification: bytes) -> str:
        """The writer turns to a registration: the agent it came from. If it fails, what came after is lost."""
        agent, self._lost_with = self._batch.pop(notification, ("", 0))
        return agent

    @contextmanager
    def writer_exceptions(self, where: str, request_id: str) -> Generator[None]:
        """Record what goes up to the writer loop, once, where it is first seen on its way."""
        try:
            yield
        except Exception as e:
            if e is not self._excepted:
                self._excepted = e
                lost = self._lost_with if self.drained_engine else 0
                self.recorder.record(WriterException(now(), where, self.id(request_id), lost, error_text(e)))
            raise

    def handshake_pending(self) -> None:
        """A handshake is wanted and not done: if this thread is about to push, that push is deferred."""
        if self.pushing is not None and self.pushing[0] == threading.get_ident():
            _, request_id, engine = self.pushing
            self.deferred.add(request_id)
            self.recorder.begin(("deferred", request_id), PushDeferred(now(), self.id(request_id), engine))

    # -- queues ------------------------------------------------------------------------------------

    def evicting(self, request_id: str) -> None:
        """The writer thread takes a finished or expired id; most have nothing left to drop."""
        w = self.worker
        had_blocks = request_id in w._push_finished_blocks
        had_registration = request_id in w._pending_d_registrations
        self.recorder.end(("unmatched", request_id))
        if had_blocks or had_registration:
            self.recorder.record(Evicted(now(), self.id(request_id), had_blocks, had_registration))

    def counting(self, notification: bytes) -> None:
        """The main thread takes a notification that the writer forwarded (``_get_new_notifs``)."""
        if notification.startswith(HEARTBEAT):
            return
        w = self.worker
        request_id, _, tp_size = notification.decode("utf-8").rpartition(":")
        if request_id in w._reqs_to_send or request_id in w._reqs_to_process:
            return
        meta = w._recving_metadata.get(request_id)
        if meta is None:
            self.recorder.record(NotificationUnrecognised(now(), self.id(request_id)))
            return
        n = w.consumer_notification_counts_by_req.get(request_id, 0) + 1
        counted = NotificationCounted(
            now(), self.id(request_id), n, int(tp_size), getattr(meta, "pp_size", 1)
        )
        self.recorder.record(counted)


# -- main thread --------------------------------------------------------------------------------------


@WORKER.seam("start_load_kv", timed=True)
def _start(probe: WorkerProbe, metadata: Any) -> Observation:
    t = now()
    recorder = probe.recorder
    # Before the call: in it they reach the writer thread, which may end what is begun here.
    for request_id in metadata.push_registrations:
        recorder.begin(("receive", request_id), RegistrationHandedOff(t, probe.id(request_id)))
    for request_id, blocks in metadata.push_finished_blocks.items():
        handed_off = BlocksHandedOff(t, probe.id(request_id), num_blocks(blocks))
        recorder.begin(("unmatched", request_id), handed_off)
    yield
    for request_id in metadata.reqs_to_send:
        if (left_s := probe.lease_left(request_id)) is not None:
            recorder.record(LeaseSet(now(), probe.id(request_id), left_s))


@WORKER.seam("get_transfer_results", timed=True)
def _results(probe: WorkerProbe) -> Observation:
    results = yield
    t = now()
    for request_id in results.finished_recving:
        kind = ReceiveFailed if request_id in results.failed_recving else ReceiveDone
        probe.received(request_id, kind(t, probe.id(request_id)))
    probe.recorder.step()


@WORKER.seam("_reap_expired_send_leases")
def _reaped(probe: WorkerProbe, done_sending: set[str]) -> Observation:
    before = set(done_sending)
    yield
    t = now()
    for request_id in done_sending - before:
        probe.recorder.record(LeaseExpired(t, probe.id(request_id)))


@WORKER.seam("_handle_heartbeat")
def _heartbeat(probe: WorkerProbe, payload: str) -> Observation:
    t = now()
    ids = payload.split(",")
    before = {r: left_s for r in ids if (left_s := probe.lease_left(r)) is not None}
    yield
    ignored = [r for r in ids if r not in before]
    first_ignored = probe.id(ignored[0]) if ignored else ""
    probe.recorder.record(HeartbeatDrained(t, len(before), len(ignored), first_ignored))
    for request_id, left_before_s in before.items():
        left_s = probe.lease_left(request_id)
        if left_s is not None and left_s > left_before_s:
            probe.recorder.record(LeaseExtended(now(), probe.id(request_id), left_s))


@WORKER.seam("shutdown")
def _down(probe: WorkerProbe) -> Observation:
    yield
    probe.recorder.record(EngineDown(now()))
    probe.recorder.close()


# -- writer thread: registrations ---------------------------------------------------------------------


@WORKER.seam("_send_registration_to_p")
def _registering(probe: WorkerProbe, req_id: str) -> Observation:
    with probe.writer_exceptions("_send_registration_to_p", req_id):
        yield


@WORKER.seam("_do_send_reg_notif")
def _send(probe: WorkerProbe, req_id: str, reg_data: dict[str, Any]) -> Observation:
    probe.registering, probe.registrations_tried = (req_id, reg_data["remote_engine_id"]), 0
    yield
    if not probe.registrations_tried:
        # vLLM's one way out that names no failure type.
        error = f"no remote agents for engine {reg_data['remote_engine_id']}"
        failed = RegistrationFailed(
            now(), probe.id(req_id), to_rank=False, error_type="no_remote_agents", error=cut(error)
        )
        probe.recorder.record(failed)


@WORKER.seam("_handle_push_reg_notif")
def _drained(probe: WorkerProbe, notif: bytes) -> Observation:
    t = now()
    agent = probe.handling(notif)
    registration = None
    try:
        registration = _decode_registration(notif[len(probe.registration_prefix) :])
    except msgspec.MsgspecError as e:
        probe.recorder.failed(e, "_handle_push_reg_notif")
    request_id = registration.request_id if registration else ""
    if registration is not None:
        probe.drained_engine = recorded_engine_id(registration.decode_engine_id)
        drained = RegistrationDrained(
            t,
            probe.id(request_id),
            probe.drained_engine,
            cut(registration.decode_host, 64),
            registration.decode_port,
            registration.decode_tp_size,
            num_blocks(registration.local_block_ids),
            agent_name(agent),
        )
        probe.recorder.begin(("registration", request_id), drained)
        if context := registration.pushscope:
            told = TraceContext(
                t,
                probe.id(request_id),
                cut(context.get("traceparent", ""), 55),
                cut(context.get("transfer_id", ""), 64),
            )
            probe.recorder.record(told)
    try:
        with probe.writer_exceptions("_handle_push_reg_notif", request_id):
            yield
    finally:
        probe.drained_engine = ""


# -- writer thread: the rendezvous --------------------------------------------------------------------


@WORKER.seam("_pop_matching_registration")
def _blocks_came(probe: WorkerProbe, request_id: str) -> Observation:
    t = now()
    probe.recorder.record(BlocksPickedUp(t, probe.id(request_id)))
    exact = request_id in probe.worker._pending_d_registrations
    with probe.writer_exceptions("_pop_matching_registration", request_id):
        registration = yield
    if registration is not None:
        engine = recorded_engine_id(registration["decode_engine_id"])
        _matched(probe, request_id, registration["request_id"], engine, exact=exact, blocks_first=False)


@WORKER.seam("_pop_matching_finished_blocks")
def _registration_came(probe: WorkerProbe, request_id: str) -> Observation:
    exact = request_id in probe.worker._push_finished_blocks
    with probe.writer_exceptions("_pop_matching_finished_blocks", request_id):
        found = yield
    if found is not None:
        _matched(probe, found[0], request_id, probe.drained_engine, exact=exact, blocks_first=True)


def _matched(
    probe: WorkerProbe, p_id: str, d_id: str, d_engine: str, *, exact: bool, blocks_first: bool
) -> None:
    probe.recorder.end(("unmatched", p_id))
    probe.recorder.end(("registration", d_id))
    key = "exact" if exact else "base_id"
    probe.recorder.record(Matched(now(), probe.id(p_id), probe.id(d_id), blocks_first, key, d_engine))


# -- writer thread: the push --------------------------------------------------------------------------


@WORKER.seam("_do_start_push_kv")
def _push(probe: WorkerProbe, request_id: str, registration_data: dict[str, Any]) -> Observation:
    recorder = probe.recorder
    recorded = probe.id(request_id)
    if request_id in probe.deferred:
        probe.deferred.discard(request_id)
        recorder.end(("deferred", request_id))
        recorder.record(PushResumed(now(), recorded))
    writes_before = probe.writes
    engine = recorded_engine_id(registration_data["decode_engine_id"])
    probe.pushing = (threading.get_ident(), request_id, engine)
    try:
        with probe.writer_exceptions("_do_start_push_kv", request_id):
            yield
    finally:
        probe.pushing = None
    if probe.writes == writes_before and request_id not in probe.deferred:
        recorder.record(NothingToPush(now(), recorded))


@WORKER.seam("_xfer_blocks")
def _write(
    probe: WorkerProbe, read_spec: Any, dst_engine_id: str, request_id: str, remote_request_id: str
) -> Observation:
    probe.writes += 1
    write = probe.writing = Write(probe.writes, probe.id(request_id))
    started = DescriptorsStarted(
        now(),
        write.request_id,
        write.number,
        read_spec.remote_rank,
        recorded_engine_id(dst_engine_id),
        probe.id(remote_request_id),
    )
    probe.recorder.record(started)
    try:
        with probe.writer_exceptions("_xfer_blocks", request_id):
            handle = yield
    finally:
        probe.writing = None
    if handle is None and not write.failed:
        probe.recorder.record(NothingToPush(now(), write.request_id))


# -- any thread ---------------------------------------------------------------------------------------


@WORKER.seam("_log_failure")
def _failure(
    probe: WorkerProbe, failure_type: str, req_id: str | None, error: BaseException | None
) -> Observation:
    t = now()
    text = error_text(error) if error is not None else ""
    if req_id is not None:
        recorded = probe.id(req_id)
        if failure_type == "push_reg_handshake_failed":
            failed = RegistrationFailed(t, recorded, to_rank=False, error_type=failure_type, error=text)
            probe.recorder.record(failed)
        elif failure_type in _FAILED_BEFORE_A_WRITE:
            write = probe.writing if failure_type == "transfer_setup_failed" else None
            if write is not None:
                write.failed = True
                probe.recorder.end(("write", write.number))
            else:
                probe.recorder.end(("deferred", req_id))
            probe.recorder.record(WriteFailed(t, recorded, write.number if write else 0, failure_type, text))
        # All other types concern a handle, or one rank's registration: the NIXL proxy has recorded them.
    yield


@WORKER.seam("_ensure_handshake")
def _handshake_wanted(probe: WorkerProbe, engine_id: str, host: str, port: int) -> Observation:
    t = now()
    future = yield
    if future is None:
        return
    probe.handshake_pending()
    if probe.handshakes.get(engine_id) is not future:
        probe.handshakes[engine_id] = future
        queued = HandshakeQueued(t, recorded_engine_id(engine_id), cut(host, 64), int(port))
        probe.recorder.record(queued)


@WORKER.seam("_nixl_handshake")
def _handshake(probe: WorkerProbe, expected_engine_id: str) -> Observation:
    t = now()
    recorder, engine = probe.recorder, recorded_engine_id(expected_engine_id)
    recorder.record(HandshakeStarted(t, engine))
    try:
        result = yield
    except Exception as e:
        recorder.record(HandshakeEnded(now(), engine, t, 0, 0.0, type(e).__name__, error_text(e)))
        raise
    agents, offset_s = result if isinstance(result, tuple) else (result, 0.0)
    ended = now()
    recorder.record(HandshakeEnded(ended, engine, t, len(agents), float(offset_s)))
    for rank, agent in agents.items():
        pp, tp = rank if isinstance(rank, tuple) else (0, rank)
        key = ("peer", expected_engine_id, pp, tp)
        recorder.begin(key, PeerRank(ended, engine, int(pp), int(tp), agent_name(agent)))


@WORKER.seam("_cleanup_remote_engine")
def _forgotten(probe: WorkerProbe, engine_id: str) -> Observation:
    ranks = list(probe.worker._remote_agents.get(engine_id, ()))
    yield
    for rank in ranks:
        pp, tp = rank if isinstance(rank, tuple) else (0, rank)
        probe.recorder.end(("peer", engine_id, pp, tp))
    probe.handshakes.pop(engine_id, None)
