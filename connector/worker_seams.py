"""Seams of the push worker (vLLM's ``nixl/push_worker.py`` and ``base_worker.py``), P's and D's.

Three threads come by: the engine's main thread (``start_load_kv``, ``get_transfer_results`` and what they
call), the ``nixl-push-writer`` (registrations, matching, writes) and the handshake executor.
"""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from pushscope.connector.nixl_proxy import Write, agent_name
from pushscope.connector.scheduler_seams import CONTEXT_KEY, num_blocks
from pushscope.connector.weave import Observation, SeamTable
from pushscope.connector.worker_probe import WorkerProbe
from pushscope.telemetry.events import (
    BlocksHandedOff,
    BlocksPickedUp,
    DescriptorsStarted,
    EngineDown,
    HandshakeEnded,
    HandshakeQueued,
    HandshakeStarted,
    HeartbeatDrained,
    LeaseExpired,
    LeaseExtended,
    LeaseSet,
    Matched,
    NothingToPush,
    PeerRank,
    PushResumed,
    ReceiveDone,
    ReceiveFailed,
    RegistrationDrained,
    RegistrationFailed,
    RegistrationHandedOff,
    TraceContext,
    WriteFailed,
    cut,
    error_text,
)
from pushscope.telemetry.ids import recorded_engine_id
from pushscope.telemetry.recorder import now

WORKER = SeamTable()

_FAILED_BEFORE_A_WRITE = frozenset({"push_handshake_failed", "transfer_setup_failed"})


class _Registration(msgspec.Struct, frozen=True):
    """What is read of a PUSH_REG payload (``push_scheduler.update_state_after_alloc``)."""

    request_id: str = ""
    decode_engine_id: str = ""
    decode_host: str = ""
    decode_port: int = 0
    decode_tp_size: int = 1
    local_block_ids: Any = ()
    pushscope: dict[str, str] | None = None


_decode_registration = msgspec.msgpack.Decoder(_Registration).decode
assert CONTEXT_KEY in _Registration.__struct_fields__


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
        probe.handled()


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
    engine = recorded_engine_id(str(registration_data.get("decode_engine_id", "")))
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


@WORKER.seam("_log_failure", speaks_for_caller=True)
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
