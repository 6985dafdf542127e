"""A load in steps of rate: what is sent, what marks tell of it, and how each step is summed up."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from rich.console import Console
from typer.testing import CliRunner

from pushscope.lab.cli import app
from pushscope.lab.load import LoadPlan, LoadRequest
from pushscope.lab.marks import LoadMarks, marks_folder, start_label, stop_label
from pushscope.lab.results import RequestResult
from pushscope.lab.state import LabState
from pushscope.lab.steps import Step, parse_rates, results_of, run_steps, step_summaries, steps_text
from pushscope.telemetry.marks import Mark, MarksFile


class Server:
    """A target that answers at once; from request ``interrupted_at`` on the user presses Ctrl-C."""

    def __init__(self, *, interrupted_at: int = 1 << 30) -> None:
        self.prompts: list[tuple[int, ...]] = []
        self.interrupted_at = interrupted_at

    async def send(self, client: httpx.AsyncClient, request: LoadRequest, load_start: float) -> RequestResult:
        self.prompts.append(tuple(request.prompt))
        if request.index >= self.interrupted_at:
            raise KeyboardInterrupt
        start_s = time.perf_counter() - load_start
        return result(request.index, start_s=start_s)


def result(index: int, *, start_s: float = 0.0, error: str | None = None) -> RequestResult:
    return RequestResult(
        index=index,
        request_id=f"r{index}",
        num_prompt_tokens=10,
        start_s=start_s,
        latency_s=0.5,
        ttft_s=0.1,
        error=error,
    )


def ran(plan: LoadPlan, *rates: float, server: Server | None = None) -> tuple[list[Step], list[str], str]:
    """The steps, the marks and what the display said."""
    console, marks = Console(file=io.StringIO(), width=100), []
    steps = run_steps(plan, rates, server or Server(), console=console, mark=marks.append)
    assert isinstance(console.file, io.StringIO)
    return steps, marks, console.file.getvalue()


FOUR = LoadPlan(num_requests=4, duration_s=60, arrivals="fixed", prompt_tokens=10)
"""It comes to four requests long before its time is over."""


@pytest.mark.parametrize(("text", "rates"), [("2,4,8", (2, 4, 8)), ("0.5", (0.5,)), ("4, 2", (4, 2))])
def test_rates_are_numbers_with_commas(text: str, rates: object) -> None:
    assert parse_rates(text) == rates


@pytest.mark.parametrize("text", ["", "2,,4", "0", "-1", "nan", "2,inf", "fast", "2 4"])
def test_other_rates_are_an_error_that_quotes_them(text: str) -> None:
    with pytest.raises(ValueError, match="Expected --steps to be rates such as 2,4,8, found"):
        parse_rates(text)


def test_each_step_has_its_rate_and_prompts_of_its_own() -> None:
    server = Server()
    steps, _, _ = ran(FOUR, 40, 20, server=server)
    assert [(step.rate, len(step.results)) for step in steps] == [(40, 4), (20, 4)]
    fast, slow = (max(r.start_s for r in step.results) for step in steps)
    assert fast >= 3 / 40
    assert slow >= 3 / 20
    assert [r.index for r in results_of(steps)] == list(range(8))
    assert len(set(server.prompts)) == 8


def test_a_step_begins_after_the_one_before() -> None:
    first, second = Step(2.0, 0.0, [result(0)]), Step(4.0, 3.0, [result(2, start_s=0.5), result(1)])
    assert [(r.index, r.start_s) for r in results_of([first, second])] == [(0, 0.0), (1, 3.0), (2, 3.5)]
    steps, _, _ = ran(FOUR, 20, 40)
    assert steps[1].began_s >= steps[0].began_s + max(r.start_s for r in steps[0].results)


def test_marks_tell_start_steps_and_stop() -> None:
    _, marks, _ = ran(FOUR, 20, 40)
    assert marks == [
        "start: 20, 40/s for 1m00s each, 10 tokens",
        "rate 20/s",
        "rate 40/s",
        "stop: 8 ok, 0 failed",
    ]


def test_a_load_without_steps_is_one() -> None:
    steps, marks, _ = ran(LoadPlan(num_requests=3, prompt_tokens=10))
    assert [(step.rate, len(step.results)) for step in steps] == [(None, 3)]
    assert marks == ["start: 3 requests, 1 at once, 10 tokens", "stop: 3 ok, 0 failed"]


def test_an_interrupted_load_has_what_was_done_and_no_further_steps() -> None:
    steps, marks, said = ran(FOUR, 20, 40, 80, server=Server(interrupted_at=6))
    assert [len(step.results) for step in steps] == [4, 2]
    assert marks[-2:] == ["rate 40/s", "stop: 6 ok, 0 failed"]
    assert said == "Interrupted after 6 requests.\n"


def test_progress_names_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pushscope.lab.display._LINES_EVERY_S", 0.0)
    _, _, said = ran(FOUR, 20, 40)
    assert "4 requests at 20/s (step 1 of 2), TTFT 100 ms\n" in said
    assert "4 requests at 40/s (step 2 of 2), TTFT 100 ms\n" in said


def test_the_summary_has_a_line_for_each_step() -> None:
    steps = [
        Step(2.0, 0.0, [result(0), result(1)]),
        Step(4.5, 3.0, [result(2), result(3, error="timed out")]),
    ]
    assert steps_text(step_summaries(steps, seed=1)).splitlines() == [
        "2/s  2 of 2 ok in 0.5 s (4.00 requests/s)  TTFT p50 100 ms  p90 100 ms  p99 100 ms  TPOT p50 -",
        "4.5/s  1 of 2 ok in 0.5 s (2.00 requests/s)  TTFT p50 100 ms  p90 100 ms  p99 100 ms  TPOT p50 -",
    ]


@pytest.mark.parametrize(
    ("plan", "rates", "label"),
    [
        (LoadPlan(num_requests=200, rate=8, prompt_tokens=1000), (), "200 requests at 8/s, 1,000 tokens"),
        (LoadPlan(num_requests=1), (), "1 request, 1 at once, 200 tokens"),
        (LoadPlan(duration_s=90, concurrency=6, prompt_tokens=(200, 2000)), (),
         "requests for 1m30s, 6 at once, 200-2,000 tokens"),
        (LoadPlan(num_requests=9, duration_s=30, rate=0.5, concurrency=4), (),
         "9 requests at 0.5/s, at most 4 at once, for at most 30 s, 200 tokens"),
        (LoadPlan(duration_s=30, concurrency=4), (2, 4.5), "2, 4.5/s for 30 s each, at most 4 at once, 200 tokens"),
    ],
)  # fmt: skip
def test_a_plan_in_words(plan: LoadPlan, rates: tuple[float, ...], label: str) -> None:
    assert start_label(plan, rates) == f"start: {label}"


def test_the_end_in_words() -> None:
    assert stop_label([result(0), result(1, error="no"), result(2)]) == "stop: 2 ok, 1 failed"


# -- where they are made -------------------------------------------------------------------------------


def marks_in(folder: Path) -> tuple[Mark, ...]:
    return MarksFile(folder).poll(time.time())


def test_marks_say_who_loads(tmp_path: Path) -> None:
    said: list[str] = []
    LoadMarks(tmp_path, "demo", said.append)("start")
    (mark,) = marks_in(tmp_path)
    assert mark.label == "start"
    assert mark.by.startswith("demo (pid ")
    assert said == []


def test_where_no_mark_can_be_made_it_is_said_once_and_the_load_goes_on(tmp_path: Path) -> None:
    said: list[str] = []
    mark = LoadMarks(tmp_path / "no", "lab load", said.append)
    mark("start")
    mark("stop")
    (sentence,) = said
    assert sentence.startswith(
        f"No marks are made of this load: expected a folder of rings at {tmp_path}/no,"
    )


def test_a_lab_is_marked_in_its_own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def state(ring_dir: str | None) -> LabState:
        return LabState(1, 1, "http://r", 2, [], "model", "logs", ring_dir)

    monkeypatch.setenv("PUSHSCOPE_DIR", "/everybody/s")
    assert marks_folder(state("/lab/s")) == Path("/lab/s")
    assert marks_folder(state(None)) == marks_folder(None) == Path("/everybody/s")


class _Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"id": "cmpl-x", "choices": [{"text": "a", "token_ids": [9]}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - as it is called there
        pass


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server elsewhere: no lab of ours."""
    monkeypatch.setenv("PUSHSCOPE_LAB_DIR", str(tmp_path / "lab"))
    monkeypatch.setenv("PUSHSCOPE_DIR", str(tmp_path / "rings"))
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


