"""``pushscope report --fail-if``: conditions that say that a load test has failed."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pushscope.lab.main import app
from pushscope.telemetry import events as ev
from pushscope.telemetry.gate import UNITS, GateError, figures_of, judge, parse
from pushscope.telemetry.recording import RecordingWriter
from pushscope.telemetry.report import Report, summarize
from pushscope.telemetry.transfer import Outcome

from . import samples
from .engine_failures import steps
from .scenario import D_SCHEDULER, P_SCHEDULER, P_WORKER, delivered, ms, only, reading, until

REPORT = summarize(
    [
        *(samples.delivered(n) for n in range(8)),
        samples.ended(20, Outcome.FAILED),
        samples.ended(21, Outcome.ABORTED),
    ]
)


def judged(*expressions: str, report: Report = REPORT, stuck: int | None = 0):
    return judge(parse(expressions), figures_of(report, stuck, events_lost=3))


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("transfers>9", True),
        ("transfers>10", False),
        ("transfers>=10", True),
        ("transfers<10", False),
        ("transfers<=10", True),
        ("transfers==10", True),
        ("transfers != 10", False),
        ("delivered < 9", True),
        ("errors>0", True),
        ("failed>1", False),
        ("aborted>0", True),
        ("expired>0", False),
        ("lost>0", False),
        ("retries>0", False),
        ("open>0", False),
        ("events_lost>2", True),
        ("stuck>0", False),
        ("exposed_max>1ns", True),
        ("exposed_p99>3600", False),
        ("wire_p50>11ms", True),
        ("wire_p50>13e-3", False),
        ("wire_p50>12.5 ms", False),
        ("bytes_per_s<1GiB/s", False),
        ("bytes_per_s>1KiB/s", True),
        ("delivered_per_s>0.001/s", True),
    ],
)
def test_a_condition_holds_or_not(condition, holds):
    found = judged(condition)
    assert (bool(found.held), found.untold, found.exit_status) == (holds, (), int(holds))


def test_a_comma_and_a_second_expression_mean_or():
    found = judged("stuck>0,failed>0", "aborted>0")
    assert [sentence.partition(":")[0] for sentence in found.held] == [
        "failed by failed>0",
        "failed by aborted>0",
    ]


def test_the_value_is_told_with_its_unit():
    assert judged("wire_max>1us").held == ("failed by wire_max>1us: wire_max is 12.0 ms",)
    assert judged("errors>0").held == ("failed by errors>0: errors is 1",)


def test_what_is_not_known_cannot_be_told():
    one_sided = summarize([samples.one_sided(1, "P")])
    for condition in ("exposed_p99>1", "wire_p99>1", "handshake_max>1", "notification_p50>1"):
        found = judged(condition, report=one_sided)
        assert found.exit_status == 2
        assert found.untold == (
            f"can't tell whether {condition}: {condition.partition('>')[0]} is not known",
        )
    assert judged("stuck>0", stuck=None).exit_status == 2


def test_one_that_holds_matters_more_than_one_that_cannot_be_told():
    found = judged("handshake_p99>1", "failed>0")
    assert (found.exit_status, len(found.untold)) == (1, 1)


@pytest.mark.parametrize("name", sorted(UNITS.keys() - {"transfers", "events_lost"}))
def test_of_no_transfers_nothing_is_known(name):
    assert judged(f"{name}>0", report=Report()).exit_status == 2


def test_of_no_transfers_their_number_is_known_and_an_engine_that_is_stuck():
    assert judged("transfers<1", report=Report()).exit_status == 1
    assert judged("stuck>0", report=Report(), stuck=1).exit_status == 1


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("", "found ''"),
        ("stuck", "found 'stuck'"),
        ("stuck>", "found 'stuck>'"),
        ("stuck=1", "with one of > >= < <= == !="),
        ("stuck>-1", "found 'stuck>-1'"),
        ("stuck>0,", "found ''"),
        ("sutck>0", "nothing is called 'sutck' in the condition 'sutck>0'; known are stuck, errors"),
        ("exposed_p98>1", "nothing is called 'exposed_p98'"),
        ("exposed_p99>1min", "expected exposed_p99 in s, ms, us, µs, ns, found 'min'"),
        ("stuck>1s", "expected stuck without a unit, found 's'"),
        ("stuck>1.2.3", "expected a number in the condition 'stuck>1.2.3'"),
        ("stuck>1e999", "expected a number"),
    ],
)
def test_a_bad_condition_is_one_clear_sentence(condition, words):
    with pytest.raises(GateError) as raised:
        parse([condition])
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


# -- through the real command line ---------------------------------------------------------------------------------


def record(path: Path, said, *, until_ms: int = 60_000) -> Path:
    writer = RecordingWriter(path)
    for at in range(0, until_ms + 1, 500):
        writer.write(reading([(o, e) for o, e in said if ms(at - 500) < e.t <= ms(at)], at))
    writer.close()
    return path


def run(*arguments: str):
    return CliRunner().invoke(app, ["report", *arguments])


GOOD = delivered("cmpl-good-0", 1)
HUNG = until(delivered("cmpl-late-0", 100), ev.NotificationDrained)
RECOVERED = [
    *HUNG,
    *((o, type(e)(ms(40_000 + n), *(getattr(e, f) for f in e.__struct_fields__[1:])))
      for n, (o, e) in enumerate(delivered("cmpl-late-0", 100)[len(HUNG):])),
]  # fmt: skip
"""A transfer whose write took forty seconds, and was then seen to be done."""


@pytest.fixture
def healthy(tmp_path) -> str:
    return str(record(tmp_path / "healthy.psr", GOOD))


@pytest.fixture
def recovered(tmp_path) -> str:
    return str(record(tmp_path / "recovered.psr", [*GOOD, *RECOVERED, *steps(D_SCHEDULER, 59)]))


def test_a_good_load_test_passes(healthy):
    done = run(
        "--replay", healthy, "--fail-if", "stuck>0,errors>0", "--fail-if", "exposed_p99>500ms,transfers<1"
    )
    assert (done.exit_code, done.stderr) == (0, "")
    assert "1 transfers" in done.stdout


def test_a_bad_one_fails_and_says_why(healthy):
    done = run("--replay", healthy, "--json", "--fail-if", "stuck>0,exposed_p99>1us")
    assert done.exit_code == 1
    assert done.stderr.startswith("pushscope: failed by exposed_p99>1us: exposed_p99 is ")
    assert done.stdout.startswith("{")


def test_what_was_stuck_and_came_right_again_counts(recovered):
    assert CliRunner().invoke(app, ["stuck", "--replay", recovered]).exit_code == 0
    done = run("--replay", recovered, "--fail-if", "stuck>0")
    assert (done.exit_code, done.stderr) == (1, "pushscope: failed by stuck>0: stuck is 1\n")


def test_it_cannot_tell_what_one_side_does_not_see(tmp_path):
    path = record(tmp_path / "p.psr", only(GOOD, P_SCHEDULER, P_WORKER))
    done = run("--replay", str(path), "--fail-if", "exposed_p99>1")
    assert done.exit_code == 2
    assert "can't tell whether exposed_p99>1: exposed_p99 is not known" in done.stderr


def test_a_bad_condition_is_told_before_anything_is_read():
    done = run("--replay", "/nowhere", "--fail-if", "slow>1")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "nothing is called 'slow'" in done.stderr


def test_of_a_damaged_recording_nobody_can_tell(healthy, tmp_path):
    cut = tmp_path / "cut.psr"
    data = bytearray(Path(healthy).read_bytes())
    data[-40] ^= 0xFF
    cut.write_bytes(data)
    done = run("--replay", str(cut), "--fail-if", "stuck>0")
    assert done.exit_code == 2
    assert "damaged" in done.stderr
