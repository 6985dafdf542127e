"""``pushscope top`` without a screen: text, JSON, exit codes; and as a command of a typer app."""

from __future__ import annotations

import fcntl
import io
import os
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import typer
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from pushscope.telemetry.live import Watched
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.where import Where
from pushscope.tui.cli import CANNOT_TELL, top, top_command
from pushscope.tui.once import render_snapshot, snapshot_json

from . import samples


@contextmanager
def sample_source(where: Where, to_end: bool) -> Iterator[Watched]:
    shown = samples.busy(source=f"recording {where.replay}") if where.replay else samples.busy()
    yield Watched(lambda: shown)


@contextmanager
def broken_source(where: Where, to_end: bool) -> Iterator[Watched]:
    raise PermissionError("the folder [x] belongs to uid 1001, not to 1000")
    yield Watched(samples.busy)


def printed(snapshot: Snapshot, width: int = 80, limit: int = 50) -> str:
    out = io.StringIO()
    render_snapshot(snapshot, Console(file=out, width=width), limit)
    return out.getvalue()


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.command("top")(top_command(sample_source))
    app.command("other")(lambda: None)
    return app


def test_once_prints_everything_in_eighty_columns_without_escapes(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["top", "--once"])
    assert result.exit_code == 0
    for words in ("12.3 transfers/s", "P1 prefill", "In flight 11, by age", "P waits for D's registration"):
        assert words in result.output
    assert max(cell_len(line) for line in result.output.splitlines()) <= 80
    assert "\x1b" not in result.output


def test_once_json_is_one_line_that_decodes_to_the_snapshot(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["top", "--once", "--json"])
    assert result.exit_code == 0
    (line,) = result.output.splitlines()
    assert msgspec.json.decode(line, type=Snapshot) == samples.busy()


def test_json_keys_are_stable() -> None:
    decoded = msgspec.json.decode(snapshot_json(samples.busy()))
    assert list(decoded) == list(Snapshot.__struct_fields__)
    assert list(decoded["totals"]["outcomes"]) == sorted(decoded["totals"]["outcomes"])
    assert b"\x1b" not in snapshot_json(samples.hostile())


def test_replay_reaches_the_source(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["top", "--once", "--replay", "run.pushscope"])
    assert "recording run.pushscope" in result.output


def test_refresh_has_bounds(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["top", "--once", "--refresh", "0"])
    assert result.exit_code == 2
    assert "refresh" in result.output


def test_help_names_every_option(app: typer.Typer) -> None:
    output = CliRunner().invoke(app, ["top", "--help"], env={"COLUMNS": "100", "NO_COLOR": "1"}).output
    for option in ("--once", "--json", "--replay", "--refresh"):
        assert option in output


def test_a_source_that_cannot_be_opened_is_a_sentence_and_exit_code_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert top(broken_source, Where(), once=True) == CANNOT_TELL
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "pushscope: the folder [x] belongs to uid 1001, not to 1000\n"


def test_without_a_terminal_it_says_what_to_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert top(sample_source, Where()) == CANNOT_TELL
    assert "--once or --json" in capsys.readouterr().err


def test_once_of_nothing_says_what_to_check() -> None:
    text = printed(samples.nothing_found())
    assert "No engines found" in text
    assert "PUSHSCOPE_DIR" in text


def test_once_is_bounded_and_says_by_how_much() -> None:
    text = printed(samples.crowd(10_000))
    assert "… and 9,950 more, sorted by age" in text
    assert len(text.splitlines()) < 120


def test_once_tells_of_gone_engines_lost_events_and_notices() -> None:
    text = printed(samples.engine_gone())
    assert text.startswith("! D1 ended 4.2 s ago")
    assert "D1 decode node-b/5101+1 GONE" in text
    assert "EVENTS LOST 1,532 of 48,213" in text


@contextmanager
def process_of_its_own(arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    program = (
        "import sys, samples\n"
        "from contextlib import nullcontext\n"
        "from pushscope.telemetry.where import Where\n"
        "from pushscope.telemetry.live import Watched\n"
        "from pushscope.tui.cli import Look, top\n"
        f"sys.exit(top(lambda *_: nullcontext(Watched(samples.busy)), Where(), {arguments}))\n"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, **environment},
    ) as process:
        yield process


def test_a_pipe_that_speaks_only_ascii_gets_the_text_all_the_same() -> None:
    with process_of_its_own("once=True", PYTHONIOENCODING="ascii") as process:
        out, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (0, b"")
        assert b"In flight 11, by age" in out
        assert out.isascii()


def test_sigterm_leaves_the_terminal_as_it_was() -> None:
    program = (
        "import signal, sys, samples\n"
        "from contextlib import nullcontext\n"
        "from pushscope.tui.cli import top\n"
        "from pushscope.telemetry.live import Watched\n"
        "from pushscope.telemetry.where import Where\n"
        "status = top(lambda *_: nullcontext(Watched(samples.busy)), Where())\n"
        "assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL\n"
        "sys.exit(status)\n"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    before = termios.tcgetattr(theirs)
    env = {**os.environ, "PYTHONPATH": path, "TERM": "xterm-256color"}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=theirs, stdout=theirs, stderr=theirs, env=env
    ) as process:
        seen = b""
        while b"In flight" not in seen:
            seen += os.read(ours, 65536)
        assert termios.tcgetattr(theirs) != before
        process.send_signal(signal.SIGTERM)
        while select.select([ours], [], [], 0.2)[0] or process.poll() is None:
            if select.select([ours], [], [], 0)[0]:
                seen += os.read(ours, 65536)
    assert process.returncode == 143
    assert termios.tcgetattr(theirs) == before
    assert seen.rfind(b"\x1b[?1049l") > seen.rfind(b"\x1b[?1049h")  # the alternate screen
    assert seen.rfind(b"\x1b[?1000l") > seen.rfind(b"\x1b[?1000h")  # the mouse
    os.close(ours)
    os.close(theirs)


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    with process_of_its_own("Look(refresh_s=0.01), json_output=True") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert msgspec.json.decode(process.stdout.readline(), type=Snapshot) == samples.busy()
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == b""
