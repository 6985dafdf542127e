"""Several ranks on real engines: the same tokens, and every rank's part in a transfer."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pushscope.lab.deployment import Deployment
from pushscope.lab.launch import Zygote
from pushscope.lab.load import ServerTarget, run_load
from pushscope.lab.model import make_model
from pushscope.lab.spec import EngineSpec, prefill_decode
from pushscope.telemetry import events as ev
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.source import RingsSource
from pushscope.telemetry.transfer import Outcome, Stage
from pushscope.telemetry.watch import Watcher

from .test_push import PLAN, assert_counts_agree, base, deployed, direct, pushscope, run, settled

pytestmark = [pytest.mark.engines, pytest.mark.timeout(180)]

LAYOUTS = [(2, 1), (1, 2), (2, 2)]


@pytest.fixture(scope="module")
def model_of_four_heads(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("lab") / "model"
    make_model(directory, layers=4, heads=8, kv_heads=4)
    return directory


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda pair: f"TP{pair[0]}-TP{pair[1]}")
def layout(
    request, model_of_four_heads: Path, zygote: Zygote, tmp_path_factory
) -> Iterator[tuple[int, int, Deployment, Path]]:
    p_tp, d_tp = request.param
    folder = tmp_path_factory.mktemp("ranks")
    specs = [
        EngineSpec("P1", "prefill", tensor_parallel_size=p_tp),
        EngineSpec("D1", "decode", tensor_parallel_size=d_tp),
        EngineSpec("A", None),
    ]
    with deployed(specs, model_of_four_heads, zygote, folder) as deployment:
        yield p_tp, d_tp, deployment, folder / "rings"


@pytest.mark.parametrize("order", ["both", "p-first", "d-first"])
def test_tokens_and_every_ranks_part(layout, order):
    p_tp, d_tp, deployment, rings = layout
    plan = replace(PLAN, num_requests=3, seed=10 * p_tp + d_tp + len(order))
    results = run(direct(deployment, order), plan)
    alone = run(ServerTarget(deployment.specs["A"].url), plan)
    assert [r.token_ids for r in results] == [r.token_ids for r in alone]
    transfers = {t.base_id: t for t in settled(rings)[0]}
    p_ranks, d_ranks = {(0, r) for r in range(p_tp)}, {(0, r) for r in range(d_tp)}
    writes = {((0, r % p_tp), (0, r % d_tp)) for r in range(max(p_tp, d_tp))}
    for result in results:
        t = transfers[base(result)]
        assert t.outcome is Outcome.DELIVERED
        assert (t.ranks_done, t.ranks) == (len(writes), len(writes))
        stages = Counter(s.stage for s in t.stages)
        assert stages[Stage.RENDEZVOUS] == stages[Stage.HANDOFF] == p_tp
        assert stages[Stage.REGISTRATION] == d_tp
        for stage in (Stage.DESCRIPTORS, Stage.SUBMIT, Stage.WIRE, Stage.NOTIFICATION):
            assert {(s.rank, s.peer_rank) for s in t.stages if s.stage is stage} == writes
        assert {s.rank for s in t.stages if s.stage is Stage.RENDEZVOUS} == p_ranks
        assert {s.peer_rank for s in t.stages if s.stage is Stage.REGISTRATION} == d_ranks
        assert all(s.end_ns is not None for s in t.stages)
        # One pair of ranks; a write that was over when `transfer()` returned leaves nothing of the wire.
        assert len({(s.rank, s.peer_rank) for s in t.path if s.stage in (Stage.SUBMIT, Stage.WIRE)}) == 1


def test_counts_agree_with_vllms_own_over_all_ranks(layout):
    p_tp, d_tp, deployment, rings = layout
    run(direct(deployment, "both"), replace(PLAN, seed=90 * p_tp + d_tp))
    assert_counts_agree(deployment.specs["P1"].url, rings)


def test_surplus_registrations_are_known_as_that_and_not_held_open(layout):
    """Every D rank registers with the P rank that serves it; the first that arrives lets P write to all."""
    p_tp, d_tp, _, rings = layout
    with closing(RingsSource(rings)) as source:
        drained = [
            event
            for _, payload in source.poll().events
            if isinstance(event := ev.decode(payload), ev.RegistrationDrained)
        ]
    assert any(event.surplus for event in drained) == (d_tp > p_tp)


def snapshot_when(rings: Path, wanted: Callable[[Snapshot], bool], *, seconds: float = 30.0) -> Snapshot:
    """The first snapshot that is as ``wanted``."""
    end = time.monotonic() + seconds
    with closing(RingsSource(rings)) as source:
        watcher = Watcher(source)
        while time.monotonic() < end:
            watcher.poll()
            if wanted(snapshot := watcher.snapshot()):
                return snapshot
            time.sleep(0.01)
    raise TimeoutError(f"not as wanted within {seconds} s: {snapshot}")


@pytest.mark.parametrize(
    ("side", "kv_role"), [("P", "kv_producer"), pytest.param("D", "kv_consumer", marks=pytest.mark.slow)]
)
def test_kill_9_of_one_rank_is_seen_as_that_rank(model_of_four_heads, zygote, tmp_path, side, kv_role):
    """vLLM ends the other rank in order, and its engine core in some way; what is still there is shown as there."""
    rings, name = tmp_path / "rings", f"{side}1"
    specs = [
        replace(
            spec, tensor_parallel_size=2 if spec.name == name else 1, extra_config={"kv_lease_duration": 4}
        )
        for spec in prefill_decode()
    ]
    with deployed(specs, model_of_four_heads, zygote, tmp_path) as pair:
        plan = replace(PLAN, num_requests=200, concurrency=6, prompt_tokens=1500, timeout_s=20, seed=1)
        load = threading.Thread(target=lambda: asyncio.run(run_load(plan, direct(pair, "both"))))
        load.start()
        snapshot_when(
            rings, lambda s: s.totals.outcomes.get("delivered", 0) > 3 and bool(s.waiting or s.in_flight)
        )
        with closing(RingsSource(rings)) as source:
            origins = [state.origin for state in source.poll().rings]
        (killed,) = [o for o in origins if (o.kv_role, o.connector_role, o.tp_rank) == (kv_role, "worker", 1)]
        os.kill(killed.pid, signal.SIGKILL)
        first = snapshot_when(rings, lambda s: bool(s.engines) and not all(e.alive for e in s.engines))
        later = snapshot_when(rings, lambda s: bool({"lost", "failed"} & s.totals.outcomes.keys()))
        top = pushscope("top", "--once", rings=rings).stdout
        pair.stop()
        load.join()
    (engine,) = [e for e in first.engines if not e.alive]
    assert engine.name == name
    gone = {p.name: p.shut_down for p in engine.gone}
    assert gone.pop("worker 1") is False
    assert gone.get("worker 0", True), "ended by vLLM for it, and said so"
    (notice,) = [n for n in first.notices if n.startswith(f"{name} has")]
    assert f"worker 1 (pid {killed.pid})" in notice
    assert "worker 0" not in notice
    errors = [t.error for t in later.recent if t.outcome in (Outcome.LOST, Outcome.FAILED)]
    # Where P is there to see it, a write to a D that is gone fails.
    assert all(e.startswith(f"{side} is gone") or (side == "D" and "REMOTE_DISCONNECT" in e) for e in errors)
    assert f"worker 1 (pid {killed.pid})" in top
    assert "GONE" in top
