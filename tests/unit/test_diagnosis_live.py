"""What is wrong now, in the snapshots of a watcher: from when, until when, in which order, at what cost."""

from __future__ import annotations

import msgspec
import pytest

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis import live
from pushscope.telemetry.diagnosis.model import Diagnosis, Severity
from pushscope.telemetry.diagnosis.thresholds import Thresholds
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.source import Reading, RingState
from pushscope.telemetry.watch import Watcher

from .failures import (
    FAILURES,
    MET,
    S,
    expires,
    fails,
    matches,
    posts,
    prefills,
    received,
    registers,
    stepping,
)
from .scenario import (
    D_ENGINE,
    D_WORKER,
    ORIGINS,
    P_ENGINE,
    P_WORKER,
    ListSource,
    Said,
    delivered,
    ms,
    reading,
)


def followed(*looks: tuple[Said, float], **changes: object) -> list[tuple[Diagnosis, ...]]:
    """What a watcher says after each reading: (what was said, seconds)."""
    watcher = Watcher(ListSource([reading(said, at_s * 1000) for said, at_s in looks]), **changes)
    found = []
    while watcher.poll():
        found.append(watcher.snapshot().diagnoses)
    return found


def codes(found: tuple[Diagnosis, ...]) -> list[str]:
    return [d.code for d in found]


def test_what_hangs_is_told_while_d_says_that_it_waits_and_clears_by_itself():
    failed = MET + fails(60, "push_handshake_failed", "x")
    staged = [each for each in registers() if isinstance(each[1], ev.RegistrationStaged)]
    looks = [(failed, 1.0), *((staged, t) for t in range(10, 500, 10))]
    found = followed(*looks, (received(500 * S), 501.0), ([], 532.0))
    assert all(codes(each) == ["reverse_handshake_failed"] for each in found[:-2])
    assert found[-2:] == [(), ()]
    assert "D has waited 8m10s" in found[-3][0].sentence


def test_what_has_ended_is_told_for_a_while():
    f = FAILURES["handshake_failed"]
    at_s = live.SHOWN_NS / 1e9
    first, later, last = followed((f.said, f.at_s), ([], at_s - 1), ([], at_s + 60))
    assert codes(first) == codes(later) == ["handshake_failed"]
    assert last == ()


def test_one_transfer_can_be_asked_about_however_long_ago_it_was_over():
    f = FAILURES["computed_by_d"]
    watcher = Watcher(ListSource([reading([*f.said, *prefills(p="cmpl-other-aaaaaaaa")], 60 * S)]))
    watcher.run_to_end()
    snapshot = watcher.snapshot()
    assert all(d.subject != "cmpl-r" for d in snapshot.diagnoses)
    (t,) = (t for t in watcher.assembler.open_transfers() if t.base_id == "cmpl-r")
    assert codes(watcher.diagnoses_of(t)) == ["handshake_failed", "computed_by_d"]


def test_the_worst_comes_first_and_then_the_oldest():
    said = [
        *prefills(p="cmpl-unclaimed-aaaaaaaa"),
        *registers(5 * S, d="cmpl-young-bbbbbbbb", tokens=7),
        *registers(1 * S, d="cmpl-old-bbbbbbbb", tokens=8),
        *stepping(20),
    ]
    (found,) = followed((said, 20))
    assert [(d.severity, d.subject) for d in found] == [
        (Severity.ERROR, "cmpl-old"),
        (Severity.ERROR, "cmpl-young"),
        (Severity.WARNING, "cmpl-unclaimed"),
    ]


def test_that_two_ids_differ_is_remembered_when_p_has_let_the_blocks_go():
    staged = [each for each in registers(d="cmpl-x-bbbbbbbb") if isinstance(each[1], ev.RegistrationStaged)]
    looks = [(registers(d="cmpl-x-bbbbbbbb") + prefills(), 1.0)]
    looks += [(staged + stepping(1), float(t)) for t in range(5, 30, 5)]
    looks += [(staged + expires(30 * S + 20), 31.0)]
    looks += [(staged, float(t)) for t in range(40, 400, 5)]
    found = followed(*looks)
    assert codes(found[-1]) == ["request_ids_differ"]


