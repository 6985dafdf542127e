"""The page: read by Prometheus' own parsers, bounded, and whole."""

from __future__ import annotations

import shutil
import subprocess

import msgspec
import prometheus_client.openmetrics.exposition
import pytest
from prometheus_client import parser as text
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.samples import Sample

from pushscope.telemetry import events as ev
from pushscope.telemetry.clocks import ClockOffset
from pushscope.telemetry.metrics import catalogue as m
from pushscope.telemetry.metrics.cardinality import Deployment, series, series_of
from pushscope.telemetry.metrics.family import Family, Kind, Of
from pushscope.telemetry.metrics.figures import MAX_PEERS, EngineFigures, Seen
from pushscope.telemetry.metrics.meter import Meter, Trace, Traces
from pushscope.telemetry.metrics.page import Own, gathered, rendered
from pushscope.telemetry.metrics.reference import PAGE, page
from pushscope.telemetry.metrics.text import openmetrics as openmetrics_page
from pushscope.telemetry.metrics.text import plain
from pushscope.telemetry.source import Reading
from pushscope.telemetry.transfer import Rank, Stage, StageTime, Transfer
from pushscope.telemetry.watch import Watcher

from . import samples
from .metered import OPEN_METRICS, Metered, to_unix
from .scenario import D_ENGINE, D_WORKER, P_ENGINE, P_WORKER, ListSource, delivered, ms, reading
from .test_architecture import ROOT
from .test_metrics_counts import MIXED, TOLD, metered

OFFSET = ClockOffset("host-d", "host-p", 1_500_000, 200_000)
OWN = Own(spans_exported=5, spans_dropped={"queue_full": 2}, spans_queued=1, polls=3, poll_s=0.5)


def whole() -> Metered:
    """Something of everything."""
    return metered([*MIXED, *((origin, event) for origin, event, *_ in TOLD)])


def families(body: str) -> dict[str, openmetrics.Metric]:
    return {f.name: f for f in openmetrics.text_string_to_metric_families(body)}


def test_promtool_finds_nothing_to_say():
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt install prometheus)")
    body = whole().page("", clocks=(OFFSET,))
    done = subprocess.run(
        [promtool, "check", "metrics"], input=body, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_format_is_what_was_asked_for():
    m_ = whole()
    metrics = gathered(m_.watcher, m_.meter)
    body, content_type = rendered(metrics, OPEN_METRICS)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")
    body, content_type = rendered(metrics, "*/*")
    assert content_type.startswith("text/plain; version=0.0.4")
    assert b"trace_id" not in body


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (plain, prometheus_client.exposition.generate_latest),
        (openmetrics_page, prometheus_client.openmetrics.exposition.generate_latest),
    ],
)
def test_pages_are_byte_for_byte_what_prometheus_client_writes(ours, theirs):
    m_ = whole()
    odd = Metric("odd", 'a "help"\nwith a \\ in it', "gauge", "")
    odd.samples.append(Sample("odd", {"b": '"', "a": "\\\n\u00e4"}, float("inf")))
    odd.samples.append(Sample("odd", {}, 1e-7))

    class Registry:
        def collect(self):
            return [*gathered(m_.watcher, m_.meter, own=OWN), odd]

    page = ours(Registry().collect())
    assert page == theirs(Registry())
    assert len(page.splitlines()) > 500


def test_both_formats_tell_the_same():
    m_ = whole()
    said = [
        {(s.name, frozenset(s.labels.items())): s.value for f in found for s in f.samples}
        for found in (
            openmetrics.text_string_to_metric_families(m_.page(OPEN_METRICS)),
            text.text_string_to_metric_families(m_.page("")),
        )
    ]
    ours = [{key: value for key, value in each.items() if not key[0].startswith("process_")} for each in said]
    assert ours[0] == ours[1]
    assert len(ours[0]) > 500


def test_every_family_is_filled_and_has_the_labels_that_the_catalogue_says():
    found = families(whole().page(clocks=(OFFSET,)))
    for family in m.FAMILIES:
        metric = found[family.name.removesuffix("_total").removesuffix("_info")]
        assert metric.samples, f"{family.name} is never filled"
        assert metric.type == family.kind.value
        for sample in metric.samples:
            assert sample.name in family.samples
            assert set(sample.labels) - {"le"} == set(family.labels)
    ours = {name for name in found if not name.startswith("process_")}
    assert len(ours) == len(m.FAMILIES)


def test_label_values_are_of_closed_sets_or_engines_and_ranks():
    found = families(whole().page(clocks=(OFFSET,)))
    engines, ranks = {P_ENGINE, D_ENGINE}, {"tp0", "scheduler"}
    for family in m.FAMILIES:
        known = {label.name: set(label.all_values) for label in family.own if label.all_values}
        known |= {"engine": engines, "peer": engines | {"e"}, "rank": ranks}
        known |= {"host": {"host", "host-d"}, "peer_host": {"host-p"}}
        for sample in found[family.name.removesuffix("_total").removesuffix("_info")].samples:
            for name, value in sample.labels.items():
                if name != "le" and family.kind is not Kind.INFO:
                    assert value in known[name], (family.name, name, value)


