"""What the observers of one worker share: the recorder, vLLM's worker to look at, and what is under way."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

from pushscope.connector.nixl_proxy import HEARTBEAT, Transfer
from pushscope.connector.shapes import pp_and_tp
from pushscope.telemetry.events import (
    DescriptorsStarted,
    Event,
    Evicted,
    NotificationCounted,
    NotificationUnrecognised,
    Tables,
    TransferDeferred,
    WriterException,
    error_text,
)
from pushscope.telemetry.ids import recorded_engine_id
from pushscope.telemetry.recorder import Recorder, now

_TABLES = (
    "_push_finished_blocks",
    "_pending_d_registrations",
    "_sending_transfers",
    "_reqs_to_send",
    "_recving_metadata",
)
"""In the order of the fields of :class:`Tables`."""
_MAX_OPEN = 20_000
_MAX_MATCHED = 4_096
_SEEN = "_seen_by_pushscope"


class WorkerProbe:
    """What the observers of one worker share."""

    def __init__(
        self, worker: Any, recorder: Recorder, request_id: Callable[[str], str], registration_prefix: bytes
    ):
        self.worker = worker
        self.recorder = recorder
        self.id = request_id
        self.registration_prefix = registration_prefix
        self.mode = recorder.origin.mode

        # The thread that transfers: push, the writer; pull, the engine's main thread.
        self.transferring: Transfer | None = None
        self.transfers = 0
        self.deferred: set[str] = set()
        self.notifying = ""
        """Pull: the D request whose reads are being posted; a notification sent then is for it."""

        # Push, writer thread only.
        self.registering = ("", "")
        """(D request id, P engine id) of the registration that is being sent."""
        self.registrations_tried = 0
        self.drained_engine = ""
        """D's engine, while one of its registrations is handled."""
        self.drained_transfer_id: Any = None
        """The router's id in it, if any."""
        self.transfer_ids: dict[str, Any] = {}
        """The router's ids of blocks that wait for a registration, by P request."""
        self.pushing: tuple[int, str, str] | None = None
        """(thread, P request id, D engine) in ``_do_start_push_kv``: a handshake that is not done defers it."""
        self._batch: dict[bytes, tuple[str, int]] = {}
        self._lost_with = 0

        self._matched: OrderedDict[str, None] = OrderedDict()
        """D requests matched lately: what still arrives for them is surplus."""
        self.sent: defaultdict[str, list[tuple[str, str, str]]] = defaultdict(list)
        """Open registrations of a D request: the recorder's keys."""
        self._leases: dict[str, float] = {}
        self.failing: set[str] = set()
        """Receives that failed and were not reported yet; used where vLLM's report does not tell them apart."""
        self.handshakes: dict[str, Any] = {}
        """The last handshake future of each peer engine, to tell a new one from one waited for again."""
        recorder.has_work = self._has_work
        recorder.on_tick = self._tables

    # -- looking -----------------------------------------------------------------------------------

    def _has_work(self) -> bool:
        return any(self._size(name) for name in ("_recving_metadata", "_reqs_to_send", "_sending_transfers"))

    def _tables(self) -> None:
        sizes = map(self._size, _TABLES)
        self.recorder.record(Tables(now(), 0, *sizes))

    def _size(self, table: str) -> int:
        return len(getattr(self.worker, table, ()))  # some exist in one mode only

    def rank_of(self, engine_id: str, agent: Any) -> tuple[int, int]:
        """(pp, tp) of the peer's rank that ``agent`` speaks for."""
        for rank, name in self.worker._remote_agents.get(engine_id, {}).items():
            if name == agent:
                return pp_and_tp(rank)
        return 0, 0

    def look_at_leases(self) -> None:
        """Remember when each lease runs out, until :meth:`expired` asks which have."""
        self._leases = dict(self.worker._reqs_to_send)

    def expired(self) -> list[str]:
        """Which leases ran out since :meth:`look_at_leases`: gone, and their time was over."""
        if not self._leases:
            return []
        leases, self._leases = self._leases, {}
        held, t = self.worker._reqs_to_send, time.perf_counter()
        return [request_id for request_id, expiry in leases.items() if request_id not in held and expiry <= t]

    def lease_left(self, request_id: str) -> float | None:
        expiry = self.worker._reqs_to_send.get(request_id)
        return None if expiry is None else float(expiry) - time.perf_counter()

    def begin_transfer(self, request_id: str, peer_tp: int, peer_engine: str, peer_request: str) -> Transfer:
        """A transfer with one rank of the other side is about to be prepared, by this thread."""
        self.transfers += 1
        transfer = self.transferring = Transfer(self.transfers, self.id(request_id))
        started = DescriptorsStarted(
            now(),
            transfer.request_id,
            transfer.number,
            peer_tp,
            recorded_engine_id(peer_engine),
            self.id(peer_request),
        )
        self.recorder.record(started)
        return transfer

    def registered(self, request_id: str, agent: str, event: Event) -> None:
        """A registration went out to one P rank; it is open until the blocks are there."""
        key = ("sent", request_id, agent)
        self.recorder.begin(key, event)
        if len(self.sent) < _MAX_OPEN:  # D forgets nothing that it waits for, but we must
            self.sent[request_id].append(key)

    def received(self, request_id: str, event: Event) -> None:
        """The blocks of a D request are there, or will not come: close what was open for it, record why."""
        self.recorder.end(("receive", request_id))
        for key in self.sent.pop(request_id, ()):
            self.recorder.end(key)
        self.recorder.record(event)

    # -- the rendezvous ----------------------------------------------------------------------------

    def matched(self, d_request: str) -> None:
        self._matched[d_request] = None
        if len(self._matched) > _MAX_MATCHED:
            self._matched.popitem(last=False)

    def is_surplus(self, d_request: str) -> bool:
        return d_request in self._matched

    # -- the writer's batch ------------------------------------------------------------------------

    def batch_drained(self, registrations: dict[bytes, tuple[str, int]]) -> None:
        """Registrations just drained: by message, the NIXL agent it came from and how many came after it."""
        self._batch = registrations

    def handling(self, notification: bytes) -> str:
        """The writer turns to a registration: the agent it came from. If it fails, what came after is lost."""
        agent, self._lost_with = self._batch.pop(notification, ("", 0))
        return agent

    def handled(self) -> None:
        self.drained_engine, self.drained_transfer_id, self._lost_with = "", None, 0

    @contextmanager
    def writer_exceptions(self, where: str, request_id: str) -> Generator[None]:
        """Record what goes up to the writer loop, once, where it is first seen on its way."""
        try:
            yield
        except Exception as e:
            if not getattr(e, _SEEN, False):
                # On the exception itself: to keep it would keep its frames, and NIXL's handles in them.
                with suppress(AttributeError):
                    setattr(e, _SEEN, True)
                text = error_text(e)
                self.recorder.record(
                    WriterException(now(), where, self.id(request_id), self._lost_with, text)
                )
            raise

    def handshake_pending(self, t: int) -> None:
        """A handshake is wanted and not done: if this thread is about to push, that push is deferred."""
        if self.pushing is not None and self.pushing[0] == threading.get_ident():
            _, request_id, engine = self.pushing
            self.deferred.add(request_id)
            self.recorder.begin(("deferred", request_id), TransferDeferred(t, self.id(request_id), engine))

    # -- queues ------------------------------------------------------------------------------------

    def evicting(self, request_id: str) -> None:
        """The writer thread takes a finished or expired id; most have nothing left to drop."""
        w = self.worker
        had_blocks = request_id in w._push_finished_blocks
        had_registration = request_id in w._pending_d_registrations
        self.recorder.end(("unmatched", request_id))
        self.transfer_ids.pop(request_id, None)
        if had_registration:
            self.recorder.end(("registration", request_id))
        if had_blocks or had_registration:
            self.recorder.record(Evicted(now(), self.id(request_id), had_blocks, had_registration))

    def counting(self, notification: bytes, earlier: int = 0) -> None:
        """The main thread is about to count a notification (``_get_new_notifs``).

        ``earlier``: how many of the same batch for the same request come before it.
        """
        if notification.startswith(HEARTBEAT):
            return
        w = self.worker
        request_id, _, size = notification.decode("utf-8").rpartition(":")
        is_mine = request_id in w._reqs_to_send or request_id in w._reqs_to_process
        meta = w._recving_metadata.get(request_id)
        expected = is_mine if self.mode == "pull" else not is_mine and meta is not None
        if expected:
            n = w.consumer_notification_counts_by_req.get(request_id, 0) + 1 + earlier
            counted = NotificationCounted(
                now(), self.id(request_id), n, int(size), getattr(meta, "pp_size", 1)
            )
            self.recorder.record(counted)
        elif not is_mine:
            self.recorder.record(NotificationUnrecognised(now(), self.id(request_id)))
