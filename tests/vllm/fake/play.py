"""A scenario played in a world of its own, and what came of it."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pushscope.telemetry.transfer import Transfer
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
            world.engine("P", s.p)
            world.engine("D", s.d)
            raised = ""
            try:
                s.play(world)
            except AssertionError:
                raise  # the scenario's own
            except Exception as e:
                raised = f"{type(e).__name__}: {e}"
            written = written_down(world) | {"raised": raised}
            transfers = tuple(transfers_in(world)) if instrumented else ()
    return Played(written, transfers)


@functools.cache
def plain(name: str) -> Played:
    return play(name, instrumented=False)


@functools.cache
def watched(name: str) -> Played:
    return play(name, instrumented=True)
