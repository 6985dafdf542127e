"""A NIXL agent that tells: every call goes on as it came, none is added, and what it meant is recorded.

Takes the place of ``worker.nixl_wrapper``. NIXL's transfer handles are never kept (their ``__del__`` releases
the transfer): a transfer gets a number of our own, found again by ``id(handle)`` until the handle is released.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pushscope.connector.shapes import agent_name
from pushscope.telemetry.events import (
    DescriptorsBuilt,
    HeartbeatSent,
    NotificationDrained,
    NotificationSent,
    RegistrationFailed,
    RegistrationSent,
    SubmitStarted,
    Submitted,
    TransferDone,
    TransferFailed,
    cut,
    error_text,
)
from pushscope.telemetry.recorder import now

if TYPE_CHECKING:
    from pushscope.connector.worker_probe import WorkerProbe

HEARTBEAT = b"HB:"


class Transfer:
    """One WRITE or READ on its way."""

    __slots__ = ("done_t", "failed", "number", "request_id")

    def __init__(self, number: int, request_id: str):
        self.number = number
        self.request_id = request_id
        self.done_t = 0
        self.failed = False


def _note(method: Callable[..., None]) -> Callable[..., None]:
    """A method that only records: what it raises is counted and goes nowhere else."""

    @functools.wraps(method)
    def safely(self: NixlProxy, *args: Any) -> None:
        try:
            method(self, *args)
        except Exception as e:  # noqa: BLE001 - telemetry never costs a request
            self._recorder.failed(e, method.__name__)

    return safely


class NixlProxy:
    """Stands before a ``nixl_agent``; see the module. Called from the main and the writer thread."""

    def __init__(self, agent: Any, probe: WorkerProbe):
        self._agent = agent
        self._probe = probe
        self._recorder = probe.recorder
        self._registration_prefix = probe.registration_prefix
        self._transfers: dict[int, Transfer] = {}
        self._check = agent.check_xfer_state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    # -- notifications -----------------------------------------------------------------------------

    def get_new_notifs(self, *args: Any, **kwargs: Any) -> Any:
        notifications = self._agent.get_new_notifs(*args, **kwargs)
        if notifications:
            self._note_drained(now(), notifications)
        return notifications

    def send_notif(self, remote_agent_name: Any, *args: Any, **kwargs: Any) -> Any:
        # Stamped before the call: the peer may have drained it before the call returns.
        t = now()
        message = args[0] if args else kwargs.get("notif_msg", b"")
        try:
            result = self._agent.send_notif(remote_agent_name, *args, **kwargs)
        except Exception as e:
            self._note_sent(t, remote_agent_name, message, error_text(e))
            raise
        self._note_sent(t, remote_agent_name, message, "")
        return result

    @_note
    def _note_drained(self, t: int, notifications: dict[str, list[bytes]]) -> None:
        left = sum(map(len, notifications.values()))
        registrations: dict[bytes, tuple[str, int]] = {}
        batch: Counter[bytes] = Counter()
        for agent, messages in notifications.items():
            for message in messages:
                left -= 1
                if message.startswith(self._registration_prefix):
                    registrations[message] = (agent, left)
                elif not message.startswith(HEARTBEAT):
                    request_id, _, tp_size = message.decode("utf-8", "replace").rpartition(":")
                    size = int(tp_size) if tp_size.isdecimal() else 0
                    drained = NotificationDrained(t, self._probe.id(request_id), agent_name(agent), size)
                    self._recorder.record(drained)
                    if self._probe.mode == "pull":  # counted by the thread that drains
                        self._probe.counting(message, batch[message])
                        batch[message] += 1
        self._probe.batch_drained(registrations)

    @_note
    def _note_sent(self, t: int, agent: Any, message: bytes, error: str) -> None:
        probe = self._probe
        if message.startswith(self._registration_prefix):
            request_id, engine_id = probe.registering
            probe.registrations_tried += 1
            pp, tp = probe.rank_of(engine_id, agent)
            recorded = probe.id(request_id)
            if error:
                error_type = "push_reg_notif_failed"
                self._recorder.record(RegistrationFailed(t, recorded, pp, tp, True, error_type, error))
            else:
                name = agent_name(agent)
                probe.registered(request_id, name, RegistrationSent(t, recorded, pp, tp, name))
        elif message.startswith(HEARTBEAT):
            ids = message[len(HEARTBEAT) :].decode("utf-8", "replace").split(",")
            self._recorder.record(HeartbeatSent(t, agent_name(agent), len(ids), probe.id(ids[0]), error))
        elif probe.notifying:
            self._recorder.record(NotificationSent(t, probe.id(probe.notifying), agent_name(agent), error))

    # -- writes ------------------------------------------------------------------------------------

    def make_prepped_xfer(self, *args: Any, **kwargs: Any) -> Any:
        handle = self._agent.make_prepped_xfer(*args, **kwargs)
        self._note_built(now(), handle, args[2] if len(args) > 2 else kwargs.get("local_indices", ()))
        return handle

    def transfer(self, handle: Any, *args: Any, **kwargs: Any) -> Any:
        transfer = self._transfers.get(id(handle))
        if transfer is None:
            return self._agent.transfer(handle, *args, **kwargs)
        # Said before the call: a hang in it shows.
        self._recorder.begin(
            ("transfer", transfer.number), SubmitStarted(now(), transfer.request_id, transfer.number)
        )
        state = self._agent.transfer(handle, *args, **kwargs)
        self._recorder.record(Submitted(now(), transfer.request_id, transfer.number, cut(state, 8)))
        return state

    def check_xfer_state(self, handle: Any) -> Any:
        try:
            state = self._check(handle)
        except Exception as e:
            self._note_failed(handle, "transfer_exception", error_text(e))
            raise
        if state != "PROC":
            self._note_ended(now(), handle, state)
        return state

    def get_xfer_telemetry(self, handle: Any) -> Any:
        try:
            telemetry = self._agent.get_xfer_telemetry(handle)
        except Exception as e:
            self._note_failed(handle, "transfer_exception", f"telemetry: {error_text(e)}")
            raise
        self._note_done(handle, telemetry)
        return telemetry

    def release_xfer_handle(self, handle: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = self._agent.release_xfer_handle(handle, *args, **kwargs)
        except Exception as e:
            self._note_failed(handle, "transfer_release_failed", error_text(e))
            raise
        self._transfers.pop(id(handle), None)
        return result

    @_note
    def _note_built(self, t: int, handle: Any, indices: Any) -> None:
        if (transfer := self._probe.transferring) is not None:
            self._transfers[id(handle)] = transfer
            self._recorder.record(DescriptorsBuilt(t, transfer.request_id, transfer.number, len(indices)))

    @_note
    def _note_ended(self, t: int, handle: Any, state: str) -> None:
        if state != "DONE":
            self._note_failed(handle, "transfer_failed", f"NIXL reports {state}")
        elif (transfer := self._transfers.get(id(handle))) is not None:
            transfer.done_t = t

    @_note
    def _note_done(self, handle: Any, telemetry: Any) -> None:
        transfer = self._transfers.get(id(handle))
        if transfer is None or not transfer.done_t:
            return
        self._recorder.end(("transfer", transfer.number))
        figures = (-1, -1, -1, -1)  # NIXL without telemetry
        if telemetry is not None:
            t = telemetry
            figures = (int(t.totalBytes), int(t.descCount), int(t.postDuration), int(t.xferDuration))
        self._recorder.record(TransferDone(transfer.done_t, transfer.request_id, transfer.number, *figures))

    @_note
    def _note_failed(self, handle: Any, error_type: str, error: str) -> None:
        """Once per handle: vLLM polls a failed one again until it can be released."""
        transfer = self._transfers.get(id(handle))
        if transfer is not None and not transfer.failed:
            transfer.failed = True
            self._recorder.end(("transfer", transfer.number))
            self._recorder.record(
                TransferFailed(now(), transfer.request_id, transfer.number, error_type, cut(error))
            )
