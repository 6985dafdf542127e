"""P and D in this process: vLLM's own engine cores with real NIXL between them, stepped by hand.

About ten seconds to set up, then a tenth of a second a case; what a test needs to control every step, and
to reach into the connector.
"""

from __future__ import annotations

import os
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

BLOCK = 32
LEASE_S = 6
WATCHDOG_S = 2
VOCABULARY = range(4, 500)

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}


ENGINE: dict[str, Any] = {
    "max_model_len": 4096,
    "max_num_batched_tokens": 512,  # prompts of more tokens are prefilled in chunks
    "enable_prefix_caching": False,
    "kv_cache_memory_bytes": 1 << 26,
}
"""Engine options that a test may change, for P or for D."""


class BrokenSeamError(Exception):
    """Raised by an observer on purpose."""


class Seams:
    """Counts the calls of every observer, and breaks those that a test names."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.broken: set[str] = set()

    def take_over(self, table: Any) -> None:
        for seam in table.seams:
            seam.observer = self._breakable(seam.method, seam.observer)

    def _breakable(self, name: str, observe: Callable[..., Any]) -> Callable[..., Any]:
        def breakable(probe: Any, *args: Any) -> Any:
            self.calls[name] += 1
            if name in self.broken:
                raise BrokenSeamError(name)
            return observe(probe, *args)

        return breakable


class Engine:
    """One engine core of this process."""

    def __init__(
        self,
        name: str,
        role: str,
        port: int,
        model: Path,
        options: dict[str, Any] | None,
        mode: str = "Push",
        engine: dict[str, Any] | None = None,
    ):
        import vllm.distributed.kv_transfer.kv_transfer_state as state
        import vllm.envs
        from vllm import LLM
        from vllm.config import KVTransferConfig

        vllm.envs.VLLM_NIXL_SIDE_CHANNEL_PORT = port
        state._KV_CONNECTOR_AGENT = None
        self._state = state
        self.port, self.engine_id = port, f"engine-{name}"
        llm = LLM(
            model=str(model),
            dtype="float32",
            enforce_eager=True,
            block_size=BLOCK,
            distributed_executor_backend="uni",
            disable_log_stats=True,
            **(ENGINE | (engine or {})),
            kv_transfer_config=KVTransferConfig(
                kv_connector=f"Nixl{mode}Connector",
                kv_connector_module_path=None if options is None else "pushscope.connector",
                kv_role=role,
                engine_id=self.engine_id,
                kv_connector_extra_config={
                    "kv_lease_duration": LEASE_S,
                    "push_registration_timeout": WATCHDOG_S,
                    **({} if options is None else {"pushscope": options}),
                },
            ),
        )
        self.engine = llm.llm_engine
        self._own_copies()
        self.scheduler: Any = self.engine.engine_core.engine_core.scheduler
        self.agent: Any = state._KV_CONNECTOR_AGENT

    def _own_copies(self) -> None:
        """Requests come to the core as copies, as they come to a core in a process of its own.

        vLLM changes them there: a prompt is truncated, ``kv_transfer_params`` are ticked off.
        """
        core = self.engine.engine_core
        add = core.add_request
        core.add_request = lambda request: add(deepcopy(request))

    def add(
        self,
        request_id: str,
        prompt: list[int],
        max_tokens: int,
        params: dict[str, Any] | None = None,
        **sampling: Any,
    ) -> None:
        from vllm import SamplingParams

        extra = {"kv_transfer_params": params} if params else None
        fixed: dict[str, Any] = {"temperature": 0, "max_tokens": max_tokens, "ignore_eos": True}
        wanted = SamplingParams(**(fixed | sampling), extra_args=extra)
        self.engine.add_request(request_id, {"prompt_token_ids": prompt}, wanted)

    def step(self) -> list[Any]:
        self._state._KV_CONNECTOR_AGENT = self.agent
        return self.engine.step()

    def abort(self, request_id: str) -> None:
        self.engine.abort_request([request_id])


class Pair:
    """P and D."""

    def __init__(
        self,
        model: Path,
        folder: Path,
        port: int,
        seams: Seams,
        *,
        instrumented: bool = True,
        mode: str = "Push",
        p: dict[str, Any] | None = None,
        d: dict[str, Any] | None = None,
    ):
        self.folder, self.seams, self.mode = folder, seams, mode
        options = {"dir": str(folder)} if instrumented else None
        self.p = Engine("P", "kv_producer", port, model, options, mode, p)
        self.d = Engine("D", "kv_consumer", port + 1, model, options, mode, d)
        self._numbers = iter(range(1_000_000))

    def prompt(self, num_tokens: int) -> list[int]:
        rng = random.Random(num_tokens)
        return [rng.choice(VOCABULARY) for _ in range(num_tokens)]

    def prefill(self, base: str, prompt: list[int], **sampling: Any) -> None:
        self.p.add(base, prompt, 1, {"do_remote_decode": True, "do_remote_prefill": False}, **sampling)

    def decode(
        self,
        base: str,
        prompt: list[int],
        max_tokens: int = 8,
        sampling: dict[str, Any] | None = None,
        **changes: Any,
    ) -> None:
        params = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_engine_id": self.p.engine_id,
            "remote_request_id": base,
            "remote_host": "127.0.0.1",
            "remote_port": self.p.port,
            "tp_size": 1,
            "remote_block_ids": [],
        }
        self.d.add(base, prompt, max_tokens, params | changes, **(sampling or {}))

    def step_until(self, done: Callable[[list[Any]], bool], seconds: float = 20.0) -> list[Any]:
        """Step both until ``done`` says so of D's outputs; the outputs it said so of."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.p.step()
            outputs = self.d.step()
            if done(outputs):
                return outputs
            time.sleep(0.0005)
        raise TimeoutError(f"not done within {seconds} s")

    def transfer(self, num_tokens: int = 100, *, order: str = "both", base: str | None = None) -> list[int]:
        """One request over both engines: the tokens that D generated."""
        base = base or f"cmpl-{order}-{next(self._numbers)}-0"
        prompt = self.prompt(num_tokens)
        if order == "p first":
            self.prefill(base, prompt)
            self.decode(base, prompt, **self.handed_over())
        else:
            self.decode(base, prompt)
            if order == "d first":
                for _ in range(5):
                    self.d.step()
                    time.sleep(0.01)
            self.prefill(base, prompt)
        outputs = self.step_until(lambda found: any(o.finished for o in found))
        self.settle()
        return list(next(o for o in outputs if o.finished).outputs[0].token_ids)

    def handed_over(self) -> dict[str, Any]:
        """What P's answer tells D: how to reach it, and (pull) which blocks to read."""
        while True:
            for output in self.p.step():
                if output.finished and output.kv_transfer_params:
                    return dict(output.kv_transfer_params)

    def reference(self, num_tokens: int = 100) -> list[int]:
        """The tokens of a request that P does alone."""
        return self.alone(self.prompt(num_tokens))

    def alone(self, prompt: list[int], max_tokens: int = 8) -> list[int]:
        """The tokens that P makes of a prompt alone."""
        self.p.add(f"reference-{next(self._numbers)}", prompt, max_tokens)
        while True:
            for output in self.p.step():
                if output.finished:
                    return list(output.outputs[0].token_ids)

    def settle(self) -> None:
        """A few more steps, in which P sees its writes done."""
        for _ in range(15):
            self.p.step()
            self.d.step()
            time.sleep(0.001)

    @contextmanager
    def broken(self, *names: str) -> Iterator[None]:
        self.seams.broken.update(names)
        try:
            yield
        finally:
            self.seams.broken.clear()

    @property
    def recorders(self) -> list[Any]:
        """(P scheduler, P worker, D scheduler, D worker)."""
        return [probe.recorder for probe in self.probes]

    @property
    def probes(self) -> list[Any]:
        found = []
        for engine in (self.p, self.d):
            found.append(_probe(engine.scheduler.connector.connector_scheduler, "on_new_request"))
            found.append(_probe(engine.agent.connector_worker, "_ensure_handshake"))
        return found


def _probe(woven: Any, method: str) -> Any:
    function = getattr(type(woven), method)
    names = function.__code__.co_freevars
    return function.__closure__[names.index("probe")].cell_contents


def make_pair(
    folder: Path,
    port: int,
    *,
    instrumented: bool = True,
    mode: str = "Push",
    p: dict[str, Any] | None = None,
    d: dict[str, Any] | None = None,
) -> Pair:
    """Set a pair up, with its rings in ``folder``; ``p`` and ``d`` are engine options that are not :data:`ENGINE`'s."""
    os.environ.update(ENVIRONMENT)
    from pushscope.lab.engine.cures import ALL_CURES, apply

    apply(ALL_CURES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # vLLM's and torch's own
        from pushscope.connector.push_seams import PUSH
        from pushscope.connector.scheduler_seams import SCHEDULER
        from pushscope.connector.worker_seams import WORKER
        from pushscope.lab.model import make_model

        seams = Seams()
        seams.take_over(SCHEDULER)
        seams.take_over(WORKER)
        seams.take_over(PUSH)
        model = folder.parent / "model"
        make_model(model)
        return Pair(model, folder, port, seams, instrumented=instrumented, mode=mode, p=p, d=d)
