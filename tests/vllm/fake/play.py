"""A scenario played in a world of its own, and what came of it."""

from __future__ import annotations

import functools
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pushscope.telemetry.transfer import Transfer
from tests.vllm.fake import scenarios
from tests.vllm.fake.scenarios import SCENARIOS
from tests.vllm.fake.seen import transfers_in
from tests.vllm.fake.world import World
from tests.vllm.fake.written import written_down


@dataclass(frozen=True)
class Played:
    written: dict[str, Any]
    """What vLLM did."""
    transfers: tuple[Transfer, ...]
    """What was seen of it; nothing where nobody recorded."""


def play(name: str, *, instrumented: bool) -> Played:
    s = SCENARIOS[name]
    with tempfile.TemporaryDirectory(prefix="pushscope-") as folder:
        world = World(Path(folder) / "rings", instrumented=instrumented, mode=s.mode, beside=s.beside)
        with world:
            try:
                world.engine("P", s.p)
                world.engine("D", s.d)
            except NotImplementedError as e:
                pytest.skip(f"this release of vLLM: {e}")
            raised = ""
            try:
                s.play(world)
            except Exception as e:
                if _is_the_scenarios_own(e):
                    raise
                # Where a recursion without end is noticed depends on the depth that it began at.
                raised = type(e).__name__ if isinstance(e, RecursionError) else f"{type(e).__name__}: {e}"
            written = written_down(world) | {"raised": raised}
            transfers = tuple(transfers_in(world)) if instrumented else ()
    return Played(written, transfers)


def _is_the_scenarios_own(error: Exception) -> bool:
    *_, last = traceback.extract_tb(error.__traceback__)
    return isinstance(error, AssertionError) and last.filename == scenarios.__file__


@functools.cache
def plain(name: str) -> Played:
    return play(name, instrumented=False)


@functools.cache
def watched(name: str) -> Played:
    return play(name, instrumented=True)
