"""The snapshot: what is so now, and what its reader must know."""

import msgspec
import pytest

from pushscope.telemetry import events as ev
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.source import RingState
from pushscope.telemetry.transfer import Outcome
from pushscope.telemetry.watch import Watcher

from .scenario import (
    D_ENGINE,
    D_SCHEDULER,
    D_WORKER,
    P_ENGINE,
    P_SCHEDULER,
    P_WORKER,
    ListSource,
    Said,
    delivered,
    ms,
    origin,
    reading,
    until,
)


def watched(*readings) -> Watcher:
    watcher = Watcher(ListSource(list(readings)))
    watcher.run_to_end()
    return watcher


def test_in_flight_waiting_and_recent():
    said = (
        delivered("done")
        + until(delivered("moving", 1), ev.Submitted)
        + until(delivered("waits", 2), ev.BlocksStaged)
    )
    s = watched(reading(said, 60)).snapshot()
    assert [t.base_id for t in s.in_flight] == ["moving"]
    assert [t.base_id for t in s.waiting] == ["waits"]
    assert [t.base_id for t in s.recent] == ["done"]
    assert (s.totals.in_flight, s.totals.waiting, s.totals.transfers) == (1, 1, 3)
    assert s.totals.outcomes == {"delivered": 1}
    assert (s.totals.writes, s.totals.write_bytes) == (1, 4096)
    assert s.totals.events_lost == 0
    assert s.notices == ()


def test_outcomes_are_counted_once_whether_closed_or_not():
    watcher = watched(
        reading(delivered("a") + delivered("b", 3), 60),
        reading([], 5000),
        reading(delivered("c", 5000), 5100),
    )
    assert watcher.snapshot().totals.outcomes == {"delivered": 3}
    assert [t.base_id for t in watcher.snapshot().recent] == ["c", "b", "a"]


def test_engines_have_short_names_and_their_processes():
    s = watched(reading(delivered(), 60)).snapshot()
    assert [(e.name, e.engine_id, e.side, e.alive) for e in s.engines] == [
        ("P1", P_ENGINE, "P", True),
        ("D1", D_ENGINE, "D", True),
    ]
    assert {p.connector_role for e in s.engines for p in e.processes} == {"scheduler", "worker"}
    assert s.engine_name(P_ENGINE) == "P1"
    assert s.engine_name(None) == "?"
    assert s.engine_name("somebody-else") == "somebody"


def test_a_gone_engine_is_shown_with_what_was_lost():
    s = watched(
        reading(until(delivered(), ev.NotificationDrained), 30),
        reading([], 2000, gone=(P_ENGINE,)),
        reading([], 9000, gone=(P_ENGINE,)),
    ).snapshot()
    assert [t.outcome for t in s.recent] == [Outcome.LOST]
    assert "P1 has gone without shutting down" in s.notices
    (p,) = [e for e in s.engines if e.name == "P1"]
    assert not p.alive


def test_a_clean_shutdown_is_called_that():
    said = [(o, ev.EngineDown(ms(70))) for o in (P_SCHEDULER, P_WORKER)]
    s = watched(reading(delivered() + said, 80, gone=(P_ENGINE,))).snapshot()
    assert "P1 has shut down" in s.notices


D_RANKS = tuple(origin(D_ENGINE, "worker", tp=tp, tp_size=2) for tp in range(2))
OF_TWO_RANKS = (P_SCHEDULER, P_WORKER, D_SCHEDULER, *D_RANKS)


def of_two_ranks(said: Said, *gone: ev.Origin) -> Snapshot:
    """The snapshot after ``said``, with those processes of a D of two ranks gone."""
    r = reading(said, 30, OF_TWO_RANKS)
    rings = tuple(RingState(o, alive=o not in gone) for o in OF_TWO_RANKS)
    return watched(msgspec.structs.replace(r, rings=rings)).snapshot()


def test_a_rank_that_is_gone_is_named_while_the_rest_is_there():
    s = of_two_ranks([], D_RANKS[1])
    assert "D1 has lost worker 1 (pid 200); the rest of it is still there" in s.notices
    (d,) = [e for e in s.engines if e.name == "D1"]
    assert not d.alive
    assert [(p.name, p.alive) for p in d.processes] == [
        ("scheduler", True),
        ("worker 0", True),
        ("worker 1", False),
    ]


def test_a_rank_that_was_killed_is_told_from_those_that_were_shut_down_for_it():
    said = [(o, ev.EngineDown(ms(20))) for o in (D_SCHEDULER, D_RANKS[0])]
    s = of_two_ranks(said, D_SCHEDULER, *D_RANKS)
    assert "D1 has gone without shutting down: worker 1 (pid 200)" in s.notices


