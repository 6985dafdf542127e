"""Several P and several D behind the router: every transfer belongs to the engines that really did it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pushscope.lab.deployment import Deployment
from pushscope.lab.launch import Zygote
from pushscope.lab.load import ServerTarget
from pushscope.lab.spec import prefill_decode
from pushscope.telemetry.transfer import Outcome

from .test_push import PLAN, base, deployed, direct, run, settled

pytestmark = [pytest.mark.engines, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def four(model: Path, zygote: Zygote, tmp_path_factory) -> Iterator[tuple[Deployment, Path]]:
    folder = tmp_path_factory.mktemp("many")
    specs = prefill_decode(2, 2, args=("--enable-log-requests",), env={"VLLM_LOGGING_LEVEL": "INFO"})
    with deployed(specs, model, zygote, folder, router=True) as deployment:
        yield deployment, folder / "rings"


def test_each_transfer_has_its_pair_of_engines(four):
    """Through the router, by what each engine's own log says that it received; and direct, by whom we sent it to."""
    deployment, rings = four
    plan = replace(PLAN, num_requests=16, concurrency=4)
    routed = run(ServerTarget(deployment.router_url), replace(plan, seed=1))
    sent = run(direct(deployment, "both"), replace(plan, seed=2))
    transfers, snapshot = settled(rings)
    by_base = {t.base_id: t for t in transfers}
    by_port = {str(s.side_channel_port): name for name, s in deployment.specs.items()}
    names = {e.engine_id: by_port[e.side_channel.rpartition(":")[2]] for e in snapshot.engines}
    assert sorted(names.values()) == ["D1", "D2", "P1", "P2"]
    logs = {name: deployment.log(name).read_text() for name in deployment.specs}

    def logged(request_id: str, side: str) -> str:
        (name,) = [
            n
            for n, log in logs.items()
            if n[0] == side and re.search(rf"Received request \S*{request_id}", log)
        ]
        return name

    by_url = {s.url: name for name, s in deployment.specs.items()}
    truth = {base(r): (logged(r.request_id, "P"), logged(r.request_id, "D")) for r in routed}
    truth |= {base(r): (by_url[r.prefill], by_url[r.decode]) for r in sent}
    seen = {b: (names[by_base[b].p_engine], names[by_base[b].d_engine]) for b in truth}
    assert seen == truth
    assert {by_base[b].outcome for b in truth} == {Outcome.DELIVERED}
    assert Counter(truth[base(r)] for r in sent) == {(p, d): 4 for p in ("P1", "P2") for d in ("D1", "D2")}
    assert {truth[base(r)][0] for r in routed} == {"P1", "P2"}, "the router uses both"
    assert {truth[base(r)][1] for r in routed} == {"D1", "D2"}
    assert snapshot.totals.events_lost == 0
