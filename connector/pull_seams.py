"""Seams of the pull worker (vLLM's ``nixl/pull_worker.py``): D reads, on the engine's main thread.

No registration and no rendezvous: D knows P's request when it allocates. A read that meets an unknown engine
waits for the handshake; a full prefix hit reads nothing and only notifies P.
"""

from __future__ import annotations

from typing import Any

from pushscope.connector.weave import Observation, SeamTable
from pushscope.connector.worker_probe import WorkerProbe
from pushscope.telemetry.events import TransferDeferred, TransferResumed
from pushscope.telemetry.ids import recorded_engine_id
from pushscope.telemetry.recorder import now

PULL = SeamTable()


@PULL.seam("_background_nixl_handshake")
def _deferred(probe: WorkerProbe, req_id: str, remote_engine_id: str) -> Observation:
    probe.deferred.add(req_id)
    engine = recorded_engine_id(remote_engine_id)
    # Before the call: the handshake may be done before it returns.
    probe.recorder.begin(("deferred", req_id), TransferDeferred(now(), probe.id(req_id), engine))
    yield


@PULL.seam("_read_blocks_for_req")
def _resumed(probe: WorkerProbe, req_id: str, meta: Any) -> Observation:
    if req_id in probe.deferred and meta.remote.engine_id in probe.worker._remote_agents:
        probe.deferred.discard(req_id)
        probe.recorder.end(("deferred", req_id))
        probe.recorder.record(TransferResumed(now(), probe.id(req_id)))
    probe.notifying = req_id
    try:
        yield
    finally:
        probe.notifying = ""


@PULL.seam("_read_blocks")
def _read(
    probe: WorkerProbe, read_spec: Any, dst_engine_id: str, request_id: str, remote_request_id: str
) -> Observation:
    if any(len(group) > 0 for group in read_spec.local_block_ids):
        probe.begin_transfer(request_id, read_spec.remote_rank, dst_engine_id, remote_request_id)
    try:
        yield
    finally:
        probe.transferring = None
