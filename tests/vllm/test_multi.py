"""pushscope's connector as a child of vLLM's MultiConnector."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pushscope.lab.deployment import Deployment
from pushscope.lab.launch import Zygote
from pushscope.lab.load import ServerTarget
from pushscope.lab.spec import EngineSpec, prefill_decode
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
