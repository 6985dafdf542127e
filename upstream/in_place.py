"""pushscope in the place of vLLM's NIXL connectors, in this process, for all who import them afterwards.

For a user, a connector makes its scheduler and worker, and pushscope's facade instruments them. vLLM's tests
also make these by hand, with ``__init__`` or without, and dress them up attribute by attribute. So that these
too are what pushscope makes of them, they go through the facade's own functions: after their ``__init__``, or,
made without it, at the first call of a method that has a seam.
"""

from __future__ import annotations

import functools
import os
import queue
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType, SimpleNamespace
from typing import Any

import pushscope.connector
from pushscope.connector import facade
from pushscope.connector.nixl_proxy import NixlProxy
from pushscope.connector.options import Options, read_options
from pushscope.connector.scheduler_seams import SCHEDULER
from pushscope.connector.weave import SeamTable
from pushscope.telemetry.events import Origin, decode, error_text
from pushscope.telemetry.recorder import Recorder, now
from pushscope.telemetry.ring import RingReader
from upstream.outcome import Evidence

NAMES = ("NixlPushConnector", "NixlPullConnector", "NixlConnector")
BY_CONNECTOR, BY_HAND, BARE = "made by a connector", "made by hand", "made without __init__"
_MADE = "_made_for_pushscope"
_QUEUES = ("_evict_finished_inbox", "_pending_completion_notifs")


