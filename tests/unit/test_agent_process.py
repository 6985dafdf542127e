"""The agent as a process: one for a folder, ends when told or with its engines, counts nothing twice after kill -9."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import urllib.request
from collections import Counter

import grpc
import pytest
from bench.writer import SimulatedPair

from pushscope.telemetry.agent.access import is_loopback
from pushscope.telemetry.agent.server import AddressError, parse_address
from pushscope.telemetry.presence import Note, Occupied, Presence, present_agent

from ..otlp_sink import OtlpSink
from .agent_process import AgentProcess


def delivered(agent: AgentProcess) -> int:
    return agent.health()["counts"].get("transfers.D.delivered", 0)


def test_it_reads_exports_answers_and_flushes_at_the_end(agent, folder):
    with OtlpSink() as sink, SimulatedPair(folder, 20) as pair:
        it = agent(endpoint=sink.grpc_endpoint, OTEL_BSP_SCHEDULE_DELAY="60000").ready()
        time.sleep(1.0)
        pair.stop()
        it.wait_until(lambda: it.health()["counts"].get("transfers.D.delivered") == pair.num_begun)
        before_the_end = len(sink.spans)
        assert it.end() == 0
        assert len(sink.spans) > before_the_end, "what waited was sent as it ended"
        assert len({s.trace_id for s in sink.spans}) == pair.num_begun
        assert len({s.span_id for s in sink.spans}) == len(sink.spans)
    assert f"ended: {len(sink.spans)} spans exported, 0 dropped" in it.said
    assert not (folder / "agent.json").exists()
    assert "Traceback" not in it.said


def test_kill_9_and_start_again_counts_and_exports_nothing_twice(agent, folder):
    with OtlpSink() as sink, SimulatedPair(folder, 20) as pair:
        environ = {"endpoint": sink.grpc_endpoint, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "64"}
        for _ in range(3):
            it = agent(**environ).ready()
            already = len(sink.spans)
            sink.wait_for(already + 150)
            it.end(signal.SIGKILL)
        it = agent(**environ).ready()
        pair.stop()
        it.wait_until(lambda: delivered(it) >= pair.num_begun, 120)
        it.wait_until(lambda: it.health()["exports"][0]["queued"] == 0)
        counts = it.health()["counts"]
        assert it.end() == 0
        assert counts["transfers.D.delivered"] == pair.num_begun
    traces: dict[str, list[str]] = {}
    for span in sink.spans:
        traces.setdefault(span.trace_id, []).append(span.span_id)
    assert len(traces) == pair.num_begun, "none is missing"
    per_transfer = min(map(len, traces.values()))
    repeated = {trace: Counter(ids) for trace, ids in traces.items() if len(ids) != per_transfer}
    num_repeated = sum(sum(ids.values()) - len(ids) for ids in repeated.values())
    assert all(len(ids) == per_transfer for ids in repeated.values()), "what came again had the same ids"
    assert num_repeated <= 3 * (64 + per_transfer), "at most one batch for each time that it was killed"


def test_a_restart_in_order_sends_nothing_again(agent, folder):
    with OtlpSink() as sink, SimulatedPair(folder, 50) as pair:
        it = agent(endpoint=sink.grpc_endpoint).ready()
        sink.wait_for(100)
        pair.stop()
        it.wait_until(lambda: it.health()["counts"].get("transfers.D.delivered") == pair.num_begun)
        it.wait_until(lambda: it.health()["exports"][0]["queued"] == 0)
        it.end()
        arrived = len(sink.spans)
        it = agent(endpoint=sink.grpc_endpoint).ready()
        time.sleep(1.0)
        health = it.health()
        it.end()
        assert len(sink.spans) == arrived
        assert health["counts"]["transfers.D.delivered"] == pair.num_begun
        assert health["counts"]["spans.exported"] == arrived


def test_an_endpoint_that_is_down_costs_nothing_but_what_does_not_fit(agent, folder):
    """A short form of the benchmark ``python -m bench outage``."""
    with OtlpSink() as gone:
        port = int(gone.grpc_endpoint.rsplit(":", 1)[1])
    with SimulatedPair(folder, 40) as pair:
        it = agent(
            endpoint=f"http://127.0.0.1:{port}",
            OTEL_BSP_MAX_QUEUE_SIZE="300",
            OTEL_EXPORTER_OTLP_TIMEOUT="2",
        ).ready()
        it.wait_until(lambda: it.health()["counts"].get("spans.dropped.failed", 0) > 0)
        it.wait_until(lambda: it.health()["counts"].get("spans.dropped.queue_full", 0) > 300)
        health = it.health()
        (export,) = health["exports"]
        assert export["queued"] <= 300
        it.wait_until(lambda: delivered(it) > 0)
        read = delivered(it)
        it.wait_until(lambda: delivered(it) > read + 40)  # it goes on reading
        assert export["trouble"]
        assert any("can't be exported" in trouble for trouble in health["troubles"])
        with OtlpSink(grpc_port=port) as sink:
            sink.wait_for(200)
            pair.stop()
            it.wait_until(lambda: "exported to" in it.said.splitlines()[-1] and "again" in it.said)
            it.wait_until(lambda: it.health()["counts"].get("transfers.D.delivered") == pair.num_begun)
            it.wait_until(lambda: it.health()["exports"][0]["queued"] == 0)
            health = it.health()
            assert it.end() == 0
        counts = health["counts"]
        assert health["troubles"] == []
        assert len(sink.spans) == counts["spans.exported"]
        dropped = sum(value for name, value in counts.items() if name.startswith("spans.dropped"))
        per_transfer = len(sink.spans) / len({span.trace_id for span in sink.spans})
        assert counts["spans.exported"] + dropped == pair.num_begun * per_transfer, (
            "every span is accounted for"
        )
        assert it.said.count("can't be exported") == it.said.count("can't be exported to http://127.0.0.1")
        assert it.said.count("can't be exported") <= 4, "once for each change of the reason"


def test_a_refusing_endpoint_is_named_and_what_comes_is_counted(agent, folder):
    with OtlpSink() as sink, SimulatedPair(folder, 50):
        sink.behaviour.grpc_refuses = grpc.StatusCode.UNAUTHENTICATED
        it = agent(endpoint=sink.grpc_endpoint).ready()
        it.wait_until(lambda: it.health()["counts"].get("spans.dropped.refused", 0) > 100)
        it.wait_until(lambda: "UNAUTHENTICATED" in it.said)
        assert it.said.count("UNAUTHENTICATED") == 1
        assert it.end(signal.SIGINT) == 0


def test_a_slow_endpoint_ends_in_time(agent, folder):
    with OtlpSink() as sink, SimulatedPair(folder, 50) as pair:
        it = agent(endpoint=sink.grpc_endpoint, OTEL_EXPORTER_OTLP_TIMEOUT="60").ready()
        sink.wait_for(1)
        sink.behaviour.delay_s = 12.0
        time.sleep(0.5)
        pair.stop()
        began = time.monotonic()
        assert it.end() == 0
        assert time.monotonic() - began < 11
        sink.behaviour.delay_s = 0.0
    assert "left in the rings for the next agent" in it.said


def test_the_engines_own_endpoint_is_used_where_the_environment_names_none(agent, folder):
    with OtlpSink() as sink, SimulatedPair(folder, 50, endpoint=sink.grpc_endpoint):
        it = agent().ready()
        sink.wait_for(50)
        assert f"exporting spans to {sink.grpc_endpoint}" in it.said
        it.end()


def test_without_any_endpoint_it_says_so_once_and_goes_on(agent, folder):
    with SimulatedPair(folder, 50):
        it = agent().ready()
        it.wait_until(lambda: "spans are not exported" in it.said)
        it.wait_until(lambda: it.health()["counts"].get("transfers.D.delivered", 0) > 10)
        assert it.said.count("spans are not exported") == 1
        assert it.health()["exports"] == []
        it.end()


class TestOneAgent:
    def test_a_second_one_says_who_runs_and_ends_with_2(self, agent, folder):
        first = agent().ready()
        second = agent()
        assert second.process.wait(20) == 2
        pid = first.process.pid
        assert f"read by an agent with pid {pid}" in second.said
        assert "Traceback" not in second.said
        assert first.process.poll() is None

    def test_after_kill_9_the_next_one_starts(self, agent, folder):
        agent().ready().end(signal.SIGKILL)
        assert (folder / "agent.json").exists()
        agent().ready()

    def test_readers_that_look_are_not_taken_for_an_agent(self, folder):
        assert present_agent(folder) is None
        presence = Presence(folder)
        presence.tell(Note(pid=7, host="here", url="http://x"))
        assert present_agent(folder) == Note(pid=7, host="here", url="http://x")
        with pytest.raises(Occupied, match="pid 7 on here"):
            Presence(folder)
        presence.close()
        assert present_agent(folder) is None
        assert os.listdir(folder) == []

    def test_a_folder_that_may_only_be_read_can_be_occupied_all_the_same(self, tmpfs):
        folder = tmpfs("ro,mode=700")
        presence = Presence(folder)
        assert not presence.tell(Note(pid=7))
        assert present_agent(folder) == Note()
        assert "could not leave a note" in Note().who
        presence.close()


class TestItsEnd:
    def test_it_ends_when_its_engines_are_gone(self, agent, folder):
        with SimulatedPair(folder, 20) as pair:
            it = agent("--exit-with-engines", "--grace", "0.5").ready()
            it.wait_until(lambda: "records (kv_producer" in it.said)
            time.sleep(1.0)
            assert it.process.poll() is None
            pair.stop()
        assert it.process.wait(20) == 0
        assert "no engine records any more" in it.said

    def test_it_waits_for_the_folder(self, agent, folder):
        folder.rmdir()
        it = agent()
        it.wait_until(lambda: "waiting for" in it.said)
        folder.mkdir(mode=0o700)
        with SimulatedPair(folder, 20):
            it.wait_until(lambda: "records (kv_producer" in it.said)
        assert it.end() == 0

    def test_it_answers_and_ends_while_it_waits(self, agent, folder):
        folder.rmdir()
        it = agent()
        it.wait_until(lambda: "waiting for" in it.said)
        url = it.said.partition("answering at ")[2].split()[0]
        with urllib.request.urlopen(url + "/healthz", timeout=5) as answer:
            assert json.load(answer)["num_engines"] == 0
        assert it.end() == 0
        folder.mkdir()

    def test_what_was_exported_may_be_noted_elsewhere(self, agent, folder, tmp_path):
        with OtlpSink() as sink, SimulatedPair(folder, 50) as pair:
            first = agent("--state", str(tmp_path / "state"), endpoint=sink.grpc_endpoint).ready()
            sink.wait_for(50)
            pair.stop()
            first.wait_until(lambda: first.health()["counts"].get("transfers.D.delivered") == pair.num_begun)
            first.end()
            second = agent("--state", str(tmp_path / "state"), endpoint=sink.grpc_endpoint).ready()
            second.wait_until(lambda: "records (kv_producer" in second.said)
            second.end()
            assert len({s.span_id for s in sink.spans}) == len(sink.spans)
        assert (tmp_path / "state" / "agent.journal").exists()
        assert not (folder / "agent.journal").exists()


class TestAddress:
    @pytest.mark.parametrize(
        ("text", "means", "loopback"),
        [
            ("127.0.0.1:9479", ("127.0.0.1", 9479), True),
            ("localhost:0", ("localhost", 0), True),
            ("[::1]:80", ("::1", 80), True),
            (":9479", ("0.0.0.0", 9479), False),
            ("10.0.0.7", ("10.0.0.7", 9479), False),
        ],
    )
    def test_forms(self, text, means, loopback):
        address = parse_address(text)
        assert address == means
        assert is_loopback(address.host) is loopback

    @pytest.mark.parametrize("text", ["127.0.0.1:http", "1.2.3.4:99999", "::1:80:90:zz"])
    def test_what_is_none(self, text):
        with pytest.raises(AddressError, match="expected HOST:PORT"):
            parse_address(text)

    def test_a_port_in_use_is_one_sentence(self, agent):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            it = agent("--bind", f"127.0.0.1:{port}")
            assert it.process.wait(20) == 2
            assert it.said.count("\n") == 1
            assert f"port {port} of 127.0.0.1 is in use" in it.said
            assert (
                "answering at http://127.0.0.1:"
                in agent("--bind", f"127.0.0.1:{port}", "--any-port").ready().said
            )

    def test_other_hosts_need_a_token(self, agent):
        it = agent("--bind", "0.0.0.0:0")
        assert it.process.wait(20) == 2
        assert "PUSHSCOPE_TOKEN" in it.said
        agent("--bind", "0.0.0.0:0", PUSHSCOPE_TOKEN="secret").ready()

    @pytest.mark.parametrize("bad", [{"OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"}])
    def test_variables_that_cannot_be_followed(self, agent, bad):
        it = agent(**bad)
        assert it.process.wait(20) == 2
        assert "OTEL_EXPORTER_OTLP_PROTOCOL is 'smoke'; expected grpc" in it.said
