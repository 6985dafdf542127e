"""Block sizes that differ, in push mode: vLLM fails at one side or the other; it is seen as what it is."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pushscope.lab.deployment import Deployment
from pushscope.lab.launch import Zygote
from pushscope.lab.load import LoadPlan, run_load
from pushscope.lab.results import RequestResult
from pushscope.lab.spec import prefill_decode
from pushscope.telemetry.transfer import Outcome

from .test_push import PLAN, base, deployed, direct, pushscope, settled
from .test_ranks import snapshot_when

pytestmark = [pytest.mark.engines, pytest.mark.timeout(180)]

SMALL, LARGE = 32, 128
REFUSED = f"Local block size {SMALL} is not divisible by remote block size {LARGE}"
ONE = replace(PLAN, num_requests=1, concurrency=1, prompt_tokens=300)


@contextmanager
def unequal(p_blocks: int, d_blocks: int, model: Path, zygote: Zygote, folder: Path) -> Iterator[Deployment]:
    p, d = prefill_decode()
    specs = [replace(p, block_size=p_blocks), replace(d, block_size=d_blocks)]
    with deployed(specs, model, zygote, folder) as pair:
        yield pair


def sent(pair: Deployment, plan: LoadPlan) -> list[RequestResult]:
    """Results of requests that are not meant to go well."""
    return asyncio.run(run_load(plan, direct(pair, "p-first")))


def only(rings: Path, kv_role: str, folder: Path) -> Path:
    """A folder with the rings of one side, as if the other were not observed."""
    folder.mkdir(mode=0o700)
    for ring in rings.glob("*.ring"):
        if kv_role.encode() in ring.read_bytes()[:4096]:
            os.link(ring, folder / ring.name)  # no copy: that would be held by nobody
    return folder


def test_small_blocks_at_p_p_cannot_shake_hands_and_d_is_not_told(model, zygote, tmp_path):
    rings = tmp_path / "rings"
    with unequal(SMALL, LARGE, model, zygote, tmp_path) as pair:
        waiting = threading.Thread(target=lambda: results.extend(sent(pair, replace(ONE, timeout_s=30))))
        results: list[RequestResult] = []
        waiting.start()
        snapshot = snapshot_when(rings, lambda s: bool(s.recent))
        assert waiting.is_alive(), "D's client hangs"
        top = pushscope("top", "--once", rings=rings).stdout
        doctor = pushscope("doctor", "--quick", "--json", rings=rings)
        seen = {
            side: settled(only(rings, kv_role, tmp_path / side), seconds=0)[0]
            for side, kv_role in (("P", "kv_producer"), ("D", "kv_consumer"))
        }
        assert "handshake_setup_failed" in pair.log("P1").read_text()
        assert "failure_type" not in pair.log("D1").read_text()
        pair.stop()
        waiting.join()
    (t,) = snapshot.recent
    assert t.outcome is Outcome.FAILED
    assert t.error.startswith("push_handshake_failed: ")
    assert REFUSED in t.error
    assert (t.ranks_done, t.ranks, t.num_bytes) == (0, 1, None)
    assert "failed: push_hands" in top, "as far as 80 columns go"
    assert REFUSED in seen["P"][0].error, "P alone is enough to know"
    assert [x.waits for x in seen["D"]] == ["D waits for P's prefill"], "D alone cannot know more"
    cause = [c for c in json.loads(doctor.stdout)["checks"] if c["level"] == "failure"]
    assert [c["subject"] for c in cause] == ["P1 and D1"]
    assert f"{SMALL} and {LARGE} tokens" in cause[0]["finding"]
    assert doctor.returncode == 2


def test_large_blocks_at_p_d_refuses_and_the_next_request_ends_its_engine(model, zygote, tmp_path):
    """The failed handshake leaves P half known at D: the next request is written, and D's core dies of it."""
    rings = tmp_path / "rings"
    with unequal(LARGE, SMALL, model, zygote, tmp_path) as pair:
        (refused,) = sent(pair, ONE)
        (fatal,) = sent(pair, replace(ONE, seed=2))
        assert refused.error
        assert fatal.error
        snapshot = snapshot_when(rings, lambda s: any(n.startswith("D1 has gone") for n in s.notices))
        assert "push_reg_handshake_failed" in pair.log("D1").read_text()
        assert "EngineCore encountered a fatal error" in pair.log("D1").read_text()
    by_base = {t.base_id: t for t in snapshot.recent}
    failed, lost = by_base[base(refused)], by_base[base(fatal)]
    assert failed.outcome is Outcome.FAILED
    assert failed.error.startswith("push_reg_handshake_failed: ")
    assert REFUSED in failed.error
    assert lost.outcome is Outcome.LOST
    assert lost.error.startswith("D is gone: D's get_transfer_results raised ")
    assert REFUSED in lost.error
    (notice,) = [n for n in snapshot.notices if n.startswith("D1 has gone")]
    assert REFUSED in notice
