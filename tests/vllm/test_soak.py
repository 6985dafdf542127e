"""Real engines under load, watched without a break: nothing of severity error is said of them.

A small part; `make soak` does it with thousands of transfers, and in more layouts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from soak.real import Layout, soaked

from pushscope.lab.deployment import Deployment
from pushscope.lab.launch import Zygote
from pushscope.lab.spec import prefill_decode

from .test_push import deployed

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def engines(model: Path, zygote: Zygote, tmp_path_factory) -> Iterator[tuple[Deployment, Path]]:
    folder = tmp_path_factory.mktemp("soak")
    specs = prefill_decode(1, 2)
    with deployed(specs, model, zygote, folder) as deployment:
        yield deployment, folder / "rings"


@pytest.mark.parametrize("order", ["both", "p-first"])
def test_no_alarm_under_load(order, engines):
    deployment, rings = engines
    part = asyncio.run(
        soaked(Layout("a few", 1.0, order=order), 80, deployment, rings, lambda _done, _errors: None)
    )
    assert part.errors == ()
    assert part.events_lost == 0
    assert part.transfers >= 80
    assert part.outcomes["delivered"] >= 70
