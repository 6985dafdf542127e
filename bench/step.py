"""What recording adds to an engine step: vLLM's own connector objects, with the seams and without, called alike.

P and D are real engine cores of this process that have served transfers and now stand still. An engine step
calls four woven methods on the engine's main thread, and the worker's writer thread wakes once: all of them
count. The same objects are called as vLLM made them (class, NIXL agent, queues) and as pushscope wove them, in
turns.
"""

from __future__ import annotations

import importlib
import os
import queue
import socket
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.estimate import differences, median_of
from bench.figure import Figure, Progress, Settings, compared
from bench.rings import ring_folder
from bench.rounds import Call, interleaved, interleaved_cold
from pushscope.lab.engine.cures import ALL_CURES, apply
from pushscope.lab.model import make_model

_PAIR: Any = importlib.import_module("tests.vllm.pair")  # by name: tests are not strictly typed
ROUNDS = 30
CALLS = 1_000
COLD_CALLS = 30
STEP_BUDGET_US = 20.0
POLL_BUDGET_US = 1.0
BUSY_REQUESTS = 64


def run(_settings: Settings, progress: Progress) -> list[Figure]:
    """The cost of a step that has nothing to move, of one with many requests under way, and of a poll."""
    progress(0.0, "setting up P and D in this process")
    with ring_folder() as folder, tempfile.TemporaryDirectory() as model:
        pair = _pair(folder, Path(model) / "model")
        for _ in range(3):
            pair.transfer()
        time.sleep(0.2)  # the writer threads have gone to rest
        engines = {"P": _Side(pair.p), "D": _Side(pair.d)}
        found = []
        for part, (name, side) in enumerate(engines.items()):
            found += _steps(side, name, _part(progress, 0.3 + 0.3 * part, 0.3))
        return found + _polls(pair, _part(progress, 0.9, 0.1))


def _pair(folder: Path, model: Path) -> Any:
    os.environ.update(_PAIR.ENVIRONMENT)
    apply(ALL_CURES)
    warnings.simplefilter("ignore")  # vLLM's and torch's own
    make_model(model)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1] % 20_000 + 20_000
    return _PAIR.Pair(model, folder, port, _PAIR.Seams())


class _Agent:
    """A NIXL agent that has nothing to say, and whose writes never end."""

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        return {}

    def check_xfer_state(self, _handle: object) -> str:
        return "PROC"


