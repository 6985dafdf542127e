"""Two agents on two ring folders: what P's and D's engines did, each from one; joined by ``--peer``."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.rings import ORIGINS, ring_folder
from bench.writer import SimulatedPair

from ..otlp_sink import OtlpSink
from .agent_process import AgentProcess, samples, total


@pytest.fixture
def folders():
    with ring_folder() as p, ring_folder() as d:
        yield p, d


def apart(pair: SimulatedPair, p: Path, d: Path) -> None:
    """Move D's rings to a folder of their own."""
    for ring in pair.paths("kv_consumer"):
        ring.rename(d / ring.name)


@pytest.mark.parametrize("joined", [True, False])
def test_what_spans_both_sides_comes_from_ds_agent_if_it_has_ps_as_its_peer(folders, tmp_path, joined):
    p, d = folders
    started: list[AgentProcess] = []
    try:
        with OtlpSink() as of_p, OtlpSink() as of_d, SimulatedPair(p, 10) as pair:
            apart(pair, p, d)
            started.append(AgentProcess(p, tmp_path / "p.log", endpoint=of_p.grpc_endpoint).ready())
            peer = ("--peer", started[0].note()["url"]) if joined else ()
            started.append(AgentProcess(d, tmp_path / "d.log", *peer, endpoint=of_d.grpc_endpoint).ready())
            if joined:
                of_d.wait_for(lambda spans: any(s.name == "kv_transfer wire" for s in spans), 60)
            of_p.wait_for(50, 90)  # one-sided ones are waited for: a lease, and some seconds
            of_d.wait_for(50, 90)
            names_of_p = {span.name for span in of_p.spans}
            names_of_d = {span.name for span in of_d.spans}
            traces = [{span.trace_id for span in sink.spans} for sink in (of_p, of_d)]
            pages = [agent.page() for agent in started]
            assert {span.resource["service.name"] for span in of_p.spans} == {"vllm-prefill"}
            assert {span.resource["service.name"] for span in of_d.spans} == {"vllm-decode"}
    finally:
        for each in started:
            each.process.kill()
            each.process.wait()
    assert traces[0] & traces[1], "two agents that never talk agree on the trace"
    assert "kv_transfer receive" not in names_of_p
    assert "kv_transfer send" not in names_of_d
    assert ("kv_transfer flight" in names_of_d) is joined
    assert "kv_transfer flight" not in names_of_p
    assert_metrics_are_told_once(*pages, joined=joined)


def assert_metrics_are_told_once(of_p: str, of_d: str, *, joined: bool) -> None:
    """Each agent tells of its own engine; what needs both sides D's alone, and only if it knows P's."""
    for page, engine in ((of_p, "kv_producer"), (of_d, "kv_consumer")):
        (engine_id,) = {o.engine_id for o in ORIGINS if o.kv_role == engine}
        assert {s.labels["engine"] for s in samples(page) if "engine" in s.labels} == {engine_id}
        role = "P" if engine == "kv_producer" else "D"
        assert total(page, "kv_transfer_transfers_total", role=role, outcome="delivered") > 0
    assert total(of_p, "kv_transfer_exposed_seconds_count") == 0
    assert total(of_p, "kv_transfer_nixl_bytes_count") > total(of_d, "kv_transfer_nixl_bytes_count") == 0
    of_both = ("kv_transfer_exposed_seconds", "kv_transfer_hidden_seconds")
    for name in of_both:
        assert (f"{name}_count{{" in of_d) is joined
        assert f"{name}_count{{" not in of_p
    stages = {s.labels["stage"] for s in samples(of_d) if s.name == "kv_transfer_stage_seconds_count"}
    assert ({"flight", "wire"} <= stages) is joined
