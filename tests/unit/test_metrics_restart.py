"""Saved at any point, and read anew from the rings: counters go on as in one run, and nothing is counted twice."""

from __future__ import annotations

import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushscope.telemetry import events as ev
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.metrics.figures import Figures
from pushscope.telemetry.metrics.meter import Meter
from pushscope.telemetry.metrics.state import MAX_HALVES, Ledger, State, load, save
from pushscope.telemetry.ring import HEADER_BYTES, SLOT_BYTES, RingWriter
from pushscope.telemetry.source import Reading, RingsSource
from pushscope.telemetry.watch import Watcher

from . import failures as f
from .metered import Metered
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
    only,
    reading,
)

TOLD: Said = [
    (P_WORKER, ev.Loop(ms(100), 10, 5_000_000)),
    (P_WORKER, ev.HandshakeQueued(ms(110), D_ENGINE)),
    (P_WORKER, ev.HandshakeEnded(ms(150), D_ENGINE, ms(120))),
    (D_WORKER, ev.HeartbeatSent(ms(160), "a", 3)),
    (P_WORKER, ev.HeartbeatDrained(ms(170), 1, 2)),
    (P_WORKER, ev.EventsDropped(ms(180), 2)),
    (P_WORKER, ev.EventsDropped(ms(190), 5)),
    (D_WORKER, ev.NotificationUnrecognised(ms(200), "r")),
    (P_WORKER, ev.Tables(ms(210), 0, 1, 2, 3, 4, 5)),
]
WAITS = f.registers(300, d="cmpl-waits-bbbbbbbb", named="cmpl-waits")
AGAIN = [(o, e) for o, e in WAITS if isinstance(e, (ev.RegistrationSent, ev.RegistrationDrained))]
ALL: Said = sorted(
    [
        *delivered("a"),
        *delivered("b", 40, blocks_first=True),
        *delivered("c", 2_000),
        *f.MET,
        *f.posts(),
        *f.fails(30, "transfer_failed", number=1),
        (D_WORKER, ev.ReceiveFailed(ms(31), f.D)),
        *f.aborted(500),
        *only(delivered("of p alone", 900), *f.P_SIDE)[:8],
        *TOLD,
        *WAITS,
    ],
    key=lambda said: said[1].t,
)
"""What is said, in the order of its time: it is also read in that order, so that each reading has a part of it."""
SAID = [*ALL, *AGAIN, *AGAIN]
END_MS = 120_000.0


def cut(said: Said, cuts: list[int]) -> list[Reading]:
    """The same in readings, each at its last event; then everything is over."""
    bounds = [0, *sorted(cuts), len(said)]
    readings = []
    at_ms = 0.0
    for begin, end in pairwise(bounds):
        part = said[begin:end]
        at_ms = max([at_ms, *((e.t - ms(0)) / 1e6 for _, e in part)])
        readings.append(reading(part, at_ms))
    return [*readings, reading([], END_MS)]


def read_anew(readings: list[Reading], again: int) -> list[Reading]:
    """What an agent reads that starts after ``again`` readings: all that they had, then the rest."""
    if not again:
        return readings
    last = readings[again - 1]
    whole = [event for r in readings[:again] for event in r.events]
    return [msgspec.structs.replace(last, events=whole), *readings[again:]]


def plain(figures: Figures) -> object:
    """Every series; sums of floats depend on their order in the last digits."""
    rows: dict[object, object] = {}
    for engine_id, engine in figures.items():
        series = [("", engine.own), *((peer, pair.series) for peer, pair in engine.peers.items())]
        for peer, each in series:
            for family, found in each.counters.items():
                rows |= {(engine_id, peer, family, k): pytest.approx(v) for k, v in found.items()}
            for family, found in each.summaries.items():
                rows |= {
                    (engine_id, peer, family, k): (s.count, pytest.approx(s.total)) for k, s in found.items()
                }
            for family, found in each.histograms.items():
                rows |= {
                    (engine_id, peer, family, k): (h.counts, pytest.approx(h.total), h.exemplars)
                    for k, h in found.items()
                }
    return rows


def run(readings: list[Reading], state: State | None = None) -> Metered:
    return Metered(*readings, state=state)