def test_healthy_traffic_is_left_alone():
    looks = [
        ([each for n in range(100) for each in delivered(f"{second}-{n}", second * S + n)], float(second + 1))
        for second in range(20)
    ]
    assert followed(*looks) == [()] * 20


def test_many_that_are_late_at_once_are_named_in_a_few_looks(monkeypatch):
    monkeypatch.setattr(live, "MAX_NEW", 10)
    monkeypatch.setattr(live, "MAX_AGAIN", 10)
    crowd = [each for n in range(30) for each in registers(5 * S, d=f"cmpl-{n}-bbbbbbbb", tokens=n)]
    at_once = followed((crowd + stepping(9), 9))
    assert [len(each) for each in at_once] == [30], "who looks only once is told everything"
    found = followed(([], 4), (crowd + stepping(9), 9), ([], 9.5), ([], 10))
    assert [len(each) for each in found] == [0, 10, 20, 30]


def test_events_that_were_lost_make_it_less_certain():
    rings = reading([], 0).rings
    lossy = tuple(RingState(state.origin, lost=5) for state in rings)
    first, second = reading(registers() + stepping(7), 2_000), reading([], 8_000)
    watcher = Watcher(ListSource([first, type(first)(second.t_ns, second.unix_ns, lossy, [])]))
    watcher.run_to_end()
    (found,) = watcher.snapshot().diagnoses
    assert (found.code, found.certain) == ("registration_without_prefill", False)
    assert found.sentence.endswith("Events were lost: some of this may have been seen by nobody.")


def test_thresholds_can_be_set(monkeypatch):
    said = registers() + stepping(7)
    assert followed((said, 7), thresholds=Thresholds(floor_s=60)) == [()]
    monkeypatch.setenv("PUSHSCOPE_LATE_FLOOR_S", "60")
    assert followed((said, 7)) == [()]
    monkeypatch.setenv("PUSHSCOPE_LATE_FLOOR_S", "never")
    with pytest.raises(PushscopeError, match="PUSHSCOPE_LATE_FLOOR_S"):
        followed((said, 7))


def test_a_slow_pair_is_given_more_time():
    """What takes two seconds as a rule is not late after ten."""
    slow = []
    for n in range(30):
        p, d = f"usual-{n}-aaaaaaaa", f"usual-{n}-bbbbbbbb"
        slow += registers(d=d) + prefills(p=p) + matches(p=p, d=d) + posts(p=p, d=d)
        slow += [
            (D_WORKER, ev.NotificationDrained(ms(2 * S), d, P_WORKER.nixl_agent, 1)),
            (D_WORKER, ev.NotificationCounted(ms(2 * S + 1), d, 1, 1, 1)),
            *received(2 * S + 2, d=d),
        ]
        slow += expires(2 * S + 3, p=p)[1:]
    hanging = registers(5 * S) + prefills(5 * S) + matches(5 * S + 5) + posts(5 * S + 6)
    _, quiet, late = followed((slow, 4), (hanging + stepping(15), 20), ([], 60))
    assert quiet == ()
    assert codes(late)[0] == "write_never_finished"


@pytest.mark.parametrize(
    ("engine", "said", "sentence"),
    [
        (
            P_ENGINE,
            registers(),
            "P was restarted 2 s ago, and what it knew of this request is gone with its old self",
        ),
        (P_ENGINE, MET, "P was restarted; D has waited 7 s since and is told nothing."),
        (D_ENGINE, MET, "D was restarted; P holds the blocks until its lease ends."),
    ],
)
def test_an_engine_that_was_restarted_under_its_id_took_with_it_what_it_had(engine, said, sentence):
    before = reading(said, 1_000)
    new = tuple(
        msgspec.structs.replace(o, instance=f"{o.instance}-new", anchor_monotonic_ns=ms(5 * S))
        for o in ORIGINS
        if o.engine_id == engine
    )
    rings = (*(RingState(o, o.engine_id != engine) for o in ORIGINS), *map(RingState, new))
    after = Reading(ms(7 * S), before.unix_ns, rings, [(len(rings) - 1, ev.encode(ev.Loop(ms(6.9 * S))))])
    watcher = Watcher(ListSource([before, after]))
    watcher.run_to_end()
    first, *_ = watcher.snapshot().diagnoses
    assert first.code == "engine_gone"
    assert sentence in first.sentence
