"""What a watching session knows of each engine, and of each two that have to do with each other."""

import msgspec
import pytest

from pushscope.telemetry import events as ev
from pushscope.telemetry.pairs import MAX_KNOWN, MAX_PAIRS, PairsFold
from pushscope.telemetry.transfer import Outcome
from pushscope.telemetry.vitals import VitalsLook, vitals
from pushscope.telemetry.watch import Watcher

from . import samples
from .scenario import (
    D_ENGINE,
    D_SCHEDULER,
    D_WORKER,
    P_ENGINE,
    P_SCHEDULER,
    P_WORKER,
    ListSource,
    delivered,
    ms,
    only,
    reading,
    until,
)

OPEN = until(delivered("cmpl-open", 100), ev.NotificationDrained)
"""Written, and not seen to arrive."""


class Watched:
    """A watcher of prepared readings, and the pairs of what it saw."""

    def __init__(self, *said, at: float = 1_000.0, gone: tuple[str, ...] = ()):
        self.fold = PairsFold()
        self.source = ListSource([reading(list(said), at, gone=gone)])
        self.watcher = Watcher(self.source, on_closed=self.fold.ended)
        self.watcher.poll()

    def later(self, *said, at: float) -> None:
        self.source.readings.append(reading(list(said), at))
        self.watcher.poll()

    def pairs(self):
        return self.fold.pairs(self.watcher, self.watcher.snapshot())

    def vitals(self):
        return {found.engine_id: found for found in vitals(self.watcher, self.watcher.snapshot())}


def test_a_pair_has_what_is_open_and_what_ended():
    (pair,) = Watched(*delivered("cmpl-r", 1), *OPEN).pairs()
    assert (pair.p_engine, pair.d_engine) == (P_ENGINE, D_ENGINE)
    assert (pair.in_flight, pair.waiting, pair.delivered, pair.bad) == (1, 0, 1, 0)
    assert pair.num_bytes == 4096
    assert pair.exposed.count == 1
    assert pair.oldest_s == pytest.approx(0.9, abs=0.05)


def test_what_is_bad_is_counted_apart():
    fold = PairsFold()
    for outcome in (Outcome.FAILED, Outcome.EXPIRED, Outcome.LOST, Outcome.ABORTED):
        fold.ended(samples.ended(1, outcome))
    watched = Watched()
    (pair,) = fold.pairs(watched.watcher, watched.watcher.snapshot())
    assert (pair.delivered, pair.bad) == (0, 3)


def test_pairs_are_bounded_and_the_busiest_come_first():
    fold = PairsFold()
    for n in range(MAX_KNOWN + 10):
        for _ in range(3 if n == MAX_KNOWN else 1):
            fold.ended(msgspec.structs.replace(samples.delivered(1), p_engine=f"p{n}"))
    watched = Watched(*OPEN)
    pairs = fold.pairs(watched.watcher, watched.watcher.snapshot())
    assert len(pairs) == MAX_PAIRS
    assert pairs[0].in_flight == 1
    assert pairs[1].p_engine == f"p{MAX_KNOWN}"
    assert "p0" not in {pair.p_engine for pair in pairs}


HANDSHAKES = {
    "pending 4 s": [(P_WORKER, ev.HandshakeQueued(ms(1_000), D_ENGINE, "10.0.0.2", 5600))],
    "done": [
        (P_WORKER, ev.HandshakeQueued(ms(1_000), D_ENGINE, "10.0.0.2", 5600)),
        (P_WORKER, ev.HandshakeEnded(ms(2_000), D_ENGINE, ms(1_000), 1)),
    ],
    "failed: refused": [
        (D_WORKER, ev.HandshakeQueued(ms(1_000), P_ENGINE, "10.0.0.2", 5600)),
        (D_WORKER, ev.HandshakeEnded(ms(2_000), P_ENGINE, ms(1_000), 0, 0.0, "Refused", "\x1b[2Jrefused")),
        (P_WORKER, ev.HandshakeEnded(ms(2_000), D_ENGINE, ms(1_000), 1)),
    ],
}


