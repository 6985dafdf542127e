"""Seams that the push and the pull worker share (vLLM's ``nixl/base_worker.py``), P's and D's.

Three threads come by: the engine's main thread (``start_load_kv``, ``get_transfer_results`` and what they
call), in push mode the ``nixl-push-writer``, and the handshake executor.
"""

from __future__ import annotations

from typing import Any

from pushscope.connector.shapes import agent_name, num_blocks, pp_and_tp, receipts
from pushscope.connector.weave import Observation, SeamTable
from pushscope.connector.worker_probe import WorkerProbe
from pushscope.telemetry.events import (
    BlocksHandedOff,
    EngineDown,
    HandshakeEnded,
    HandshakeQueued,
    HandshakeStarted,
    HeartbeatDrained,
    LeaseExpired,
    LeaseExtended,
    LeaseSet,
    PeerRank,
    ReadHandedOff,
    ReceiveDone,
    ReceiveFailed,
    RegistrationFailed,
    RegistrationHandedOff,
    TransferFailed,
    cut,
    error_text,
)
from pushscope.telemetry.ids import recorded_engine_id
from pushscope.telemetry.recorder import now

WORKER = SeamTable()

_FAILED_BEFORE_A_TRANSFER = frozenset({"push_handshake_failed", "handshake_failed", "transfer_setup_failed"})


# -- main thread --------------------------------------------------------------------------------------


@WORKER.seam("start_load_kv", timed=True)
def _started(probe: WorkerProbe, t: int, _: None, metadata: Any) -> None:
    recorder = probe.recorder
    for request_id in metadata.push_registrations:
        recorder.begin(("receive", request_id), RegistrationHandedOff(t, probe.id(request_id)))
    if probe.mode == "pull":
        for request_id, meta in metadata.reqs_to_recv.items():
            handed_off = ReadHandedOff(t, probe.id(request_id))
            if any(meta.local_block_ids):
                recorder.begin(("receive", request_id), handed_off)
            else:
                recorder.record(handed_off)  # nothing to read, so nothing will be reported as received
    for request_id, blocks in metadata.push_finished_blocks.items():
        recorder.record(BlocksHandedOff(t, probe.id(request_id), num_blocks(blocks)))
    for request_id in metadata.reqs_to_send:
        if (left_s := probe.lease_left(request_id)) is not None:
            recorder.record(LeaseSet(now(), probe.id(request_id), left_s))


@WORKER.seam("get_transfer_results", timed=True)
@WORKER.seam("get_finished", timed=True, instead_of="get_transfer_results")
def _results(probe: WorkerProbe, _: int, results: Any) -> None:
    received, failed = receipts(results, probe.failing)
    if received:
        t = now()
        for request_id in received:
            kind = ReceiveFailed if request_id in failed else ReceiveDone
            probe.received(request_id, kind(t, probe.id(request_id)))
        probe.failing -= received
    for request_id in probe.expired():
        probe.recorder.record(LeaseExpired(now(), probe.id(request_id)))
    probe.recorder.step()


@WORKER.seam("_handle_failed_transfer", instead_of="get_transfer_results")
def _failing(probe: WorkerProbe, req_id: str) -> Observation:
    probe.failing.add(req_id)  # before the call: from then on the main thread may report it
    yield


@WORKER.seam("_reap_expired_send_leases", unless=lambda probe: not probe.worker._reqs_to_send)
def _reaped(probe: WorkerProbe, done_sending: set[str]) -> Observation:
    before = set(done_sending)
    yield
    t = now()
    for request_id in done_sending - before:
        probe.recorder.record(LeaseExpired(t, probe.id(request_id)))


@WORKER.seam("_get_new_notifs", instead_of="_reap_expired_send_leases")
def _before_reaping(probe: WorkerProbe, _: int, __: Any) -> None:
    """What notifications set free or extended is done; the results call itself reaps next."""
    probe.look_at_leases()


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
        elif failure_type in _FAILED_BEFORE_A_TRANSFER:
            transfer = probe.transferring if failure_type == "transfer_setup_failed" else None
            if transfer is not None:
                transfer.failed = True
                probe.recorder.end(("transfer", transfer.number))
            else:
                probe.deferred.discard(req_id)
                probe.recorder.end(("deferred", req_id))
            number = transfer.number if transfer else 0
            probe.recorder.record(TransferFailed(t, recorded, number, failure_type, text))
        # All other types concern a handle, or one rank's registration: the NIXL proxy has recorded them.
    yield


@WORKER.seam("_ensure_handshake")
def _handshake_wanted(probe: WorkerProbe, engine_id: str, host: str, port: int) -> Observation:
    t = now()
    future = yield
    if future is None:
        return
    probe.handshake_pending(t)
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
        probe.handshakes.pop(expected_engine_id, None)  # else a made-up engine id would stay for ever
        raise
    agents, offset_s = result if isinstance(result, tuple) else (result, 0.0)
    ended = now()
    recorder.record(HandshakeEnded(ended, engine, t, len(agents), float(offset_s)))
    for rank, agent in agents.items():
        pp, tp = pp_and_tp(rank)
        key = ("peer", expected_engine_id, pp, tp)
        recorder.begin(key, PeerRank(ended, engine, pp, tp, agent_name(agent)))


@WORKER.seam("_cleanup_remote_engine")
def _forgotten(probe: WorkerProbe, engine_id: str) -> Observation:
    ranks = list(probe.worker._remote_agents.get(engine_id, ()))
    yield
    for rank in ranks:
        probe.recorder.end(("peer", engine_id, *pp_and_tp(rank)))
    probe.handshakes.pop(engine_id, None)
