"""What is stuck, as a list: its order, its verdict, what changed."""

from __future__ import annotations

import msgspec
import pytest

from pushscope.telemetry.diagnosis.model import Severity
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.stuck import (
    LOSS_HEALS_NS,
    Alike,
    Row,
    Verdict,
    causes,
    change_json,
    changes,
    folded,
    rows_of,
    stuck_in,
    stuck_json,
    tally,
)

from . import samples
from .samples import NOW, S


def codes(snapshot: Snapshot, least: Severity = Severity.WARNING) -> list[str]:
    return [row.diagnosis.code for row in stuck_in(snapshot, least).rows]


def test_the_worst_comes_first_and_of_equally_bad_ones_the_oldest() -> None:
    assert codes(samples.stuck(), Severity.INFO) == [
        "handshake_listener_dead",
        "registration_without_prefill",
        "prefill_unclaimed",
        "full_hit_held_until_lease",
    ]


@pytest.mark.parametrize(
    ("least", "shown", "milder"), [(Severity.ERROR, 2, 2), (Severity.WARNING, 3, 1), (Severity.INFO, 4, 0)]
)
def test_what_is_milder_than_asked_for_is_only_counted(least: Severity, shown: int, milder: int) -> None:
    found = stuck_in(samples.stuck(), least)
    assert (len(found.rows), found.milder, found.verdict) == (shown, milder, Verdict.SOME)


def test_what_is_only_worth_knowing_does_not_make_it_stuck() -> None:
    (info, *_) = samples.stuck().diagnoses
    assert stuck_in(samples.stuck(diagnoses=(info,))).verdict is Verdict.NONE


def test_a_row_knows_its_transfer_and_an_engine_has_none() -> None:
    listener, registration, *_ = rows_of(samples.stuck())
    assert registration.transfer == samples.busy().waiting[1]
    assert listener.transfer is None


def test_attempts_of_one_request_are_not_taken_for_one_another() -> None:
    second = samples.diagnosis("waiting", Severity.WARNING, samples.request(51), attempt=2)
    (row,) = rows_of(samples.stuck(diagnoses=(second,)))
    assert row.transfer is None


def without_faults(**changes: object) -> Snapshot:
    return samples.stuck(diagnoses=(), **changes)


def engines(**process: object):
    first, *rest = samples.ENGINES
    scheduler, *workers = first.processes
    ill = msgspec.structs.replace(scheduler, **process)
    return (msgspec.structs.replace(first, processes=(ill, *workers)), *rest)


def all_gone():
    return tuple(
        msgspec.structs.replace(
            e, alive=False, processes=tuple(msgspec.structs.replace(p, alive=False) for p in e.processes)
        )
        for e in samples.ENGINES
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"engines": ()}, "no engine records in"),
        ({"engines": all_gone()}, "no engine that records in rings in /dev/shm/pushscope-1000 is alive"),
        ({"engines": engines(recording=False)}, "P1: recording is switched off"),
        ({"engines": engines(lost_ns=NOW - 4 * S)}, "P1: events were lost in the last 20 s"),
        ({"unread": ("the ring x is damaged",)}, "the ring x is damaged"),
    ],
)
def test_one_cannot_tell_where_not_all_is_seen(changes: dict[str, object], reason: str) -> None:
    found = stuck_in(without_faults(**changes))
    assert found.verdict is Verdict.UNKNOWN
    assert len(found.unknown) == 1
    assert found.unknown[0].startswith(reason)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"engines": engines(lost_ns=NOW - LOSS_HEALS_NS)},
        {"engines": engines(recording=False, replaced=True)},
    ],
    ids=["all is well", "a loss of long ago", "an engine's former process"],
)
def test_what_is_of_the_past_leaves_no_doubt(changes: dict[str, object]) -> None:
    assert stuck_in(without_faults(**changes)).verdict is Verdict.NONE


def test_a_recording_of_engines_that_are_gone_by_now_is_judged_all_the_same() -> None:
    assert stuck_in(without_faults(engines=all_gone()), live=False).verdict is Verdict.NONE


