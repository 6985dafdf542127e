"""Two agents on two ring folders: what P's and D's engines did, each from one; joined by ``--peer``."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.rings import ring_folder
from bench.writer import SimulatedPair

from ..otlp_sink import OtlpSink
from .agent_process import AgentProcess


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
