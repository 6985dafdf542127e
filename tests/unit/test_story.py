"""Stories of engines: a fold that does not depend on order or repetition, in bounded memory."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushscope.telemetry import events as ev
from pushscope.telemetry.source import RingState
from pushscope.telemetry.story import (
    KEPT,
    MAX_FLOORS,
    EngineStory,
    Heartbeats,
    Stories,
    is_loopback,
    successor_of,
)

from .scenario import (
    D_ENGINE,
    D_SCHEDULER,
    D_WORKER,
    ORIGINS,
    P_ENGINE,
    P_SCHEDULER,
    P_WORKER,
    Said,
    assembled,
    delivered,
    ms,
    until,
)

S = 1000.0


def told(said: Said, origins: tuple[ev.Origin, ...] = ORIGINS) -> dict[str, EngineStory]:
    stories = Stories()
    stories.rings(RingState(o) for o in origins)
    for o, e in said:
        stories.feed(o, e)
    return {story.engine_id: story for story in stories.all()}


def again(o: ev.Origin, at: float, **changes: object) -> ev.Origin:
    """The instance that has the place of another since ``at``."""
    changes = {"instance": f"{o.instance}-{at}", "anchor_monotonic_ns": ms(at), **changes}
    if o.nixl_agent:
        changes = {"nixl_agent": f"{o.nixl_agent}-{at}", **changes}
    return msgspec.structs.replace(o, **changes)


def eventful() -> Said:
    """A day of everything that a story is made of."""
    said: Said = [*delivered("a"), *delivered("b", 40)]
    for o in ORIGINS:
        said.append((o, ev.EngineUp(ms(0))))
        for second in range(90):
            t = ms(second * S)
            said += [
                (o, ev.Loop(t, 10, 1_000_000 * second, 5)),
                (o, ev.Tables(t, second % 7, 0, second % 5, 1)),
            ]
    for second in range(0, 90, 5):
        said += [
            (D_WORKER, ev.HeartbeatSent(ms(second * S), "agent", 2, "x")),
            (P_WORKER, ev.HeartbeatDrained(ms(second * S + 1), second % 2, 1, f"id-{second}")),
            (D_WORKER, ev.HandshakeQueued(ms(second * S), f"peer-{second % 3}", "10.0.0.1", 5600)),
            (D_WORKER, ev.HandshakeStarted(ms(second * S + 2), f"peer-{second % 3}")),
            (
                D_WORKER,
                ev.HandshakeEnded(ms(second * S + 7), f"peer-{second % 3}", 0, 0, 0.0, "Again", "Again()"),
            ),
            (D_WORKER, ev.PeerRank(ms(second * S), P_ENGINE, 0, second % 2, f"agent-{second}")),
        ]
    return [
        *said,
        (P_WORKER, ev.WriterException(ms(3), "_xfer_blocks", "r", 2, "KeyError('x')")),
        (P_SCHEDULER, ev.ListenerDead(ms(9), "KeyError((0, 7))")),
        (P_SCHEDULER, ev.SideChannelServed(ms(8), 0, 0)),
        (D_WORKER, ev.ConnectorRaised(ms(99_000), "get_transfer_results", "ValueError()")),
        (D_SCHEDULER, ev.NothingToReceive(ms(5), "n-1", "no_external_tokens")),
        (P_WORKER, ev.TransferFailed(ms(6), "r", 4, "transfer_exception", "telemetry: none")),
        (P_WORKER, ev.RecordingSwitched(ms(7), False)),
        (P_WORKER, ev.EventsDropped(ms(8), 3, "OSError()")),
        (P_WORKER, ev.EngineDown(ms(100_000))),
    ]


@given(seed=st.randoms(use_true_random=False), more=st.integers(0, 60))
@settings(max_examples=25, deadline=None)
def test_the_story_does_not_depend_on_order_or_repetition(seed: random.Random, more: int):
    said = eventful()
    shuffled = said + seed.choices(said, k=more)
    seed.shuffle(shuffled)
    assert told(shuffled) == told(said)


@given(seed=st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_nor_on_which_transfers_were_closed_first(seed: random.Random):
    said = [event for n in range(6) for event in until(delivered(f"r{n}", n), ev.BlocksStaged)]
    transfers = assembled(said).open_transfers()

    def closed(order) -> tuple[EngineStory, ...]:
        stories = Stories()
        stories.rings(RingState(o) for o in ORIGINS)
        for t in order:
            stories.closed(t)
        return stories.all()

    d, p = closed(transfers)
    assert len(p.ended) == len(d.ended) == 6
    seed.shuffle(transfers)
    assert closed(transfers) == (d, p)


def test_memory_is_bounded():
    said: Said = []
    for n in range(5000):
        t = ms(n * S)
        said += [
            (P_WORKER, ev.Tables(t, n)),
            (P_WORKER, ev.HandshakeQueued(t, f"made-up-{n}", "h", 1)),
            (P_WORKER, ev.HandshakeEnded(t, f"made-up-{n}", 0, 0, 0.0, "Again", "")),
            (P_WORKER, ev.WriterException(t, "w")),
        ]
    (instance,) = (i for i in told(said)[P_ENGINE].instances if i.rank is not None)
    assert len(instance.floors) == MAX_FLOORS
    for kind, events in instance.told.items():
        assert len(events) <= KEPT[kind], kind
        assert events[-1].t == ms(4999 * S)
    assert len(instance.peers()) <= KEPT[ev.HandshakeEnded] + KEPT[ev.HandshakeQueued]


def test_what_requests_say_is_not_kept():
    story = told(delivered())[P_ENGINE]
    assert all(instance.told == {} for instance in story.instances)


# -- figures ------------------------------------------------------------------------------------------


def of_worker(engine: str, said: Said):
    return next(i for i in told(said)[engine].instances if i.rank is not None)


def test_heartbeats_applied_and_not_matching_with_an_example():
    said: Said = [
        (P_WORKER, ev.HeartbeatDrained(ms(0), 2, 0)),
        (P_WORKER, ev.HeartbeatDrained(ms(5000), 1, 3, "router-id")),
        (P_WORKER, ev.HeartbeatDrained(ms(9000), 1, 0)),
    ]
    assert of_worker(P_ENGINE, said).heartbeats == Heartbeats(4, 3, "router-id")


def test_the_share_of_the_main_thread():
    said: Said = [(P_WORKER, ev.Loop(ms(n * S), 10, 250_000_000, 1)) for n in range(5)]
    assert of_worker(P_ENGINE, said).loop_share == pytest.approx(0.25)
    assert of_worker(P_ENGINE, said[:1]).loop_share is None


def test_a_table_s_trend_is_that_of_its_floor():
    """It goes up and down with the load; what never goes down any more is what leaks."""
    sizes = [n // 30 + (n * 7) % 20 for n in range(300)]
    said: Said = [(P_WORKER, ev.Tables(ms(n * S), 0, 0, size)) for n, size in enumerate(sizes)]
    instance = of_worker(P_ENGINE, said)
    assert [f.unmatched_registrations for f in instance.floors][1] == min(sizes[20:50])
    trend = instance.trend("unmatched_registrations")
    assert (trend.rise, trend.span_ns) == (min(sizes[260:290]) - min(sizes[:20]), 240 * 10**9), (
        "the last of the lowest"
    )
    assert instance.trend("writes").rise == 0


def test_a_peer_is_pending_then_running_then_failing_then_known():
    queued = (D_WORKER, ev.HandshakeQueued(ms(1), P_ENGINE, "10.0.0.1", 5600))
    started = (D_WORKER, ev.HandshakeStarted(ms(2), P_ENGINE))
    failed = (D_WORKER, ev.HandshakeEnded(ms(5002), P_ENGINE, ms(2), 0, 0.0, "Again", "Again()"))
    well = (D_WORKER, ev.HandshakeEnded(ms(6000), P_ENGINE, ms(5900), 1))
    rank = (D_WORKER, ev.PeerRank(ms(6000), P_ENGINE, 0, 0, "agent"))

    def peer(*said):
        return of_worker(D_ENGINE, list(said)).peers()[P_ENGINE]

    assert (peer(queued).pending_ns, peer(queued).running_ns) == (ms(1), None)
    assert peer(queued, started).running_ns == ms(2)
    p = peer(queued, started, failed)
    assert (p.pending_ns, p.running_ns, len(p.failures), p.address) == (None, None, 1, "10.0.0.1:5600")
    p = peer(queued, started, failed, well, rank)
    assert (p.failures, [r.agent for r in p.ranks]) == ((), ["agent"])


# -- restarts -----------------------------------------------------------------------------------------


def test_a_restart_under_the_same_id():
    origins = (*ORIGINS, again(P_SCHEDULER, 500), again(P_WORKER, 510))
    story = told([], origins)[P_ENGINE]
    assert len(story.instances) == 4
    assert [i.origin.instance for i in story.current] == [o.instance for o in origins[-2:]]
    assert (story.restarted_ns, story.started_ns) == (ms(500), ms(500))
    assert told([])[P_ENGINE].restarted_ns is None


def test_a_restart_under_another_id_has_the_old_one_s_side_channel():
    first = msgspec.structs.replace(P_SCHEDULER, side_channel="10.0.0.1:5600")
    second = again(first, 500, engine_id="engine-p2")
    elsewhere = again(first, 900, engine_id="engine-p3", host="other")
    stories = told([], (first, second, elsewhere))
    successor = successor_of(stories[P_ENGINE], stories.values())
    assert successor is not None
    assert successor.engine_id == "engine-p2"
    assert successor_of(stories["engine-p2"], stories.values()) is None
    assert successor_of(told([])[P_ENGINE], stories.values()) is None, "its side channel is not known"


def test_a_ring_that_is_not_there_any_more_is_forgotten():
    stories = Stories()
    stories.rings(RingState(o) for o in ORIGINS)
    stories.feed(P_WORKER, ev.WriterException(ms(1), "w"))
    stories.rings(RingState(o) for o in ORIGINS if o.engine_id == D_ENGINE)
    assert [s.engine_id for s in stories.all()] == [D_ENGINE]
    stories.rings(RingState(o) for o in ORIGINS)
    assert all(i.told == {} for s in stories.all() for i in s.instances)


def test_ranks_and_who_is_alive():
    stories = Stories()
    stories.rings([RingState(P_SCHEDULER), RingState(P_WORKER, alive=False, lost=2, torn=1)])
    (story,) = stories.all()
    assert [(i.rank, i.alive) for i in story.instances] == [(None, True), ((0, 0), False)]
    assert (story.alive, story.lost, story.side) == (False, 3, "P")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "0.0.0.0", "::1", "[::1]", "::"])
def test_loopback(host: str):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "node-a", "", "fe80::1", "127.example.org"])
def test_not_loopback(host: str):
    assert not is_loopback(host)
