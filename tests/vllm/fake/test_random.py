"""Whatever is asked of two engines, in whatever order: no transfer is counted twice, lost, or left open at the end.

Random schedules of requests, aborts, retries, failures and ranks that lag behind, on vLLM's classes.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pushscope.telemetry import events as ev
from pushscope.telemetry.assembler import Assembler
from pushscope.telemetry.source import RingsSource
from pushscope.telemetry.transfer import Outcome, Transfer
from tests.vllm.fake.layout import Layout
from tests.vllm.fake.seen import at_world_time
from tests.vllm.fake.world import World

pytestmark = [pytest.mark.timeout(1800), pytest.mark.filterwarnings("ignore")]  # vLLM's and torch's own

EXAMPLES = int(os.environ.get("PUSHSCOPE_RANDOM_SCHEDULES", "40"))

bases = st.integers(0, 2)
ACTS = st.one_of(
    st.tuples(st.just("prefill"), bases),
    st.tuples(st.just("decode"), bases),
    st.tuples(st.just("abort"), st.sampled_from("PD"), bases),
    st.tuples(st.just("turn"), st.integers(0, 7)),
    st.tuples(st.just("time"), st.sampled_from([1, 6, 40])),
    st.tuples(st.just("hold")),
    st.tuples(st.just("land"), st.sampled_from(["DONE", "ERR"])),
)


class Schedule:
    """Carries out what Hypothesis thought of, and keeps count of the request ids that it gave."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.given: dict[tuple[str, int], list[str]] = {}
        self._number = 0

    def do(self, act: tuple) -> None:
        getattr(self, act[0])(*act[1:])

    def _id(self, side: str, base: int) -> str:
        self._number += 1
        request = f"cmpl-{base}-0-{self._number:08x}"
        self.given.setdefault((side, base), []).append(request)
        return request

    def prefill(self, base: int) -> None:
        self.world.prefill(self._id("P", base), 40 + 30 * base)

    def decode(self, base: int) -> None:
        of = (self.given.get(("P", base)) or [f"cmpl-{base}-0"])[-1]
        self.world.decode(self._id("D", base), 40 + 30 * base, of=of)

    def abort(self, side: str, base: int) -> None:
        for request in self.given.get((side, base), [])[-1:]:
            if request in self.world.engines[side].scheduler.requests:
                self.world.engines[side].abort(request)

    def turn(self, ranks: int) -> None:
        """All engines step; of the writers only some get their turn."""
        only = {worker.label for n, worker in enumerate(self.world.workers) if ranks >> n & 1}
        self.world.turn(only=only)

    def time(self, seconds: int) -> None:
        self.world.pass_time(seconds)

    def hold(self) -> None:
        self.world.fabric.held = lambda _agent, _handle: True

    def land(self, state: str) -> None:
        self.world.fabric.land(state)
        self.world.fabric.held = lambda _agent, _handle: False

    def end(self) -> None:
        """Let everything go on to its end: what is on its way lands, clients go, leases run out."""
        w = self.world
        self.land("DONE")
        w.settle(12)
        for engine in w.engines.values():
            for request in list(engine.scheduler.requests):
                engine.abort(request)
        for _ in range(3):
            w.pass_time(31, turns=4)


def assembled(world: World) -> tuple[list[Transfer], list[ev.Event]]:
    """Every transfer, closed as a reader would close it long after the end; and P's and D's own events."""
    closed: list[Transfer] = []
    assembler = Assembler(closed.append)
    events: list[ev.Event] = []
    with closing(RingsSource(world.folder)) as source:
        reading = at_world_time(source.poll())
    assembler.rings(reading.rings)
    for index, payload in reading.events:
        event = ev.decode(payload)
        events.append(event)
        assembler.feed(reading.rings[index].origin, event)
    later = world.clock.ns + 100_000_000_000
    assembler.close_ended(later, later)
    left = assembler.open_transfers()
    assert not left, f"left open: {left}"
    assert assembler.evicted == 0
    return closed, events


# One rank of P has written the first of many prefills to D when its lease ends; the other writes a later one there.
ONE_RANK_LATE = [("prefill", 0)] * 7 + [
    ("decode", 0),
    ("time", 1),
    ("time", 1),
    ("prefill", 0),
    ("prefill", 0),
]
ONE_RANK_LATE += [("turn", 6), ("prefill", 0), ("time", 40)]


@example((2, 1), ONE_RANK_LATE)
@given(st.sampled_from([(1, 1), (2, 1), (1, 2)]), st.lists(ACTS, min_size=15, max_size=30))
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize="CI" in os.environ,
)
def test_no_transfer_is_counted_twice_lost_or_left_open(ranks, acts):
    with (
        tempfile.TemporaryDirectory(prefix="pushscope-") as folder,
        World(Path(folder) / "rings", instrumented=True) as world,
    ):
        world.engine("P", Layout(tp=ranks[0]))
        world.engine("D", Layout(tp=ranks[1]))
        schedule = Schedule(world)
        for act in acts:
            schedule.do(act)
        schedule.end()
        transfers, events = assembled(world)
    asked = {e.request_id for e in events if isinstance(e, ev.RegistrationStaged | ev.NothingToReceive)}
    staged = {e.request_id for e in events if isinstance(e, ev.BlocksStaged)}
    seen_d = Counter(t.d_request for t in transfers if t.d_request)
    seen_p = Counter(t.p_request for t in transfers if t.p_request)
    assert not {request: n for request, n in seen_d.items() if n > 1}, "D's request is in two transfers"
    assert asked <= seen_d.keys(), "D's request is in no transfer"
    assert staged <= seen_p.keys(), "P's blocks are in no transfer"
    for transfer in transfers:
        assert transfer.outcome not in (Outcome.WAITING, Outcome.MOVING, Outcome.LOST, Outcome.UNSEEN), (
            transfer
        )
        assert transfer.ranks_done <= transfer.ranks, transfer
    received = {e.request_id for e in events if isinstance(e, ev.DecodeScheduled)}
    delivered = {t.d_request for t in transfers if t.outcome is Outcome.DELIVERED}
    assert received <= delivered
