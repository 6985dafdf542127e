"""Failures reproduced on vLLM's own classes are named in seconds and clear; healthy runs are left alone."""

from __future__ import annotations

import pytest
from diagnoses.result import row_of

from pushscope.telemetry.diagnosis.model import Severity
from tests.vllm.fake.faults import FAULTS, GUESSED
from tests.vllm.fake.lookout import watched
from tests.vllm.fake.scenarios import D1, FULL, P1, SCENARIOS, crowded

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]  # vLLM's and torch's own
CAUSED_BY = {
    "ranks_paired_differently": "registration_lost_to_rank",
    "lease_ended_during_write": "write_never_finished",
}
"""What comes before them, as they are reproduced here."""


@pytest.fixture
def played(request, tmp_path):
    """A fault, played and looked at."""
    _, f = FAULTS[request.param]
    with watched(tmp_path, f.p, f.d, f.mode, beside=f.beside, observed=f.observed) as (world, lookout):
        lookout.began_ns += int(f.begins_s * 1e9)
        f.play(world)
        yield request.param, lookout


@pytest.mark.parametrize("played", FAULTS, indirect=True)
def test_is_named_within_seconds_and_clears_when_it_is_undone(played, reproduced):
    what, lookout = played
    code, f = FAULTS[what]
    world = lookout.world
    reproduced(lookout.named(code, f.lease), what)
    found = lookout.first[code].diagnosis
    assert found.evidence or row_of(code).startswith("F")
    assert found.certain or " or " in found.sentence or "not observed" in found.sentence
    if found.severity is Severity.ERROR:
        assert lookout.transfers()[0] in (code, CAUSED_BY.get(code))

    # Undone: what hangs is ended by its client, the faults are gone, time passes.
    lookout.often = False
    world.broken.close()
    world.fabric.fault = lambda *_: None
    world.fabric.held = lambda *_: False
    world.fabric.land()
    for engine in world.engines.values():
        for request_id in list(engine.scheduler.requests):
            engine.abort(request_id)
    for _ in range(5):
        world.pass_time(20.0, turns=2)
    assert lookout.transfers() == []


HEALTHY = [
    name
    for name, s in SCENARIOS.items()
    if {seen.outcome for seen in s.seen} <= {"delivered", "nothing to receive", "aborted"}
    and name != "the state of a write cannot be had"
]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_is_left_alone(name, tmp_path):
    s = SCENARIOS[name]
    with watched(tmp_path, s.p, s.d, s.mode, beside=s.beside) as (world, lookout):
        lookout.often = False
        s.play(world)
        for seconds in (1.0, 2.0, 4.0, 8.0, 16.0):
            world.pass_time(seconds, turns=2)
        assert lookout.errors == []


def test_concurrent_dispatch_whose_heartbeats_never_match_is_left_alone(tmp_path):
    """Every heartbeat names the router's id, which P ignores; as long as D is in time that means nothing."""
    with watched(tmp_path, d=FULL) as (world, lookout):
        crowded(world, "D")
        world.prefill(P1, 100)
        world.decode(D1, 100, of=P1, remote_request_id=GUESSED)
        for _ in range(4):
            world.pass_time(5.0)
        world.engines["D"].abort("neighbour")
        world.settle()
        assert world.engines["D"].finished[D1] == "length"
        assert lookout.errors == []