def in_one_run() -> Metered:
    return run(cut(SAID, []))


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_saved_and_loaded_at_any_point_is_as_in_one_run(data):
    cuts = data.draw(st.lists(st.integers(0, len(SAID)), max_size=6), label="cuts")
    readings = cut(SAID, cuts)
    expected = run(readings)
    expected.state()  # settles
    state: State | None = None
    begun = 0
    for _ in range(data.draw(st.integers(1, 3), label="restarts")):
        saved_at = data.draw(st.integers(begun, len(readings) - 1), label="saved at")
        killed_at = data.draw(st.integers(saved_at, len(readings) - 1), label="killed at")
        agent = run(read_anew(readings[:saved_at], begun), state)
        state = load(save(agent.state()))
        agent.read(*readings[saved_at:killed_at])  # what it counted since is lost with it
        begun = killed_at
    last = run(read_anew(readings, begun), state)
    last.state()
    assert plain(last.meter.figures) == plain(expected.meter.figures)


def test_the_one_run_counts_what_was_said():
    m = in_one_run()
    assert m.value("kv_transfer_transfers_total", role="D", outcome="delivered") == 3
    assert m.value("kv_transfer_registrations_total", result="sent") == 5
    assert m.value("pushscope_events_read_total") == len(SAID)
    assert m.value("pushscope_events_lost_total", cause="unrecorded") == 5


def positioned(r: Reading, forgotten: dict[ev.Origin, int]) -> Reading:
    """The same reading of rings whose first events were overwritten before the reader came."""
    left = dict(forgotten)
    events = []
    for index, payload in r.events:
        origin = r.rings[index].origin
        if left.get(origin, 0):
            left[origin] -= 1
        else:
            events.append((index, payload))
    rings = tuple(msgspec.structs.replace(ring, forgotten=forgotten.get(ring.origin, 0)) for ring in r.rings)
    return msgspec.structs.replace(r, rings=rings, events=events)


def test_what_was_overwritten_meanwhile_is_lost_and_what_is_left_is_counted():
    loops = [(P_WORKER, ev.Loop(ms(t), 1, 1000)) for t in range(10)]
    first = run([reading(loops[:4], 4)])
    state = load(save(first.state()))
    # The ring holds the last three of ten; between these and the first four, three were never read.
    m = run([positioned(reading(loops, 10), {P_WORKER: 7})], state)
    assert m.value("kv_transfer_connector_calls_total", engine=P_ENGINE) == 4 + 3
    assert m.value("pushscope_events_lost_total", engine=P_ENGINE, cause="overwritten") == 3
    assert m.value("pushscope_events_read_total", engine=P_ENGINE) == 4 + 3


def test_what_is_overwritten_while_it_is_read_again_hides_nothing_that_is_new():
    """Twelve events, of which an earlier agent counted ten; the first four are gone before this one comes to them."""
    loops = [(P_WORKER, ev.Loop(ms(t), 1, 1000)) for t in range(15)]
    state = load(save(run([reading(loops[:10], 10)]).state()))

    def lapped(r: Reading) -> Reading:
        rings = tuple(
            msgspec.structs.replace(ring, lost=4) if ring.origin is P_WORKER else ring for ring in r.rings
        )
        return msgspec.structs.replace(r, rings=rings)

    def read_and_lost(m: Metered) -> tuple[float | None, float | None]:
        lost = m.value("pushscope_events_lost_total", engine=P_ENGINE, cause="overwritten")
        return m.value("pushscope_events_read_total", engine=P_ENGINE), lost

    m = run([lapped(reading(loops[4:12], 12))], state)
    assert read_and_lost(m) == (10, 2), "which of those that were read are the new ones can't be told"
    m.read(lapped(reading(loops[12:], 15)))
    assert read_and_lost(m) == (13, 2)
    assert m.value("kv_transfer_connector_calls_total", engine=P_ENGINE) == 13


def test_a_registration_whose_first_copy_is_gone_is_not_counted_again():
    state = load(save(run([reading(WAITS, 10_000)]).state()))
    m = run([positioned(reading([*WAITS, *AGAIN], 20_000), dict.fromkeys(ORIGINS, 2))], state)
    assert m.value("kv_transfer_registrations_total", result="sent") == 1
    assert m.value("kv_transfer_registrations_total", result="received") == 1


