"""Specs, ports, state file, error texts: what the lab says and writes before an engine runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pushscope.lab.cli import _clear_errors, app
from pushscope.lab.deployment import Deployment, _Running
from pushscope.lab.environment import LAB_ID, engine_environment, python_environment
from pushscope.lab.launch import Process, start_command
from pushscope.lab.ports import free_ports
from pushscope.lab.processes import (
    group_members,
    is_running,
    process_info,
    processes_with_environment,
    stop_groups,
)
from pushscope.lab.readiness import StartError, error_lines
from pushscope.lab.spec import EngineSpec, prefill_decode
from pushscope.lab.state import EngineState, LabState, find_lab, running_lab, write_state
from pushscope.lab.up import LabError, watch_until_interrupted


def _argument(spec: EngineSpec, name: str) -> str:
    arguments = spec.arguments(Path("/model"))
    return arguments[arguments.index(name) + 1]


def test_an_instrumented_engine_names_our_connector_module_and_never_an_engine_id() -> None:
    config = json.loads(_argument(EngineSpec("P1", "prefill"), "--kv-transfer-config"))
    assert config == {
        "kv_connector": "NixlPushConnector",
        "kv_role": "kv_producer",
        "kv_connector_module_path": "pushscope.connector",
    }


def test_a_plain_engine_has_vllms_connector() -> None:
    spec = EngineSpec(
        "D1",
        "decode",
        instrumented=False,
        kv_connector="NixlConnector",
        extra_config={"kv_lease_duration": 6},
        kv_transfer={"kv_load_failure_policy": "recompute"},
    )
    assert json.loads(_argument(spec, "--kv-transfer-config")) == {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_consumer",
        "kv_connector_extra_config": {"kv_lease_duration": 6},
        "kv_load_failure_policy": "recompute",
    }


def test_an_engine_gets_time_to_shut_its_connector_down() -> None:
    assert int(_argument(EngineSpec("A", None), "--shutdown-timeout")) > 0


def test_an_engine_without_a_role_has_no_connector() -> None:
    spec = EngineSpec("A", None)
    assert "--kv-transfer-config" not in spec.arguments(Path("/model"))
    assert "VLLM_NIXL_SIDE_CHANNEL_PORT" not in spec.environment()


@pytest.mark.parametrize(
    ("ranks", "multiprocessing", "in_one_process"),
    [(1, None, True), (1, True, False), (2, None, False), (1, False, True)],
)
def test_one_worker_lives_in_its_engine_core_unless_asked(
    ranks: int, multiprocessing: bool | None, in_one_process: bool
) -> None:
    spec = EngineSpec("A", None, tensor_parallel_size=ranks, multiprocessing=multiprocessing)
    assert ("--distributed-executor-backend" in spec.arguments(Path("/model"))) is in_one_process


def test_a_deployment_gives_every_engine_ports_of_its_own(tmp_path: Path) -> None:
    deployment = Deployment(prefill_decode(2, 2, tensor_parallel_size=2), Path("/model"), log_dir=tmp_path)
    ports: list[int] = []
    for spec in deployment.specs.values():
        ports += [spec.http_port, spec.side_channel_port, spec.side_channel_port + 1]
    assert deployment.router is not None
    ports += [deployment.router.port, deployment.router.metrics_port]
    assert len(set(ports)) == 14
    assert list(deployment.specs) == ["P1", "P2", "D1", "D2"]


def test_no_port_is_given_twice() -> None:
    firsts = [free_ports(3) for _ in range(50)]
    assert len({first + offset for first in firsts for offset in range(3)}) == 150


def test_names_of_engines_are_their_own(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="names of their own"):
        Deployment([EngineSpec("P1", "prefill")] * 2, Path("/model"), log_dir=tmp_path)


def test_engines_find_pushscope_and_the_cures_but_no_foreign_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "4")
    env = engine_environment()
    assert "VLLM_CPU_KVCACHE_SPACE" not in env
    assert env["PUSHSCOPE_LAB_NIXL_POLL_US"] == "1000"
    code = "import os, pushscope.lab, sitecustomize as s; print(s.__file__, os.sched_yield.__module__)"
    output = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert output.stdout.split()[0].endswith("engine/sitecustomize.py")
    assert output.stdout.split()[1] == "pushscope.lab.engine.cures"
    uncured = engine_environment(cured=False)
    output = subprocess.run(
        [sys.executable, "-c", code], env=uncured, capture_output=True, text=True, check=True
    )
    assert output.stdout.split()[1] == "posix"


class _Impostor:
    """Starts a Python one-liner in place of an API server."""

    imports_vllm = False
    ready = True

    def __init__(self, code: str) -> None:
        self._code = code

    def start(self, arguments: Sequence[str], env: Mapping[str, str], log: Path) -> Process:
        return start_command([sys.executable, "-S", "-c", self._code], env, log)


def test_an_engine_that_ends_is_an_error_with_its_last_errors_and_its_log(tmp_path: Path) -> None:
    launcher = _Impostor("import sys; print('fine'); sys.exit('ValueError: no such model')")
    deployment = Deployment(
        [EngineSpec("P1", "prefill")], Path("/model"), log_dir=tmp_path, launcher=launcher
    )
    with pytest.raises(StartError) as error, deployment:
        pass
    assert str(error.value).startswith("Expected P1 to become ready, found that it ended with exit status 1.")
    assert "ValueError: no such model" in str(error.value)
    assert "fine" not in str(error.value)
    assert str(tmp_path / "P1.log") in str(error.value)


def test_an_engine_that_never_gets_ready_is_taken_down(tmp_path: Path) -> None:
    launcher = _Impostor("import time; print('slow', flush=True); time.sleep(60)")
    deployment = Deployment(
        [EngineSpec("P1", "prefill"), EngineSpec("D1", "decode")],
        Path("/model"),
        log_dir=tmp_path,
        launcher=launcher,
        ready_timeout_s=0.5,
    )
    with (
        pytest.raises(StartError, match=r"P1 to become ready, found that it was not after 0.5 s"),
        deployment,
    ):
        pass
    assert processes_with_environment(LAB_ID, deployment.id) == []


def test_a_lab_can_go_on_without_an_engine(tmp_path: Path) -> None:
    running = start_command(["sleep", "60"], os.environ, tmp_path / "D1.log")
    ended = start_command(["true"], os.environ, tmp_path / "P1.log")
    deployment = Deployment(prefill_decode(), Path("/model"), log_dir=tmp_path)
    for name, process in (("P1", ended), ("D1", running)):
        deployment._started(_Running(name, "", tmp_path / f"{name}.log", process, 0.0))
    told: list[str] = []

    def tell(sentence: str) -> None:
        told.append(sentence)
        running.popen.kill()  # type: ignore[union-attr]

    assert ended.popen is not None
    ended.popen.wait()
    with pytest.raises(LabError, match="Expected P1 to run, found that it ended"):
        watch_until_interrupted(deployment)
    with pytest.raises(LabError, match="Expected P1, D1 to run"):
        watch_until_interrupted(deployment, on_ended=tell)
    assert told == [f"P1 has ended (its log: {tmp_path / 'P1.log'}); the others stay up."]
    deployment.stop()


def test_a_group_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    code = f"{ignore}; print('x', flush=True); time.sleep(60)"
    process = start_command([sys.executable, "-S", "-c", code], os.environ, tmp_path / "log")
    while "x" not in (tmp_path / "log").read_text():
        time.sleep(0.02)
    began = time.monotonic()
    stop_groups([process.pid], grace_s=0.3)
    assert group_members(process.pid) == []
    assert 0.3 <= time.monotonic() - began < 2.0
    assert not process.alive()
    assert process.exit_status() == "was ended by signal 9"


def test_a_leader_ends_its_group_in_order(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, time\n"
        "def say(what):\n"
        "    print(what, flush=True)\n"
        "child = os.fork()\n"
        "def end(*_):\n"
        "    if child:\n"
        "        say('leader told'); os.kill(child, signal.SIGUSR1); os.wait(); say('leader ends')\n"
        "    else:\n"
        "        say('child ends')\n"
        "    os._exit(0)\n"
        "signal.signal(signal.SIGTERM, end if child else lambda *_: (say('child told too'), os._exit(1)))\n"
        "signal.signal(signal.SIGUSR1, end)\n"
        "say('x')\n"
        "time.sleep(60)\n"
    )
    process = start_command([sys.executable, "-S", "-c", code], os.environ, tmp_path / "log")
    while (tmp_path / "log").read_text().count("x") < 2:
        time.sleep(0.02)
    stop_groups([process.pid], grace_s=5, leaders_first=True)
    assert (tmp_path / "log").read_text().split("\n")[2:] == ["leader told", "child ends", "leader ends", ""]
    assert not process.alive()


def test_what_a_dead_leader_left_is_ended_at_once(tmp_path: Path) -> None:
    process = start_command(["sh", "-c", "sleep 60 & exec sleep 0.1"], os.environ, tmp_path / "log")
    assert process.popen is not None
    process.popen.wait()
    assert len(group_members(process.pid)) == 1
    began = time.monotonic()
    stop_groups([process.pid], grace_s=5, leaders_first=True)
    assert group_members(process.pid) == []
    assert time.monotonic() - began < 2


def test_the_warden_ends_what_a_killed_lab_leaves(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "from pushscope.lab.warden import Warden\n"
        "warden = Warden()\n"
        "child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "warden.watch(child.pid)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    lab = subprocess.Popen(
        [sys.executable, "-c", code], env=python_environment(), stdout=subprocess.PIPE, text=True
    )
    assert lab.stdout is not None
    child = int(lab.stdout.readline())
    info = process_info(child)
    assert info is not None
    lab.send_signal(signal.SIGKILL)
    lab.wait()
    lab.stdout.close()
    deadline = time.monotonic() + 5
    while is_running(child, info.start_ticks) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(child, info.start_ticks)


def test_error_lines_are_the_last_that_speak_of_errors(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "INFO 11-30 09:00:06 [arg_utils.py:1] all well\n"
        "(APIServer pid=1) ERROR 11-30 09:00:06 [core.py:12] EngineCore failed to start.\n"
        "(EngineCore pid=2) Traceback (most recent call last):\n"
        '(EngineCore pid=2)   File "x.py", line 1, in error\n'
        "(EngineCore pid=2) ValueError: too many heads\n"
        "(EngineCore pid=2)   [value=7]\n"
        "(EngineCore pid=2)\n"
        "WARNING 11-30 09:00:07 [x.py:1] an error: no, not one\n"
    )
    assert error_lines(log) == [
        "EngineCore failed to start.",
        "ValueError: too many heads",
        "  [value=7]",
    ]


def test_error_lines_of_a_log_without_errors_are_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\ntwo\nKilled\n")
    assert error_lines(log, 2) == ["two", "Killed"]
    assert error_lines(tmp_path / "missing") == []


def _state(pid: int, ticks: int) -> LabState:
    engines = [
        EngineState("P1", "prefill", "http://127.0.0.1:1", 2, 1, 3, "P1.log"),
        EngineState("D1", "decode", "http://127.0.0.1:4", 5, 1, 6, "D1.log"),
    ]
    return LabState(pid, ticks, "http://127.0.0.1:7", 8, engines, "model", "logs", None)


def test_a_running_lab_is_found_by_its_state_file(tmp_path: Path) -> None:
    me = process_info(os.getpid())
    assert me is not None
    state = _state(me.pid, me.start_ticks)
    write_state(tmp_path, state)
    assert find_lab(tmp_path) == state
    assert state.urls("decode") == ["http://127.0.0.1:4"]
    assert [path.name for path in tmp_path.iterdir()] == ["lab.json"]


@pytest.mark.parametrize("content", [None, b"{}", b"not json"])
def test_a_state_file_that_says_nothing_is_no_lab(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "lab.json").write_bytes(content)
    assert running_lab(tmp_path) is None


def test_the_state_file_of_a_lab_that_was_killed_is_no_lab(tmp_path: Path) -> None:
    write_state(tmp_path, _state(os.getpid(), 1))  # that pid, but of another process
    assert running_lab(tmp_path) is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["load"], "Expected a running lab in"),
        (["load", "--direct", "both"], "Expected a running lab in"),
        (["load", "--direct", "sideways"], "Expected --direct to be one of both, p-first"),
        (["load", "--arrivals", "never"], "Expected --arrivals to be one of poisson, fixed, found 'never'."),
        (["load", "--delay", "1"], "Expected --direct ORDER with"),
        (["load", "--direct", "both", "--url", "http://x"], "found --url"),
        (["load", "--direct", "both", "--prefill", "http://x"], "found only one of them"),
        (["load", "--prompt-tokens", "few"], "found 'few'"),
        (["load", "--requests", "0"], "Expected num_requests to be positive, found 0."),
        (["up", "--model", "/nowhere"], "Expected a model in /nowhere, found no config.json"),
        (["up", "--block-size", "7"], "a multiple of 32 tokens, found 7."),
        (["up", "--block-size", "0"], "a multiple of 32 tokens, found 0."),
        (["up", "--connector", "Foo"], "(NixlPushConnector, NixlPullConnector, NixlConnector), found 'Foo'"),
        (["model", "/proc/x"], "Expected a place where the folder /proc/x can be made, found none"),
        (["model", "/etc/passwd"], "found none (Not a directory)"),
    ],
)
def test_commands_fail_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.setenv("PUSHSCOPE_LAB_DIR", str(tmp_path))
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_error_of_the_system_is_a_sentence_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), _clear_errors():
        Path("/nowhere/x").read_bytes()
    assert capsys.readouterr().err == "Cannot use /nowhere/x: No such file or directory.\n"


def test_a_second_lab_in_one_folder_is_refused(tmp_path: Path) -> None:
    me = process_info(os.getpid())
    assert me is not None
    write_state(tmp_path, _state(me.pid, me.start_ticks))
    result = CliRunner().invoke(app, ["up", "--dir", str(tmp_path)])
    assert result.exit_code == 2
    assert f"found one (process {me.pid})" in result.stderr


@pytest.mark.parametrize(("ranks", "asked", "separate"), [(1, None, False), (2, None, True), (1, True, True)])
def test_with_one_rank_the_worker_shares_the_engine_cores_process(ranks, asked, separate) -> None:
    spec = EngineSpec("P1", "prefill", tensor_parallel_size=ranks, multiprocessing=asked)
    assert spec.separate_workers is separate
    assert ("uni" in spec.arguments(Path("model"))) is not separate
    assert spec.environment()["VLLM_ENABLE_V1_MULTIPROCESSING"] == ("1" if separate else "0")
