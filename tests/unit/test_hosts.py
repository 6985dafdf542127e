"""Engines on two hosts with clocks of their own: offsets within what is said of them, and no message back in time."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushscope.telemetry import events as ev
from pushscope.telemetry.clock import Host
from pushscope.telemetry.clocks import Clocks, clock_id
from pushscope.telemetry.hosts import HOLD_NS
from pushscope.telemetry.recording import RecordingSource, RecordingWriter
from pushscope.telemetry.source import RingState, Stamp
from pushscope.telemetry.transfer import Outcome, Stage, Transfer
from pushscope.telemetry.watch import Watcher

from .hosts import D_HOST, MS, P_HOST, UNIX, US, S, TwoHosts, all_transfers, drifting, offset_in
from .scenario import ListSource, delivered, ms, reading


def assert_possible(t: Transfer) -> None:
    """Every stage has a beginning before its end; a message is received after it was sent."""
    for stage in (*t.stages, *t.path):
        assert stage.end_ns is not None, stage
        assert stage.end_ns >= stage.start_ns, (t.base_id, stage)
    by = {stage.stage: stage for stage in t.stages}
    assert by[Stage.REGISTRATION].end_ns == by[Stage.FLIGHT].start_ns
    assert by[Stage.FLIGHT].end_ns <= by[Stage.RENDEZVOUS].end_ns
    assert by[Stage.DESCRIPTORS].end_ns <= by[Stage.SUBMIT].start_ns == by[Stage.WIRE].start_ns
    assert by[Stage.WIRE].end_ns == by[Stage.NOTIFICATION].start_ns
    assert t.exposed_ns is not None
    assert t.exposed_ns > 0


def run(hosts: TwoHosts, num: int = 40, every_ms: float = 120, *, shaken: bool = True) -> None:
    """``num`` transfers, the first after the handshakes."""
    t = 1 * S
    if shaken:
        t = hosts.handshakes(t)
    for n in range(num):
        hosts.transfer(f"r{n}", t + int(n * every_ms * MS), number=n + 1)


def check(hosts: TwoHosts, *, but: tuple[int, int] = (0, 0)) -> list[Transfer]:
    """Watch to the end; the true offset lies within the uncertainty at all times but between the two of ``but``."""
    sure = False
    closed: list[Transfer]
    for now, watcher, closed in hosts.watch():  # noqa: B007 - the last one counts
        s = watcher.snapshot()
        if not s.clocks:
            continue
        offset, uncertainty = offset_in(s)
        sure = sure or uncertainty is not None
        if sure and not but[0] <= now <= but[1]:
            folded = now - HOLD_NS
            assert uncertainty is not None
            assert abs(offset - hosts.offset(folded)) <= uncertainty, (now, offset, uncertainty)
    assert sure
    return all_transfers(watcher, closed)


@pytest.mark.parametrize("here", [P_HOST, D_HOST], ids=lambda host: host.name)
@pytest.mark.parametrize("wall_error", [250 * MS, -250 * MS, 0])
@given(seed=st.integers(0, 2**16))
@settings(max_examples=4, deadline=None)
def test_drifting_clocks_a_quarter_of_a_second_apart(here, wall_error, seed):
    hosts = TwoHosts(wall_error=wall_error, here=here, seed=seed)
    run(hosts)
    transfers = check(hosts)
    assert len(transfers) == 40
    for t in transfers:
        assert t.outcome is Outcome.DELIVERED
        assert_possible(t)


@pytest.mark.parametrize("ppm", [(20, -20), (-20, 20), (50, -50)])
def test_the_offset_is_followed_through_hours_of_little_traffic(ppm):
    """40 ppm over an hour are 144 ms."""
    hosts = TwoHosts(drifting(7 * S, ppm[0]), drifting(90_000 * S, ppm[1]))
    run(hosts, num=30, every_ms=120_000)
    source = [r for _, r in hosts.readings(every=S)]
    closed: list[Transfer] = []
    watcher = Watcher(ListSource(list(source)), on_closed=closed.append)
    watcher.run_to_end()
    transfers = all_transfers(watcher, closed)
    assert len(transfers) == 30
    for t in transfers:
        assert_possible(t)
    offset, uncertainty = offset_in(watcher.snapshot())
    assert abs(offset - hosts.offset(source[-1].t_ns - 90_000 * S)) <= uncertainty < 5 * MS


@pytest.mark.parametrize("step", [-300 * MS, -60 * MS, 60 * MS, 300 * MS])
@pytest.mark.parametrize("seed", range(3))
def test_a_host_that_stood_still_has_another_offset(step, seed):
    """Nothing is proven right at the step; a second later it is known again."""
    at = 4 * S
    hosts = TwoHosts(drifting(5_000 * S, 20, at, step), seed=seed)
    run(hosts, num=60)
    transfers = check(hosts, but=(at - 100 * MS, at + 1500 * MS))
    assert len(transfers) == 60
    for t in transfers:
        began = t.opened_ns - hosts.d_clock(0)
        if not at - S < began < at + S:
            assert_possible(t)


def test_the_order_of_rings_within_a_poll_changes_nothing():
    def seen(order_seed: int) -> list[tuple[str, tuple[tuple[Stage, int, int | None], ...]]]:
        hosts = TwoHosts(seed=5)
        run(hosts)
        hosts.random.seed(order_seed)
        *_, (_, watcher, closed) = hosts.watch()
        return sorted(
            (t.base_id, tuple((s.stage, s.start_ns, s.end_ns) for s in t.stages))
            for t in all_transfers(watcher, closed)
        )

    assert seen(1) == seen(2) == seen(3)


@given(seed=st.integers(0, 2**16), every_ms=st.sampled_from([20, 70, 200]))
@settings(max_examples=5, deadline=None)
def test_however_often_is_polled_spans_differ_by_no_more_than_the_uncertainty(seed, every_ms):
    def wires(every: int) -> dict[str, int]:
        hosts = TwoHosts(seed=seed)
        run(hosts, num=15)
        closed: list[Transfer] = []
        watcher = Watcher(ListSource([r for _, r in hosts.readings(every)]), on_closed=closed.append)
        watcher.run_to_end()
        (_, uncertainty) = offset_in(watcher.snapshot())
        assert uncertainty is not None
        assert uncertainty < 5 * MS
        return {
            t.base_id: s.end_ns - s.start_ns
            for t in all_transfers(watcher, closed)
            for s in t.stages
            if s.stage is Stage.WIRE
        }

    often, rarely = wires(50 * MS), wires(every_ms * MS)
    assert often.keys() == rarely.keys()
    for name, ns in often.items():
        assert abs(ns - rarely[name]) < 10 * MS


def test_without_messages_both_ways_it_is_unsure_and_says_so():
    hosts = TwoHosts(wall_error=10 * MS)
    hosts.transfer("r", 1 * S, number=1)
    one_way = {ev.RegistrationSent, ev.RegistrationDrained}
    hosts.said = [s for s in hosts.said if type(s[2]) in one_way]
    *_, (_, watcher, _) = hosts.watch()
    s = watcher.snapshot()
    assert offset_in(s)[1] is None
    assert any(
        "clocks of node-d and node-p are unsure" in n or "clocks of node-p and node-d are unsure" in n
        for n in s.notices
    )
    assert abs(offset_in(s)[0] - hosts.offset(S)) <= 250 * MS + 10 * MS


def test_a_late_reader_learns_from_messages_without_a_handshake():
    hosts = TwoHosts()
    run(hosts, num=5, shaken=False)
    *_, (now, watcher, closed) = hosts.watch()
    offset, uncertainty = offset_in(watcher.snapshot())
    assert uncertainty is not None
    assert abs(offset - hosts.offset(now)) <= uncertainty < 10 * MS
    assert len(all_transfers(watcher, closed)) == 5


def test_what_is_said_again_gets_the_same_time():
    hosts = TwoHosts()
    run(hosts, num=20, every_ms=500)
    plain = {}
    for again in (False, True):
        if again:
            (registered,) = (
                s
                for s in hosts.said
                if isinstance(s[2], ev.RegistrationDrained) and s[2].request_id.startswith("r3-")
            )
            deferred = ev.TransferDeferred(registered[2].t + US, "r3-aaaaaaaa", "engine-d")
            for later in range(10):
                hosts.said.append((registered[0] + later * S, registered[1], deferred))
        *_, (_, watcher, closed) = hosts.watch()
        (t,) = (t for t in all_transfers(watcher, closed) if t.base_id == "r3")
        plain[again] = t
    handshakes = [s for s in plain[True].stages if s.stage is Stage.HANDSHAKE]
    assert len(handshakes) == 1
    assert {s for s in plain[True].stages if s.stage is not Stage.HANDSHAKE} == set(plain[False].stages)


def test_engines_of_one_host_are_not_touched():
    """Not held back, not translated, nothing said of clocks; also from the readings of a former version."""
    r = reading(delivered(), 60)
    (o, *_) = (s.origin for s in r.rings)
    here = Host(o.host, o.boot_id, o.time_namespace)
    another_pod = msgspec.structs.replace(r, host=Host("pod-1", here.boot_id, here.time_namespace))
    watched = []
    for given_reading in (r, msgspec.structs.replace(r, host=here), another_pod):
        watcher = Watcher(ListSource([given_reading]))
        watcher.poll()
        watched.append(watcher.snapshot())
        assert watched[-1].clocks == ()
        assert watched[-1].recent[0].opened_ns == ms(0)
    assert watched[0] == watched[1] == watched[2]


@pytest.mark.parametrize("wall", [UNIX, UNIX + 3600 * S, UNIX - 3600 * S], ids=["right", "fast", "slow"])
def test_a_reader_on_a_third_host_goes_by_what_agents_stream(wall):
    """P's and D's offset comes from their messages; where both lie for the reader, from what it was told and when."""
    hosts = TwoHosts()
    run(hosts)
    here = Host("laptop", "boot-l", "time:[1]")
    at = {P_HOST: hosts.p_clock, D_HOST: hosts.d_clock}

    def stamps(now: int) -> tuple[Stamp, ...]:
        return tuple(
            Stamp(host, clock(now - 3 * MS), now + 77 * S, now + 77 * S - 8 * MS if now < S else None)
            for host, clock in at.items()
        )

    readings = [
        msgspec.structs.replace(r, host=here, t_ns=now + 77 * S, unix_ns=wall)
        for now, r in hosts.readings(stamps=stamps)
    ]
    closed: list[Transfer] = []
    watcher = Watcher(ListSource(list(readings)), on_closed=closed.append)
    watcher.run_to_end()
    s = watcher.snapshot()
    offset, uncertainty = offset_in(s)
    assert uncertainty is not None
    assert abs(offset - hosts.offset(readings[-1].t_ns - 77 * S)) <= uncertainty < 3 * MS
    transfers = all_transfers(watcher, closed)
    assert len(transfers) == 40
    for t in transfers:
        assert_possible(t)
        n = int(t.base_id[1:])
        truly = min(s[0] for s in hosts.said if getattr(s[2], "request_id", "").startswith(f"r{n}-")) + 77 * S
        assert abs(t.opened_ns - truly) < 20 * MS


def test_a_recording_of_two_hosts_replays_alike(tmp_path):
    hosts = TwoHosts()
    run(hosts, num=10)
    readings = [r for _, r in hosts.readings()]
    writer = RecordingWriter(tmp_path / "two.psr")
    for r in readings:
        writer.write(r)
    writer.close()
    live = Watcher(ListSource(list(readings), label=str(tmp_path / "two.psr")))
    live.run_to_end()
    replayed = Watcher(RecordingSource(tmp_path / "two.psr"))
    replayed.run_to_end()
    assert offset_in(replayed.snapshot())[0] == offset_in(live.snapshot())[0]
    assert {t.base_id: t.stages for t in replayed.snapshot().recent} == {
        t.base_id: t.stages for t in live.snapshot().recent
    }


def test_a_host_that_joins_later_is_taken_in():
    """Another D, on a third host, whose agent answers only when the others have long been read."""
    hosts = TwoHosts()
    run(hosts, num=20)
    later = msgspec.structs.replace(
        hosts.origins[2], host="node-e", boot_id="boot-e", instance="late", engine_id="engine-e",
        anchor_monotonic_ns=hosts.d_clock(0) - 5_000 * S,
    )  # fmt: skip
    readings = []
    for now, r in hosts.readings():
        e_ns = hosts.d_clock(now) - 5_000 * S
        if now > 2 * S:
            stamp = Stamp(Host("node-e", "boot-e", "time:[1]"), e_ns - MS, r.t_ns, r.t_ns - 2 * MS)
            said = [*r.events, (len(r.rings), ev.encode(ev.Loop(e_ns - 5 * MS)))]
            r = msgspec.structs.replace(r, rings=(*r.rings, RingState(later)), events=said, stamps=(stamp,))  # noqa: PLW2901
        readings.append(r)
    closed: list[Transfer] = []
    watcher = Watcher(ListSource(list(readings)), on_closed=closed.append)
    watcher.run_to_end()
    s = watcher.snapshot()
    assert {(c.host, c.peer_host) for c in s.clocks} == {("node-d", "node-p"), ("node-d", "node-e")}
    (e,) = (c for c in s.clocks if c.peer_host == "node-e")
    assert abs(e.offset_ns + 5_000 * S) <= e.uncertainty_ns <= 2 * MS
    (engine,) = (engine for engine in s.engines if engine.engine_id == "engine-e")
    assert abs(engine.processes[0].last_event_ns - (readings[-1].t_ns - 5 * MS)) <= MS
    for t in all_transfers(watcher, closed):
        assert_possible(t)


@given(st.permutations(range(12)), st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_what_is_proven_does_not_depend_on_the_order_of_messages(order, seed):
    from random import Random

    a, b = clock_id(P_HOST), clock_id(D_HOST)
    draw = Random(seed)
    messages = []
    for _ in range(12):
        t = draw.randrange(200 * S)
        there = draw.random() < 0.5
        delay = draw.randrange(5 * MS)
        messages.append((a, b, t, t + 7 * S + delay) if there else (b, a, t + 7 * S, t + delay))
    plain, shuffled = Clocks(), Clocks()
    for m in messages:
        plain.message(*m)
    for i in order:
        shuffled.message(*messages[i])
        shuffled.message(*messages[i])
    at = {a: 100 * S, b: 107 * S}
    bounds = plain.bounds(at)
    assert bounds == shuffled.bounds(at)
    assert -bounds[b, a] <= 7 * S <= bounds[a, b]
