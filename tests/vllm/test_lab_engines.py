"""The lab with real engines and plain vLLM: right tokens by every way to them, and nothing left behind."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from pushscope.lab.completion import complete, completion_body
from pushscope.lab.deployment import ROUTER, Deployment
from pushscope.lab.environment import LAB_ID, python_environment
from pushscope.lab.launch import Zygote
from pushscope.lab.legs import DirectTarget, Order
from pushscope.lab.load import LoadPlan, ServerTarget, Target, run_load
from pushscope.lab.processes import ProcessInfo, group_members, process_info, processes_with_environment
from pushscope.lab.prompts import make_prompt
from pushscope.lab.readiness import StartError
from pushscope.lab.results import RequestResult
from pushscope.lab.spec import EngineSpec, prefill_decode
from pushscope.lab.state import running_lab
from pushscope.lab.up import LabError, LabPlan, lab, watch_until_interrupted

pytestmark = pytest.mark.engines

PLAN = LoadPlan(num_requests=6, concurrency=3, prompt_tokens=(20, 700), output_tokens=8, timeout_s=30)
ALONE = EngineSpec("A", None)


@pytest.fixture(scope="module")
def pair(model: Path, zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """P1, D1, a router, and A, which computes everything itself."""
    specs = [*prefill_decode(1, 1, instrumented=False), ALONE]
    with Deployment(specs, model, log_dir=tmp_path_factory.mktemp("logs"), launcher=zygote) as deployment:
        yield deployment


def run(target: Target, plan: LoadPlan = PLAN) -> list[RequestResult]:
    return asyncio.run(run_load(plan, target))


def assert_equal_to_alone(pair: Deployment, target: Target, plan: LoadPlan) -> None:
    results = run(target, plan)
    assert [result.error for result in results] == [None] * len(results)
    expected = run(ServerTarget(pair.specs["A"].url), plan)
    assert [result.token_ids for result in results] == [result.token_ids for result in expected]
    assert all(len(set(result.token_ids)) > 2 for result in expected)
    assert all(result.ttft_s is not None and result.ttft_s > 0 for result in results)


# Each load has a seed of its own: a prompt that D has seen already is never transferred.


def test_tokens_by_the_router_are_those_of_an_engine_alone(pair: Deployment) -> None:
    assert_equal_to_alone(pair, ServerTarget(pair.router_url), replace(PLAN, seed=1))


@pytest.mark.parametrize(
    ("order", "delay_s", "seed"),
    [("both", 0.0, 2), ("p-first", 0.0, 3), ("p-first", 0.2, 4), ("d-first", 0.2, 5)],
)
def test_tokens_of_both_legs_in_any_order_are_those_of_an_engine_alone(
    pair: Deployment, order: Order, delay_s: float, seed: int
) -> None:
    target = DirectTarget(
        pair.urls("prefill"), pair.urls("decode"), order=order, delay_s=delay_s, transfer_id=True
    )
    assert_equal_to_alone(pair, target, replace(PLAN, seed=seed))


def test_a_decode_leg_alone_waits_until_its_client_gives_up(pair: Deployment) -> None:
    target = DirectTarget(pair.urls("prefill"), pair.urls("decode"), order="only-d")
    [result] = run(target, LoadPlan(num_requests=1, seed=6, timeout_s=2))
    assert result.error == "timed out"
    assert result.token_ids == ()


def test_output_depends_on_every_prompt_token(pair: Deployment) -> None:
    """Otherwise equal tokens would prove nothing."""
    prompt = make_prompt(7, 0, 200)
    prompts = [prompt]
    for position in range(0, 180, 12):
        edited = list(prompt)
        edited[position] = 4 + (edited[position] + 1) % 500
        prompts.append(edited)
    url = pair.specs["A"].url

    async def outputs() -> list[list[int]]:
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            bodies = [completion_body(each, 12, stream=False) for each in prompts]
            return [(await complete(client, url, body)).token_ids for body in bodies]

    first, *others = asyncio.run(outputs())
    assert sum(other != first for other in others) >= len(others) - 1


def test_a_killed_prefill_engine_restarts_under_a_new_id(model: Path, zygote: Zygote, tmp_path: Path) -> None:
    specs = prefill_decode(1, 1, instrumented=False)
    with Deployment(specs, model, log_dir=tmp_path, launcher=zygote, router=None) as deployment:
        target = DirectTarget(deployment.urls("prefill"), deployment.urls("decode"))
        assert run(target, replace(PLAN, seed=8))[0].error is None
        before = target._peers[deployment.specs["P1"].url]
        deployment.kill("P1")
        assert deployment.dead() == ["P1"]
        [failed, *_] = run(target, replace(PLAN, num_requests=1, seed=9, timeout_s=5))
        assert failed.error is not None
        deployment.restart("P1")
        assert [result.error for result in run(target, replace(PLAN, seed=10))] == [None] * 6
        after = target._peers[deployment.specs["P1"].url]
        assert after.engine_id != before.engine_id
        assert after.port == before.port


def test_an_engine_core_can_be_killed_alone(model: Path, zygote: Zygote, tmp_path: Path) -> None:
    with Deployment([ALONE], model, log_dir=tmp_path, launcher=zygote) as deployment:
        assert any("EngineCore" in info.title for info in deployment.processes("A"))
        deployment.kill("A", signal.SIGKILL, part="core")
        assert not any("EngineCore" in info.title for info in deployment.processes("A"))
        [result] = run(ServerTarget(deployment.specs["A"].url), replace(PLAN, num_requests=1, timeout_s=10))
        assert result.error is not None


def test_two_prefill_and_two_decode_engines_serve_behind_one_router(
    pair: Deployment, model: Path, zygote: Zygote, tmp_path: Path
) -> None:
    specs = prefill_decode(2, 2, instrumented=False)
    with Deployment(specs, model, log_dir=tmp_path, launcher=zygote) as deployment:
        plan = replace(PLAN, num_requests=12, seed=11)
        assert_equal_to_alone(pair, ServerTarget(deployment.router_url), plan)
        for spec in deployment.specs.values():
            assert "POST /v1/completions" in deployment.log(spec.name).read_text()


def test_ranks_may_differ_between_prefill_and_decode(
    pair: Deployment, model: Path, zygote: Zygote, tmp_path: Path
) -> None:
    [p, d] = prefill_decode(1, 1, instrumented=False)
    specs = [replace(p, tensor_parallel_size=2), d]
    with Deployment(specs, model, log_dir=tmp_path, launcher=zygote) as deployment:
        target = DirectTarget(deployment.urls("prefill"), deployment.urls("decode"))
        assert_equal_to_alone(pair, target, replace(PLAN, seed=12))


def test_the_router_learns_a_restarted_prefill_engine_when_it_is_restarted_too(
    model: Path, zygote: Zygote, tmp_path: Path
) -> None:
    specs = prefill_decode(1, 1, instrumented=False)
    with Deployment(specs, model, log_dir=tmp_path, launcher=zygote) as deployment:
        target = ServerTarget(deployment.router_url)
        assert [result.error for result in run(target, replace(PLAN, seed=13))] == [None] * 6
        deployment.restart("P1")
        deployment.restart(ROUTER)
        assert [result.error for result in run(target, replace(PLAN, seed=14))] == [None] * 6
        assert deployment.log("P1").name == "P1-2.log"


def test_an_engine_that_cannot_start_says_why(model: Path, zygote: Zygote, tmp_path: Path) -> None:
    specs = [EngineSpec("P1", "prefill", instrumented=False, args=["--max-model-len", "999999999"])]
    began = time.monotonic()
    with (
        pytest.raises(StartError) as error,
        Deployment(specs, model, log_dir=tmp_path, launcher=zygote),
    ):
        pass
    assert time.monotonic() - began < 20
    assert "Expected P1 to become ready" in str(error.value)
    assert "max_model_len" in str(error.value)
    assert str(tmp_path / "P1.log") in str(error.value)


def test_a_lab_whose_engine_ends_says_so(model: Path, zygote: Zygote, tmp_path: Path) -> None:
    specs = [EngineSpec("P1", "prefill", instrumented=False)]
    plan = LabPlan(tmp_path, specs, model=model, router=None)
    with pytest.raises(LabError, match=r"Expected P1 to run, found that it ended: .*P1\.log"):  # noqa: PT012, SIM117 - the error ends the lab
        with lab(plan, launcher=zygote) as deployment:
            deployment.kill("P1")
            watch_until_interrupted(deployment)
    assert running_lab(tmp_path) is None


def test_nothing_is_left_after_a_deployment(model: Path, zygote: Zygote, tmp_path: Path) -> None:
    specs = prefill_decode(1, 1, instrumented=False)
    with Deployment(specs, model, log_dir=tmp_path, launcher=zygote) as deployment:
        groups = [deployment.pid(name) for name in (*deployment.specs, ROUTER)]
        ports = [spec.http_port for spec in deployment.specs.values()]
        ports += [spec.side_channel_port for spec in deployment.specs.values()]
        assert all(group_members(group) for group in groups)
        assert all(map(_listens, ports))
    assert not any(group_members(group) for group in groups)
    assert processes_with_environment(LAB_ID, deployment.id) == []
    assert not any(map(_listens, ports))


def test_engines_started_as_a_user_would_serve_and_go_with_sigterm(model: Path, tmp_path: Path) -> None:
    code = "from pushscope.lab.cli import app; app()"
    arguments = ["up", "--plain", "--no-instrument", "--model", str(model), "--dir", str(tmp_path)]
    env = python_environment()
    up = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env=env, stdout=subprocess.PIPE, text=True
    )
    assert up.stdout is not None
    try:
        while "router  ready" not in up.stdout.readline():
            assert up.poll() is None
        load = subprocess.run(
            [sys.executable, "-c", code, "load", "--requests", "4", "--dir", str(tmp_path)],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert load.returncode == 0, load.stderr
        assert load.stdout.startswith("4 of 4 requests ok, 0 failed")
        groups = [info.pid for info in _children(up.pid)]
        assert len(groups) == 4  # P1, D1, router, warden
        up.send_signal(signal.SIGTERM)
        assert "The lab is down." in up.stdout.read()
        assert up.wait(10) == 0
        assert not any(group_members(group) for group in groups)
        assert not (tmp_path / "lab.json").exists()
    finally:
        up.kill()
        up.wait()
        up.stdout.close()


def _children(pid: int) -> list[ProcessInfo]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [info for child in children if (info := process_info(int(child)))]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