def test_no_series_for_a_request():
    def run(number: int) -> Metered:
        said = [each for n in range(number) for each in delivered(f"cmpl-{n}", n)]
        return Metered(reading(said, 100), reading([], 60_000), traces=lambda _: {})

    few, many = run(2), run(40)
    names = [
        {(s.name, frozenset(s.labels.items())) for f in families(each.page()).values() for s in f.samples}
        for each in (few, many)
    ]
    assert names[0] == names[1]
    assert "cmpl-" not in many.page()
    assert many.value("kv_transfer_transfers_total", role="D", outcome="delivered") == 40


class TestExemplars:
    def test_are_read_back(self):
        found = families(whole().page())
        for name in ("kv_transfer_stage_seconds", "kv_transfer_exposed_seconds"):
            exemplars = [s.exemplar for s in found[name].samples if s.exemplar]
            assert exemplars
            for exemplar in exemplars:
                assert set(exemplar.labels) == {"trace_id", "span_id"}
                assert sum(len(k) + len(v) for k, v in exemplar.labels.items()) <= 128
                assert exemplar.timestamp is not None
        others = [
            s
            for name, f in found.items()
            if not name.endswith(("stage_seconds", "exposed_seconds"))
            for s in f.samples
        ]
        assert not any(s.exemplar for s in others)

    def test_lead_to_the_transfer_that_was_observed(self):
        seen: list[Transfer] = []

        def traces(transfer: Transfer) -> Traces:
            seen.append(transfer)
            return {"P": Trace(0xABC, 0x123), "D": Trace(0xABC, 0xDEF)}

        m_ = Metered(reading(delivered(), 60), reading([], 60_000), traces=traces)
        (sample,) = [
            s for s in families(m_.page())["kv_transfer_exposed_seconds"].samples if s.exemplar is not None
        ]
        (transfer,) = seen
        assert sample.exemplar.labels == {"trace_id": f"{0xABC:032x}", "span_id": f"{0xDEF:016x}"}
        assert sample.exemplar.value == pytest.approx((transfer.exposed_ns or 0) / 1e9)
        assert float(sample.exemplar.timestamp) == pytest.approx(to_unix(transfer.closed_ns or 0) / 1e9)
        stages = families(m_.page())["kv_transfer_stage_seconds"].samples
        spans = {(s.labels["role"], s.exemplar.labels["span_id"]) for s in stages if s.exemplar}
        assert spans == {("P", f"{0x123:016x}"), ("D", f"{0xDEF:016x}")}

    def test_the_last_with_a_span_stays(self):
        own = EngineFigures().own
        own.observe(m.HIDDEN_SECONDS, ("push",), 0.5, Seen("a", "b", 1.0))
        own.observe(m.HIDDEN_SECONDS, ("push",), 0.5, None)
        histogram = own.histograms[m.HIDDEN_SECONDS.name]["push",]
        assert [e.trace_id for e in histogram.exemplars.values()] == ["a"]

    def test_a_transfer_without_a_span_has_none(self):
        m_ = Metered(reading(delivered(), 60), reading([], 60_000), traces=lambda _: {})
        assert "trace_id" not in m_.page()


def test_what_an_agent_says_of_itself():
    m_ = whole()
    found = families(rendered(gathered(m_.watcher, m_.meter, own=OWN), OPEN_METRICS)[0].decode())
    dropped = {s.labels["reason"]: s.value for s in found["pushscope_spans_dropped"].samples}
    assert dropped == {"queue_full": 2, "refused": 0, "failed": 0}
    assert {s.name: s.value for s in found["pushscope_poll_seconds"].samples} == {
        "pushscope_poll_seconds_count": 3,
        "pushscope_poll_seconds_sum": 0.5,
    }
    assert found["process_resident_memory_bytes"].samples[0].value > 1 << 20


def test_clocks_of_other_hosts():
    unsure = ClockOffset("host-d", "host-q", -7, None)
    found = families(whole().page(clocks=(OFFSET, unsure)))
    offsets = {s.labels["peer_host"]: s.value for s in found["kv_transfer_clock_offset_seconds"].samples}
    assert offsets == {"host-p": 0.0015, "host-q": -7e-9}
    assert [s.value for s in found["kv_transfer_clock_uncertainty_seconds"].samples] == [0.0002]


def test_what_was_gathered_stays_as_it_was():
    """It may be written while the watcher goes on."""
    m_ = Metered(reading(delivered("a"), 60), reading([], 5000))
    before = gathered(m_.watcher, m_.meter)
    body = rendered(before, "")[0]
    m_.read(reading(delivered("b", 6000), 6100), reading([], 60_000))
    ours = [line for line in rendered(before, "")[0].splitlines() if not line.startswith(b"process_")]
    assert ours == [line for line in body.splitlines() if not line.startswith(b"process_")]


