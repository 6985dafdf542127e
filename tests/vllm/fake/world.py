"""P and D engines in this process: vLLM's own schedulers and connectors of every rank, over a fabric of fake agents.

What is not vLLM's is what no test here is about: the model (it writes numbers into the KV cache that depend on
all tokens up to a position, and reads its answer from there), the agent (:mod:`.fabric`), the clock (it stands
still unless a test or a step moves it), and the turns: writer threads and handshakes run when the world says so,
each in the thread that vLLM would use. So a scenario comes out the same each time.
"""

from __future__ import annotations

import contextlib
import logging
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from tests.vllm.fake.fabric import Agent, Fabric
from tests.vllm.fake.layout import (
    HEAD_SIZE,
    LATENT,
    Layout,
    is_windowed,
    kv_cache_config,
    layer_name,
    vllm_config,
)

AgentClass = Callable[[Callable[[Any], None]], Callable[..., Any]]
"""Given whom to tell of each agent, what to use as ``nixl_agent`` class."""
NIXL = "vllm.distributed.kv_transfer.kv_connector.v1.nixl"
STEP_NS = 1_000_000
VOCABULARY = 500


class Clock:
    """CLOCK_MONOTONIC and ``perf_counter`` of the world: a microsecond passes with every look."""

    START_NS = 1_000_000_000_000

    def __init__(self) -> None:
        self.ns = self.START_NS

    def monotonic_ns(self) -> int:
        self.ns += 1_000
        return self.ns

    def perf_counter(self) -> float:
        return self.monotonic_ns() / 1e9

    def advance(self, seconds: float) -> None:
        self.ns += int(seconds * 1e9)


class OneTurn:
    """Stands in for the writer's stop and wake events: its loop runs once, and never waits."""

    def __init__(self) -> None:
        self._asked = False

    def is_set(self) -> bool:
        self._asked = not self._asked
        return not self._asked

    def wait(self, timeout: float | None = None) -> bool:
        return True

    def set(self) -> None: ...

    def clear(self) -> None: ...