@pytest.mark.parametrize(
    "readings",
    [
        lambda said: (reading(said, 80), reading([], 2000, gone=(D_ENGINE,))),
        lambda said: (reading(said, 2000, gone=(D_ENGINE,)),),
    ],
    ids=["watched as it died", "read afterwards"],
)
def test_an_engine_that_died_of_its_connector_says_of_what(readings):
    """It calls ``shutdown`` on its way out, which makes it no clean end."""
    raised = ev.ConnectorRaised(ms(25), "get_transfer_results", "AssertionError('no')")
    said = until(delivered(), ev.DecodeScheduled)
    said += [(D_WORKER, raised), *((o, ev.EngineDown(ms(26))) for o in (D_SCHEDULER, D_WORKER))]
    s = watched(*readings(said)).snapshot()
    assert "D1 has gone: get_transfer_results raised AssertionError('no')" in s.notices
    (lost,) = s.recent
    assert lost.outcome is Outcome.LOST
    assert lost.error == "D is gone: D's get_transfer_results raised AssertionError('no')"


def test_what_a_connector_raised_kills_nobody_who_is_alive():
    raised = ev.ConnectorRaised(ms(25), "get_transfer_results", "AssertionError('no')")
    s = watched(reading([*delivered(), (D_WORKER, raised)], 80)).snapshot()
    assert s.notices == ()
    assert [t.outcome for t in s.recent] == [Outcome.DELIVERED]


def test_one_side_alone_says_so():
    s = watched(reading([], 0, (P_SCHEDULER, P_WORKER))).snapshot()
    assert s.notices == ("one-sided: only P is observed, what D does is not known",)


def test_a_snapshot_is_never_older_than_what_it_shows():
    s = watched(reading(until(delivered(), ev.Submitted), 5)).snapshot()
    assert s.taken_ns >= s.in_flight[0].since_ns


def test_what_was_overwritten_before_the_reader_came_is_said():
    r = reading(delivered(), 60)
    rings = tuple(msgspec.structs.replace(state, forgotten=10) for state in r.rings)
    s = watched(msgspec.structs.replace(r, rings=rings)).snapshot()
    assert any(n.startswith("P1: 20 events were overwritten before this reader came") for n in s.notices)
    assert s.totals.events_lost == 0


def test_an_engine_that_is_long_gone_leaves_the_screen():
    said = [(o, ev.EngineDown(ms(70))) for o in (P_SCHEDULER, P_WORKER)]
    watcher = watched(
        reading(delivered() + said, 80, gone=(P_ENGINE,)), reading([], 700_000, gone=(P_ENGINE,))
    )
    assert [e.name for e in watcher.snapshot().engines] == ["D1"]


def test_nothing_found_says_so():
    s = watched(reading([], 0, ())).snapshot()
    assert s.notices == ("no engine records in a list",)


def test_recording_switched_off_and_missing_seams_are_said():
    said = [
        (P_WORKER, ev.EngineUp(ms(1), "_xfer_blocks does not exist")),
        (D_WORKER, ev.RecordingSwitched(ms(2), False)),
    ]
    s = watched(reading(said, 10)).snapshot()
    assert "P1: not recorded with this vLLM: _xfer_blocks does not exist" in s.notices
    assert "D1: recording is switched off, what happens now is not seen" in s.notices


def test_dropped_and_lost_events_add_up():
    s = watched(reading([(D_SCHEDULER, ev.EventsDropped(ms(1), 7, "x"))], 10)).snapshot()
    assert s.totals.events_lost == 7


def test_rates_are_over_the_last_ten_seconds():
    watcher = watched(reading(delivered("a") + delivered("b", 9000), 10_000))
    assert watcher.snapshot().totals.transfers_per_s == 0.2
    watcher = watched(reading(delivered("a") + delivered("b", 9000), 10_000), reading([], 15_000))
    assert watcher.snapshot().totals.transfers_per_s == 0.1


def test_the_main_threads_loss_is_summed():
    said = [(P_WORKER, ev.Loop(ms(k), 10, 1_000_000 * k, 1000 * k)) for k in (1, 2, 3)]
    (process,) = [
        p
        for e in watched(reading(said, 10)).snapshot().engines
        if e.name == "P1"
        for p in e.processes
        if p.connector_role == "worker"
    ]
    assert (process.loop_calls, process.loop_s, process.loop_max_s) == (30, 0.006, 3e-6)
