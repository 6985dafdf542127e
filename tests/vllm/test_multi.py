"""pushscope's connector as a child of vLLM's MultiConnector."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pushscope.lab.deployment import Deployment
from pushscope.lab.launch import Zygote
from pushscope.lab.load import ServerTarget
from pushscope.lab.spec import EngineSpec, prefill_decode
from pushscope.telemetry import events as ev
from pushscope.telemetry.source import RingsSource
from pushscope.telemetry.transfer import Outcome

from .test_push import PLAN, base, deployed, direct, run, settled

pytestmark = [pytest.mark.engines, pytest.mark.timeout(180)]


def child(role: str) -> dict[str, str]:
    return {
        "kv_connector": "NixlPushConnector",
        "kv_connector_module_path": "pushscope.connector",
        "kv_role": role,
    }


@pytest.fixture(scope="module")
def multi(model: Path, zygote: Zygote, tmp_path_factory) -> Iterator[tuple[Deployment, Path]]:
    folder = tmp_path_factory.mktemp("multi")
    p, d = prefill_decode(kv_connector="MultiConnector", instrumented=False)
    specs = [
        replace(p, extra_config={"connectors": [child("kv_producer")]}),
        replace(d, extra_config={"connectors": [child("kv_consumer")]}),
        EngineSpec("A", None),
    ]
    with deployed(specs, model, zygote, folder) as deployment:
        yield deployment, folder / "rings"


def test_as_a_child_it_serves_and_sees(multi):
    deployment, rings = multi
    results = run(direct(deployment, "both"), PLAN)
    alone = run(ServerTarget(deployment.specs["A"].url), PLAN)
    assert [r.token_ids for r in results] == [r.token_ids for r in alone]
    transfers = {t.base_id: t for t in settled(rings)[0]}
    assert {transfers[base(r)].outcome for r in results} == {Outcome.DELIVERED}


def test_nothing_is_recorded_twice(multi):
    _, rings = multi
    _, snapshot = settled(rings)
    assert sorted((e.side, len(e.processes)) for e in snapshot.engines) == [("D", 2), ("P", 2)]


@pytest.fixture
def beside_another(model: Path, zygote: Zygote, tmp_path: Path) -> Iterator[tuple[Deployment, Path]]:
    """D's first child keeps prompts on disk: one that it knows, it takes."""
    p, d = prefill_decode(
        args=("--no-enable-prefix-caching", "--disable-hybrid-kv-cache-manager"),
        env={"VLLM_LOGGING_LEVEL": "INFO"},
    )
    disk = {
        "kv_connector": "ExampleConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shared_storage_path": str(tmp_path / "disk")},
    }
    specs = [
        replace(p, extra_config={"kv_lease_duration": 3}),
        replace(
            d,
            kv_connector="MultiConnector",
            instrumented=False,
            extra_config={"connectors": [disk, child("kv_consumer")]},
        ),
    ]
    with deployed(specs, model, zygote, tmp_path) as deployment:
        yield deployment, tmp_path / "rings"


def test_a_child_that_was_not_chosen_has_nothing_to_receive(beside_another):
    """vLLM tells it ``update_state_after_alloc(..., 0)``. P is not told at all, and keeps its blocks for the lease."""
    deployment, rings = beside_another
    known = replace(PLAN, num_requests=3, concurrency=1, prompt_tokens=100, seed=1)
    alone = run(
        ServerTarget(deployment.specs["D1"].url), known
    )  # without transfer: D puts the prompts on disk
    not_chosen = run(direct(deployment, "p-first"), known)
    chosen = run(direct(deployment, "p-first"), replace(known, seed=2))
    assert [r.token_ids for r in not_chosen] == [r.token_ids for r in alone]
    assert deployment.log("D1").read_text().count("External Cache Hit!") >= len(not_chosen)
    transfers = {t.base_id: t for t in settled(rings)[0]}
    for result in not_chosen:
        t = transfers[base(result)]
        assert t.outcome is Outcome.NOTHING_TO_RECEIVE
        assert (t.waits, t.error, t.num_bytes) == ("", "", 0)
    assert {transfers[base(r)].outcome for r in chosen} == {Outcome.DELIVERED}
    snapshot = settled(rings)[1]
    assert snapshot.waiting == snapshot.in_flight == ()
    with closing(RingsSource(rings)) as source:
        said = [ev.decode(payload) for _, payload in source.poll().events]
    reasons = [e.reason for e in said if isinstance(e, ev.NothingToReceive)]
    assert reasons == ["no_external_tokens"] * len(not_chosen)