STEPS = ("load", "--steps", "20,40", "--duration", "0.2", "--arrivals", "fixed", "--no-stream", "--no-trace")


def test_a_load_in_steps_is_marked_and_each_step_told(url: str, tmp_path: Path) -> None:
    (tmp_path / "rings").mkdir(mode=0o700)
    done = CliRunner().invoke(app, [*STEPS, "--url", url, "--json"])
    assert (done.exit_code, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    number = len(told["results"])
    assert [s["rate"] for s in told["steps"]] == [20.0, 40.0]
    assert all(s["summary"]["num_ok"] for s in told["steps"])
    assert sum(s["summary"]["num_ok"] for s in told["steps"]) == told["summary"]["num_ok"] == number
    marks = marks_in(tmp_path / "rings")
    assert [mark.label for mark in marks] == [
        "start: 20, 40/s for 200 ms each, 200 tokens",
        "rate 20/s",
        "rate 40/s",
        f"stop: {number} ok, 0 failed",
    ]
    assert {mark.by.partition(" (")[0] for mark in marks} == {"lab load"}


def test_where_no_engine_records_a_load_says_that_it_is_not_marked(url: str) -> None:
    done = CliRunner().invoke(app, [*STEPS, "--url", url])
    assert done.exit_code == 0
    assert done.stderr.startswith("No marks are made of this load: expected a folder of rings at")
    assert done.stderr.count("\n") == 1
    first, second, whole, *_ = done.stdout.splitlines()
    assert first.startswith("20/s  ")
    assert second.startswith("40/s  ")
    assert "requests ok, 0 failed in " in whole


@pytest.mark.parametrize(
    "arguments", [(), ("--duration", "1", "--rate", "2"), ("--duration", "1", "--requests", "2")]
)
def test_steps_need_a_duration_and_nothing_that_contradicts_them(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, ["load", "--steps", "2,4", *arguments])
    assert done.exit_code == 2
    assert done.stderr.startswith("Expected --duration with --steps")
