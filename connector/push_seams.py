"""Seams of the push worker (vLLM's ``nixl/push_worker.py``): what the ``nixl-push-writer`` thread does.

It sends registrations (D), drains them and pairs them with finished blocks, and posts WRITEs (P).
"""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from pushscope.connector.nixl_proxy import agent_name
from pushscope.connector.scheduler_seams import CONTEXT_KEY, num_blocks
from pushscope.connector.weave import Observation, SeamTable
from pushscope.connector.worker_probe import WorkerProbe
from pushscope.telemetry.events import (
    BlocksPickedUp,
    Matched,
    NothingToPush,
    RegistrationDrained,
    RegistrationFailed,
    TraceContext,
    TransferResumed,
    cut,
)
from pushscope.telemetry.ids import recorded_engine_id
from pushscope.telemetry.recorder import now

PUSH = SeamTable()


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


# -- writer thread: registrations ---------------------------------------------------------------------


@PUSH.seam("_send_registration_to_p")
def _registering(probe: WorkerProbe, req_id: str) -> Observation:
    with probe.writer_exceptions("_send_registration_to_p", req_id):
        yield


@PUSH.seam("_do_send_reg_notif")
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


@PUSH.seam("_handle_push_reg_notif")
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
            probe.is_surplus(request_id),
        )
        if drained.surplus:
            probe.recorder.record(drained)
        else:
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


@PUSH.seam("_pop_matching_registration")
def _blocks_came(probe: WorkerProbe, request_id: str) -> Observation:
    probe.recorder.begin(("unmatched", request_id), BlocksPickedUp(now(), probe.id(request_id)))
    exact = request_id in probe.worker._pending_d_registrations
    with probe.writer_exceptions("_pop_matching_registration", request_id):
        registration = yield
    if registration is not None:
        engine = recorded_engine_id(registration["decode_engine_id"])
        _matched(probe, request_id, registration["request_id"], engine, exact=exact, blocks_first=False)


@PUSH.seam("_pop_matching_finished_blocks")
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
    probe.matched(d_id)
    key = "exact" if exact else "base_id"
    probe.recorder.record(Matched(now(), probe.id(p_id), probe.id(d_id), blocks_first, key, d_engine))


# -- writer thread: the push --------------------------------------------------------------------------


@PUSH.seam("_do_start_push_kv")
def _push(probe: WorkerProbe, request_id: str, registration_data: dict[str, Any]) -> Observation:
    recorder = probe.recorder
    recorded = probe.id(request_id)
    if request_id in probe.deferred:
        probe.deferred.discard(request_id)
        recorder.end(("deferred", request_id))
        recorder.record(TransferResumed(now(), recorded))
    before = probe.transfers
    engine = recorded_engine_id(str(registration_data.get("decode_engine_id", "")))
    probe.pushing = (threading.get_ident(), request_id, engine)
    try:
        with probe.writer_exceptions("_do_start_push_kv", request_id):
            yield
    finally:
        probe.pushing = None
    if probe.transfers == before and request_id not in probe.deferred:
        recorder.record(NothingToPush(now(), recorded))


@PUSH.seam("_xfer_blocks")
def _write(
    probe: WorkerProbe, read_spec: Any, dst_engine_id: str, request_id: str, remote_request_id: str
) -> Observation:
    write = probe.begin_transfer(request_id, read_spec.remote_rank, dst_engine_id, remote_request_id)
    try:
        with probe.writer_exceptions("_xfer_blocks", request_id):
            handle = yield
    finally:
        probe.transferring = None
    if handle is None and not write.failed:
        probe.recorder.record(NothingToPush(now(), write.request_id))