class Place:
    """Takes vLLM's place, and counts what comes of it."""

    def __init__(self) -> None:
        self._way = BY_CONNECTOR
        self._connectors_in_the_making = 0
        self._forget()

    def _forget(self) -> None:
        self.instances: Counter[str] = Counter()
        self.recorders: list[Recorder] = []
        self.lost: list[str] = []
        self.lost_bare: list[str] = []
        self.refused: list[str] = []
        self._bare: set[int] = set()

    # -- put in place ------------------------------------------------------------------------------

    def take(self) -> None:
        """Replace vLLM's connectors by pushscope's, and see to what is made without them."""
        from vllm.distributed.kv_transfer.kv_connector.v1 import nixl  # noqa: PLC0415 - not before pytest has begun

        ours = {name: getattr(pushscope.connector, name) for name in NAMES}
        self._follow_the_facade()
        for connector in (nixl.NixlPushConnector, nixl.NixlPullConnector):
            self._count_connectors(connector)
        for mode, scheduler, worker in (
            ("push", nixl.NixlPushConnectorScheduler, nixl.NixlPushConnectorWorker),
            ("pull", nixl.NixlPullConnectorScheduler, nixl.NixlPullConnectorWorker),
        ):
            self._see_to(scheduler, SCHEDULER, partial(self._scheduler_made, mode))
            worker.nixl_wrapper = AgentAsSeen()
            self._see_to(worker, facade.worker_seams(mode), partial(self._worker_made, mode))
        for module in [m for name, m in sys.modules.items() if name.startswith("vllm.")]:
            for name in NAMES:
                if name in vars(module):
                    setattr(module, name, ours[name])

    def _follow_the_facade(self) -> None:
        """Hear of every recorder that the facade makes, of what its observers lose and of what it gives up."""
        make, lose, instrument = facade._recorder, Recorder.failed, facade._instrument

        def recorder(
            side: Any, vllm_config: Any, options: Options, connector_role: str, mode: str
        ) -> Recorder:
            if self._way == BARE:
                made = Recorder(options.folder, _bare_origin(connector_role, mode), num_bytes=options.bytes)
                self._bare.add(id(made))
            else:
                made = make(side, vllm_config, options, connector_role, mode)
            self.instances[self._way] += 1
            self.recorders.append(made)
            return made

        def failed(recorder: Recorder, error: BaseException, where: str = "") -> None:
            lost = self.lost_bare if id(recorder) in self._bare else self.lost
            lost.append(f"{where or 'ring'}: {error_text(error)}")
            lose(recorder, error, where)

        def instrumented(connector: Any, *args: Any) -> None:
            try:
                instrument(connector, *args)
            except Exception as e:
                self.refused.append(f"{type(connector).__name__}: {error_text(e)}")
                raise

        vars(facade).update(_recorder=recorder, _instrument=instrumented, NixlProxy=LateProxy)
        Recorder.failed = failed  # type: ignore[assignment, method-assign]

    def _count_connectors(self, cls: Any) -> None:
        init = cls.__init__

        @functools.wraps(init)
        def __init__(connector: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            self._connectors_in_the_making += 1
            try:
                init(connector, *args, **kwargs)
            finally:
                self._connectors_in_the_making -= 1

        cls.__init__ = __init__

    # -- schedulers and workers --------------------------------------------------------------------

    def _see_to(self, cls: Any, table: SeamTable, made: Callable[[Any, str], None]) -> None:
        init = cls.__init__

        @functools.wraps(init)
        def __init__(side: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            side.__dict__[_MADE] = True
            init(side, *args, **kwargs)
            if not self._connectors_in_the_making:
                made(side, BY_HAND)

        cls.__init__ = __init__
        for seam in table.fitting(cls):
            # Not at the end of a life, nor where the depth of the stack counts.
            if seam.method != "shutdown" and not seam.speaks_for_caller:
                self._made_at_first_call(cls, seam.method, made)

    def _made_at_first_call(self, cls: Any, name: str, made: Callable[[Any, str], None]) -> None:
        own, known = vars(cls).get(name), getattr(cls, name)

        @functools.wraps(known)
        def method(side: Any, *args: Any, **kwargs: Any) -> Any:
            if issubclass(type(side), cls) and _MADE not in side.__dict__:
                reached_directly = getattr(type(side), name) is method
                side.__dict__[_MADE] = True
                made(side, BARE)
                if reached_directly:
                    return getattr(side, name)(*args, **kwargs)
            if own is not None:
                return own(side, *args, **kwargs)
            if issubclass(type(side), cls):
                return getattr(super(cls, side), name)(*args, **kwargs)
            return known(side, *args, **kwargs)

        setattr(cls, name, method)

    def _scheduler_made(self, mode: str, scheduler: Any, way: str) -> None:
        with self._instrumenting(scheduler, way) as (vllm_config, options):
            facade._instrument_scheduler(scheduler, vllm_config, options, mode)

    def _worker_made(self, mode: str, worker: Any, way: str) -> None:
        agent_comes_later = "nixl_wrapper" not in worker.__dict__
        if agent_comes_later:
            worker.nixl_wrapper = ABSENT
        waiting = {name: worker.__dict__[name] for name in _QUEUES if name in worker.__dict__}
        try:
            with self._instrumenting(worker, way) as (vllm_config, options):
                facade._instrument_worker(worker, vllm_config, options, mode)
        finally:
            if worker.__dict__.get("nixl_wrapper") is ABSENT:
                del worker.nixl_wrapper
        for name, items in waiting.items():
            for item in _drained(items) if items is not worker.__dict__[name] else ():
                worker.__dict__[name].put(item)

    @contextmanager
    def _instrumenting(self, side: Any, way: str) -> Iterator[tuple[Any, Options]]:
        self._way = way
        try:
            yield getattr(side, "vllm_config", None), read_options(None)
        except Exception as e:  # noqa: BLE001 - as the facade does: vLLM's own serves
            self.refused.append(f"{type(side).__name__}: {error_text(e)}")
        finally:
            self._way = BY_CONNECTOR

    # -- what came of it ---------------------------------------------------------------------------

    def taken(self) -> Evidence:
        """What was instrumented since the last time, and what is in its rings, which end here."""
        events: Counter[str] = Counter()
        for recorder in self.recorders:
            recorder.close()
            reader = RingReader(recorder.path)
            events.update(type(decode(payload)).__name__ for payload in reader.poll(now()))
            reader.close()
            recorder.path.unlink()
        evidence = Evidence(dict(self.instances), dict(events), self.lost, self.lost_bare, self.refused)
        self._forget()
        return evidence


# -- what tests see and do that no user can -----------------------------------------------------------

ABSENT = SimpleNamespace(check_xfer_state=None)
"""The agent of a worker that has none yet."""


class LateProxy(NixlProxy):
    """Asks the agent for ``check_xfer_state`` at each call: tests replace it on an agent in use."""

    def __init__(self, agent: Any, probe: Any):
        def check(handle: Any) -> Any:
            return agent.check_xfer_state(handle)

        super().__init__(SimpleNamespace(check_xfer_state=check), probe)
        self._agent = agent


class AgentAsSeen:
    """``worker.nixl_wrapper``: pushscope's proxy to vLLM's code, to tests the fake that they put there.

    Tests set their fake up and ask it what it saw through this name, before and after it was put there; the calls
    between vLLM and the fake go through the proxy all the same.
    """

    def __get__(self, worker: Any, owner: type | None = None) -> Any:
        if worker is None:
            return self
        held = worker.__dict__.get("nixl_wrapper")
        agent = held._agent if isinstance(held, NixlProxy) else held
        if held is None or (agent is ABSENT and not _asked_by_us(sys._getframe(1))):
            raise AttributeError("nixl_wrapper")
        return held if _asked_by_vllm(sys._getframe(1)) else agent

    def __set__(self, worker: Any, agent: Any) -> None:
        held = worker.__dict__.get("nixl_wrapper")
        if isinstance(held, NixlProxy) and not isinstance(agent, NixlProxy):
            agent = LateProxy(agent, held._probe)
        worker.__dict__["nixl_wrapper"] = agent

    def __delete__(self, worker: Any) -> None:
        del worker.__dict__["nixl_wrapper"]


def _asked_by_vllm(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("vllm.")


def _asked_by_us(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("pushscope.")


def _drained(items: queue.Queue[Any]) -> Iterator[Any]:
    with suppress(queue.Empty):
        while True:
            yield items.get_nowait()


def _bare_origin(connector_role: str, mode: str) -> Origin:
    """Who records, of an instance that knows next to nothing of itself."""
    return Origin(
        host="",
        boot_id="",
        time_namespace="",
        pid=os.getpid(),
        connector_role=connector_role,
        engine_id="",
        kv_role="",
        mode=mode,
    )
