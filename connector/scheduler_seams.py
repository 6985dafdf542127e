"""Seams of the schedulers, P's and D's (vLLM's ``nixl/{base,push,pull}_scheduler.py``).

Push and pull differ in what D does when it has blocks for a prompt: it stages a registration, or a read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pushscope.connector.shapes import num_blocks, pp_and_tp
from pushscope.connector.weave import Observation, SeamTable
from pushscope.telemetry.events import (
    BlocksStaged,
    DecodeScheduled,
    EngineDown,
    ListenerDead,
    NothingToReceive,
    PrefillNotProcessed,
    PrefillScheduled,
    ReadStaged,
    ReceiveFinished,
    RegistrationStaged,
    RequestArrived,
    RequestEnded,
    RequestPreempted,
    SendFinished,
    SideChannelServed,
    Tables,
    TraceContext,
    WatchdogFired,
    cut,
    error_text,
)
from pushscope.telemetry.ids import recorded_engine_id
from pushscope.telemetry.recorder import Recorder, now

SCHEDULER = SeamTable()
CONTEXT_KEY = "pushscope"
"""The one key that is added to a registration. A plain vLLM ignores it."""


class SchedulerProbe:
    """What the observers of one scheduler share. All of them run on the engine's main thread."""

    def __init__(
        self, scheduler: Any, recorder: Recorder, request_id: Callable[[str], str], *, propagate: bool
    ):
        self.scheduler = scheduler
        self.recorder = recorder
        self.id = request_id
        self.propagate = propagate
        self.legs: dict[str, str] = {}
        """Requests with a part in a transfer: ``prefill`` or ``decode``, from arrival to end."""
        self.received: set[str] = set()
        """Blocks are there, decode not yet scheduled."""
        self.spared: set[str] = set()
        """Decodes that were scheduled and had nothing to receive; vLLM leaves their ``do_remote_prefill`` set."""
        self.armed: dict[str, float] = {}
        """Push: the deadline (perf_counter seconds) of each registration, in the order of arming."""
        recorder.has_work = lambda: bool(self.legs)
        recorder.on_tick = self._tables

    def _tables(self) -> None:
        tables = ("_finished_request_blocks", "_push_registration_deadlines")  # push only
        staged = sum(len(getattr(self.scheduler, name, ())) for name in tables)
        self.recorder.record(Tables(now(), staged=staged))


@SCHEDULER.seam("on_new_request")
def _arrived(probe: SchedulerProbe, request: Any) -> Observation:
    t = now()
    yield
    params = request.kv_transfer_params
    if not params:
        return
    leg = "prefill" if params.get("do_remote_decode") else "decode" if params.get("do_remote_prefill") else ""
    if not leg:
        return
    probe.legs[request.request_id] = leg
    request_id = probe.id(request.request_id)
    peer_engine = recorded_engine_id(str(params.get("remote_engine_id") or ""))
    peer_request = probe.id(str(params.get("remote_request_id") or ""))
    probe.recorder.record(RequestArrived(t, request_id, leg, peer_engine, peer_request))
    if context := _context(request):
        probe.recorder.record(TraceContext(t, request_id, **context))


def _context(request: Any) -> dict[str, str]:
    """Traceparent and transfer_id of a request, as far as it has them."""
    params = request.kv_transfer_params or {}
    traceparent = (request.trace_headers or {}).get("traceparent")
    transfer_id = params.get("transfer_id")
    return {
        **({"traceparent": cut(traceparent, 55)} if traceparent else {}),
        **({"transfer_id": cut(transfer_id, 64)} if transfer_id else {}),
    }


@SCHEDULER.seam("update_state_after_alloc", timed=True)
def _allocated(probe: SchedulerProbe, request: Any, num_external_tokens: int) -> Observation:
    params = request.kv_transfer_params
    wanted = bool(params and params.get("do_remote_prefill"))
    t = now()
    yield
    if not wanted:
        return
    request_id, key = probe.id(request.request_id), ("receive", request.request_id)
    registration = getattr(probe.scheduler, "_push_pending_registrations", {}).get(request.request_id)
    if registration is not None:
        if probe.propagate and (context := _context(request)):
            registration[CONTEXT_KEY] = context
        probe.recorder.begin(key, _registration_staged(t, request_id, registration, num_external_tokens))
        probe.armed[request.request_id] = probe.scheduler._push_registration_deadlines[request.request_id]
    elif num_external_tokens > 0 and request.request_id in probe.scheduler._reqs_need_recv:
        blocks = probe.scheduler._reqs_need_recv[request.request_id][1]
        engine = recorded_engine_id(str(params["remote_engine_id"]))
        ranks = int(params.get("tp_size") or 1), int(params.get("pp_size") or 1)
        staged = ReadStaged(t, request_id, engine, *ranks, num_external_tokens, num_blocks(blocks))
        probe.recorder.begin(key, staged)
    else:
        probe.spared.add(request.request_id)
        probe.recorder.record(NothingToReceive(t, request_id, "no_external_tokens"))


