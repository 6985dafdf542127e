"""A NIXL agent that lives in this process: the calls vLLM makes of NIXL's, over memory that is really copied.

Stands in for the ``nixl_agent`` class where a test wants many ranks, or a fault at one call. Agents of one
:class:`Fabric` reach each other. What NIXL's own agent does and vLLM relies on is kept: descriptor lists must be
of one length, neighbours are merged, a notification arrives after the bytes, agents don't share a handle.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


class FabricError(RuntimeError):
    """What NIXL would raise (``nixlBackendError`` and such are RuntimeErrors too)."""


@dataclass(frozen=True)
class Telemetry:
    """As ``nixlXferTelemetry``; times in microseconds, the same for every transfer."""

    totalBytes: int  # noqa: N815 - NIXL's names
    descCount: int  # noqa: N815
    postDuration: int = 10  # noqa: N815
    xferDuration: int = 20  # noqa: N815
    startTime: int = 0  # noqa: N815


@dataclass(frozen=True, eq=False)
class Prepared:
    """A prepared descriptor list: (address, length, device) by index."""

    agent: str
    descriptors: np.ndarray


@dataclass(eq=False)
class Handle:
    """One transfer."""

    operation: str
    near: np.ndarray
    far: np.ndarray
    peer: str
    notification: bytes
    state: str = "PROC"
    released: bool = False

    @property
    def telemetry(self) -> Telemetry:
        return Telemetry(int(self.near[:, 1].sum()), _merged(self.near, self.far))


def _merged(near: np.ndarray, far: np.ndarray) -> int:
    """Descriptors left when neighbours are one: on both sides the next begins where the last ended."""
    if not len(near):
        return 0
    follows = [side[1:, 0] == side[:-1, 0] + side[:-1, 1] for side in (near, far)]
    return int(1 + (~(follows[0] & follows[1])).sum())


Fault = Callable[["Agent", str, Any], None]
"""Called before every call that can fail, with the agent, the call's name and its subject; may raise."""


@dataclass
class Fabric:
    """What connects agents, and where tests put their hands: hold transfers back, or let a call fail."""

    agents: dict[str, Agent] = field(default_factory=dict)
    held: Callable[[Agent, Handle], bool] = lambda _agent, _handle: False
    """Whether a posted transfer stays on its way until :meth:`land`."""
    fault: Fault = lambda _agent, _call, _subject: None
    in_flight: list[tuple[Agent, Handle]] = field(default_factory=list)

    def agent_class(self, created: Callable[[Agent], None]) -> Callable[..., Agent]:
        """To be used as the ``nixl_agent`` class; ``created`` is told of each."""

        def make(name: str, config: Any = None) -> Agent:
            agent = self.agents[name] = Agent(self, name)
            created(agent)
            return agent

        return make

    def land(self, state: str = "DONE") -> int:
        """Let everything that is held arrive, or fail; how many there were."""
        landing, self.in_flight = self.in_flight, []
        for agent, handle in landing:
            self._end(agent, handle, state)
        return len(landing)

    def post(self, agent: Agent, handle: Handle) -> str:
        if self.held(agent, handle):
            self.in_flight.append((agent, handle))
        else:
            self._end(agent, handle, "DONE")
        return handle.state

    def _end(self, agent: Agent, handle: Handle, state: str) -> None:
        handle.state = state
        if state != "DONE" or handle.released:
            return
        source, target = (
            (handle.near, handle.far) if handle.operation == "WRITE" else (handle.far, handle.near)
        )
        for (to, length, _), (of, _, _) in zip(target.tolist(), source.tolist(), strict=True):
            ctypes.memmove(to, of, length)
        if handle.notification:
            self.deliver(agent.name, handle.peer, handle.notification)

    def deliver(self, sender: str, receiver: str, message: bytes) -> None:
        if receiver in self.agents:  # NIXL does not say either that nobody is there
            self.agents[receiver].inbox.setdefault(sender, []).append(message)


