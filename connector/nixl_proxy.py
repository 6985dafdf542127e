"""A NIXL agent that tells: every call goes on as it came, none is added, and what it meant is recorded.

Takes the place of ``worker.nixl_wrapper``. NIXL's transfer handles are never kept (their ``__del__`` releases
the transfer): a WRITE gets a number of our own, found again by ``id(handle)`` until the handle is released.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pushscope.telemetry.events import (
    DescriptorsBuilt,
    HeartbeatSent,
    NotificationDrained,
    RegistrationFailed,
    RegistrationSent,
    SubmitStarted,
    Submitted,
    WriteDone,
    WriteFailed,
    cut,
)
from pushscope.telemetry.recorder import now

if TYPE_CHECKING:
    from pushscope.connector.worker_seams import WorkerProbe

HEARTBEAT = b"HB:"


def agent_name(agent: Any) -> str:
    """A NIXL agent's name as text: ``add_remote_agent`` gives bytes, ``get_new_notifs`` text."""
    return cut(agent.decode("utf-8", "replace") if isinstance(agent, bytes) else agent, 40)


class Write:
    """One WRITE on its way."""

    __slots__ = ("done_t", "failed", "number", "request_id")

    def __init__(self, number: int, request_id: str):
        self.number = number
        self.request_id = request_id
        self.done_t = 0
        self.failed = False


class NixlProxy:
    """Stands before a ``nixl_agent``; see the module. Called from the main and the writer thread."""

    def __init__(self, agent: Any, probe: WorkerProbe):
        self._agent = agent
        self._probe = probe
        self._recorder = probe.recorder
        self._registration_prefix = probe.registration_prefix
        self._writes: dict[int, Write] = {}
        self._check = agent.check_xfer_state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    # -- notifications -----------------------------------------------------------------------------

    def get_new_notifs(self, *args: Any, **kwargs: Any) -> Any:
        notifications = self._agent.get_new_notifs(*args, **kwargs)
        if notifications:
            try:
                self._drained(notifications)
            except Exception as e:  # noqa: BLE001 - telemetry never costs a request
                self._recorder.failed(e, "get_new_notifs")
        return notifications

    def _drained(self, notifications: dict[str, list[bytes]]) -> None:
        t = now()
        left = sum(map(len, notifications.values()))
        registrations: dict[bytes, tuple[str, int]] = {}
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
        self._probe.batch_drained(registrations)

    def send_notif(self, remote_agent_name: Any, notif_msg: bytes = b"", *args: Any, **kwargs: Any) -> Any:
        # Stamped before the call: the peer may have drained it before the call returns.
        t = now()
        try:
            result = self._agent.send_notif(remote_agent_name, notif_msg, *args, **kwargs)
        except BaseException as e:
            self._sent(t, remote_agent_name, notif_msg, cut(repr(e)))
            raise
        self._sent(t, remote_agent_name, notif_msg, "")
        return result

    def _sent(self, t: int, agent: Any, message: bytes, error: str) -> None:
        probe = self._probe
        try:
            if message.startswith(self._registration_prefix):
                request_id, engine_id = probe.registering
                probe.registrations_tried += 1
                pp, tp = probe.rank_of(engine_id, agent)
                key = ("sent", request_id, agent_name(agent))
                if error:
                    failed = RegistrationFailed(
                        t, probe.id(request_id), pp, tp, True, "push_reg_notif_failed", error
                    )
                    self._recorder.record(failed)
                else:
                    sent = RegistrationSent(t, probe.id(request_id), pp, tp, agent_name(agent))
                    self._recorder.begin(key, sent)
                    probe.sent[request_id].append(key)
            elif message.startswith(HEARTBEAT):
                ids = message[len(HEARTBEAT) :].decode("utf-8", "replace").split(",")
                self._recorder.record(HeartbeatSent(t, agent_name(agent), len(ids), probe.id(ids[0]), error))
        except Exception as e:  # noqa: BLE001 - telemetry never costs a request
            self._recorder.failed(e, "send_notif")

    # -- writes ------------------------------------------------------------------------------------

    def make_prepped_xfer(self, *args: Any, **kwargs: Any) -> Any:
        handle = self._agent.make_prepped_xfer(*args, **kwargs)
        try:
            if (write := self._probe.writing) is not None:
                self._writes[id(handle)] = write
                indices = args[2] if len(args) > 2 else kwargs.get("local_indices", ())
                self._recorder.record(DescriptorsBuilt(now(), write.request_id, write.number, len(indices)))
        except Exception as e:  # noqa: BLE001 - telemetry never costs a request
            self._recorder.failed(e, "make_prepped_xfer")
        return handle

    def transfer(self, handle: Any, *args: Any, **kwargs: Any) -> Any:
        write = self._writes.get(id(handle))
        if write is None:
            return self._agent.transfer(handle, *args, **kwargs)
        self._recorder.begin(("write", write.number), SubmitStarted(now(), write.request_id, write.number))
        state = self._agent.transfer(handle, *args, **kwargs)
        self._recorder.record(Submitted(now(), write.request_id, write.number, str(state)))
        return state

    def check_xfer_state(self, handle: Any) -> Any:
        try:
            state = self._check(handle)
        except Exception as e:
            self._failed(handle, "transfer_exception", repr(e))
            raise
        if state != "PROC":
            self._ended(handle, state)
        return state

    def _ended(self, handle: Any, state: str) -> None:
        if state != "DONE":
            self._failed(handle, "transfer_failed", f"NIXL reports {state}")
        elif (write := self._writes.get(id(handle))) is not None:
            write.done_t = now()

    def get_xfer_telemetry(self, handle: Any) -> Any:
        try:
            telemetry = self._agent.get_xfer_telemetry(handle)
        except Exception as e:
            self._failed(handle, "transfer_exception", f"telemetry: {e!r}")
            raise
        write = self._writes.get(id(handle))
        if write is not None and write.done_t:
            try:
                figures = (
                    (
                        telemetry.totalBytes,
                        telemetry.descCount,
                        telemetry.postDuration,
                        telemetry.xferDuration,
                    )
                    if telemetry is not None
                    else (-1, -1, -1, -1)
                )
                done = WriteDone(write.done_t, write.request_id, write.number, *map(int, figures))
                self._recorder.end(("write", write.number))
                self._recorder.record(done)
            except Exception as e:  # noqa: BLE001 - telemetry never costs a request
                self._recorder.failed(e, "get_xfer_telemetry")
        return telemetry

    def release_xfer_handle(self, handle: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = self._agent.release_xfer_handle(handle, *args, **kwargs)
        except Exception as e:
            self._failed(handle, "transfer_release_failed", repr(e))
            raise
        self._writes.pop(id(handle), None)
        return result

    def _failed(self, handle: Any, error_type: str, error: str) -> None:
        """Once per handle: vLLM polls a failed one again until it can be released."""
        write = self._writes.get(id(handle))
        if write is not None and not write.failed:
            write.failed = True
            self._recorder.end(("write", write.number))
            self._recorder.record(WriteFailed(now(), write.request_id, write.number, error_type, cut(error)))
