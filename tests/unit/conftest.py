"""What several unit tests of the agent start from: a folder of rings, and agents that read it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.rings import ring_folder

from .agent_process import AgentProcess


@pytest.fixture
def folder() -> Iterator[Path]:
    with ring_folder() as folder:
        yield folder


@pytest.fixture
def agent(folder, tmp_path) -> Iterator[Callable[..., AgentProcess]]:
    started: list[AgentProcess] = []

    def start(*arguments: str, **environ: str) -> AgentProcess:
        started.append(AgentProcess(folder, tmp_path / f"agent{len(started)}.log", *arguments, **environ))
        return started[-1]

    yield start
    for each in started:
        with contextlib.suppress(ProcessLookupError):
            each.process.kill()
        each.process.wait()
