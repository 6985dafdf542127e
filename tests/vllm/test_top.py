"""``pushscope top`` on a real terminal, beside real engines under load with a fault; and its recording, replayed."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from faults.run import faulty_lab

from pushscope.lab.environment import python_environment
from pushscope.lab.faults.ground import ground
from pushscope.lab.faults.sight import Sight
from pushscope.lab.faults.table import FAULTS
from pushscope.lab.launch import Zygote
from pushscope.lab.legs import DirectTarget
from pushscope.lab.load import LoadPlan, run_load
from pushscope.lab.state import find_lab
from tests.terminal import Terminal

pytestmark = [pytest.mark.engines, pytest.mark.timeout(240)]

FAULT = FAULTS["lost-prefill"]
PUSHSCOPE = [sys.executable, "-c", "from pushscope.lab.main import main; main()"]
LOAD = LoadPlan(num_requests=24, rate=4.0, prompt_tokens=(100, 900), output_tokens=8, timeout_s=60, seed=71)
ALL = LOAD.num_requests + 1 + 2
"""The load, the fault's request, and two by which the load and the fault learned P's engine id."""


def top(folder: Path, *options: str) -> Terminal:
    return Terminal([*PUSHSCOPE, "top", *options], size=(150, 40), folder=folder, env=python_environment())


@asynccontextmanager
async def fault_made(directory: Path, sight: Sight) -> AsyncIterator[None]:
    async with ground(directory, sight) as at, FAULT.make(at):
        yield


@contextmanager
def under_load(directory: Path) -> Iterator[None]:
    lab = find_lab(directory)
    target = DirectTarget([lab.first("prefill").url], [lab.first("decode").url], order="both")
    load = threading.Thread(target=lambda: asyncio.run(run_load(LOAD, target)))
    load.start()
    try:
        yield
    finally:
        load.join()


def delivered(screen: str) -> int:
    found = re.search(r"delivered (\d+)", screen)
    return int(found[1]) if found else 0


def rows(screen: str) -> list[str]:
    """The requests of a view's table, with their figures."""
    return [line.lstrip("> ") for line in screen.splitlines() if line.lstrip("> ").startswith("cmpl-")]


async def shown(terminal: Terminal, *words: str, gone: bool = False) -> str:
    return await asyncio.to_thread(lambda: terminal.until(*words, gone=gone))


def test_a_fault_under_load_is_seen_explained_and_leaves_and_its_recording_shows_the_same(
    zygote: Zygote, tmp_path: Path
) -> None:
    with faulty_lab(tmp_path / "lab", zygote) as rings, Sight(rings) as sight:
        with top(tmp_path, "--rings", str(rings), "--summary", str(tmp_path / "summary.json")) as terminal:
            terminal.until("[1 Live", "5 Engines 2")
            terminal.press("r")
            terminal.until("REC")
            terminal.press("2")
            with under_load(tmp_path / "lab"):
                asyncio.run(_fault_is_explained(terminal, tmp_path / "lab", sight))
            terminal.until(FAULT.code, gone=True)
            terminal.press("3")
            live = terminal.until("Ended lately", f"delivered {ALL}", "in flight 0", "waiting 0")
            terminal.press("r")
            terminal.until("REC ", gone=True)
            terminal.press("q")
            terminal.until("exit-status 0")
            told = terminal.history()
        assert f"{FAULT.code}: 1" in told, "what got stuck is in the summary"
    (recording,) = tmp_path.glob("pushscope-*.psr")
    assert FAULT.code in (tmp_path / "summary.json").read_text()

    with top(tmp_path, "--replay", str(recording)) as terminal:
        terminal.until("PLAYING", "3 Recent")
        terminal.press("3", *[">"] * 7)
        replayed = terminal.until("OVER", "Ended lately")
        assert delivered(replayed) == delivered(live)
        assert rows(replayed) == rows(live) != []
        terminal.press("2", *["<"] * 7, "b")  # and back, to see it stuck
        screen = terminal.until(FAULT.code)
        assert "P has had the registration" in screen


async def _fault_is_explained(terminal: Terminal, lab: Path, sight: Sight) -> None:
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(fault_made(lab, sight))
        await shown(terminal, FAULT.code, "What to do", "Evidence")
        await asyncio.to_thread(terminal.press, "Enter")
        await shown(
            terminal, "Where the time went", "What happened", "registration sent to P's tp0", FAULT.code
        )
        await asyncio.to_thread(terminal.press, "Escape")
        await shown(terminal, "[2 Stuck")
