"""A small soak, and the committed one."""

from __future__ import annotations

import msgspec
import pytest
from bench.machine import this_machine
from soak import simulated
from soak.__main__ import main
from soak.page import page_of
from soak.result import PAGE, REAL, SIMULATED, Named, Part, Result, read
from soak.tally import Tally

from pushscope.telemetry.diagnosis.catalogue import CATALOGUE
from pushscope.telemetry.diagnosis.model import Severity

from . import samples

RUN = read()
PART = Part(
    name="a part", simulated=True, transfers=2, outcomes={"delivered": 2}, events=50, events_lost=0, snapshots=9,
    watched_s=2.0, wall_s=1.0, resident_mib=(40.0, 60.0, 61.0), named=(Named("slow_link", Severity.WARNING, 1),),
)  # fmt: skip


def test_no_alarm_on_three_thousand_transfers():
    part = simulated.run(3_000, lambda _done, _errors: None, seed=11)
    assert part.transfers >= 3_000
    assert part.errors == ()
    assert part.error_count == 0
    assert part.wrong == {}
    assert part.snapshots > part.watched_s / 2
    assert len(part.resident_mib) == 11


# -- counting -------------------------------------------------------------------------------------------


def test_what_stands_is_counted_once_and_again_when_it_comes_back():
    tally = Tally("a part", simulated=True)
    for snapshot in (samples.stuck(), samples.stuck(), samples.nothing_found(), samples.stuck()):
        tally.take(snapshot, 0.0)
    part = tally.part({})
    counts = {named.code: named.count for named in part.named}
    assert counts["registration_without_prefill"] == 2
    assert part.error_count == tally.error_count == 4
    assert len(part.errors) == 4
    assert not part.held


@pytest.mark.parametrize(
    ("change", "held"),
    [
        ({}, True),
        ({"named": (Named("waiting", Severity.ERROR, 1),)}, False),
        ({"events_lost": 1}, False),
        ({"wrong": {"lease_over_before_decode": 1}}, False),
        ({"resident_mib": (40.0, 60.0, 100.0)}, False),
        ({"resident_mib": (40.0, 60.0, 100.0), "simulated": False}, True),
    ],
)
def test_held(change, held):
    assert msgspec.structs.replace(PART, **change).held is held


def test_a_later_run_replaces_parts_of_its_kind_only():
    machine = this_machine()
    real = msgspec.structs.replace(PART, name="real", simulated=False)
    result = Result(()).updated(machine, [PART, real])
    assert [part.name for _, part in result.parts] == ["real", "a part"]
    again = result.updated(machine, [msgspec.structs.replace(PART, name="again")])
    assert [part.name for _, part in again.parts] == ["real", "again"]
    assert again.of_kind(simulated=False) == (real,)


# -- the command ----------------------------------------------------------------------------------------


def test_a_part_by_itself_is_said_and_not_written(capsys):
    before = read()
    assert main(["--simulated", "50"]) == 0
    assert "0 errors" in capsys.readouterr().out
    assert read() == before


@pytest.mark.parametrize("text", ["0", "-3", "many"])
def test_a_number_that_is_none_is_refused(text, capsys):
    with pytest.raises(SystemExit) as refused:
        main(["--real", text])
    assert refused.value.code == 2
    assert f"found '{text}'" in capsys.readouterr().err


# -- the run that is committed ----------------------------------------------------------------------------


def test_the_committed_run_had_no_false_alarm():
    assert [part.errors for _, part in RUN.parts if part.error_count] == []
    assert all(part.held for _, part in RUN.parts)


def test_the_committed_run_was_a_whole_one():
    for simulated_ones, least in ((True, SIMULATED), (False, REAL)):
        parts = RUN.of_kind(simulated=simulated_ones)  # none: the page says so
        # Of a client that goes away at once there is no transfer.
        assert not parts or sum(part.transfers for part in parts) >= 0.99 * least
        assert all(part.snapshots > part.watched_s / 2 for part in parts)


def test_the_committed_run_speaks_of_causes_that_there_are():
    assert {named.code for _, part in RUN.parts for named in part.named} <= CATALOGUE.keys()


def test_the_committed_page_is_that_of_the_run():
    assert PAGE.read_text() == page_of(RUN)
