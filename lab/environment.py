"""The environment of the processes that the lab starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pushscope.lab.engine.cures import ALL_CURES

LAB_ID = "PUSHSCOPE_LAB_ID"
"""Names the deployment in the environment of all its processes, also of those that leave the process
group."""

_ENGINE_PATH = Path(__file__).with_name("engine")

_ENGINE_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_HOST_IP": "127.0.0.1",
}

_NOT_INHERITED = (
    "VLLM_CPU_KVCACHE_SPACE",  # overrules --kv-cache-memory-bytes
    "VLLM_NIXL_SIDE_CHANNEL_PORT",
)


def python_environment() -> dict[str, str]:
    """This process's environment, in which ``import pushscope`` finds what it finds here."""
    env = dict(os.environ)
    ours = [entry for entry in sys.path if entry and (Path(entry) / "pushscope").is_dir()]
    env["PYTHONPATH"] = _joined([*map(os.path.abspath, ours), *_entries(env)])
    return env


def engine_environment(*, cured: bool = True) -> dict[str, str]:
    """The environment of an engine process: offline, one thread, and the cures for a small machine unless
    ``cured`` is false."""
    env = python_environment()
    for name in _NOT_INHERITED:
        env.pop(name, None)
    env.update(_ENGINE_ENVIRONMENT)
    env["PYTHONPATH"] = _joined([str(_ENGINE_PATH), *_entries(env)])
    if cured:
        env.update(ALL_CURES)
    return env


def _entries(env: dict[str, str]) -> list[str]:
    return [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]


def _joined(entries: list[str]) -> str:
    return os.pathsep.join(dict.fromkeys(entries))
