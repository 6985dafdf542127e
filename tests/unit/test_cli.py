"""Bad input on the command line: one clear sentence, a non-zero exit, nothing lost."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from pushscope.lab.main import app
from pushscope.telemetry.events import EngineUp
from pushscope.telemetry.recorder import SWITCH_NAME, Recorder
from pushscope.telemetry.recording import RecordingWriter

from .scenario import P_WORKER, delivered, reading


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


@pytest.fixture
def recorded(tmp_path) -> Path:
    """One delivered transfer, then a quiet second."""
    writer = RecordingWriter(tmp_path / "run.psr")
    writer.write(reading(delivered("cmpl-whole"), 60))
    writer.write(reading([], 2000))
    writer.close()
    return writer.path


@pytest.fixture
def damaged(recorded) -> Path:
    data = bytearray(recorded.read_bytes())
    data[-3] ^= 0xFF
    recorded.write_bytes(data)
    return recorded


def test_of_a_damaged_recording_what_lies_before_is_reported(damaged):
    done = run("report", "--replay", str(damaged))
    assert done.exit_code == 2
    assert "1 transfers in" in done.stdout
    assert "is damaged at byte" in done.stderr
    done = run("report", "--json", "--replay", str(damaged))
    assert done.exit_code == 2
    report = json.loads(done.stdout)
    assert report["transfers"] == 1
    assert "is damaged at byte" in report["notices"][-1]
    assert done.stderr.count("is damaged at byte") == 1


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_of_a_damaged_recording_what_lies_before_is_shown(damaged, more):
    done = run("top", "--once", *more, "--replay", str(damaged))
    assert done.exit_code == 2
    assert "cmpl-whole" in done.stdout
    assert "is damaged at byte" in done.stderr


def test_a_report_says_what_its_reader_must_know(tmp_path):
    now = time.monotonic_ns()  # a host that has just started is younger than the scenario's clock
    recorder = Recorder(tmp_path / "rings", msgspec.structs.replace(P_WORKER, anchor_monotonic_ns=now))
    done = run("report", "--rings", str(tmp_path / "rings"))
    assert done.exit_code == 0
    assert done.stderr == "pushscope: one-sided: only P is observed, what D does is not known\n"
    recorder.record(EngineUp(time.monotonic_ns(), ""))
    recorder.close()
    done = run("report", "--json", "--rings", str(tmp_path / "rings"))
    assert json.loads(done.stdout)["notices"] == [
        "P1 has gone without shutting down",
        "one-sided: only P is observed, what D does is not known",
    ]


def _linked(folder: Path) -> None:
    folder.with_name("real").mkdir()
    folder.symlink_to("real")


def _open_to_all(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


@pytest.mark.parametrize("make", [lambda folder: None, _linked, _open_to_all])
def test_a_report_of_a_folder_that_cannot_be_read(make, tmp_path):
    make(tmp_path / "rings")
    done = run("report", "--rings", str(tmp_path / "rings"))
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("pushscope: ")
    assert done.stderr.count("\n") == 1


READING = [("report",), ("report", "--json"), ("top", "--once"), ("top", "--once", "--json")]


def in_a_process(*arguments: str, stdout: int, **environment: str) -> subprocess.Popen[bytes]:
    code = "from pushscope.lab.main import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
    )


@pytest.mark.parametrize("command", READING)
def test_a_full_disk_is_one_sentence(command, recorded):
    with open("/dev/full", "wb") as full:
        process = in_a_process(*command, "--replay", str(recorded), stdout=full.fileno())
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert err.splitlines()[-1] == b"pushscope: cannot write the output: No space left on device"
    assert b"Traceback" not in err


@pytest.mark.parametrize("command", READING)
def test_a_pipe_that_nobody_reads_is_no_error(command, recorded):
    end, start = os.pipe()
    os.close(end)
    process = in_a_process(*command, "--replay", str(recorded), stdout=start)
    os.close(start)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert b"Traceback" not in err
    assert b"Broken" not in err


@pytest.mark.parametrize("command", READING)
def test_a_pipe_that_speaks_only_ascii(command, recorded):
    arguments = (*command, "--replay", str(recorded))
    process = in_a_process(*arguments, stdout=subprocess.PIPE, PYTHONIOENCODING="ascii")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out
    assert b"Traceback" not in err
    assert out.isascii() or "--json" in command


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


def test_help_names_every_command():
    done = run("--help")
    for command in ("top", "report", "record", "recording", "mark", "doctor", "lab", "demo"):
        assert command in done.output
