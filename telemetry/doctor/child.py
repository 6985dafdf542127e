"""Examinations of vLLM and NIXL, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from pushscope.telemetry.events import cut
from pushscope.telemetry.fitness import NixlFitness, VllmFitness

TIMEOUT_S = 180.0
_COMMAND = (sys.executable, "-m", "pushscope.connector.fitness")
F = TypeVar("F", VllmFitness, NixlFitness)


def examine(
    *, vllm: bool, nixl: bool, on_progress: Callable[[str], None], timeout_s: float = TIMEOUT_S
) -> tuple[VllmFitness | None, NixlFitness | None]:
    """Examine what is asked for, both at once. ``on_progress`` is told some times a second what goes on."""
    began = time.monotonic()
    with ThreadPoolExecutor() as pool:
        asked: dict[str, Any] = {}
        if vllm:
            asked["vLLM"] = pool.submit(_ask, "vllm", VllmFitness, timeout_s)
        if nixl:
            asked["NIXL"] = pool.submit(_ask, "nixl", NixlFitness, timeout_s)
        while waiting := [name for name, answer in asked.items() if not answer.done()]:
            on_progress(f"examining {' and '.join(waiting)} ({time.monotonic() - began:.0f} s)")
            time.sleep(0.1)
    return tuple(asked[name].result() if name in asked else None for name in ("vLLM", "NIXL"))  # type: ignore[return-value]


def _ask(what: str, kind: type[F], timeout_s: float) -> F:
    try:
        done = subprocess.run(
            [*_COMMAND, what], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return kind(error=f"no answer within {timeout_s:g} s")
    try:
        return msgspec.json.decode(done.stdout, type=kind)
    except msgspec.MsgspecError:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["nothing said"]
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
        return kind(error=f"it ended with {how}: {cut(said[-1])}")