def test_something_stuck_is_no_doubt_even_where_not_all_is_seen() -> None:
    found = stuck_in(samples.stuck(unread=("the ring x is damaged",)))
    assert found.verdict is Verdict.SOME
    assert found.unknown == ("the ring x is damaged",)


def test_changes_are_what_is_over_then_what_is_new() -> None:
    before = rows_of(samples.stuck())
    later = [msgspec.structs.replace(d, sentence="for longer") for d in samples.stuck().diagnoses[1:]]
    new = samples.diagnosis("write_never_finished", Severity.ERROR, samples.request(59))
    after = rows_of(samples.stuck(diagnoses=(*later, new)))
    assert [(c.begins, c.row.diagnosis.code) for c in changes(before, after)] == [
        (False, "full_hit_held_until_lease"),
        (True, "write_never_finished"),
    ]


def test_a_tally_counts_in_words() -> None:
    assert tally(samples.stuck().diagnoses) == "2 errors, 1 warning, 1 to know"
    assert tally(samples.stuck().diagnoses[:1]) == "1 to know"
    assert tally(()) == ""


def test_json_has_seconds_and_ids() -> None:
    snapshot = samples.stuck()
    document = msgspec.json.decode(stuck_json(stuck_in(snapshot), snapshot))
    assert document["verdict"] == "some"
    _, registration, _ = document["diagnoses"]
    assert registration["code"] == "registration_without_prefill"
    assert registration["since_s"] == 95
    assert registration["since_unix_s"] == samples.UNIX_NOW - 95
    assert (registration["p_engine"], registration["d_engine"]) == (samples.P1, samples.D1)
    assert registration["evidence"][1]["unix_s"] == samples.UNIX_NOW - 94
    assert registration["runbook"] == "docs/runbooks.md#registration_without_prefill"


def test_a_change_as_json_says_what_became_of_it() -> None:
    snapshot = samples.stuck()
    (change, *_) = changes((), rows_of(snapshot))
    line = msgspec.json.decode(change_json(change, snapshot))
    assert (line["change"], line["diagnosis"]["subject"]) == ("begins", samples.P2)
    assert line["taken_unix_s"] == samples.UNIX_NOW


def test_what_an_engines_diagnosis_counts_among_its_victims_is_not_listed_again() -> None:
    victim = samples.diagnosis("engine_gone", Severity.ERROR, samples.request(52))
    milder = samples.diagnosis("waiting", Severity.WARNING, samples.request(52))
    wrong_data = samples.diagnosis("write_after_lease", Severity.ERROR, samples.request(52))
    other = samples.diagnosis("engine_gone", Severity.ERROR, samples.request(59))
    engine = msgspec.structs.replace(
        victim, subject="engine-p", attempt=0, costs=((victim.subject, victim.attempt),)
    )
    assert causes([engine, victim, milder, wrong_data, other]) == [engine, wrong_data, other]
    warned = msgspec.structs.replace(engine, severity=Severity.WARNING)
    assert causes([warned, victim, milder]) == [warned, victim]


def test_many_rows_of_one_cause_between_the_same_engines_are_one() -> None:
    """As when a D dies: hundreds of prefills that nobody claims."""
    snapshot = samples.unclaimed(40)
    found = stuck_in(snapshot)
    (group,) = folded(found.rows)
    assert isinstance(group, Alike)
    assert group.rows == found.rows
    assert (group.num_blocks, group.num_tokens) == (40 * 7, 40 * 200)
    document = msgspec.json.decode(stuck_json(found, snapshot))
    assert len(document["diagnoses"]) == 40, "a program gets them all"


def test_a_few_of_them_and_others_are_listed_one_by_one() -> None:
    few = stuck_in(samples.unclaimed(5)).rows
    assert folded(few) == few
    many = stuck_in(samples.unclaimed(6)).rows
    other = stuck_in(samples.stuck(), Severity.ERROR).rows
    assert [type(each) for each in folded((*other, *many))] == [Row, Row, Alike]
