"""``pushscope stuck``: what it prints, its exit status, and what it tells of changes."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from pushscope.lab.main import app
from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.model import Severity
from pushscope.telemetry.recorder import Recorder
from pushscope.telemetry.recording import RecordingWriter
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.stuck import stuck_in
from pushscope.tui.stuck_view import render_stuck

from . import samples
from .engine_failures import steps
from .scenario import D_SCHEDULER, ORIGINS, P_SCHEDULER, delivered, ms, only, reading, until


def run(*arguments: str):
    return CliRunner().invoke(app, ["stuck", *arguments], env={"TZ": "UTC"})


def record(path: Path, said, *, until_ms: int = 20_000) -> Path:
    writer = RecordingWriter(path)
    for at in range(0, until_ms + 1, 500):
        writer.write(reading([(o, e) for o, e in said if ms(at - 500) < e.t <= ms(at)], at))
    writer.close()
    return path


WIRE = until(delivered("cmpl-wire-0", 100), ev.NotificationDrained)
"""Written and never done."""


@pytest.fixture
def hanging(tmp_path) -> Path:
    return record(tmp_path / "hanging.psr", [*delivered("cmpl-good-0", 1), *WIRE, *steps(D_SCHEDULER, 19)])


@pytest.fixture
def healthy(tmp_path) -> Path:
    return record(tmp_path / "healthy.psr", delivered("cmpl-good-0", 1))


def test_nothing_stuck_is_status_0(healthy):
    done = run("--replay", str(healthy))
    assert done.exit_code == 0
    assert done.stdout == f"nothing is stuck · 0 in flight, 0 waiting · {healthy}\n"


def test_something_stuck_is_status_1_and_has_code_subject_age_sentence_and_remedy(hanging):
    done = run("--replay", str(hanging))
    assert done.exit_code == 1
    head, sentence, remedy, summary = done.stdout.splitlines()
    assert head == "error    write_never_finished  cmpl-wire-0  P1 -> D1  since 20 s"
    assert "neither ends nor fails" in sentence
    assert remedy.strip().startswith("-> ")
    assert summary == f"1 error · 1 in flight, 0 waiting · {hanging}"
    assert "\x1b" not in done.stdout


def printed(snapshot: Snapshot) -> list[str]:
    out = io.StringIO()
    render_stuck(stuck_in(snapshot, Severity.INFO), snapshot, Console(file=out, width=80))
    return out.getvalue().splitlines()


def test_a_remedy_is_said_once():
    lines = printed(samples.stuck())
    assert sum(line.strip().startswith("-> ") for line in lines) == 1
    assert sum("Who waits for whom" in line for line in lines) == 2
    assert f"         Costs 2 transfers: {samples.request(52)}, {samples.request(53)} #2." in lines


def test_a_long_list_ends_in_a_number():
    many = tuple(
        samples.diagnosis("peer_unreachable", Severity.ERROR, f"engine-{i}", attempt=0) for i in range(80)
    )
    assert printed(samples.stuck(diagnoses=many))[-2:] == [
        "… and 30 more",
        "80 errors · 11 in flight, 4 waiting · rings in /dev/shm/pushscope-1000",
    ]


def test_many_of_one_cause_are_one_entry_with_their_number_size_and_oldest():
    assert printed(samples.unclaimed(40)) == [
        "warning  prefill_unclaimed  40 requests  P1 -> ?  since 1m00s",
        f"         40 requests, 280 blocks (8,000 tokens) in all. The oldest is {samples.request(100)}:",
        "         P has held 7 blocks (200 tokens) for a while, and no decode has claimed them.",
        "         -> Abort the decode leg: end the client's connection.",
        "40 warnings · 11 in flight, 4 waiting · rings in /dev/shm/pushscope-1000",
    ]


def test_json(hanging):
    done = run("--json", "--replay", str(hanging))
    assert done.exit_code == 1
    document = json.loads(done.stdout)
    assert document["verdict"] == "some"
    (diagnosis,) = document["diagnoses"]
    assert diagnosis["code"] == "write_never_finished"
    assert diagnosis["d_request"] == "cmpl-wire-0-bbbbbbbb"
    assert diagnosis["runbook"].endswith("#write_never_finished")


def test_what_is_less_severe_than_asked_for_is_not_counted(tmp_path):
    waits = record(tmp_path / "w.psr", until(delivered("cmpl-slow-0", 100), ev.BlocksStaged), until_ms=40_000)
    assert run("--replay", str(waits)).exit_code == 1
    done = run("--at-least", "error", "--replay", str(waits))
    assert done.exit_code == 0
    assert "nothing is stuck · 1 milder not shown" in done.stdout


@pytest.mark.parametrize("level", ["fatal", ""])
def test_a_level_that_is_none(level, healthy):
    done = run("--at-least", level, "--replay", str(healthy))
    assert done.exit_code == 2
    assert "info" in done.output


def test_a_folder_that_is_not_there_is_status_2(tmp_path):
    done = run("--rings", str(tmp_path / "none"))
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1


def test_no_engines_is_status_2(tmp_path):
    rings = tmp_path / "rings"
    rings.mkdir(mode=0o700)
    done = run("--rings", str(rings))
    assert done.exit_code == 2
    assert f"! cannot tell: no engine records in {rings}" in done.stdout
    assert json.loads(run("--json", "--rings", str(rings)).stdout)["verdict"] == "unknown"


@pytest.fixture
def recorders(tmp_path) -> Iterator[dict[str, Recorder]]:
    """Live rings of a P and a D that say something now."""
    started = time.monotonic_ns() - 60_000_000_000
    recorders = {}
    for origin in ORIGINS:
        here = msgspec.structs.replace(origin, anchor_monotonic_ns=started)
        recorders[origin.instance] = Recorder(tmp_path / "rings", here)
    yield recorders
    for recorder in recorders.values():
        recorder.close()


def say(recorders: dict[str, Recorder], said, *, ago_s: float) -> None:
    shift = time.monotonic_ns() - int(ago_s * 1e9) - ms(0)
    for origin, event in sorted(said, key=lambda pair: pair[1].t):
        recorders[origin.instance].record(msgspec.structs.replace(event, t=event.t + shift))


def test_live_engines_and_one_look_is_enough(recorders, tmp_path):
    say(recorders, WIRE, ago_s=20)
    done = run("--rings", str(tmp_path / "rings"))
    assert done.exit_code == 1
    assert "write_never_finished" in done.stdout


def test_recording_off_is_status_2(recorders, tmp_path):
    for recorder in recorders.values():
        recorder.record(ev.RecordingSwitched(time.monotonic_ns(), False))
    done = run("--rings", str(tmp_path / "rings"))
    assert done.exit_code == 2
    assert "cannot tell: P1: recording is switched off" in done.stdout


def test_events_lost_just_now_are_status_2_and_those_of_long_ago_are_not(recorders, tmp_path):
    scheduler = recorders[P_SCHEDULER.instance]
    scheduler.record(ev.EventsDropped(time.monotonic_ns() - 60_000_000_000, 3, "full"))
    assert run("--rings", str(tmp_path / "rings")).exit_code == 0
    scheduler.record(ev.EventsDropped(time.monotonic_ns(), 4, "full"))
    done = run("--rings", str(tmp_path / "rings"))
    assert done.exit_code == 2
    assert "cannot tell: P1: events were lost" in done.stdout


def test_engines_that_are_gone_are_status_2(recorders, tmp_path):
    for recorder in recorders.values():
        recorder.record(ev.EngineDown(time.monotonic_ns()))
        recorder.close()
    done = run("--rings", str(tmp_path / "rings"))
    assert done.exit_code == 2
    assert "is alive" in done.stdout


def test_notices_go_to_stderr_once(tmp_path):
    writer = RecordingWriter(tmp_path / "p.psr")
    writer.write(reading(only(delivered("cmpl-one-0"), P_SCHEDULER), 2000, (P_SCHEDULER,)))
    writer.close()
    done = run("--replay", str(tmp_path / "p.psr"))
    assert done.stderr == "pushscope: one-sided: only P is observed, what D does is not known\n"


def test_what_lies_before_the_damage_of_a_recording_is_judged(hanging):
    data = bytearray(hanging.read_bytes())
    data[-3] ^= 0xFF
    hanging.write_bytes(data)
    done = run("--replay", str(hanging))
    assert done.exit_code == 2
    assert "write_never_finished" in done.stdout
    assert "is damaged at byte" in done.stderr


# -- watching ----------------------------------------------------------------------------------------


@contextmanager
def watching(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    code = "from pushscope.lab.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "stuck", "--watch", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TZ": "UTC"},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def test_watching_in_a_pipe_prints_what_changes(recorders, tmp_path):
    with watching("--rings", str(tmp_path / "rings")) as process:
        assert "nothing is stuck" in next_line(process)
        say(recorders, [*WIRE, *steps(D_SCHEDULER, 19)], ago_s=20)
        begins = next_line(process)
        assert " begins error write_never_finished cmpl-wire-0 P1 -> D1, since " in begins
        assert " -> " in begins
        assert "1 error" in next_line(process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (1, "", "")


def test_watching_as_json(recorders, tmp_path):
    with watching("--json", "--rings", str(tmp_path / "rings")) as process:
        assert json.loads(next_line(process))["verdict"] == "none"
        say(recorders, WIRE, ago_s=20)
        change = json.loads(next_line(process))
        assert (change["change"], change["diagnosis"]["code"]) == ("begins", "write_never_finished")
        assert json.loads(next_line(process))["verdict"] == "some"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == 1


def test_watching_a_recording_ends_with_it(tmp_path):
    short = record(tmp_path / "short.psr", delivered("cmpl-good-0", 1), until_ms=1000)
    done = run("--watch", "--replay", str(short))
    assert done.exit_code == 0
    assert done.stdout.count("\n") >= 1
    assert "nothing is stuck" in done.stdout.splitlines()[-1]


def test_a_reader_that_has_seen_enough_is_no_error(recorders, tmp_path):
    with watching("--rings", str(tmp_path / "rings")) as process:
        assert next_line(process)
        assert process.stdout is not None
        process.stdout.close()
        say(recorders, WIRE, ago_s=20)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_watching_on_a_terminal_draws_in_place(recorders, tmp_path):
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    code = "from pushscope.lab.main import main; main()"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm-256color"}
    arguments = ["stuck", "--watch", "--rings", str(tmp_path / "rings")]
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=theirs, stdin=theirs, env=env)
    os.close(theirs)
    seen = b""

    def until(words: bytes) -> None:
        nonlocal seen
        while words not in seen:
            seen += os.read(ours, 65536)

    try:
        until(b"nothing is stuck")
        say(recorders, WIRE, ago_s=20)
        until(b"write_never_finished")
        until(b"1 error")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 1
    finally:
        process.kill()
        os.close(ours)
    assert b"\x1b[2K" in seen  # lines are cleared and drawn anew
    assert b"Ctrl-C ends" in seen
