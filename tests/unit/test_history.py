"""The last two minutes: what a second counts, whatever the pace at which it is looked at."""

import msgspec
import pytest

from pushscope.telemetry.diagnosis.model import Severity
from pushscope.telemetry.history import MAX_SECONDS, HistoryFold
from pushscope.telemetry.snapshot import Snapshot, Totals
from pushscope.telemetry.transfer import Outcome, Stage

from .samples import NOW, UNIX_NOW, S, delivered, diagnosis, ended, in_flight, waiting

START = int(UNIX_NOW)


def at(seconds: float, num_bytes: int = 0, **changes: object) -> Snapshot:
    return Snapshot(
        taken_ns=NOW + int(seconds * S),
        taken_unix_s=UNIX_NOW + seconds,
        totals=Totals(write_bytes=num_bytes),
        **changes,  # type: ignore[arg-type]
    )


def ending(seconds: float, outcome: Outcome = Outcome.DELIVERED):
    transfer = delivered(1) if outcome is Outcome.DELIVERED else ended(1, outcome)
    return msgspec.structs.replace(transfer, closed_ns=NOW + int(seconds * S))


def watched(step_s: float, until_s: float = 8.0) -> HistoryFold:
    """1000 bytes a second, and a transfer that ends in each half second, looked at every ``step_s``."""
    fold = HistoryFold()
    for n in range(int(until_s / step_s) + 1):
        for half in range(int((n - 1) * step_s * 2), int(n * step_s * 2)):
            if half >= 0:
                fold.ended(ending(half / 2 + 0.1))
        fold.note(at(n * step_s, int(1000 * n * step_s)))
    return fold


@pytest.mark.parametrize("step_s", [0.25, 0.5, 1.0, 4.0])
def test_a_history_does_not_depend_on_how_often_one_looks(step_s):
    seconds = watched(step_s).seconds()
    assert [second.unix_s - START for second in seconds] == list(range(9))
    assert [second.delivered for second in seconds] == [2] * 8 + [0]
    assert [second.num_bytes for second in seconds] == [1000] * 8 + [0]


def test_what_is_told_late_counts_when_it_ended():
    fold = HistoryFold()
    fold.note(at(0))
    fold.note(at(1))
    fold.ended(ending(0.5))
    fold.note(at(3))
    assert [second.delivered for second in fold.seconds()] == [1, 0, 0, 0]


def test_only_what_went_wrong_is_bad():
    fold = HistoryFold()
    for outcome in (Outcome.FAILED, Outcome.EXPIRED, Outcome.LOST, Outcome.ABORTED, Outcome.NOTHING_TO_PUSH):
        fold.ended(ending(0.5, outcome))
    fold.note(at(0.9))
    (second,) = fold.seconds()
    assert (second.delivered, second.bad) == (0, 3)


def test_a_second_is_as_it_was_at_its_last_look():
    fold = HistoryFold()
    ill = diagnosis("prefill_unclaimed", Severity.WARNING, "r")
    known = diagnosis("cold_handshake", Severity.INFO, "r")
    fold.note(at(0.1, in_flight=(in_flight(1, Stage.WIRE),), diagnoses=(ill, known)))
    fold.note(at(0.9, waiting=(waiting(1, "P"), waiting(2, "P")), diagnoses=(ill, known)))
    (second,) = fold.seconds()
    assert (second.in_flight, second.waiting, second.stuck) == (0, 2, 1)


def test_what_was_written_before_one_looked_is_in_no_second():
    fold = HistoryFold()
    fold.note(at(0, 10**12))
    assert [second.num_bytes for second in fold.seconds()] == [0]


def test_two_minutes_are_kept_without_gaps():
    fold = HistoryFold()
    fold.note(at(0))
    fold.note(at(100_000, 500_000_000))
    seconds = fold.seconds()
    assert [second.unix_s - START for second in seconds] == list(range(100_001 - MAX_SECONDS, 100_001))
    assert seconds[-2].num_bytes == 5_000


def test_going_back_clears():
    fold = watched(0.5)
    fold.note(at(2))
    assert [(second.unix_s - START, second.delivered, second.num_bytes) for second in fold.seconds()] == [
        (2, 0, 0)
    ]