@pytest.mark.parametrize("words", HANDSHAKES)
def test_how_two_engines_know_each_other(words):
    (pair,) = Watched(*HANDSHAKES[words], at=5_000).pairs()
    assert (pair.p_engine, pair.d_engine) == (P_ENGINE, D_ENGINE)
    assert pair.handshake == words


def test_a_handshake_is_looked_up_again_after_a_second():
    watched = Watched(*HANDSHAKES["pending 4 s"], at=1_500)
    assert watched.pairs()[0].handshake.startswith("pending")
    watched.later(*HANDSHAKES["done"][1:], at=3_000)
    assert watched.pairs()[0].handshake == "done"


def test_heartbeats_are_those_that_p_had():
    beats = [(P_WORKER, ev.HeartbeatDrained(ms(1), 2, 3, "x")), (P_WORKER, ev.HeartbeatDrained(ms(2), 1, 0))]
    (pair,) = Watched(*beats, *OPEN).pairs()
    assert (pair.heartbeats_applied, pair.heartbeats_ignored) == (3, 3)


def test_p_holds_what_nobody_took():
    found = Watched(*only(until(delivered(), ev.RegistrationDrained), P_SCHEDULER), *staged("r")).vitals()
    assert (
        found[P_ENGINE].pinned_requests,
        found[P_ENGINE].pinned_blocks,
        found[P_ENGINE].pinned_tokens,
    ) == (1, 4, 100)
    assert found[D_ENGINE].pinned_requests == 0


def staged(base: str):
    return [(P_SCHEDULER, ev.BlocksStaged(ms(20), f"cmpl-{base}-aaaaaaaa", 4, 100, 30.0))]


def test_what_is_gone_holds_nothing():
    assert Watched(*staged("r"), gone=(P_ENGINE,)).vitals()[P_ENGINE].pinned_blocks == 0


def test_d_holds_what_was_allotted_and_given_up():
    asked = only(until(delivered("cmpl-r"), ev.NotificationDrained), D_SCHEDULER, D_WORKER)
    given_up = (D_SCHEDULER, ev.RequestEnded(ms(50), "cmpl-r-bbbbbbbb", "finished_aborted"))
    found = Watched(*asked, given_up).vitals()
    assert (found[D_ENGINE].held_blocks, found[P_ENGINE].held_blocks) == (4, 0)


def test_handshakes_tables_and_loop_are_told_as_far_as_they_were_said():
    said = [
        *HANDSHAKES["failed: refused"],
        (P_WORKER, ev.Tables(ms(10), 0, 1, 2, 3, 4)),
        (P_WORKER, ev.Loop(ms(0), 10, 5_000_000, 5)),
        (P_WORKER, ev.Loop(ms(1_000), 10, 250_000_000, 5)),
    ]
    found = Watched(*said).vitals()
    p, d = found[P_ENGINE], found[D_ENGINE]
    assert (p.handshakes_done, p.handshakes_failed, p.handshakes_pending) == (1, 0, 0)
    assert (d.handshakes_done, d.handshakes_failed, d.handshakes_pending) == (0, 1, 0)
    assert (p.blocks_unmatched, p.registrations_unmatched, p.writes, p.leases) == (1, 2, 3, 4)
    assert p.loop_share == 0.25
    assert (d.blocks_unmatched, d.leases, d.loop_share) == (None, None, None)


def test_what_is_held_is_looked_up_again_after_a_second():
    watched = Watched(at=1_000)
    look = VitalsLook(watched.watcher)
    first = look.vitals(watched.watcher.snapshot())
    watched.later(*staged("r"), at=1_500)
    assert look.vitals(watched.watcher.snapshot()) is first
    watched.later(at=2_100)
    assert look.vitals(watched.watcher.snapshot())[0].pinned_blocks == 4
