"""The table of faults, the run of them that is committed, and the command, without engines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from faults.__main__ import MISUSED, main
from faults.page import page_of
from faults.result import PAGE, Row, read
from typer.testing import CliRunner

from pushscope.lab.control import Changes, Control, Order, OrderError, give
from pushscope.lab.deployment import Deployment
from pushscope.lab.engine import broken_nixl
from pushscope.lab.faults.folder import faults_dir
from pushscope.lab.faults.table import FAULTS
from pushscope.lab.main import app
from pushscope.lab.processes import process_info
from pushscope.lab.spec import EngineSpec
from pushscope.lab.state import running_lab
from pushscope.telemetry.diagnosis.catalogue import CATALOGUE

RUN = read()


# -- the table, and the run that is committed -------------------------------------------------------------


def test_every_fault_names_a_cause_of_the_catalogue():
    assert {fault.code for fault in FAULTS.values()} <= CATALOGUE.keys()


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_a_fault_is_described_in_sentences(fault):
    for sentence in (fault.what, fault.undone):
        assert sentence[0].isupper()
        assert sentence.endswith(".")


def test_the_committed_run_is_of_these_faults_and_causes():
    assert [(row.fault, row.code, row.lease) for row in RUN.rows] == [
        (fault.name, fault.code, fault.lease) for fault in FAULTS.values()
    ]


def test_the_committed_run_named_them_in_time():
    assert sum(row.held for row in RUN.rows) >= 15
    assert [row.fault for row in RUN.rows if not row.held] == []


def test_the_committed_page_is_that_of_the_run():
    assert PAGE.read_text() == page_of(RUN)


@pytest.mark.parametrize(
    ("lease", "named_s", "cleared_s", "held"),
    [
        ("", 9.9, 0.0, True),
        ("", 10.1, 0.0, False),
        ("whole", 3.1, 0.0, False),
        ("whole", -2.0, 0.0, True),
        ("", None, 0.0, False),
        ("", 1.0, None, False),
    ],
)
def test_in_time(lease, named_s, cleared_s, held):
    row = Row(fault="f", code="c", lease=lease, named_s=named_s, cleared_s=cleared_s)
    assert row.held is held


def test_a_later_run_of_some_replaces_their_rows():
    later = msgspec.structs.replace(RUN.rows[1], named_s=0.5)
    assert RUN.updated([later]).rows == (RUN.rows[0], later, *RUN.rows[2:])


def test_an_unknown_fault_of_a_run_is_named(capsys):
    assert main(["lost-prefil"]) == MISUSED
    assert capsys.readouterr().err.startswith("faults: unknown lost-prefil; known are lost-prefill, ")


# -- the command ------------------------------------------------------------------------------------------


def invoke(*arguments: str | Path):
    return CliRunner().invoke(app, ["lab", "fault", *map(str, arguments)], env={"COLUMNS": "400"})


def test_the_list_names_every_fault_and_its_cause():
    said = invoke("--list").output
    for fault in FAULTS.values():
        assert fault.name in said
        assert fault.code in said


def test_an_unknown_fault_is_named(tmp_path):
    result = invoke("lost-prefil", "--dir", tmp_path)
    assert result.exit_code == 2
    assert "found 'lost-prefil'" in result.output


def test_without_a_lab_nothing_is_done(tmp_path):
    result = invoke("lost-prefill", "--dir", tmp_path)
    assert result.exit_code == 2
    assert "Expected a running lab" in result.output


# -- orders to a running lab ------------------------------------------------------------------------------


class FakeDeployment(Deployment):
    """Notes what it is told to do."""

    def __init__(self) -> None:
        specs = [EngineSpec("P1", "prefill"), EngineSpec("D1", "decode")]
        super().__init__(specs, Path("model"), log_dir=Path("logs"), router=None)
        self.done: list[tuple[str, ...]] = []

    def pid(self, name: str) -> int:
        return os.getpid()

    def log(self, name: str) -> Path:
        return Path(f"{name}-{len(self.done)}.log")

    def kill(self, name: str, number: int = signal.SIGKILL, *, part: str = "all") -> None:
        self.done.append(("kill", name))

    def restart(self, name: str, spec: EngineSpec | None = None) -> None:
        assert spec is not None
        self.done.append(("restart", name, str(spec.block_size), *spec.args))


@contextmanager
def served(control: Control):
    """Take orders until the block ends."""
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            control.serve(0.05)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_lab_does_what_it_is_told_and_its_state_follows(tmp_path):
    deployment = FakeDeployment()
    with Control(deployment, tmp_path) as control, served(control):
        state = running_lab(tmp_path)
        assert state is not None
        give(state.control, Order("kill", "P1"))
        assert control.meant_to_end == {"P1"}
        give(state.control, Order("restart", "P1", Changes(block_size=64, args=("--a",))))
        assert control.meant_to_end == set()
        again = running_lab(tmp_path)
    assert deployment.done == [("kill", "P1"), ("restart", "P1", "64", "--a")]
    assert again is not None
    assert again.first("prefill").log != state.first("prefill").log


def test_an_engine_that_is_to_end_is_no_error(tmp_path):
    with Control(FakeDeployment(), tmp_path) as control, served(control):
        give(running_lab(tmp_path).control, Order("let_end", "P1"))
        assert control.meant_to_end == {"P1"}


def test_an_order_for_nobody_is_answered_with_a_sentence(tmp_path):
    with (
        Control(FakeDeployment(), tmp_path) as control,
        served(control),
        pytest.raises(OrderError, match="Expected one of P1, D1, found 'P7'"),
    ):
        give(running_lab(tmp_path).control, Order("kill", "P7"))


def test_a_lab_that_takes_no_orders_is_told_of():
    with pytest.raises(OrderError, match="start it with `pushscope lab up`"):
        give(None, Order("kill", "P1"))


def test_changes_are_in_addition_to_how_an_engine_is():
    spec = EngineSpec("P1", "prefill", block_size=32, args=("--a",), env={"A": "1"}, kv_transfer={"x": 1})
    changed = Changes(args=("--b",), env={"B": "2"}, kv_transfer={"engine_id": "e"}).of(spec)
    assert (changed.args, changed.block_size) == (("--a", "--b"), 32)
    assert (changed.env, changed.kv_transfer) == ({"A": "1", "B": "2"}, {"x": 1, "engine_id": "e"})
    assert Changes().of(spec) == spec


def test_a_fault_is_undone_in_the_terminal_that_holds_it(tmp_path):
    with (
        Control(FakeDeployment(), tmp_path),
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as held,
    ):
        info = process_info(held.pid)
        path = faults_dir(tmp_path) / "lost-prefill.json"
        path.parent.mkdir()
        path.write_text(f'{{"pid": {held.pid}, "start_ticks": {info.start_ticks}}}')
        other = invoke("lost-decode", "--undo", "--dir", tmp_path)
        assert other.exit_code == 2
        assert "no terminal holds it" in other.output
        assert held.poll() is None
        result = invoke("lost-prefill", "--undo", "--dir", tmp_path)
        assert result.output == "lost-prefill is undone.\n"
        assert held.wait() == -signal.SIGTERM


def test_a_fault_that_takes_more_ranks_says_how_to_start_the_lab(tmp_path):
    with Control(FakeDeployment(), tmp_path):
        result = invoke("post-fails", "--dir", tmp_path)
    assert result.exit_code == 2
    assert "pushscope lab up --prefill-tp 2" in result.output


# -- a NIXL that fails on demand --------------------------------------------------------------------------


@pytest.fixture
def agent(monkeypatch):
    """An agent whose NIXL module has just been loaded."""

    class Agent:
        def transfer(self, handle):
            return f"posted {handle}"

    changes = []
    monkeypatch.setattr(broken_nixl, "when_nixl_loads", changes.append)
    broken_nixl.apply()
    (change,) = changes
    change(SimpleNamespace(nixl_agent=Agent))
    return Agent()


def test_posting_fails_while_the_switch_of_this_process_is_there(agent, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv(broken_nixl.FAULTS, str(tmp_path))
    broken_nixl.post_fails_switch(tmp_path, os.getpid() + 1).touch()
    assert agent.transfer(1) == "posted 1"
    switch = broken_nixl.post_fails_switch(tmp_path, os.getpid())
    switch.touch()
    with pytest.raises(RuntimeError, match="made by pushscope lab fault"):
        agent.transfer(2)
    assert "PUSHSCOPE LAB FAULT" in capfd.readouterr().err
    switch.unlink()
    assert agent.transfer(3) == "posted 3"


def test_posting_never_fails_outside_a_lab(agent, tmp_path, monkeypatch):
    monkeypatch.delenv(broken_nixl.FAULTS, raising=False)
    monkeypatch.chdir(tmp_path)
    Path(f"post-fails.{os.getpid()}").touch()
    assert agent.transfer(1) == "posted 1"


def test_an_order_survives_the_way():
    order = Order("restart", "D1", Changes(kv_cache_bytes=7, env={"A": "b"}))
    assert msgspec.json.decode(msgspec.json.encode(order), type=Order) == order
