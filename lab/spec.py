"""What an engine of the lab is: its place in the deployment, and the command that starts it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pushscope.lab.environment import engine_environment
from pushscope.lab.otlp import Otlp
from pushscope.lab.ports import free_ports

HOST = "127.0.0.1"
SERVED_MODEL_NAME = "lab"
CONNECTOR_MODULE = "pushscope.connector"
CONNECTORS = ("NixlPushConnector", "NixlPullConnector", "NixlConnector")
"""Those that pushscope instruments."""
_BLOCK_SIZE_STEP = 32
_SHUTDOWN_TIMEOUT_S = 5

Role = Literal["prefill", "decode", "both"]
_KV_ROLES: Mapping[Role, str] = {"prefill": "kv_producer", "decode": "kv_consumer", "both": "kv_both"}


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One vLLM engine.

    ``name`` is its name in logs and messages (P1, D1, …). ``role`` is None for an engine that stands alone,
    without a connector. A port of 0 is chosen by the deployment; TP ranks take the ports above
    ``side_channel_port``.
    """

    name: str
    role: Role | None
    http_port: int = 0
    side_channel_port: int = 0
    tensor_parallel_size: int = 1
    block_size: int = 32
    """Tokens per KV block: a multiple of 32 on CPU, and equal on P and D in push mode."""
    max_model_len: int = 8192
    kv_cache_bytes: int = 128 << 20
    instrumented: bool = True
    """Load the connector class from pushscope; otherwise the engine is plain vLLM."""
    agent: bool = False
    """Have the connector start an agent for the folder of rings, which answers at a free port of loopback."""
    otlp: Otlp | None = None
    """Where vLLM's own tracing sends its spans, and the agent ours; None: neither is told of a place here."""
    kv_connector: str = "NixlPushConnector"
    extra_config: Mapping[str, Any] = field(default_factory=dict)
    """``kv_connector_extra_config``."""
    kv_transfer: Mapping[str, Any] = field(default_factory=dict)
    """More top-level keys of ``--kv-transfer-config``, such as ``kv_load_failure_policy``."""
    args: Sequence[str] = ()
    """More arguments for vLLM's API server."""
    env: Mapping[str, str] = field(default_factory=dict)
    multiprocessing: bool | None = None
    """Give each rank's worker a process of its own, vLLM's default on CPU. None: only with several ranks;
    one worker lives in its engine core's process. The engine core is a process apart from the API server
    in any case."""
    cured: bool = True
    """Apply the cures of ``pushscope.lab.engine.cures``."""

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.http_port}"

    @property
    def ports(self) -> list[int]:
        """All that it listens on."""
        ranks = range(self.tensor_parallel_size if self.role else 0)
        return [self.http_port, *(self.side_channel_port + rank for rank in ranks)]

    def with_ports(self) -> EngineSpec:
        """The same engine with free ports where none were given."""
        http = self.http_port or free_ports()
        side_channel = self.side_channel_port or (free_ports(self.tensor_parallel_size) if self.role else 0)
        return replace(self, http_port=http, side_channel_port=side_channel)

    @property
    def separate_workers(self) -> bool:
        """Whether each rank's worker is a process apart from the engine core."""
        return self.tensor_parallel_size > 1 if self.multiprocessing is None else self.multiprocessing

    def kv_transfer_config(self) -> dict[str, Any] | None:
        """The value of ``--kv-transfer-config``; None without a role.

        No engine_id is set in it: an engine that restarts under its old id can't be reached by its
        peers, which keep the agent of the dead one.
        """
        if self.role is None:
            return None
        config: dict[str, Any] = {"kv_connector": self.kv_connector, "kv_role": _KV_ROLES[self.role]}
        if self.instrumented:
            config["kv_connector_module_path"] = CONNECTOR_MODULE
        if extra := self._extra_config():
            config["kv_connector_extra_config"] = extra
        return config | dict(self.kv_transfer)

    def arguments(self, model: Path) -> list[str]:
        """The command line of the API server, from ``--model`` on."""
        arguments = ["--model", str(model), "--served-model-name", SERVED_MODEL_NAME]
        arguments += ["--host", HOST, "--port", str(self.http_port)]
        arguments += ["--dtype", "float32", "--enforce-eager", "--max-model-len", str(self.max_model_len)]
        arguments += [
            "--block-size",
            str(self.block_size),
            "--kv-cache-memory-bytes",
            str(self.kv_cache_bytes),
        ]
        arguments += ["--tensor-parallel-size", str(self.tensor_parallel_size)]
        if not self.separate_workers:
            arguments += ["--distributed-executor-backend", "uni"]
        # By default the API server kills its engine core as soon as it is told to end, and the connector of
        # the scheduler is never shut down. An idle engine doesn't use this time up.
        arguments += ["--shutdown-timeout", str(_SHUTDOWN_TIMEOUT_S)]
        if config := self.kv_transfer_config():
            arguments += ["--kv-transfer-config", json.dumps(config)]
        if self.otlp is not None:
            arguments += self.otlp.arguments()
        return arguments + list(self.args)

    def environment(self) -> dict[str, str]:
        """The whole environment of the engine's processes."""
        env = engine_environment(cured=self.cured)
        # With "1" (vLLM's default) the CPU platform turns the uni executor into mp (platforms/cpu.py).
        env["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1" if self.separate_workers else "0"
        if self.role is not None:
            env["VLLM_NIXL_SIDE_CHANNEL_HOST"] = HOST
            env["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(self.side_channel_port)
        if self.agent:
            env.setdefault("PUSHSCOPE_BIND", f"{HOST}:0")
        if self.otlp is not None:
            env |= self.otlp.environment()
        return env | dict(self.env)

    def _extra_config(self) -> dict[str, Any]:
        extra = dict(self.extra_config)
        if self.agent and self.instrumented:
            extra["pushscope"] = {"agent": "auto", **extra.get("pushscope", {})}
        return extra


def check_block_size(tokens: int) -> None:
    """Raises ValueError for one that vLLM refuses on CPU, which it does only when an engine has started."""
    if tokens <= 0 or tokens % _BLOCK_SIZE_STEP:
        raise ValueError(
            f"Expected a block size that is a multiple of {_BLOCK_SIZE_STEP} tokens, found {tokens}."
        )


def check_connector(name: str) -> None:
    """Raises ValueError for a connector that pushscope doesn't instrument."""
    if name not in CONNECTORS:
        raise ValueError(
            f"Expected a connector that pushscope instruments ({', '.join(CONNECTORS)}), found {name!r}; "
            "with --no-instrument it may be any of vLLM's."
        )


def prefill_decode(prefill: int = 1, decode: int = 1, **common: Any) -> list[EngineSpec]:
    """Specs P1, P2, … and D1, D2, …; ``common`` are fields that all of them share."""
    specs = [EngineSpec(name=f"P{n}", role="prefill", **common) for n in range(1, prefill + 1)]
    return specs + [EngineSpec(name=f"D{n}", role="decode", **common) for n in range(1, decode + 1)]
