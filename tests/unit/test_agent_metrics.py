"""``/metrics`` of a real agent: what a scraper sees, also of an agent that is killed again and again."""

from __future__ import annotations

import gzip
import http.client
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from bench.writer import SimulatedPair

from pushscope.telemetry.agent.exposition import NAME
from pushscope.telemetry.agent.squeeze import takes_gzip
from pushscope.telemetry.metrics import catalogue as m
from pushscope.telemetry.metrics.family import Kind, Of
from pushscope.telemetry.metrics.meter import Meter
from pushscope.telemetry.metrics.page import gathered, rendered
from pushscope.telemetry.metrics.state import State, load, save
from pushscope.telemetry.source import RingsSource, RingState
from pushscope.telemetry.watch import Watcher

from ..otlp_sink import OtlpSink
from .agent_process import OPEN_METRICS, AgentProcess, samples, total

Key = tuple[str, tuple[tuple[str, str], ...]]
"""A series: its name and its labels."""
ENDINGS = {
    Kind.COUNTER: ("",),
    Kind.SUMMARY: ("_count", "_sum"),
    Kind.HISTOGRAM: ("_bucket", "_count", "_sum"),
}
COUNTERS = {
    family.name + ending
    for family in m.FAMILIES
    if family.kind in ENDINGS and family is not m.POLL_SECONDS
    for ending in ENDINGS[family.kind]
}
"""What only rises; a process's own time begins anew with it."""
OF_ENGINES = {name for name in COUNTERS if not name.startswith(("pushscope_spans", "pushscope_transfers"))}


def counters(page: str) -> dict[Key, float]:
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for s in samples(page) if s.name in COUNTERS}


def delivered(page: str) -> tuple[float, float]:
    """Transfers that P and D have counted."""
    p, d = (total(page, "kv_transfer_transfers_total", role=role, outcome="delivered") for role in ("P", "D"))
    return p, d


def events_read_or_missed(page: str) -> float:
    return total(page, "pushscope_events_read_total") + total(page, "pushscope_events_lost_total")


def counted_at_once(folder: Path) -> dict[Key, float]:
    """What is counted of rings by one who reads them once."""
    meter = Meter()
    with closing(RingsSource(folder)) as source:
        watcher = Watcher(source, on_closed=meter.on_closed, on_event=meter.on_event)
        for _ in range(2):
            watcher.poll()
            time.sleep(0.1)
        return counters(rendered(gathered(watcher, meter), OPEN_METRICS)[0].decode())


class Scraper:
    """Scrapes whichever agent there is, as often as it can, and remembers where a counter went back."""

    def __init__(self) -> None:
        self.agent: AgentProcess | None = None
        self.num_pages = 0
        self.went_back: list[tuple[str, float, float]] = []
        self._highest: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Scraper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            if self.agent is None:
                continue
            try:
                page = self.agent.page("text/plain")
            except (urllib.error.URLError, http.client.HTTPException, OSError, KeyError):
                continue  # it is being killed, or comes up
            self._take(page)

    def _take(self, page: str) -> None:
        """Read as plain lines, which is quick."""
        found = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
        rising = {series: float(found[series]) for series in found if series.partition("{")[0] in COUNTERS}
        self.num_pages += bool(rising)
        for series, value in rising.items():
            if value < self._highest.get(series, 0):
                self.went_back.append((series, self._highest[series], value))
            self._highest[series] = value


def test_kill_9_and_start_again_counts_on_exactly(agent, folder):
    with OtlpSink() as sink, SimulatedPair(folder, 20) as pair, Scraper() as scraper:
        for _ in range(3):
            scraper.agent = it = agent(endpoint=sink.grpc_endpoint).ready()
            pages = scraper.num_pages
            it.wait_until(lambda pages=pages: scraper.num_pages > pages + 15, 90)
            it.end(signal.SIGKILL)
        scraper.agent = it = agent(endpoint=sink.grpc_endpoint).ready()
        pair.stop()
        it.wait_until(lambda: delivered(it.page()) == (pair.num_begun, pair.num_begun), 120)
        it.wait_until(lambda: it.health()["exports"][0]["queued"] == 0)
        page = it.page()
        assert it.end() == 0
        at_once = counted_at_once(folder)
        assert total(page, "pushscope_spans_exported_total") == it_exported(folder, agent)
    assert scraper.went_back == []
    found = {key: value for key, value in counters(page).items() if key[0] in OF_ENGINES}
    assert {key: at_once[key] for key in at_once if key[0] in OF_ENGINES} == pytest.approx(found, rel=1e-9)
    assert total(page, "pushscope_events_lost_total") == 0
    assert total(page, "kv_transfer_exposed_seconds_count") == pair.num_begun