class Agent:
    """One rank's agent. ``calls`` has what it was asked, by thread, in order."""

    def __init__(self, fabric: Fabric, name: str):
        self.fabric = fabric
        self.name = name
        self.label = name
        self.inbox: dict[str, list[bytes]] = {}
        self.calls: list[tuple[str, str, tuple[Any, ...]]] = []
        self.known: set[str] = set()

    def _called(self, call: str, *arguments: Any) -> None:
        self.calls.append((threading.current_thread().name, call, arguments))

    # -- memory ------------------------------------------------------------------------------------

    def get_reg_descs(self, descriptors: Any, mem_type: str | None = None) -> Any:
        return descriptors

    def get_xfer_descs(self, descriptors: Any, mem_type: str | None = None) -> Any:
        return np.asarray(descriptors, dtype=np.int64).reshape(-1, 3)

    def register_memory(self, descriptors: Any, *_: Any, **__: Any) -> None: ...

    def deregister_memory(self, descriptors: Any, *_: Any, **__: Any) -> None:
        self._called("deregister_memory")

    def prep_xfer_dlist(self, agent_name: str, descriptors: Any, *_: Any, **__: Any) -> Prepared:
        self._called("prep_xfer_dlist", agent_name, len(descriptors))
        return Prepared(agent_name, np.asarray(descriptors, dtype=np.int64).reshape(-1, 3))

    def release_dlist_handle(self, handle: Prepared) -> None:
        self._called("release_dlist_handle", handle.agent)

    # -- agents ------------------------------------------------------------------------------------

    def get_agent_metadata(self) -> bytes:
        return self.name.encode()

    def add_remote_agent(self, metadata: bytes) -> str:
        self.fabric.fault(self, "add_remote_agent", metadata)
        self.known.add(metadata.decode())
        self._called("add_remote_agent", metadata.decode())
        return metadata.decode()

    def remove_remote_agent(self, name: str) -> None:
        self.known.discard(name)
        self._called("remove_remote_agent", name)

    def check_remote_metadata(self, name: str, *_: Any) -> bool:
        return name in self.known

    # -- notifications -----------------------------------------------------------------------------

    def send_notif(self, remote_agent_name: str, notif_msg: bytes, backend: str | None = None) -> None:
        self._called("send_notif", remote_agent_name, bytes(notif_msg))
        self.fabric.fault(self, "send_notif", notif_msg)
        if remote_agent_name not in self.known:
            raise FabricError(f"NIXL_ERR_NOT_FOUND: {remote_agent_name}")
        self.fabric.deliver(self.name, remote_agent_name, bytes(notif_msg))

    def get_new_notifs(self, *_: Any, **__: Any) -> dict[str, list[bytes]]:
        self.fabric.fault(self, "get_new_notifs", None)
        new, self.inbox = self.inbox, {}
        return new

    # -- transfers ---------------------------------------------------------------------------------

    def make_prepped_xfer(
        self,
        operation: str,
        local_xfer_side: Prepared,
        local_indices: Any,
        remote_xfer_side: Prepared,
        remote_indices: Any,
        notif_msg: bytes = b"",
        *_: Any,
        **__: Any,
    ) -> Handle:
        near, far = np.asarray(local_indices), np.asarray(remote_indices)
        self._called(
            "make_prepped_xfer", operation, near.tolist(), remote_xfer_side.agent, far.tolist(), notif_msg
        )
        self.fabric.fault(self, "make_prepped_xfer", notif_msg)
        if len(near) != len(far):
            raise FabricError(f"NIXL_ERR_INVALID_PARAM: {len(near)} local and {len(far)} remote descriptors")
        handle = Handle(
            operation,
            local_xfer_side.descriptors[near],
            remote_xfer_side.descriptors[far],
            remote_xfer_side.agent,
            bytes(notif_msg),
        )
        if not np.array_equal(handle.near[:, 1], handle.far[:, 1]):
            raise FabricError("NIXL_ERR_MISMATCH: local and remote descriptors differ in length")
        return handle

    def transfer(self, handle: Handle, *_: Any, **__: Any) -> str:
        self._called("transfer", handle.notification)
        self.fabric.fault(self, "transfer", handle.notification)
        return self.fabric.post(self, handle)

    def check_xfer_state(self, handle: Handle) -> str:
        self.fabric.fault(self, "check_xfer_state", handle.notification)
        return handle.state

    def get_xfer_telemetry(self, handle: Handle) -> Telemetry:
        self._called("get_xfer_telemetry", handle.notification)
        self.fabric.fault(self, "get_xfer_telemetry", handle.notification)
        return handle.telemetry

    def release_xfer_handle(self, handle: Handle) -> None:
        self._called("release_xfer_handle", handle.notification)
        self.fabric.fault(self, "release_xfer_handle", handle.notification)
        handle.released = True
