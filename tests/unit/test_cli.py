"""Bad input on the command line: one clear sentence, a non-zero exit, nothing lost."""

import json
import time

import pytest
from typer.testing import CliRunner

from pushscope.lab.main import app
from pushscope.telemetry.events import EngineUp
from pushscope.telemetry.recorder import SWITCH_NAME, Recorder

from .scenario import P_WORKER


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("command", [("top", "--once"), ("report",), ("report", "--json")])
def test_a_recording_that_is_none(command, tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("not a recording")
    done = run(*command, "--replay", str(file))
    assert done.exit_code == 2
    assert "expected a recording at" in " ".join(done.output.split())
    assert file.read_text() == "not a recording"


def test_recording_over_an_existing_file(tmp_path):
    file = tmp_path / "old.psr"
    file.write_text("precious")
    done = run("record", "-o", str(file), "--for", "0")
    assert done.exit_code == 2
    assert "exists already" in done.output
    assert file.read_text() == "precious"


def test_switching_recording_where_nobody_records(tmp_path):
    done = run("recording", "off", "--rings", str(tmp_path / "no"))
    assert done.exit_code == 2
    assert "expected a folder of rings" in " ".join(done.output.split())


def test_switching_recording(tmp_path):
    recorder = Recorder(tmp_path / "rings", P_WORKER)
    flag = tmp_path / "rings" / SWITCH_NAME
    assert run("recording", "off", "--rings", str(tmp_path / "rings")).exit_code == 0
    assert flag.exists()
    assert run("recording", "on", "--rings", str(tmp_path / "rings")).exit_code == 0
    assert not flag.exists()
    recorder.close()


def test_a_report_of_nothing(tmp_path):
    done = run("report", "--rings", str(tmp_path))
    assert done.exit_code == 0
    assert "no transfers" in done.output.lower()


def test_recording_nothing_for_a_moment(tmp_path):
    done = run("record", "-o", str(tmp_path / "new.psr"), "--for", "0", "--rings", str(tmp_path))
    assert done.exit_code == 0
    assert "0 events" in done.output


def test_the_doctor_finds_no_folder(tmp_path):
    done = run("doctor", "--rings", str(tmp_path / "no"))
    assert done.exit_code == 1
    assert "FAIL  ring folder: expected a folder of rings" in done.output


def test_the_doctor_finds_an_engine_and_a_seam_that_is_off(tmp_path):
    recorder = Recorder(tmp_path / "rings", P_WORKER)
    done = run("doctor", "--rings", str(tmp_path / "rings"))
    assert "ok    P1: engine-p on host, push" in done.output
    assert "one-sided" in done.output
    recorder.record(EngineUp(time.monotonic_ns(), "_xfer_blocks does not exist"))
    checks = json.loads(run("doctor", "--json", "--rings", str(tmp_path / "rings")).output)
    assert {
        "ok": False,
        "subject": "notice",
        "finding": "P1: not recorded with this vLLM: _xfer_blocks does not exist",
    } in checks
    recorder.close()
    assert "; gone" in run("doctor", "--rings", str(tmp_path / "rings")).output


def test_help_names_every_command():
    done = run("--help")
    for command in ("top", "report", "record", "recording", "doctor", "lab", "demo"):
        assert command in done.output
