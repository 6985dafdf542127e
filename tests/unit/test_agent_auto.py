"""``"agent": "auto"``: an agent beside the engine, that neither harms it nor is harmed with it."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench.rings import ring_folder
from bench.writer import SimulatedPair

from pushscope.connector import agent as connector_agent
from pushscope.connector.agent import LOG_NAME, agent_command, agent_environment, start_agent
from pushscope.telemetry.presence import Note, Presence, present_agent


@pytest.fixture
def folder():
    with ring_folder() as folder:
        yield folder
        note = present_agent(folder)
        if note is not None and note.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(note.pid, signal.SIGKILL)


def wait_for_agent(folder: Path, timeout_s: float = 30.0) -> Note:
    deadline = time.monotonic() + timeout_s
    while not ((note := present_agent(folder)) and note.pid):
        assert time.monotonic() < deadline, (folder / LOG_NAME).read_text()
        time.sleep(0.05)
    return note


def environment_of(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


ENGINE = """
import os, sys, time
from pathlib import Path
from bench.writer import SimulatedPair
from pushscope.connector.agent import start_agent
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
with SimulatedPair(Path(sys.argv[1]), 20):
    began = time.monotonic()
    start_agent(Path(sys.argv[1]))
    print(time.monotonic() - began, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def engine(folder):
    """A process that is an engine as far as its rings tell, on one CPU, and started its agent."""
    environ = os.environ | {
        "CUDA_VISIBLE_DEVICES": "0",
        "VLLM_X": "1",
        "UCX_TLS": "tcp",
        "OTEL_SERVICE_NAME": "mine",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(folder)], env=environ, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_it_is_nobodys_child_on_every_cpu_with_little_of_the_environment(engine, folder):
    took_s = float(engine.stdout.readline())
    note = wait_for_agent(folder)
    assert took_s < 5, "the engine waits for the starter alone"
    status = Path(f"/proc/{note.pid}/status").read_text()
    assert f"PPid:\t{engine.pid}\n" not in status
    assert os.getsid(note.pid) not in (os.getsid(engine.pid), engine.pid)
    assert len(os.sched_getaffinity(note.pid)) > 1
    assert os.getpriority(os.PRIO_PROCESS, note.pid) > os.getpriority(os.PRIO_PROCESS, engine.pid)
    grouped = Path("/proc/sys/kernel/sched_autogroup_enabled")
    if grouped.exists() and grouped.read_text().strip() == "1":
        assert Path(f"/proc/{note.pid}/autogroup").read_text().endswith("nice 10\n")
    environ = environment_of(note.pid)
    assert environ["OTEL_SERVICE_NAME"] == "mine"
    assert not [name for name in environ if name.startswith(("CUDA", "VLLM", "UCX"))]
    assert os.readlink(f"/proc/{note.pid}/cwd") == "/"
    assert "answering at http://127.0.0.1:" in (folder / LOG_NAME).read_text()
    # It outlives its engine's sudden end.
    engine.kill()
    engine.wait()
    time.sleep(0.3)
    assert present_agent(folder) == note
    os.kill(note.pid, signal.SIGTERM)


def test_a_second_engine_finds_it(folder, caplog):
    presence = Presence(folder)
    presence.tell(Note(pid=1234, host="here", url="http://x"))
    with caplog.at_level(logging.INFO, "vllm.pushscope"):
        start_agent(folder)
    presence.close()
    assert "read by an agent with pid 1234 on here" in caplog.text
    assert not (folder / LOG_NAME).exists()


@pytest.mark.parametrize("fails", ["no python", "no folder", "a folder in place of the log"])
def test_what_goes_wrong_is_one_line_in_the_log(folder, monkeypatch, caplog, fails):
    where = folder
    if fails == "no python":
        monkeypatch.setattr(connector_agent.sys, "executable", "/no/such/python")
    elif fails == "no folder":
        where = folder / "missing"
    else:
        (folder / LOG_NAME).mkdir()
    start_agent(where)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "could not start its agent" in record.message
    assert present_agent(folder) is None


def test_the_command_is_one_that_the_agent_understands(folder):
    command = agent_command(folder)
    with SimulatedPair(folder, 1):
        process = subprocess.Popen(
            [*command, "--grace", "0"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        wait_for_agent(folder)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert "no engine records any more" in said


def test_the_environment():
    given = {
        "PATH": "/bin",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x",
        "PUSHSCOPE_TOKEN": "t",
        "XDG_STATE_HOME": "/s",
        "LC_ALL": "C",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": "5600",
        "CUDA_VISIBLE_DEVICES": "0",
        "NCCL_DEBUG": "INFO",
        "HF_TOKEN": "secret",
        "PYTHONPATH": f"lib{os.pathsep}/abs{os.pathsep}",
    }
    kept = agent_environment(given)
    assert sorted(kept) == [
        "LC_ALL",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "PATH",
        "PUSHSCOPE_TOKEN",
        "PYTHONPATH",
        "XDG_STATE_HOME",
    ]
    assert kept["PYTHONPATH"] == os.pathsep.join((os.path.abspath("lib"), "/abs"))
