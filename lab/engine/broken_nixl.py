"""A NIXL that fails when it is told to: for faults that only happen inside an engine process.

Nothing of it is in effect unless ``PUSHSCOPE_LAB_FAULTS`` names a folder, which `pushscope lab up` sets for the
engines it starts and nobody else should. While that folder has a file ``post-fails.PID``, every ``transfer`` of
process PID raises, as NIXL does when it can't post; each time the engine's log says that the lab did it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from pushscope.lab.engine.nixl_api import when_nixl_loads

FAULTS = "PUSHSCOPE_LAB_FAULTS"
ERROR = "NIXL_ERR_BACKEND (made by pushscope lab fault post-fails)"


def post_fails_switch(folder: Path, pid: int) -> Path:
    """The file whose existence makes posting fail in a process."""
    return folder / f"post-fails.{pid}"


def apply() -> None:
    """Let this process's NIXL fail on demand. Call it before NIXL is imported."""
    when_nixl_loads(_make_fallible)


def _make_fallible(module: ModuleType) -> None:
    agent: Any = module.nixl_agent
    agent.transfer = _fallible(agent.transfer)


def _fallible(transfer: Callable[..., Any]) -> Callable[..., Any]:
    def fallible_transfer(*args: Any, **kwargs: Any) -> Any:
        # Asked at each call: an engine that is forked gets its environment after NIXL was imported.
        folder = os.environ.get(FAULTS)
        if folder and post_fails_switch(Path(folder), os.getpid()).exists():
            print(f"PUSHSCOPE LAB FAULT post-fails: transfer raises {ERROR}", file=sys.stderr, flush=True)
            raise RuntimeError(ERROR)
        return transfer(*args, **kwargs)

    return fallible_transfer