class WhenAsked:
    """An executor that runs what was submitted when the world says so, in one thread of its own."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self.waiting: list[tuple[Future[Any], Any, tuple[Any, ...]]] = []

    def submit(self, function: Any, *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, function, args))
        return future

    def run(self) -> int:
        waiting, self.waiting = self.waiting, []
        for entry in waiting:
            self._thread.submit(self._one, *entry).result()
        return len(waiting)

    @staticmethod
    def _one(future: Future[Any], function: Any, args: tuple[Any, ...]) -> None:
        try:
            result = function(*args)
        except BaseException as e:
            future.set_exception(e)
        else:
            future.set_result(result)

    def shutdown(self, *_: Any, **__: Any) -> None: ...


class Worker:
    """One rank: vLLM's connector with role WORKER, and this rank's KV cache."""

    def __init__(self, engine: Engine, pp: int, tp: int) -> None:
        self.engine, self.pp, self.tp = engine, pp, tp
        self.label = f"{engine.name} ({pp}, {tp})"
        layout = engine.layout
        self.layers = layout.layers_of(pp)
        self.caches = {layer: self._cache(layout) for layer in self.layers}
        world = engine.world
        world.rank = (pp, tp, layout)
        config = engine.config(rank=pp * layout.tp + tp)
        self.config = config
        self.connector = engine.connector("WORKER", config, kv_cache_config(layout, self.layers))
        self.nixl = nixl_of(self.connector).connector_worker
        self.agent: Agent = world.created[-1]
        self.agent.label = self.label
        self._writer = ThreadPoolExecutor(1, thread_name_prefix=f"nixl-push-writer {self.label}")
        self._handshaker = ThreadPoolExecutor(1, thread_name_prefix=f"handshake {self.label}")
        self.handshakes = WhenAsked(self._handshaker)
        self.nixl._handshake_initiation_executor = self.handshakes
        if hasattr(self.nixl, "_push_writer_thread"):
            self.nixl._push_writer_stop = self.nixl._push_writer_wake = OneTurn()
            self.nixl._push_writer_thread = SimpleNamespace(join=lambda timeout=None: None)
        if layout.host_buffer:
            self.connector.set_host_xfer_buffer_ops(self._copy_blocks)
        self.connector.register_kv_caches({layer_name(n): cache for n, cache in self.caches.items()})

    @staticmethod
    def _cache(layout: Layout) -> Any:
        import torch

        blocks = layout.num_blocks * layout.physical_per_logical
        tokens = layout.kernel_block_size or layout.block_size
        if layout.mla:
            return torch.zeros(blocks, tokens, LATENT)
        return torch.zeros(blocks, layout.heads_per_rank, tokens, 2 * HEAD_SIZE)

    @staticmethod
    def _copy_blocks(source: Any, target: Any, of: list[int], to: list[int], _direction: str) -> None:
        for name, cache in source.items():
            target[name][to] = cache[of]

    def writer_turn(self) -> None:
        """Let the writer thread go round once."""
        if hasattr(self.nixl, "_push_writer_loop"):
            self._writer.submit(self.nixl._push_writer_loop).result()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.connector.shutdown()
        self._writer.shutdown()
        self._handshaker.shutdown()

    def shut_down(self) -> None:
        self.connector.shutdown()

    # -- the model ---------------------------------------------------------------------------------

    def places(self, blocks: list[int], position: int) -> tuple[int, int]:
        """(physical block, slot) of a token of a request with these logical blocks."""
        layout = self.engine.layout
        slots = layout.kernel_block_size or layout.block_size
        logical, offset = divmod(position, layout.block_size)
        return blocks[logical] * layout.physical_per_logical + offset // slots, offset % slots

    def write(self, layer: int, block: int, slot: int, value: float) -> None:
        cache = self.caches[layer]
        if self.engine.layout.mla:
            cache[block, slot] = value + layer
        else:
            for index, head in enumerate(self.engine.layout.heads_of(self.tp)):
                cache[block, index, slot] = value + layer + head / 16

    def read(self, layer: int, block: int, slot: int) -> list[float]:
        """What each head of this rank has there, less what layer and head add: one value if all is right."""
        cache = self.caches[layer]
        if self.engine.layout.mla:
            return (cache[block, slot] - layer).unique().tolist()
        return [
            found - layer - head / 16
            for index, head in enumerate(self.engine.layout.heads_of(self.tp))
            for found in cache[block, index, slot].unique().tolist()
        ]


def nixl_of(connector: Any) -> Any:
    """The NIXL connector: itself, or the child of a MultiConnector."""
    children = getattr(connector, "_connectors", None)
    return next(c for c in children if type(c).__name__.startswith("Nixl")) if children else connector


class Engine:
    """One engine: vLLM's scheduler, and the workers of every rank."""

    def __init__(self, world: World, name: str, role: str, layout: Layout) -> None:
        self.world, self.name, self.role, self.layout = world, name, role, layout
        self.engine_id = f"engine-{name}"
        self.port = world.free_port()
        world.ports[self.port] = name
        self.scheduler: Any = None
        world.rank = (0, 0, layout)
        self._scheduler_up()
        self.workers = [Worker(self, pp, tp) for pp in range(layout.pp) for tp in range(layout.tp)]
        self._listen()
        self.step_no = 0
        self.outputs: dict[str, list[int]] = {}
        self.handed_over: dict[str, dict[str, Any]] = {}
        self.finished: dict[str, str] = {}
        self.told: list[Any] = []
        self.reported: list[Any] = []
        self.preempted: list[str] = []

    def config(self, rank: int = 0) -> Any:
        transfer = self.world.transfer_config(self.role, self.layout) | {"engine_id": self.engine_id}
        return vllm_config(self.layout, transfer, rank=rank)

    def connector(self, role: str, config: Any, cache: Any) -> Any:
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

        return KVConnectorFactory.create_connector(config, KVConnectorRole[role], cache)

    def _scheduler_up(self) -> None:
        import vllm.envs
        from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.structured_output import StructuredOutputManager

        vllm.envs.VLLM_NIXL_SIDE_CHANNEL_PORT = self.port
        self.vllm_config = self.config()
        cache = kv_cache_config(self.layout, list(range(4)))
        self.scheduler = Scheduler(
            vllm_config=self.vllm_config,
            kv_cache_config=cache,
            structured_output_manager=StructuredOutputManager(self.vllm_config),
            block_size=self.layout.block_size,
            log_stats=False,
        )
        self.aggregator = KVOutputAggregator.from_connector(
            self.scheduler.connector, self.layout.tp * self.layout.pp
        )

    def _listen(self) -> None:
        metadata = {(w.pp, w.tp): w.connector.get_handshake_metadata() for w in self.workers}
        self.scheduler.connector.set_xfer_handshake_metadata_pp_aware(metadata)

    @property
    def nixl_scheduler(self) -> Any:
        """vLLM's connector scheduler."""
        return nixl_of(self.scheduler.connector).connector_scheduler

    @property
    def listening(self) -> bool:
        """Whether the thread that answers handshakes is alive."""
        thread = self.nixl_scheduler._nixl_handshake_listener_t
        return thread is not None and thread.is_alive()

    def shut_down(self) -> None:
        for worker in self.workers:
            worker.shut_down()
        self.scheduler.connector.shutdown()

    # -- requests ----------------------------------------------------------------------------------

    def add(
        self,
        request_id: str,
        prompt: list[int],
        max_tokens: int,
        params: dict[str, Any] | None = None,
        trace_headers: dict[str, str] | None = None,
        prompt_logprobs: int | None = None,
    ) -> None:
        from vllm import SamplingParams
        from vllm.v1.request import Request

        sampling = SamplingParams(
            temperature=0, max_tokens=max_tokens, ignore_eos=True, prompt_logprobs=prompt_logprobs,
            extra_args={"kv_transfer_params": dict(params)} if params else None,
        )  # fmt: skip
        if hasattr(sampling, "update_from_generation_config"):
            sampling.update_from_generation_config({}, None)
        self.scheduler.add_request(
            Request(
                request_id=request_id,
                prompt_token_ids=list(prompt),
                sampling_params=sampling,
                pooling_params=None,
                trace_headers=trace_headers,
                block_hasher=self.world.hasher(self.layout.block_size),
            )
        )

    def abort(self, request_id: str) -> None:
        from vllm.v1.request import RequestStatus

        self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)

    # -- a step ------------------------------------------------------------------------------------

    def step(self) -> None:
        """Schedule, let every rank do its part, take in what they report."""
        from vllm.distributed.kv_transfer import kv_transfer_state
        from vllm.forward_context import set_forward_context
        from vllm.v1.worker.kv_connector_model_runner_mixin import KVConnectorModelRunnerMixin

        self.world.clock.advance(STEP_NS / 1e9)
        scheduled = self.scheduler.schedule()
        self.told.append(scheduled.kv_connector_metadata)
        self.preempted += sorted(scheduled.preempted_req_ids or ())
        self._compute(scheduled)
        outputs = []
        for worker in self.workers:
            kv_transfer_state._KV_CONNECTOR_AGENT = worker.connector
            with (
                set_forward_context(None, worker.config),
                KVConnectorModelRunnerMixin.maybe_get_kv_connector_output(scheduled) as connector_output,
            ):
                pass
            self.reported.append((worker.label, connector_output))
            outputs.append(self._model_output(scheduled, connector_output))
        result = self.aggregator.aggregate(outputs)
        for batch in self.scheduler.update_from_output(scheduled, result).values():
            for output in batch.outputs:
                self.outputs.setdefault(output.request_id, []).extend(output.new_token_ids)
                if output.finish_reason is not None:
                    self.finished[output.request_id] = str(output.finish_reason)
                    self.handed_over[output.request_id] = output.kv_transfer_params or {}
        self.step_no += 1

    def _compute(self, scheduled: Any) -> None:
        """The model: write the KV of the scheduled tokens, on every rank."""
        for request_id, count in scheduled.num_scheduled_tokens.items():
            request = self.scheduler.requests[request_id]
            done = request.num_computed_tokens - count  # the scheduler has counted them already
            values = running_values(request.all_token_ids[: done + count])
            for worker, layer, blocks in self._placed(request_id):
                for position in range(done, done + count):
                    worker.write(layer, *worker.places(blocks, position), values[position])

    def _placed(self, request_id: str) -> Iterator[tuple[Worker, int, list[int]]]:
        groups = self.scheduler.kv_cache_manager.get_block_ids(request_id)
        for worker in self.workers:
            for layer in worker.layers:
                yield worker, layer, groups[1 if is_windowed(self.layout, layer) else 0]

    def _model_output(self, scheduled: Any, connector_output: Any) -> Any:
        from vllm.v1.outputs import ModelRunnerOutput

        ids = list(scheduled.num_scheduled_tokens)
        return ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: n for n, request_id in enumerate(ids)},
            sampled_token_ids=[self._sample(request_id) for request_id in ids],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[None] * len(ids),
            kv_connector_output=connector_output,
        )

    def _sample(self, request_id: str) -> list[int]:
        """The next token: a digest of all that every rank's cache holds of the request's tokens."""
        request = self.scheduler.requests[request_id]
        if request.num_computed_tokens < request.num_tokens:
            return []  # a chunk of a prefill
        seen: list[float] = []
        end = request.num_tokens
        for worker, layer, blocks in self._placed(request_id):
            begin = max(0, end - self.layout.window) if is_windowed(self.layout, layer) else 0
            for position in range(end - 1, begin - 1, -7 if end > 64 else -1):  # a sample of a long prompt
                seen += worker.read(layer, *worker.places(blocks, position))
        return [4 + zlib.crc32(np.asarray(sorted(set(seen))).tobytes()) % (VOCABULARY - 4)]


