"""A small soak, and the committed one."""

from __future__ import annotations

import msgspec
import pytest
from bench.machine import this_machine
from soak import relay, replay, simulated
from soak.__main__ import main
from soak.page import page_of
from soak.result import PAGE, REAL, RELAY_S, REPLAY_S, SIMULATED, Named, Part, Relayed, Result, read
from soak.tally import Tally

from pushscope.lab.simulator.chances import Between
from pushscope.lab.simulator.network import Hardships
from pushscope.telemetry.diagnosis.catalogue import CATALOGUE
from pushscope.telemetry.diagnosis.model import Severity

from . import samples

RUN = read()
PART = Part(
    name="a part", simulated=True, transfers=2, outcomes={"delivered": 2}, events=50, events_lost=0, snapshots=9,
    watched_s=2.0, wall_s=1.0, resident_mib=(40.0, 60.0, 61.0), named=(Named("slow_link", Severity.WARNING, 1),),
)  # fmt: skip
RELAYED = Relayed(
    watched=PART, written=50, at_home={"delivered": 2}, delay_s=0.2, resets=3, stalls=1, reconnects=3, cuts_told=3,
    silent_s=4.0,
)  # fmt: skip


def test_no_alarm_on_three_thousand_transfers():
    part = simulated.run(3_000, lambda _done, _errors: None, seed=11)
    assert part.transfers >= 3_000
    assert part.errors == ()
    assert part.error_count == 0
    assert part.wrong == {}
    assert part.snapshots > part.watched_s / 2
    assert len(part.resident_mib) == 11


def test_what_is_watched_over_a_hard_network_is_what_there_was(tmp_path):
    hard = Hardships(delay_s=0.2, reset_every=100_000, calm=Between(1.0, 2.0), stall=Between(0.2, 1.0))
    relayed = relay.run(6.0, tmp_path, lambda _done, _errors: None, per_s=20.0, hardships=hard, seed=2)
    assert relayed.written > 1_000
    assert relayed.watched.events == relayed.written
    assert relayed.watched.outcomes == relayed.at_home
    assert relayed.watched.errors == ()
    assert relayed.watched.transfers > 50
    assert relayed.resets
    assert relayed.stalls
    assert relayed.reconnects >= relayed.resets - 2  # one may have been on its way at the end, of each agent
    assert relayed.cuts_told


def test_a_recording_is_played_on_the_screen_to_its_end(tmp_path):
    part = replay.run(120.0, tmp_path, lambda _done, _errors: None)
    assert part.transfers > 200
    assert part.watched_s > 110
    assert part.errors == ()
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


@pytest.mark.parametrize(
    ("change", "twice", "is_whole"),
    [
        ({}, 0, True),
        ({"written": 49}, 1, False),
        ({"written": 51}, 0, False),
        ({"at_home": {"delivered": 1, "lost": 1}}, 0, False),
        ({"watched": msgspec.structs.replace(PART, events=45, events_lost=5)}, 0, False),
    ],
)
def test_whole_is_what_was_counted_once_and_came_to_the_same(change, twice, is_whole):
    relayed = msgspec.structs.replace(RELAYED, **change)
    assert (relayed.events_twice, relayed.is_whole, relayed.held) == (twice, is_whole, is_whole)


# -- the command ----------------------------------------------------------------------------------------


def test_a_part_by_itself_is_said_and_not_written(capsys):
    before = read()
    assert main(["--simulated", "50"]) == 0
    assert "0 errors" in capsys.readouterr().out
    assert read() == before


def test_a_short_recording_is_played_and_not_written(capsys):
    before = read()
    assert main(["replay", "--seconds", "20"]) == 0
    assert "a recording of 20 s at 100 times its speed" in capsys.readouterr().out
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


def test_the_committed_run_over_a_hard_network_counted_everything_once():
    assert RUN.relay is not None
    _, relayed = RUN.relay
    assert relayed.held
    assert relayed.events_twice == 0
    assert relayed.watched.watched_s >= RELAY_S
    assert relayed.watched.transfers > 0.9 * RELAY_S * relay.PER_S
    assert min(relayed.resets, relayed.stalls, relayed.reconnects, relayed.cuts_told) >= 10


def test_the_committed_recording_was_played_whole_in_flat_memory():
    assert RUN.replay is not None
    _, replayed = RUN.replay
    assert replayed.held
    assert replayed.watched_s > 0.99 * REPLAY_S
    assert len(replayed.resident_mib) == 11


def test_the_committed_run_speaks_of_causes_that_there_are():
    parts = [part for _, part in RUN.parts]
    parts += [RUN.relay[1].watched] if RUN.relay else []
    parts += [RUN.replay[1]] if RUN.replay else []
    assert {named.code for part in parts for named in part.named} <= CATALOGUE.keys()


def test_the_committed_page_is_that_of_the_run():
    assert PAGE.read_text() == page_of(RUN)