def test_peers_of_an_engine_are_bounded():
    figures = EngineFigures()
    for number in range(MAX_PEERS + 10):
        figures.peer("first", number).add(m.PEER_BYTES, ("push",), 1)
        figures.peer(f"peer-{number}", number)
    assert len(figures.peers) == MAX_PEERS
    assert figures.peers["first"].series.counters[m.PEER_BYTES.name] == {("push",): MAX_PEERS + 10}
    assert "peer-0" not in figures.peers


# -- the catalogue ------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", m.FAMILIES, ids=lambda family: family.name)
def test_names_go_by_prometheus_conventions(family: Family):
    assert family.name.startswith(("kv_transfer_", "pushscope_"))
    assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)
    assert family.name.endswith("_info") == (family.kind is Kind.INFO)
    base = family.name.removesuffix("_total")
    assert base.endswith(("_seconds", "_bytes")) == bool(family.unit)
    assert base.endswith(f"_{family.unit}" if family.unit else "")
    assert bool(family.buckets) == (family.kind is Kind.HISTOGRAM)
    assert list(family.buckets) == sorted(family.buckets)
    assert len(set(family.labels)) == len(family.labels)
    assert family.help.endswith(".")
    assert family.good.endswith((".", ")"))
    assert not family.exemplars or family.kind is Kind.HISTOGRAM


def test_names_are_given_once():
    assert len(m.BY_NAME) == len(m.FAMILIES)
    constants = {value.name for value in vars(m).values() if isinstance(value, Family)}
    assert constants == set(m.BY_NAME)


def test_stage_buckets_reach_from_a_microsecond_to_a_hundred_seconds():
    assert m.STAGE_SECONDS.buckets[0] == 1e-6
    assert m.STAGE_SECONDS.buckets[-1] == 100.0


def test_the_reference_is_what_the_catalogue_says():
    assert (ROOT / PAGE).read_text() == page(), "make references"


# -- how many series ----------------------------------------------------------------------------------

RANKS: tuple[Rank, ...] = ((0, 0), (0, 1))


def crowd(p: int, d: int) -> tuple[ev.Origin, ...]:
    """Engines of two ranks."""
    found = []
    for side, number in (("P", p), ("D", d)):
        like = P_WORKER if side == "P" else D_WORKER
        for n in range(number):
            for role, tp in (("scheduler", 0), ("worker", 0), ("worker", 1)):
                origin = msgspec.structs.replace(
                    like,
                    engine_id=f"{side}{n}",
                    connector_role=role,
                    tp_rank=tp,
                    tp_size=2,
                    instance=f"{side}{n} {role} {tp}",
                )
                found.append(origin)
    return tuple(found)


def test_the_series_that_are_computed_are_those_that_come():
    p, d = 2, 3
    origins = crowd(p, d)
    meter = Meter()
    workers = [o for o in origins if o.connector_role == "worker"]
    said = [
        (o, e)
        for o in workers
        for e in (
            ev.TransferDone(ms(1), "r", 1, 9, 4, 10, 20),
            ev.DescriptorsBuilt(ms(1), "r", 1, 4),
        )
        if o.kv_role == "kv_producer"
    ]
    said += [(o, ev.Tables(ms(1))) for o in origins]
    said += [
        (o, ev.HandshakeEnded(ms(2), peer, ms(1)))
        for o in workers
        for peer in {other.engine_id for other in origins if other.kv_role != o.kv_role}
    ]
    watcher = Watcher(ListSource([reading(said, 10, origins)]), on_event=meter.on_event)
    watcher.run_to_end()
    for p_number in range(p):
        for d_number in range(d):
            meter.on_closed(_everywhere(f"P{p_number}", f"D{d_number}"))
    deployment = Deployment(p=p, d=d, tp=2)
    ours = gathered(watcher, meter, own=Own())
    found = {
        family.name: len(metric.samples)
        for family, metric in zip(m.FAMILIES, ours, strict=True)
        if family.of is not Of.AGENT
    }
    assert found == {
        family.name: series_of(family, deployment) for family in m.FAMILIES if family.of is not Of.AGENT
    }
    assert sum(found.values()) == series(deployment)


def _everywhere(p_engine: str, d_engine: str) -> Transfer:
    """A transfer that met every stage, on every rank."""
    stages = [StageTime(Stage.WAKE, 1, 2)]
    for waited in ("P waited for D", "D waited for P"):
        stages += [
            StageTime(stage, 1, 2, rank, rank, waited=waited if stage is Stage.RENDEZVOUS else "")
            for stage in Stage
            if stage not in (Stage.RELAY, Stage.ALLOCATION, Stage.WAKE)
            for rank in RANKS
        ]
    return msgspec.structs.replace(
        samples.delivered(1), p_engine=p_engine, d_engine=d_engine, stages=tuple(stages)
    )


def test_sixty_four_engines_are_within_what_a_scrape_takes():
    assert series(Deployment(p=32, d=32, tp=8)) < 100_000
    assert series(Deployment(p=4, d=4, tp=8)) < 5_000


def test_a_page_without_engines_is_still_a_page():
    nothing = Metered(Reading(ms(0), 1))
    assert families(nothing.page())["pushscope_transfers_followed"].samples[0].value == 0
