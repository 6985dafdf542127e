"""Pull mode on real engines: the same tokens, and D's reads seen whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pushscope.lab.deployment import Deployment
from pushscope.lab.launch import Zygote
from pushscope.lab.load import ServerTarget
from pushscope.lab.spec import EngineSpec, prefill_decode
from pushscope.telemetry.transfer import PULL_STAGES, Outcome, Stage

from .test_push import CHUNKED, LENGTHS, PLAN, assert_counts_agree, base, deployed, direct, run, settled

pytestmark = pytest.mark.engines


@pytest.fixture(scope="module", params=["NixlPullConnector", "NixlConnector"])
def pull(request, model: Path, zygote: Zygote, tmp_path_factory) -> Iterator[tuple[Deployment, Path]]:
    """An instrumented pulling pair, a router, and A, which computes everything itself."""
    folder = tmp_path_factory.mktemp("pull")
    specs = [*prefill_decode(args=CHUNKED, kv_connector=request.param), EngineSpec("A", None, args=CHUNKED)]
    with deployed(specs, model, zygote, folder, router=True) as deployment:
        yield deployment, folder / "rings"


@pytest.mark.parametrize("num_tokens", LENGTHS)
def test_tokens_are_those_of_one_engine(pull, num_tokens):
    deployment, _ = pull
    plan = replace(PLAN, num_requests=3, prompt_tokens=num_tokens, output_tokens=16, seed=num_tokens)
    ours = run(direct(deployment, "p-first"), plan)
    alone = run(ServerTarget(deployment.specs["A"].url), plan)
    assert [r.token_ids for r in ours] == [r.token_ids for r in alone]


def test_every_transfer_is_seen_whole(pull):
    deployment, rings = pull
    results = run(direct(deployment, "p-first"), replace(PLAN, seed=50))
    transfers = {t.base_id: t for t in settled(rings)[0]}
    for result in results:
        t = transfers[base(result)]
        assert (t.mode, t.outcome, t.tentative) == ("pull", Outcome.DELIVERED, False)
        assert {s.stage for s in t.stages} - {Stage.HANDSHAKE} == set(PULL_STAGES) - {Stage.HANDSHAKE}
        assert all(s.end_ns is not None and s.end_ns >= s.start_ns for s in t.stages)
        assert (t.ranks_done, t.ranks) == (1, 1)
        assert t.exposed_ns is not None
        assert result.ttft_s is not None
        assert sum(s.seconds or 0 for s in t.path) <= t.exposed_ns / 1e9 < result.ttft_s


def test_through_the_router(pull):
    deployment, rings = pull
    results = run(ServerTarget(deployment.router_url), replace(PLAN, seed=60))
    transfers = {t.base_id: t for t in settled(rings)[0]}
    assert all(transfers[base(r)].outcome is Outcome.DELIVERED for r in results)


def test_a_prefix_hit_at_d_reads_only_the_rest(pull):
    deployment, rings = pull
    plan = replace(PLAN, num_requests=1, concurrency=1, prompt_tokens=320, seed=70)
    once, again = run(direct(deployment, "p-first"), plan) + run(direct(deployment, "p-first"), plan)
    transfers = {t.base_id: t for t in settled(rings)[0]}
    whole, rest = transfers[base(once)], transfers[base(again)]
    assert (whole.num_blocks, rest.num_blocks) == (10, 1)
    assert (rest.num_bytes or 0) * 10 == whole.num_bytes
    assert rest.outcome is Outcome.DELIVERED
    assert once.token_ids == again.token_ids


def test_counts_agree_with_vllms_own_to_the_unit(pull):
    """In pull mode it is D that transfers."""
    deployment, rings = pull
    run(direct(deployment, "p-first"), replace(PLAN, seed=80))
    assert_counts_agree(deployment.specs["D1"].url, rings)
