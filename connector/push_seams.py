"""Seams of the push worker (vLLM's ``nixl/push_worker.py``): what the ``nixl-push-writer`` thread does.

It sends registrations (D), drains them and pairs them with finished blocks, and posts WRITEs (P).
"""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from pushscope.connector.scheduler_seams import CONTEXT_KEY
from pushscope.connector.shapes import agent_name, num_blocks
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
from pushscope.telemetry.ids import base_id, recorded_engine_id
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
    transfer_id: Any = None
    """Set by the router, in releases that match by it."""
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
        probe.drained_transfer_id = registration.transfer_id
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
        context = registration.pushscope or {}
        traceparent = context.get("traceparent", "")
        transfer_id = str(registration.transfer_id or context.get("transfer_id", ""))
        if traceparent or transfer_id:
            texts = cut(traceparent, 55), cut(transfer_id, 64)
            probe.recorder.record(TraceContext(t, probe.id(request_id), *texts, probe.drained_engine))
    try:
        with probe.writer_exceptions("_handle_push_reg_notif", request_id):
            yield
    finally:
        probe.handled()


# -- writer thread: the rendezvous --------------------------------------------------------------------
#
# Up to 0.33 vLLM matches the same id, then the same base id. Later it matches the transfer_id that the router set
# for both legs, and by ids only where a leg has none: so docs/design/nixl_kv_push_connector.md on its main branch.


@PUSH.seam("_pop_matching_registration")
def _blocks_came(probe: WorkerProbe, request_id: str, transfer_id: Any = None) -> Observation:
    probe.recorder.begin(("unmatched", request_id), BlocksPickedUp(now(), probe.id(request_id)))
    exact = request_id in probe.worker._pending_d_registrations
    with probe.writer_exceptions("_pop_matching_registration", request_id):
        registration = yield
    if registration is None:
        if transfer_id:
            probe.transfer_ids[request_id] = transfer_id
        return
    d_id, engine = registration["request_id"], recorded_engine_id(registration["decode_engine_id"])
    key = _key(request_id, d_id, transfer_id, registration.get("transfer_id"), exact=exact)
    _matched(probe, request_id, d_id, engine, key, blocks_first=False)


@PUSH.seam("_pop_matching_finished_blocks")
def _registration_came(probe: WorkerProbe, request_id: str) -> Observation:
    exact = request_id in probe.worker._push_finished_blocks
    with probe.writer_exceptions("_pop_matching_finished_blocks", request_id):
        found = yield
    if found is not None:
        p_id = found[0]
        transfer_id = probe.transfer_ids.get(p_id)
        key = _key(p_id, request_id, transfer_id, probe.drained_transfer_id, exact=exact)
        _matched(probe, p_id, request_id, probe.drained_engine, key, blocks_first=True)


def _key(p_id: str, d_id: str, p_transfer_id: Any, d_transfer_id: Any, *, exact: bool) -> str:
    """What matched. P's transfer_id is not known where this vLLM does not hand it to the look-up."""
    if d_transfer_id and (p_transfer_id == d_transfer_id or base_id(p_id) != base_id(d_id)):
        return "transfer_id"
    return "exact" if exact else "base_id"


def _matched(
    probe: WorkerProbe, p_id: str, d_id: str, d_engine: str, key: str, *, blocks_first: bool
) -> None:
    probe.recorder.end(("unmatched", p_id))
    probe.recorder.end(("registration", d_id))
    probe.matched(d_id)
    probe.transfer_ids.pop(p_id, None)
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
