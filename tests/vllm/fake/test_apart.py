"""The same proof with P and D in two processes and real NIXL between them: what was done and said, in order."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pushscope.telemetry import events as ev
from pushscope.telemetry.source import RingsSource
from tests.vllm.fake.apart import Apart
from tests.vllm.fake.layout import Layout
from tests.vllm.fake.scenarios import SCENARIOS

pytestmark = [pytest.mark.engines, pytest.mark.timeout(400)]

PUSH = (
    "registration first",
    "blocks first",
    "chunked prefill",
    "D aborts while it waits",
    "P aborts amid the prefill",
    "D aborts before it is scheduled",
    "the decode leg never comes",
    "the prefill is retried while D waits",
    "D knocks at the wrong engine",
    "D comes when the lease is over",
)
PULL = ("pull, TP 1 to 1", "pull, nobody reads")
LAYOUTS = {
    "push, TP 2 to 1": ("Push", Layout(tp=2), Layout(), PUSH),
    "push, TP 1 to 2": ("Push", Layout(), Layout(tp=2), PUSH),
    "push, PP 2 to 1": ("Push", Layout(pp=2), Layout(), PUSH),
    "push, two cache groups": ("Push", Layout(window=32), Layout(window=32), PUSH[:4]),
    "pull, TP 2 to 1": ("Pull", Layout(tp=2), Layout(), PULL),
}


@pytest.fixture(scope="module", params=[
    pytest.param(name, marks=[] if name in ("push, TP 2 to 1",) else [pytest.mark.slow]) for name in LAYOUTS
])  # fmt: skip
def runs(request, tmp_path_factory) -> tuple[dict[str, Any], dict[str, Any], list[ev.Event]]:
    mode, p, d, names = LAYOUTS[request.param]

    def run(kind: str, where: Path) -> tuple[dict[str, Any], list[ev.Event]]:
        folder = where / "rings"
        with Apart(kind, folder, mode, p, d) as apart:
            for number, name in enumerate(names):
                apart.play(number, SCENARIOS[name])
            events = []
            if folder.exists():
                with closing(RingsSource(folder)) as source:
                    events = [ev.decode(payload) for _, payload in source.poll().events]
            return apart.written(), events

    folders = [tmp_path_factory.mktemp("apart") for _ in range(2)]  # not thread-safe
    with ThreadPoolExecutor(2) as both:
        plain, ours = both.map(run, ("plain", "pushscope"), folders)
    assert not plain[1]
    return plain[0], ours[0], ours[1]


@pytest.mark.parametrize("engine", ["P", "D"])
def test_vllm_does_the_same(runs, engine):
    plain, ours, _ = runs
    for what in plain[engine]:
        assert json.dumps(ours[engine][what], indent=1) == json.dumps(plain[engine][what], indent=1), what
    assert plain["D"]["tokens"]["D"]


def test_it_was_recorded(runs):
    _, _, events = runs
    assert sum(isinstance(e, ev.TransferDone) for e in events) >= 2
    assert not [e for e in events if isinstance(e, ev.EventsDropped)]