def running_values(tokens: Any) -> list[float]:
    """A number for each position that depends on every token up to it; exact in float32."""
    values, state = [], 1
    for token in tokens:
        state = (state * 31 + int(token) + 7) % 8191
        values.append(float(state * 8))
    return values


def prompt_of(num_tokens: int) -> list[int]:
    """Of two prompts the shorter one is a prefix of the longer."""
    return [4 + (n * n * 37 + n * 11) % (VOCABULARY - 4) for n in range(num_tokens)]


class World:
    """The engines of one scenario. Use as a context: vLLM's modules are bent while it is open."""

    def __init__(
        self,
        folder: Path,
        *,
        instrumented: bool,
        mode: str = "Push",
        beside: Mapping[str, Sequence[str]] | None = None,
        agents: AgentClass | None = None,
    ) -> None:
        self.folder, self.instrumented, self.mode = folder, instrumented, mode
        self.beside = beside
        """With a MultiConnector: its other children, by the engine's role, which are asked before NIXL's."""
        self.fabric = Fabric()
        self.agents = agents or self.fabric.agent_class
        self.clock = Clock()
        self.created: list[Agent] = []
        self.engines: dict[str, Engine] = {}
        self.rank: tuple[int, int, Layout] = (0, 0, Layout())
        """Whose connector is being made: (pp, tp) and its engine's layout."""
        self.ports: dict[int, str] = {}
        self.logged: list[str] = []
        self.broken = contextlib.ExitStack()
        """What a test has put in place of something; closing it puts that back."""
        self._stack = contextlib.ExitStack()
        self._hashers: dict[int, Any] = {}

    # -- setting up --------------------------------------------------------------------------------

    def __enter__(self) -> World:
        self._stack.enter_context(bent_vllm(self))
        handler = _Listening(self.logged)
        logging.getLogger("vllm").addHandler(handler)
        self._stack.callback(logging.getLogger("vllm").removeHandler, handler)
        return self

    def __exit__(self, *_: object) -> None:
        for engine in self.engines.values():
            for worker in engine.workers:
                worker.close()
            engine.nixl_scheduler._stop_event.set()  # its listener ends by itself within a second
        self._stack.close()

    def engine(self, name: str, layout: Layout) -> Engine:
        role = "kv_producer" if name.startswith("P") else "kv_consumer"
        engine = self.engines[name] = Engine(self, name, role, layout)
        return engine

    def transfer_config(self, role: str, layout: Layout) -> dict[str, Any]:
        ours = {"pushscope": {"dir": str(self.folder)}} if self.instrumented else {}
        module = "pushscope.connector" if self.instrumented else None
        device = {"kv_buffer_device": "cpu"}
        connector = {
            "kv_connector": f"Nixl{self.mode}Connector",
            "kv_connector_module_path": module,
            "kv_role": role,
            "kv_connector_extra_config": {**layout.extra, **ours},
        }
        if self.beside is None:
            return connector | device
        others = [{"kv_connector": name, "kv_role": role} for name in self.beside.get(role, ())]
        return {
            "kv_connector": "MultiConnector",
            "kv_role": role,
            "kv_connector_extra_config": {"connectors": [*others, connector | device]},
        }

    def free_port(self) -> int:
        from pushscope.lab.ports import free_ports

        return free_ports(1)

    def hasher(self, block_size: int) -> Any:
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

        if block_size not in self._hashers:
            init_none_hash(sha256)
            self._hashers[block_size] = get_request_block_hasher(block_size, sha256)
        return self._hashers[block_size]

    # -- running -----------------------------------------------------------------------------------

    def prefill(self, request: str, num_tokens: int, *, p: str = "P", **changes: Any) -> None:
        """The prefill leg of ``request`` (P's own id), whose prompt is determined by its length."""
        params = {"do_remote_decode": True, "do_remote_prefill": False}
        self.engines[p].add(request, prompt_of(num_tokens), 1, params | changes)

    def decode(
        self,
        request: str,
        num_tokens: int,
        *,
        of: str,
        p: str = "P",
        d: str = "D",
        max_tokens: int = 3,
        trace_headers: dict[str, str] | None = None,
        prompt_logprobs: int | None = None,
        **changes: Any,
    ) -> None:
        """The decode leg; ``of`` is P's request id, as a router knows it or guesses it.

        Where P has answered, D is given what P said, as in serial order.
        """
        prefiller = self.engines[p]
        params = prefiller.handed_over.get(of) or {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_engine_id": prefiller.engine_id,
            "remote_request_id": of,
            "remote_host": "127.0.0.1",
            "remote_port": prefiller.port,
            "tp_size": prefiller.layout.tp,
            "pp_size": prefiller.layout.pp,
            "remote_block_ids": [],
        }
        self.engines[d].add(
            request, prompt_of(num_tokens), max_tokens, params | changes, trace_headers, prompt_logprobs
        )

    def turn(self, *, only: set[str] | None = None) -> None:
        """Every engine steps, every writer goes round, every handshake that waits is made.

        ``only``: the labels of the workers whose writer gets its turn.
        """
        for engine in self.engines.values():
            engine.step()
        for worker in self.workers:
            if only is None or worker.label in only:
                worker.writer_turn()
        for worker in self.workers:
            worker.handshakes.run()

    @property
    def workers(self) -> list[Worker]:
        return [worker for engine in self.engines.values() for worker in engine.workers]

    def settle(self, turns: int = 8) -> None:
        for _ in range(turns):
            self.turn()

    def pass_time(self, seconds: float, turns: int = 1) -> None:
        """Let the clock run on, then everybody have ``turns`` turns."""
        self.clock.advance(seconds)
        self.settle(turns)