class _Side:
    """One engine's connector objects, which can be made plain and woven again."""

    def __init__(self, engine: Any):
        from vllm.v1.core.sched.output import SchedulerOutput  # noqa: PLC0415 - seconds
        from vllm.v1.outputs import KVConnectorOutput  # noqa: PLC0415

        self.scheduler: Any = engine.scheduler.connector.connector_scheduler
        self.worker: Any = engine.agent.connector_worker
        self.nothing_scheduled = SchedulerOutput.make_empty()
        self.nothing_heard = KVConnectorOutput()
        self._wake, self._proxy = self.worker._push_writer_wake, self.worker.nixl_wrapper
        # The writer thread stays parked on its own event: what it would do is called from here.
        self.worker._push_writer_wake = threading.Event()
        agent = _Agent()
        proxy = type(self.worker.nixl_wrapper)(agent, _probe(self.worker, "start_load_kv"))
        self._woven = (
            type(self.scheduler),
            type(self.worker),
            proxy,
            self.worker._evict_finished_inbox,
            self.worker._pending_completion_notifs,
        )
        plain_queues = (queue.Queue[Any](), queue.Queue[Any]())
        self._plain = (type(self.scheduler).__mro__[1], type(self.worker).__mro__[1], agent, *plain_queues)

    def step(self, *, plain: bool) -> Call:
        """A function that makes the calls of one engine step, on the objects in that form."""
        form = self._plain if plain else self._woven
        scheduler, worker = self.scheduler, self.worker

        def step() -> None:
            # The assignments cost the same in both forms.
            scheduler.__class__, worker.__class__ = form[:2]
            worker.nixl_wrapper, worker._evict_finished_inbox, worker._pending_completion_notifs = form[2:]
            metadata = scheduler.build_connector_meta(self.nothing_scheduled)
            worker.start_load_kv(metadata)
            worker.get_transfer_results()
            scheduler.update_connector_output(self.nothing_heard)
            # The writer thread, once awake.
            with suppress(queue.Empty):
                worker._evict_finished_inbox.get_nowait()
            worker.nixl_wrapper.get_new_notifs()

        return step

    def restore(self) -> None:
        """Leave the objects as pushscope wove them."""
        self.step(plain=False)()
        self.worker._push_writer_wake, self.worker.nixl_wrapper = self._wake, self._proxy

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Many requests with a part in a transfer, their leases far from their end."""
        ids = [f"cmpl-busy-{n:032x}-0-{n:08x}" for n in range(BUSY_REQUESTS)]
        probe = _probe(self.scheduler, "build_connector_meta")
        probe.legs.update(dict.fromkeys(ids, "prefill"))
        self.worker._reqs_to_send.update(dict.fromkeys(ids, time.perf_counter() + 3600.0))
        try:
            yield
        finally:
            for request_id in ids:
                del probe.legs[request_id], self.worker._reqs_to_send[request_id]


def _probe(woven: Any, seam: str) -> Any:
    """The probe that a woven object's seams share."""
    method = getattr(type(woven), seam)
    names = method.__code__.co_freevars
    return method.__closure__[names.index("probe")].cell_contents


def _steps(side: _Side, name: str, progress: Progress) -> list[Figure]:
    contenders = {"woven": side.step(plain=False), "plain": side.step(plain=True)}
    idle = interleaved(contenders, rounds=ROUNDS, calls=CALLS, progress=progress)
    with side.busy():
        busy = interleaved(contenders, rounds=ROUNDS, calls=CALLS, progress=progress)
        progress(1.0, "with cold caches")
        cold = interleaved_cold(contenders, rounds=ROUNDS, calls=COLD_CALLS)
    side.restore()
    within = f"<= {STEP_BUDGET_US:g} us"
    under_way = f"{BUSY_REQUESTS} requests under way"
    return [
        _added(f"added to a step of {name}, nothing moves", idle, within, STEP_BUDGET_US),
        _added(f"added to a step of {name}, {under_way}", busy, within, STEP_BUDGET_US),
        _added("the same, caches cold as after a model's step", cold, within, STEP_BUDGET_US),
    ]


def _added(what: str, us: dict[str, list[float]], budget: str, limit_us: float) -> Figure:
    """What the woven form costs more than the plain one; the plain one is the reference."""
    added = median_of(differences(us["woven"], us["plain"]))
    figure = compared(what, "us", us["woven"], us["plain"], "vLLM's own calls")
    return Figure(
        what=what,
        unit="us",
        measured=added,
        reference=figure.reference,
        reference_is=figure.reference_is,
        budget=budget,
        held=added.value <= limit_us,
    )


def _polls(pair: Any, progress: Progress) -> list[Figure]:
    """One write polled that is still on its way."""
    worker = pair.p.agent.connector_worker
    agent = _Agent()
    proxy = type(worker.nixl_wrapper)(agent, _probe(worker, "start_load_kv"))
    contenders: dict[str, Call] = {
        "woven": lambda: proxy.check_xfer_state(7),
        "plain": lambda: agent.check_xfer_state(7),
    }
    us = interleaved(contenders, rounds=ROUNDS, calls=20 * CALLS, progress=progress)
    return [_added("added to a poll of a write", us, f"<= {POLL_BUDGET_US:g} us", POLL_BUDGET_US)]


def _part(progress: Progress, begin: float, size: float) -> Progress:
    return lambda done, text: progress(begin + size * done, text)
