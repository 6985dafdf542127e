"""``"agent": "auto"`` in real engine cores: one agent for both, beside them, and spans of what they did."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pushscope.lab.ports import free_ports
from pushscope.telemetry.presence import Note, present_agent

from ..otlp_sink import OtlpSink
from .pair import Pair, make_pair

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def sink() -> Iterator[OtlpSink]:
    with OtlpSink() as sink:
        yield sink


@pytest.fixture(scope="module")
def pair(tmp_path_factory, sink) -> Iterator[Pair]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PUSHSCOPE_AGENT", "auto")
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.grpc_endpoint)
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        pair = make_pair(tmp_path_factory.mktemp("pair") / "rings", free_ports(2))
    yield pair
    note = present_agent(pair.folder)
    if note is not None and note.pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(note.pid, signal.SIGTERM)


def agent_of(folder: Path, timeout_s: float = 60.0) -> Note:
    deadline = time.monotonic() + timeout_s
    while not ((note := present_agent(folder)) and note.pid):
        assert time.monotonic() < deadline, (folder / "agent.log").read_text()
        time.sleep(0.1)
    return note


def test_engines_start_one_agent_between_them(pair):
    note = agent_of(pair.folder)
    assert note.pid != os.getpid()
    said = (pair.folder / "agent.log").read_text()
    assert said.count("answering at") == 1


def test_what_they_do_is_exported(pair, sink):
    agent_of(pair.folder)
    assert pair.transfer(300) == pair.reference(300)
    spans = sink.wait_for(
        lambda spans: {"kv_transfer receive", "kv_transfer send"} <= {s.name for s in spans}, 60
    )
    assert len({span.trace_id for span in spans}) == 1, "both sides, one trace"
    by_engine = {span.resource["service.instance.id"]: span.resource["service.name"] for span in spans}
    assert by_engine == {"engine-P": "vllm-prefill", "engine-D": "vllm-decode"}