class _Platform:
    """vLLM's platform; with a host buffer one whose caches NIXL could not register, as on a TPU."""

    def __init__(self, world: World) -> None:
        from vllm.platforms import current_platform

        self._world, self._own = world, current_platform

    @property
    def device_type(self) -> str:
        return "cuda" if self._world.rank[2].host_buffer else str(self._own.device_type)

    def set_device(self, _device: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


class _Listening(logging.Handler):
    """Keeps what vLLM warns of, without times and addresses."""

    def __init__(self, kept: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._kept = kept

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith(("vllm.distributed.kv_transfer", "vllm.v1.core.sched")):
            return
        raised = record.exc_info[:2] if record.exc_info and record.exc_info[0] else None
        error = f" ({raised[0].__name__}: {raised[1]})" if raised else ""
        told = re.sub(r"0x[0-9a-f]+|\d+\.\d+", "#", record.getMessage())
        self._kept.append(f"{record.levelname} {record.filename}:{record.funcName} {told}{error}")


@contextlib.contextmanager
def bent_vllm(world: World) -> Iterator[None]:
    """vLLM's NIXL modules with the world's agent, rank, clock and (for a host buffer) device."""
    import importlib

    from vllm.distributed.parallel_state import get_pp_group  # noqa: F401 - must exist to be replaced

    modules = [
        importlib.import_module(f"{NIXL}.{name}")
        for name in (
            "base_worker",
            "push_worker",
            "pull_worker",
            "base_scheduler",
            "push_scheduler",
            "pull_scheduler",
        )
    ]
    worker_module = modules[0]
    make = world.agents(world.created.append)
    shim = SimpleNamespace(perf_counter=world.clock.perf_counter, sleep=lambda _seconds: None)
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context

        def put(target: Any, name: str, value: Any) -> None:
            if hasattr(target, name):
                patch(mock.patch.object(target, name, value))

        put(worker_module, "NixlWrapper", make)
        put(worker_module, "get_tensor_model_parallel_rank", lambda: world.rank[1])
        put(worker_module, "get_tensor_model_parallel_world_size", lambda: world.rank[2].tp)
        put(
            worker_module,
            "select_common_block_size",
            lambda size, *_: world.rank[2].kernel_block_size or size,
        )
        for module in modules:
            put(module, "time", shim)
            put(module, "current_platform", _Platform(world))
        if world.instrumented:
            _bend_pushscope(world, put, shim)
        yield


def _bend_pushscope(world: World, put: Any, shim: Any) -> None:
    """The same clock for what is recorded, and the same rank."""
    import importlib

    facade = importlib.import_module("pushscope.connector.facade")
    put(facade, "_pp_rank", lambda: world.rank[0])
    for name in (
        "facade", "weave", "worker_seams", "push_seams", "pull_seams", "scheduler_seams", "worker_probe", "nixl_proxy",
    ):  # fmt: skip
        put(importlib.import_module(f"pushscope.connector.{name}"), "now", world.clock.monotonic_ns)
    put(importlib.import_module("pushscope.telemetry.recorder"), "now", world.clock.monotonic_ns)
    put(importlib.import_module("pushscope.connector.worker_probe"), "time", shim)