def _registration_staged(
    t: int, request_id: str, registration: dict[str, Any], num_tokens: int
) -> RegistrationStaged:
    return RegistrationStaged(
        t,
        request_id,
        recorded_engine_id(str(registration["remote_engine_id"])),
        cut(registration["remote_host"], 64),
        int(registration["remote_port"]),
        int(registration["remote_tp_size"]),
        int(registration.get("remote_pp_size", 1)),
        num_tokens,
        num_blocks(registration["local_block_ids"]),
    )


@SCHEDULER.seam("request_finished", timed=True)
def _finished(probe: SchedulerProbe, request: Any) -> Observation:
    params = request.kv_transfer_params
    never_scheduled = bool(params and params.get("do_remote_prefill"))
    t = now()
    finished = yield
    leg, spared = probe.legs.pop(request.request_id, ""), request.request_id in probe.spared
    probe.spared.discard(request.request_id)
    if not leg:
        return
    probe.received.discard(request.request_id)
    probe.armed.pop(request.request_id, None)
    recorder, scheduler = probe.recorder, probe.scheduler
    request_id = probe.id(request.request_id)
    status = request.status.name.lower()
    held, handoff = finished
    if leg == "prefill" and held and handoff:
        lease_s = float(scheduler._kv_lease_duration)
        blocks = num_blocks(handoff["remote_block_ids"])
        staged = BlocksStaged(t, request_id, blocks, request.num_computed_tokens, lease_s)
        recorder.begin(("send", request.request_id), staged)
    elif leg == "prefill":
        recorder.record(PrefillNotProcessed(t, request_id, status))
    if leg == "decode" and never_scheduled and not spared:
        recorder.record(NothingToReceive(t, request_id, "not_scheduled"))
    ended = RequestEnded(t, request_id, status)
    if recorder.is_open(("receive", request.request_id)):
        # Ended while blocks were on their way: D keeps them until P's write arrives, if ever.
        recorder.begin(("ended", request.request_id), ended)
    else:
        recorder.record(ended)


@SCHEDULER.seam("build_connector_meta", timed=True)
def _stepped(probe: SchedulerProbe, t: int, _: Any, scheduler_output: Any) -> None:
    recorder = probe.recorder
    if probe.armed:
        _watchdog(probe, t)
    if probe.legs:
        tokens = scheduler_output.num_scheduled_tokens
        for new in scheduler_output.scheduled_new_reqs:
            if probe.legs.get(new.req_id) == "prefill":
                recorder.record(PrefillScheduled(t, probe.id(new.req_id), tokens.get(new.req_id, 0)))
        for request_id in scheduler_output.preempted_req_ids or ():
            if request_id in probe.legs:
                recorder.record(RequestPreempted(t, probe.id(request_id)))
        for request_id in [r for r in probe.received if r in tokens] if probe.received else ():
            probe.received.discard(request_id)
            recorder.record(DecodeScheduled(t, probe.id(request_id)))
    recorder.step()


def _watchdog(probe: SchedulerProbe, t: int) -> None:
    """Which deadlines vLLM dropped because they had passed; like vLLM, stop at the first that is not due."""
    deadlines = probe.scheduler._push_registration_deadlines
    while probe.armed:
        request_id, deadline = next(iter(probe.armed.items()))
        if request_id in deadlines or deadline > now() / 1e9:  # perf_counter and monotonic are one clock here
            return
        del probe.armed[request_id]
        probe.recorder.record(WatchdogFired(t, probe.id(request_id)))


@SCHEDULER.seam("update_connector_output", timed=True)
def _heard(probe: SchedulerProbe, t: int, _: None, connector_output: Any) -> None:
    recorder = probe.recorder
    for request_id in connector_output.finished_recving or ():
        recorder.end(("receive", request_id))
        recorder.end(("ended", request_id))
        recorder.record(ReceiveFinished(t, probe.id(request_id)))
        probe.armed.pop(request_id, None)
        if request_id in probe.legs:
            probe.received.add(request_id)
    for request_id in connector_output.finished_sending or ():
        recorder.end(("send", request_id))
        recorder.record(SendFinished(t, probe.id(request_id)))


@SCHEDULER.seam("shutdown")
def _down(probe: SchedulerProbe) -> Observation:
    yield
    probe.recorder.record(EngineDown(now()))
    probe.recorder.close()


class ServedMetadata(dict[Any, Any]):
    """What the handshake listener serves, by rank; says so for each look-up. Runs on the listener's thread."""

    def __init__(self, data: dict[Any, Any], recorder: Recorder):
        super().__init__(data)
        self._recorder = recorder

    def __getitem__(self, rank: Any) -> Any:
        value = super().__getitem__(rank)
        try:
            self._recorder.record(SideChannelServed(now(), *pp_and_tp(rank)))
        except Exception as e:  # noqa: BLE001 - telemetry never costs a request
            self._recorder.failed(e, "side channel")
        return value


def watched_listener(listener: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    """vLLM's listener thread function (a static method), which says what it serves and when it dies."""

    def watched(
        encoded_data: dict[Any, Any], ready_event: Any, stop_event: Any, *args: Any, **kwargs: Any
    ) -> Any:
        error = ""
        try:
            return listener(ServedMetadata(encoded_data, recorder), ready_event, stop_event, *args, **kwargs)
        except BaseException as e:
            error = error_text(e)
            raise
        finally:
            if not stop_event.is_set():
                recorder.record(ListenerDead(now(), error))

    return watched