def test_what_rings_have_forgotten_by_then_stays_counted(agent, folder):
    """Rings that hold a few seconds: an agent that began with what they hold would show less than the one before."""
    pair = SimulatedPair(folder, 40, num_bytes=256 << 10)
    it = agent().ready()
    it.wait_until(lambda: "records (kv_consumer" in it.said)  # it comes before anything is forgotten
    with pair, Scraper() as scraper:
        for _ in range(2):
            scraper.agent = it
            pages = scraper.num_pages
            it.wait_until(lambda pages=pages: scraper.num_pages > pages + 30, 90)
            it.end(signal.SIGKILL)
            it = agent().ready()
        scraper.agent = it
        it.wait_until(lambda: delivered(it.page())[1] > 0)
        it.wait_until(lambda: min(ring.forgotten for ring in rings_of(folder)) > 0, 90)
        pair.stop()
        rings = rings_of(folder)
        said = sum(ring.position for ring in rings)
        it.wait_until(lambda: events_read_or_missed(it.page()) >= said)
        page = it.page()
        it.end()
    assert scraper.went_back == []
    assert min(ring.forgotten for ring in rings) > 0
    assert events_read_or_missed(page) == said
    assert max(delivered(page)) <= pair.num_begun


def rings_of(folder: Path) -> Sequence[RingState]:
    """How they stand, for one who reads them now."""
    with closing(RingsSource(folder)) as source:
        return source.poll().rings


def it_exported(folder: Path, agent: Callable[..., AgentProcess]) -> float:
    """What the next agent, told of no endpoint, says that was exported by those before."""
    it = agent().ready()
    it.wait_until(lambda: total(it.page(), "kv_transfer_transfers_total") > 0)
    exported = total(it.page(), "pushscope_spans_exported_total")
    it.end()
    return exported


def test_what_was_shown_is_in_the_file_whenever_it_is_killed(agent, folder):
    with SimulatedPair(folder, 50):
        it = agent().ready()
        it.wait_until(lambda: delivered(it.page())[1] > 10)
        page = it.page()
        it.end(signal.SIGKILL)
    kept = load((folder / NAME).read_bytes())
    by_engine = {key: value for key, value in counters(page).items() if key[0] == m.TRANSFERS.name}
    assert by_engine
    for (_, labels), value in by_engine.items():
        named = dict(labels)
        own = kept.figures[named["engine"]].own.counters[m.TRANSFERS.name]
        assert own[named["role"], named["mode"], named["outcome"]] >= value


