"""Behaviour is vLLM's: one scenario, plain and instrumented, on real engine cores with real NIXL, compared.

Compared: tokens, the NIXL calls (operation, descriptor ids, notification bytes but for the one added key, order
per thread), what the schedulers tell the workers, and blocks in use at the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pushscope.lab.environment import python_environment
from pushscope.lab.ports import free_ports

pytestmark = [pytest.mark.engines, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=["Push", "Pull"])
def runs(request, tmp_path_factory) -> tuple[str, dict[str, Any], dict[str, Any]]:
    results = []
    for kind in ("plain", "pushscope"):
        folder = tmp_path_factory.mktemp(kind)
        out = folder / "result.json"
        port = free_ports(2)
        env = python_environment()
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env["PYTHONPATH"]])
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.vllm.differential",
                kind,
                request.param,
                str(port),
                str(folder),
                str(out),
            ],
            env=env,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert out.exists(), done.stdout[-3000:] + done.stderr[-3000:]
        results.append(json.loads(out.read_text()))
    return request.param, results[0], results[1]


def test_the_two_runs_are_what_they_say(runs):
    _, plain, ours = runs
    assert (plain["recorded"], ours["recorded"]) == (0, 4)


def test_tokens(runs):
    _, plain, ours = runs
    assert ours["tokens"] == plain["tokens"]
    assert len(plain["tokens"]) >= 5


def test_tokens_are_those_of_one_engine(runs):
    _, _, ours = runs
    cases = {case: tokens for case, tokens in ours["tokens"].items() if case[-1].isdigit()}
    assert cases == {case: ours["alone"][case.split()[-1]] for case in cases}
    assert len(cases) >= 5


def test_every_transfer_is_seen_to_its_end(runs):
    """Five lengths, in push in three orders, and a late prefill; a wrong engine; a lease that ran out; one more.

    In pull the wrong engine's request leaves blocks at P that nobody reads, and their lease runs out too.
    """
    mode, _, ours = runs
    assert ours["seen"]["modes"] == [mode.lower()]
    delivered, expired = (3 * 5 + 2, 1) if mode == "Push" else (5 + 1, 2)
    assert ours["seen"]["outcomes"] == {"delivered": delivered, "failed": 1, "expired": expired}


def test_nothing_is_off_and_nothing_was_lost(runs):
    _, _, ours = runs
    assert (ours["seen"]["seams off"], ours["seen"]["dropped"]) == ([], 0)


def test_workers_say_what_only_they_know(runs):
    """The results call: that blocks arrived or failed to, what ran out, and what is said every second."""
    _, _, ours = runs
    p, d = (set(ours["seen"]["kinds"][f"engine-{engine} worker"]) for engine in "PD")
    assert {"Loop", "Tables", "LeaseSet", "LeaseExpired"} <= p
    assert {"Loop", "Tables", "ReceiveDone", "ReceiveFailed"} <= d


@pytest.mark.parametrize("engine", ["P", "D"])
def test_nixl_calls(runs, engine):
    mode, plain, ours = runs
    assert ours["nixl"][engine] == plain["nixl"][engine]
    sender = "P" if mode == "Push" else "D"
    if engine == sender:
        calls = [call for thread in plain["nixl"][engine].values() for call in thread]
        assert sum(call[0] == "transfer" for call in calls) >= 5


@pytest.mark.parametrize("engine", ["P", "D"])
def test_what_the_scheduler_tells_the_workers(runs, engine):
    _, plain, ours = runs
    assert ours["told"][engine] == plain["told"][engine]
    assert plain["told"][engine]


def test_blocks_in_use_at_the_end(runs):
    _, plain, ours = runs
    assert ours["blocks in use"] == plain["blocks in use"]