@pytest.mark.parametrize("more", [0, 5, 40, 70])
def test_real_rings_are_counted_to_the_last_event(tmp_path: Path, more: int):
    """A ring of 64 slots; ``more`` events are written between two agents, which may overwrite some of them."""
    slots = 64
    origin = msgspec.structs.replace(P_WORKER, anchor_monotonic_ns=time.monotonic_ns())
    writer = RingWriter(tmp_path / "rings", origin, num_bytes=HEADER_BYTES + slots * SLOT_BYTES)

    def say(number: int) -> None:
        for _ in range(number):
            writer.write(ev.encode(ev.Loop(time.monotonic_ns(), 1, 1000)))

    state = None
    for number in (50, more):
        say(number)
        meter = Meter(state=state)
        with closing(RingsSource(tmp_path / "rings")) as source:
            watcher = Watcher(source, on_closed=meter.on_closed, on_event=meter.on_event)
            watcher.poll()
            say(3)  # and read by the same agent
            watcher.poll()
            state = load(save(meter.state(watcher)))
    writer.close()
    own = state.figures[P_ENGINE].own
    overwritten = max(0, 50 + 3 + more - slots - (50 + 3))
    assert own.counters["kv_transfer_connector_calls_total"]["tp0",] == 50 + 3 + more + 3 - overwritten
    assert own.counters["pushscope_events_lost_total"]["overwritten",] == overwritten


def test_damage_that_was_counted_is_not_counted_again():
    def damaged(r: Reading) -> Reading:
        rings = tuple(msgspec.structs.replace(ring, torn=1) for ring in r.rings)
        return msgspec.structs.replace(r, rings=rings)

    before, after = [(P_WORKER, ev.Loop(ms(1), 1, 1))], [(P_WORKER, ev.Loop(ms(2), 1, 1))]
    first = run([reading([], 0), damaged(reading(before, 1))])
    assert (
        first.value("pushscope_events_lost_total", engine=P_ENGINE, cause="damaged") == 2
    )  # in both its rings
    state = load(save(first.state()))
    again = run([damaged(reading([*before, *after], 3))], state)
    assert again.value("pushscope_events_lost_total", engine=P_ENGINE, cause="damaged") == 2
    assert again.value("kv_transfer_connector_calls_total", engine=P_ENGINE) == 2


def test_damage_in_a_ring_of_which_nothing_was_counted_is_new():
    def of_late(r: Reading) -> Reading:
        late = {"forgotten": 10, "torn": 1}
        rings = tuple(
            msgspec.structs.replace(ring, **late) if ring.origin is P_WORKER else ring for ring in r.rings
        )
        return msgspec.structs.replace(r, rings=rings)

    state = load(save(run([reading([(P_WORKER, ev.Loop(ms(1), 1, 1))], 1)]).state()))
    again = run([of_late(reading([(P_WORKER, ev.Loop(ms(2), 1, 1))], 3))], state)
    assert again.value("pushscope_events_lost_total", engine=P_ENGINE, cause="overwritten") == 10 - 1
    assert again.value("pushscope_events_lost_total", engine=P_ENGINE, cause="damaged") == 1


def test_a_ring_that_is_gone_is_forgotten_and_an_unreadable_folder_forgets_nothing():
    state = load(save(in_one_run().state()))
    assert set(state.marks) == {origin.instance for origin in ORIGINS}
    nothing = Metered(reading([], 1, ()), state=state)
    assert set(nothing.state().marks) == set(state.marks)
    unreadable = msgspec.structs.replace(reading([], 1, ()), notices=("it can't be read",))
    kept = Metered(unreadable, state=load(save(state)))
    assert kept.value("kv_transfer_transfers_total", role="D", outcome="delivered") == 3
    gone = Metered(reading([], 1, ()), state=load(save(state)))
    assert gone.value("kv_transfer_transfers_total") is None
    some = Metered(reading([], 1, f.D_SIDE), state=load(save(state)))
    assert set(some.state().marks) == {origin.instance for origin in f.D_SIDE}


def test_a_half_that_was_counted_is_known_by_its_id():
    ledger = Ledger(())
    assert not ledger.counted_before("e", "r")
    assert not ledger.counted_before("e", "r"), "in one run what the assembler closes counts"
    later = Ledger(ledger.halves())
    assert later.counted_before("e", "r")
    assert not later.counted_before("er", "")
    for number in range(MAX_HALVES + 5):
        later.counted_before("e", str(number))
    assert len(later.halves()) == MAX_HALVES


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "expected saved metrics, found something else"),
        (b"\xc1", "expected saved metrics, found something else"),
        (save(State(version=99)), "version 1, found version 99"),
    ],
)
def test_what_is_no_state_is_refused_in_a_sentence(data, says):
    with pytest.raises(PushscopeError, match=says):
        load(data)


def test_a_meter_without_readings_saves_what_it_was_given():
    state = load(save(in_one_run().state()))
    kept = Meter(state=load(save(state))).state(Watcher(ListSource([])))
    assert kept.marks == state.marks
    assert kept.halves == state.halves