@pytest.mark.parametrize(
    ("accept_encoding", "takes"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("*", True),
        ("", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000, *", False),
        ("*;q=0", False),
        ("gzip;q=much", False),
    ],
)
def test_gzip_is_for_those_who_name_it(accept_encoding, takes):
    assert takes_gzip(accept_encoding) is takes


def test_it_is_kept_without_scrapes_too(agent, folder):
    with SimulatedPair(folder, 50) as pair:
        it = agent().ready()
        it.wait_until((folder / NAME).exists)
        pair.stop()
        it.wait_until(lambda: it.health()["counts"].get("transfers.D.delivered") == pair.num_begun)
        it.end()
    figures = load((folder / NAME).read_bytes()).figures
    counted = [own.own.counters[m.TRANSFERS.name] for own in figures.values()]
    assert sum(c.get(("D", "push", "delivered"), 0) for c in counted) == pair.num_begun


class TestPage:
    def test_formats_by_what_is_asked_for(self, agent, folder):
        with SimulatedPair(folder, 50):
            it = agent().ready()
            it.wait_until(lambda: "kv_transfer_engine_up" in it.page())
            assert it.get("/metrics", Accept=OPEN_METRICS)[1].startswith("application/openmetrics-text")
            assert it.get("/metrics")[1].startswith("text/plain")
            assert it.page().endswith("# EOF\n")

    def test_in_gzip_for_those_who_take_it(self, agent, folder):
        with SimulatedPair(folder, 50):
            it = agent().ready()
            it.wait_until(lambda: "kv_transfer_engine_up" in it.page())
            url = f"{it.note()['url']}/metrics"
            asked = {"Accept": OPEN_METRICS}
            with httpx.stream("GET", url, headers={**asked, "Accept-Encoding": "gzip"}) as answer:
                squeezed = b"".join(answer.iter_raw())
            plain = httpx.get(url, headers={**asked, "Accept-Encoding": "identity"})
        assert answer.headers["content-encoding"] == "gzip"
        assert int(answer.headers["content-length"]) == len(squeezed)
        shown = {s.name for s in samples(gzip.decompress(squeezed).decode())}
        assert m.ENGINE_UP.name in shown
        assert shown <= {s.name for s in samples(plain.text)}
        assert len(squeezed) < len(plain.content) / 5
        assert "content-encoding" not in plain.headers
        assert answer.headers["vary"] == plain.headers["vary"] == "Accept, Accept-Encoding"

    def test_every_family_of_a_healthy_run_is_there(self, agent, folder):
        with OtlpSink() as sink, SimulatedPair(folder, 50):
            it = agent(endpoint=sink.grpc_endpoint).ready()
            it.wait_until(lambda: delivered(it.page())[1] > 0 and sink.spans)
            it.wait_until(lambda: total(it.page(), "pushscope_spans_exported_total") > 0)
            page = it.page()
        names = {s.name for s in samples(page)}
        needs_two_hosts = {family.name for family in m.FAMILIES if family.of is Of.HOSTS}
        # A pair that is not real says neither how long its handshakes took nor how large its tables are.
        not_said = {m.HANDSHAKE_SECONDS.name, m.PEER_HANDSHAKES.name, m.TABLE_ENTRIES.name}
        for family in m.FAMILIES:
            if family.name not in needs_two_hosts | not_said:
                assert names & set(family.samples), family.name
        assert total(page, "pushscope_poll_seconds_count") > 0
        assert total(page, "kv_transfer_failures_total") == 0

    def test_exemplars_lead_to_spans_that_were_exported(self, agent, folder):
        with OtlpSink() as sink, SimulatedPair(folder, 50) as pair:
            it = agent(endpoint=sink.grpc_endpoint).ready()
            it.wait_until(lambda: delivered(it.page())[1] > 10)
            pair.stop()
            it.wait_until(lambda: it.health()["exports"][0]["queued"] == 0)
            shown = {
                (s.labels.get("role", "D"), s.exemplar.labels["trace_id"], s.exemplar.labels["span_id"])
                for s in samples(it.page())
                if s.exemplar
            }
            it.end()
            sides = {"kv_transfer send": "P", "kv_transfer receive": "D"}
            exported = {
                (sides[span.name], span.trace_id, span.span_id) for span in sink.spans if span.name in sides
            }
        assert {role for role, *_ in shown} == {"P", "D"}
        assert shown <= exported

    def test_what_is_not_exported_is_no_exemplar(self, agent, folder):
        with OtlpSink() as sink, SimulatedPair(folder, 50):
            it = agent("--sample", "0", endpoint=sink.grpc_endpoint).ready()
            it.wait_until(lambda: delivered(it.page())[1] > 10)
            page = it.page()
        exported = {span.trace_id for span in sink.spans}  # a slow one is exported all the same
        shown = {s.exemplar.labels["trace_id"] for s in samples(page) if s.exemplar}
        assert len(shown) < delivered(page)[1] / 2
        assert shown <= exported

    def test_before_engines_come_it_tells_of_the_process_only(self, agent, folder):
        folder.rmdir()
        it = agent()
        it.wait_until(lambda: "waiting for" in it.said)
        url = it.said.partition("answering at ")[2].split()[0]
        it.note = lambda: {"url": url}  # it can't leave one yet
        names = {s.name for s in samples(it.page())}
        assert "process_resident_memory_bytes" in names
        assert all(name.startswith("process_") for name in names)
        folder.mkdir()

    def test_promtool_finds_nothing_to_say(self, agent, folder):
        promtool = shutil.which("promtool")
        if promtool is None:
            pytest.skip("promtool is not installed (Debian: apt install prometheus)")
        with SimulatedPair(folder, 50):
            it = agent().ready()
            it.wait_until(lambda: delivered(it.page())[1] > 0)
            page = it.page("text/plain")
        done = subprocess.run(
            [promtool, "check", "metrics"], input=page, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


class TestWhoMayScrape:
    def test_others_need_the_token_unless_metrics_are_open(self, agent):
        shut = agent("--bind", "0.0.0.0:0", PUSHSCOPE_TOKEN="secret").ready()
        assert shut.get("/metrics")[0] == 401
        assert shut.get("/metrics", Authorization="Bearer secret")[0] == 200
        shut.end()
        opened = agent("--bind", "0.0.0.0:0", PUSHSCOPE_TOKEN="secret", PUSHSCOPE_OPEN_METRICS="1").ready()
        assert opened.get("/metrics")[0] == 200
        assert opened.get("/v1/snapshot")[0] == opened.get("/v1/events")[0] == 401

    def test_on_loopback_only_by_its_names(self, agent):
        it = agent("--open-metrics").ready()
        status, _, why = it.get("/metrics", Host="rebound.example")
        assert status == 403
        assert "rebound.example" in why

    def test_open_metrics_are_no_reason_to_go_without_a_token(self, agent):
        it = agent("--bind", "0.0.0.0:0", "--open-metrics")
        assert it.process.wait(20) == 2
        assert "PUSHSCOPE_TOKEN" in it.said


class TestTheFile:
    @pytest.mark.parametrize("data", [b"something else", save(State(version=99))])
    def test_one_that_can_not_be_read_is_named_and_replaced(self, agent, folder, data):
        with SimulatedPair(folder, 50):
            (folder / NAME).write_bytes(data)
            it = agent().ready()
            it.wait_until(lambda: delivered(it.page())[1] > 0)
            assert f"{folder / NAME} can't be read (expected saved metrics" in it.said
            load((folder / NAME).read_bytes())

    def test_where_it_can_not_be_written_metrics_are_shown_all_the_same(self, agent, folder):
        with SimulatedPair(folder, 50):
            (folder / NAME).mkdir()
            it = agent().ready()
            it.wait_until(lambda: delivered(it.page())[1] > 0)
            assert any("the metrics can't be kept" in trouble for trouble in it.health()["troubles"])
