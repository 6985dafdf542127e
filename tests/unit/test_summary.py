"""What a load test amounts to: phases between marks, and what was stuck in them."""

import io
import json

import msgspec
import pytest
from rich.console import Console

from pushscope.telemetry.diagnosis.model import Severity
from pushscope.telemetry.marks import Mark
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.summary import MAX_PHASES, SummaryFold, summary_json
from pushscope.telemetry.transfer import Outcome
from pushscope.tui.summary_view import render_summary

from .samples import HOSTILE_IDS, NOW, UNIX_NOW, S, delivered, diagnosis, ended


def at(seconds: float, *diagnoses) -> Snapshot:
    return Snapshot(
        taken_ns=NOW + int(seconds * S), taken_unix_s=UNIX_NOW + seconds, diagnoses=tuple(diagnoses)
    )


def ending(seconds: float, outcome: Outcome = Outcome.DELIVERED):
    transfer = delivered(1) if outcome is Outcome.DELIVERED else ended(1, outcome)
    return msgspec.structs.replace(transfer, closed_ns=NOW + int(seconds * S))


def ill(subject: str, since: float, severity: Severity = Severity.WARNING, code: str = "prefill_unclaimed"):
    return diagnosis(code, severity, subject, since_ns=NOW + int(since * S))


def mark(seconds: float, label: str) -> Mark:
    return Mark(UNIX_NOW + seconds, label)


@pytest.fixture
def load() -> SummaryFold:
    """Ten seconds at one rate, ten at another."""
    fold = SummaryFold()
    fold.note(at(0))
    fold.mark(mark(0, "rate 1/s"))
    for n in range(10):
        fold.ended(ending(n + 0.5))
    fold.mark(mark(10, "rate 2/s"))
    fold.note(at(10.5, ill("a", 8)))
    for n in range(20):
        fold.ended(ending(10.2 + n / 2))
    fold.ended(ending(12, Outcome.FAILED))
    fold.note(at(20, ill("a", 8), ill("b", 19), ill("c", 1, Severity.INFO)))
    return fold


def test_a_transfer_belongs_to_the_phase_in_which_it_ended(load):
    summary = load.summary()
    assert (summary.total.transfers, summary.total.outcomes) == (31, {"delivered": 30, "failed": 1})
    first, second = summary.phases[-2:]
    assert (first.label, first.transfers, first.delivered_per_s) == ("rate 1/s", 10, pytest.approx(1))
    assert (second.label, second.transfers, second.delivered_per_s) == ("rate 2/s", 21, pytest.approx(2))
    assert (second.begin_unix_s, second.end_unix_s, second.bad) == (UNIX_NOW + 10, UNIX_NOW + 20, 1)
    assert second.bytes_per_s == pytest.approx(20 * delivered(1).num_bytes / 10)
    assert first.exposed["push"].count == 10
    assert summary.total.stages


def test_what_ended_before_a_mark_and_is_told_after_it_belongs_before_it(load):
    load.ended(ending(9))
    load.note(at(21))
    assert [phase.transfers for phase in load.summary().phases[-2:]] == [11, 21]


def test_what_was_stuck_is_told_by_cause(load):
    (cause,) = load.summary().total.stuck
    assert (cause.code, cause.subjects, cause.longest_s, cause.example) == ("prefill_unclaimed", 2, 12, "a")
    assert [len(phase.stuck) for phase in load.summary().phases[-2:]] == [0, 1]


def test_the_worst_cause_comes_first():
    fold = SummaryFold()
    fold.note(at(1, ill("a", 0), ill("b", 0), ill("c", 0, Severity.ERROR, "write_hangs")))
    assert [cause.code for cause in fold.summary().total.stuck] == ["write_hangs", "prefill_unclaimed"]


def test_without_marks_there_is_only_the_total():
    fold = SummaryFold()
    fold.ended(ending(-5))
    fold.note(at(0))
    summary = fold.summary()
    assert summary.phases == ()
    assert (summary.total.transfers, summary.total.begin_unix_s) == (1, UNIX_NOW - 5)


def test_what_lies_before_the_first_mark_is_a_phase_without_a_label():
    fold = SummaryFold()
    fold.note(at(0))
    fold.ended(ending(1))
    fold.mark(mark(5, "start"))
    fold.note(at(6))
    assert [(phase.label, phase.transfers) for phase in fold.summary().phases] == [("", 1), ("start", 0)]


def test_old_phases_are_dropped_and_that_is_said():
    fold = SummaryFold()
    fold.note(at(0))
    for n in range(100):
        fold.ended(ending(n + 0.5))
        fold.mark(mark(n, f"m{n}"))
        fold.note(at(n + 0.9))
    summary = fold.summary()
    assert (len(summary.phases), summary.phases_dropped) == (MAX_PHASES, 101 - MAX_PHASES)
    assert (summary.phases[-1].label, summary.total.transfers) == ("m99", 100)
    assert sum(phase.transfers for phase in summary.phases) == MAX_PHASES
    assert f"{101 - MAX_PHASES} older phases" in drawn(fold)


def drawn(fold: SummaryFold) -> str:
    console = Console(file=io.StringIO(), width=80)
    render_summary(fold.summary(), console)
    return console.file.getvalue()


def test_it_fits_80_columns(load):
    text = drawn(load)
    assert all(len(line) <= 80 for line in text.splitlines())
    for words in (
        "31 transfers in 20.0 s",
        "rate 2/s",
        "2.00/s",
        "exposed time, push",
        "prefill_unclaimed: 2",
    ):
        assert words in text


def test_a_mark_s_label_cannot_draw_on_the_screen():
    fold = SummaryFold()
    fold.note(at(0))
    for n, label in enumerate(HOSTILE_IDS):
        fold.mark(mark(n, label))
        fold.note(at(n + 0.5, ill(label, 0)))
    text = drawn(fold)
    assert text.replace("\n", "").isprintable()
    assert "[bold red]" in text


def test_of_nothing_little_is_said():
    assert drawn(SummaryFold()) == "No transfers ended, and nothing was stuck.\n"


def test_json_has_it_all(load):
    told = json.loads(summary_json(load.summary()))
    assert told["total"]["transfers"] == 31
    assert [phase["label"] for phase in told["phases"]][-2:] == ["rate 1/s", "rate 2/s"]
