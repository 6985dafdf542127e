"""Push mode on real engines, as users run it: the router, both orders, mixed pairs, death, small and full disks."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from pushscope.lab.completion import completion_body
from pushscope.lab.demo import ALWAYS_SEEN
from pushscope.lab.deployment import Deployment
from pushscope.lab.environment import python_environment
from pushscope.lab.launch import Zygote
from pushscope.lab.legs import DirectTarget, Order
from pushscope.lab.load import LoadPlan, ServerTarget, Target, run_load
from pushscope.lab.results import RequestResult
from pushscope.lab.spec import EngineSpec, prefill_decode
from pushscope.telemetry import events as ev
from pushscope.telemetry.ids import recorded_id
from pushscope.telemetry.metrics.meter import Meter
from pushscope.telemetry.metrics.page import gathered
from pushscope.telemetry.ring import RingReader
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.source import RingsSource
from pushscope.telemetry.transfer import Outcome, Stage, Transfer
from pushscope.telemetry.watch import Watcher

pytestmark = pytest.mark.engines

PLAN = LoadPlan(num_requests=6, concurrency=3, prompt_tokens=(20, 700), output_tokens=8, timeout_s=30)
CHUNKED = ("--max-num-batched-tokens", "512")
LENGTHS = [1, 32, 33, 3000]
"""One token, one block exactly, a block and one, and some chunks."""


def run(target: Target, plan: LoadPlan = PLAN) -> list[RequestResult]:
    results = asyncio.run(run_load(plan, target))
    assert [r.error for r in results] == [None] * len(results)
    return results


def direct(deployment: Deployment, order: Order, **options: object) -> DirectTarget:
    return DirectTarget(deployment.urls("prefill"), deployment.urls("decode"), order=order, **options)  # type: ignore[arg-type]


def settled(rings: Path, *, seconds: float = 5.0) -> tuple[list[Transfer], Snapshot]:
    """Every transfer in the rings, once none is on its way any more."""
    end = time.monotonic() + seconds
    while True:
        ended: list[Transfer] = []
        with closing(RingsSource(rings)) as source:
            watcher = Watcher(source, on_closed=ended.append)
            watcher.poll()
            transfers = [*ended, *watcher.assembler.open_transfers()]
            if not any(t.is_open for t in transfers) or time.monotonic() > end:
                return transfers, watcher.snapshot()
        time.sleep(0.1)


def base(result: RequestResult) -> str:
    """The base id under which the request of a client's result is recorded."""
    return recorded_id(f"cmpl-{result.request_id}-0")


def pushscope(*arguments: str, rings: Path) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it."""
    return subprocess.run(
        [sys.executable, "-c", "from pushscope.lab.main import main; main()", *arguments],
        env={**python_environment(), "PUSHSCOPE_DIR": str(rings)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@contextmanager
def deployed(
    specs: list[EngineSpec],
    model: Path,
    zygote: Zygote,
    folder: Path,
    *,
    rings: str | None = "rings",
    router: bool = False,
) -> Iterator[Deployment]:
    options = {} if router else {"router": None}
    deployment = Deployment(
        specs, model, log_dir=folder / "logs", launcher=zygote, ring_dir=rings and folder / rings, **options
    )
    with deployment:
        yield deployment


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("push")


@pytest.fixture(scope="module")
def rings(folder) -> Path:
    return folder / "rings"


@pytest.fixture(scope="module")
def push(model: Path, zygote: Zygote, folder: Path) -> Iterator[Deployment]:
    """An instrumented pair, a router, and A, which computes everything itself."""
    specs = [*prefill_decode(args=CHUNKED), EngineSpec("A", None, args=CHUNKED)]
    with deployed(specs, model, zygote, folder, router=True) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def plain(model, zygote, tmp_path_factory) -> Iterator[Deployment]:
    specs = prefill_decode(args=CHUNKED, instrumented=False)
    with deployed(specs, model, zygote, tmp_path_factory.mktemp("plain")) as deployment:
        yield deployment


class TestServing:
    @pytest.mark.parametrize("num_tokens", LENGTHS)
    def test_tokens_are_those_of_plain_push_and_of_one_engine(self, push, plain, num_tokens):
        plan = replace(PLAN, num_requests=3, prompt_tokens=num_tokens, output_tokens=16, seed=num_tokens)
        tokens = [
            [r.token_ids for r in run(target, plan)]
            for target in (
                direct(push, "both"),
                direct(plain, "both"),
                ServerTarget(push.specs["A"].url),
            )
        ]
        assert tokens[0] == tokens[1] == tokens[2]
        assert all(len(t) == 16 for t in tokens[0])

    @pytest.mark.parametrize(
        ("order", "named"), [("p-first", "blocks first"), ("d-first", "registration first"), ("both", None)]
    )
    def test_direct_every_transfer_is_seen_whole_and_its_order_named(self, push, rings, order, named):
        results = run(direct(push, order, delay_s=0.05), replace(PLAN, seed=hash(order) % 1000 + 10))
        transfers = {t.base_id: t for t in settled(rings)[0]}
        for result in results:
            t = transfers[base(result)]
            assert t.outcome is Outcome.DELIVERED
            assert {s.stage for s in t.stages} - {Stage.HANDSHAKE} == ALWAYS_SEEN
            assert all(s.end_ns is not None for s in t.stages)
            assert t.num_tokens == result.num_prompt_tokens
            assert t.exposed_ns is not None
            assert result.ttft_s is not None
            assert t.exposed_ns / 1e9 < result.ttft_s, "exposed time is part of the time to the first token"
            if named:
                assert t.order == named

    def test_through_the_router_both_orders_are_seen(self, push, rings):
        """Its first request is serial, to learn P's engine id; afterwards it fires both legs at once."""
        plan = replace(PLAN, num_requests=12, concurrency=4, prompt_tokens=(400, 700), seed=77)
        results = run(ServerTarget(push.router_url), plan)
        transfers = {t.base_id: t for t in settled(rings)[0]}
        orders = Counter(transfers[base(r)].order for r in results)
        assert set(orders) == {"blocks first", "registration first"}
        assert all(transfers[base(r)].outcome is Outcome.DELIVERED for r in results)

    def test_counts_agree_with_vllms_own_to_the_unit(self, push, rings):
        run(direct(push, "both"), replace(PLAN, num_requests=10, seed=99))
        assert_counts_agree(push.specs["P1"].url, rings)

    def test_top_once_and_report_say_it_in_words_and_in_json(self, push, rings):
        run(direct(push, "both"), replace(PLAN, seed=5))
        settled(rings)
        once = pushscope("top", "--once", rings=rings)
        assert once.returncode == 0, once.stderr
        assert "delivered" in once.stdout
        snapshot = json.loads(pushscope("top", "--once", "--json", rings=rings).stdout)
        assert {e["side"] for e in snapshot["engines"]} == {"P", "D"}
        assert all(e["alive"] for e in snapshot["engines"])
        report = pushscope("report", rings=rings)
        assert report.returncode == 0, report.stderr
        for stage in ALWAYS_SEEN:
            assert stage.value in report.stdout
        in_json = json.loads(pushscope("report", "--json", rings=rings).stdout)
        assert in_json["outcomes"]["delivered"] >= 6

    def test_doctor_finds_nothing_wrong_and_tells_what_runs(self, push, rings):
        done = pushscope("doctor", "--quick", "--json", rings=rings)
        examined = json.loads(done.stdout)
        assert [c for c in examined["checks"] if c["level"] in ("warning", "failure")] == []
        assert done.returncode == 0
        for name in ("P1", "D1"):
            presence, address = [c["finding"] for c in examined["checks"] if c["subject"] == name]
            assert "blocks of 32 tokens" in presence
            assert push.specs[name].side_channel_port == int(presence.split("127.0.0.1:")[1].split(",")[0])
            assert "advertises 127.0.0.1, and all engines seen are on this host" in address

    def test_a_recording_replays_to_the_same_report(self, push, rings, tmp_path):
        file = tmp_path / "run.psr"
        recorder = threading.Thread(
            target=lambda: recorded.append(pushscope("record", "-o", str(file), "--for", "6", rings=rings))
        )
        recorded: list[subprocess.CompletedProcess[str]] = []
        recorder.start()
        run(direct(push, "both"), replace(PLAN, seed=6))
        recorder.join()
        assert recorded[0].returncode == 0, recorded[0].stderr
        assert "events" in recorded[0].stdout
        replayed = json.loads(
            pushscope("report", "--json", "--replay", str(file), rings=Path("/nowhere")).stdout
        )
        live = json.loads(pushscope("report", "--json", rings=rings).stdout)
        assert replayed["outcomes"] == live["outcomes"]
        assert replayed["stages"] == live["stages"]
        once = json.loads(
            pushscope("top", "--once", "--json", "--replay", str(file), rings=Path("/nowhere")).stdout
        )
        assert once["totals"]["outcomes"] == live["outcomes"]

    def test_recording_is_switched_off_and_on_while_serving(self, push, rings):
        assert pushscope("recording", "off", rings=rings).returncode == 0
        run(direct(push, "both"), replace(PLAN, num_requests=2, seed=7))
        time.sleep(1.1)
        run(direct(push, "both"), replace(PLAN, num_requests=2, seed=8))  # steps, in which engines look
        unseen = run(direct(push, "both"), replace(PLAN, num_requests=3, seed=9))
        assert pushscope("recording", "on", rings=rings).returncode == 0
        time.sleep(1.1)
        run(direct(push, "both"), replace(PLAN, num_requests=2, seed=21))
        seen = run(direct(push, "both"), replace(PLAN, num_requests=3, seed=22))
        bases = {t.base_id for t in settled(rings)[0]}
        assert bases.isdisjoint(base(r) for r in unseen)
        assert bases.issuperset(base(r) for r in seen)


def assert_counts_agree(url: str, rings: Path) -> None:
    """What is seen, and counted for Prometheus, is what vLLM counts on the engine that posts, to the unit."""
    settled(rings)
    one_more_step = completion_body([5, 6, 7], 1, stream=False)  # vLLM's stats come with steps
    httpx.post(f"{url}/v1/completions", json=one_more_step, timeout=30).raise_for_status()
    time.sleep(0.5)
    theirs = samples(httpx.get(f"{url}/metrics", timeout=10).text)
    _, ours = settled(rings)
    assert ours.totals.writes == theirs["vllm:nixl_xfer_time_seconds_count"] > 5
    assert ours.totals.write_bytes == theirs["vllm:nixl_bytes_transferred_sum"] > 0
    assert ours.totals.events_lost == 0
    assert_metrics_agree(theirs, metrics(rings))


def assert_metrics_agree(theirs: dict[str, float], ours: dict[str, float]) -> None:
    """Both take NIXL's own figures of each of its transfers: one rank to one rank, when the engine sees it done."""
    for our_name, their_name in (
        ("kv_transfer_nixl_bytes_count", "vllm:nixl_bytes_transferred_count"),
        ("kv_transfer_nixl_bytes_sum", "vllm:nixl_bytes_transferred_sum"),
        ('kv_transfer_nixl_descriptors_sum merged="true"', "vllm:nixl_num_descriptors_sum"),
        ('kv_transfer_nixl_seconds_sum phase="post"', "vllm:nixl_post_time_seconds_sum"),
        ('kv_transfer_nixl_seconds_sum phase="transfer"', "vllm:nixl_xfer_time_seconds_sum"),
        ('kv_transfer_nixl_seconds_count phase="post"', "vllm:nixl_post_time_seconds_count"),
        ("kv_transfer_failures_total", "vllm:nixl_num_failed_transfers_total"),
        ('kv_transfer_leases_total event="expired"', "vllm:nixl_num_kv_expired_reqs_total"),
    ):
        assert ours[our_name] == pytest.approx(theirs[their_name], rel=1e-9), our_name
    assert ours["kv_transfer_nixl_bytes_sum"] > 0
    assert ours['kv_transfer_nixl_descriptors_sum merged="false"'] > 0


def metrics(rings: Path) -> dict[str, float]:
    """What an agent shows of these rings: by name, and of a label that tells apart what vLLM has as two names."""
    meter = Meter()
    with closing(RingsSource(rings)) as source:
        watcher = Watcher(source, on_event=meter.on_event)
        watcher.poll()
        families = gathered(watcher, meter)
    found: Counter[str] = Counter()
    for sample in (sample for family in families for sample in family.samples):
        found[sample.name] += sample.value  # type: ignore[assignment]
        for label in ("merged", "phase", "event"):
            if label in sample.labels:
                found[f'{sample.name} {label}="{sample.labels[label]}"'] += sample.value  # type: ignore[assignment]
    return dict(found)


def samples(exposition: str) -> dict[str, float]:
    """Name -> value, summed over label sets."""
    found: Counter[str] = Counter()
    for line in exposition.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name.partition("{")[0]] += float(value)  # type: ignore[assignment]
    return dict(found)


class TestMixed:
    """A plain vLLM on the other side serves as ever; what is seen is shown as one-sided."""

    @pytest.mark.parametrize("observed", ["P", "D"])
    def test_one_side_instrumented(self, model, zygote, tmp_path, observed):
        p, d = prefill_decode()
        specs = [replace(p, instrumented=observed == "P"), replace(d, instrumented=observed == "D")]
        with deployed(specs, model, zygote, tmp_path) as pair:
            results = run(direct(pair, "both"), replace(PLAN, num_requests=4, seed=3))
            results += run(direct(pair, "p-first"), replace(PLAN, num_requests=2, seed=4))
            transfers, snapshot = settled(tmp_path / "rings")
        by_base = {t.base_id: t for t in transfers}
        for result in results:
            t = by_base[base(result)]
            assert t.sides == (observed,)
            assert t.outcome is Outcome.DELIVERED
            assert t.exposed_ns is None
            wire = [s for s in t.stages if s.stage is Stage.WIRE]
            assert all(s.upper_bound for s in wire) if observed == "P" else not wire
            assert t.p_engine
            assert t.d_engine
        other = "D" if observed == "P" else "P"
        assert f"one-sided: only {observed} is observed, what {other} does is not known" in snapshot.notices
        assert snapshot.totals.events_lost == 0


class TestDeath:
    def test_kill_9_of_ps_engine_in_mid_load(self, model, zygote, tmp_path):
        rings = tmp_path / "rings"
        with deployed(prefill_decode(multiprocessing=True), model, zygote, tmp_path) as pair:
            plan = replace(PLAN, num_requests=60, concurrency=8, prompt_tokens=2000, timeout_s=12, seed=1)
            load = threading.Thread(target=lambda: asyncio.run(run_load(plan, direct(pair, "both"))))
            load.start()
            with closing(RingsSource(rings)) as source:
                (p_worker,) = [
                    r.origin
                    for r in source.poll().rings
                    if r.origin.kv_role == "kv_producer" and r.origin.connector_role == "worker"
                ]
                written = 0
                while written < 12:  # well begun, and far from done
                    time.sleep(0.05)
                    events = [ev.decode(payload) for _, payload in source.poll().events]
                    written += sum(isinstance(event, ev.TransferDone) for event in events)
            pair.kill("P1", signal.SIGKILL, part="core")
            time.sleep(1.0)
            with closing(RingReader(rings / f"{p_worker.instance}.ring")) as ring:
                assert not ring.alive()
                last = ring.poll(time.monotonic_ns())
            assert len(last) > 20, "its last events are still there"
            done = pushscope("top", "--once", "--json", rings=rings)
            assert done.returncode == 0, done.stderr
            snapshot = json.loads(done.stdout)
            words = pushscope("top", "--once", rings=rings).stdout
            load.join()
        (p,) = [e for e in snapshot["engines"] if e["side"] == "P"]
        (d,) = [e for e in snapshot["engines"] if e["side"] == "D"]
        assert not p["alive"]
        assert d["alive"]
        lost = [t for t in snapshot["recent"] if t["outcome"] == "lost"]
        assert lost
        assert all(t["error"].startswith("P is gone") for t in lost)
        assert snapshot["waiting"] == snapshot["in_flight"] == []
        assert "GONE" in words
        assert "lost" in words


class TestForgetfulRing:
    def test_a_reader_that_comes_after_two_wraps_lists_what_is_open_with_its_true_age(
        self, model, zygote, tmp_path
    ):
        small = {"pushscope": {"bytes": 4096 + 128 * 256}}
        rings = tmp_path / "rings"
        with deployed(prefill_decode(extra_config=small), model, zygote, tmp_path) as pair:
            run(direct(pair, "p-first"), replace(PLAN, num_requests=2, seed=1))
            stuck = replace(PLAN, num_requests=1, concurrency=1, prompt_tokens=100, timeout_s=60, seed=2)
            waiting = threading.Thread(target=lambda: asyncio.run(run_load(stuck, direct(pair, "only-d"))))
            waiting.start()
            time.sleep(1)
            began = time.monotonic()
            for round_ in range(12):
                run(direct(pair, "both"), replace(PLAN, num_requests=10, prompt_tokens=50, seed=100 + round_))
            time.sleep(1)
            elapsed = time.monotonic() - began
            for path in rings.glob("*.ring"):
                with closing(RingReader(path)) as ring:
                    assert ring._newest_at_start > 3 * 128, "wrapped at least twice"
            snapshot = json.loads(pushscope("top", "--once", "--json", rings=rings).stdout)
            pair.stop()
            waiting.join()
        (entry,) = snapshot["waiting"]
        assert entry["waits"] == "D waits for P's prefill"
        assert entry["stage"] == "rendezvous"
        assert set(entry["sides"]) == {"P", "D"}
        assert (snapshot["taken_ns"] - entry["opened_ns"]) / 1e9 >= elapsed


@pytest.mark.skipif(os.getuid() != 0, reason="mounting needs root")
class TestNowhereToRecord:
    """The engine serves, and says once in its log why it does not record."""

    def serve(self, specs, model, zygote, tmp_path, before=lambda: None) -> list[str]:
        with deployed(specs, model, zygote, tmp_path, rings=None) as pair:
            before()
            run(direct(pair, "both"), PLAN)
            return [
                [
                    line
                    for line in pair.log(name).read_text().splitlines()
                    if "pushscope" in line and "WARN" in line
                ]
                for name in ("P1", "D1")
            ]

    def test_a_read_only_file_system_and_one_too_small(self, model, zygote, tmp_path, tmpfs):
        read_only, small = tmpfs("size=16m"), tmpfs("size=1m")
        subprocess.run(["mount", "-o", "remount,ro", str(read_only)], check=True)
        p, d = prefill_decode()
        specs = [
            replace(p, extra_config={"pushscope": {"dir": str(read_only / "rings")}}),
            replace(d, extra_config={"pushscope": {"dir": str(small / "rings")}}),
        ]
        (p_says,), (d_says,) = self.serve(specs, model, zygote, tmp_path)
        assert "Read-only file system" in p_says
        assert "less than half of that file system" in d_says

    def test_a_folder_that_cannot_be_made_and_a_disk_that_fills_up_later(
        self, model, zygote, tmp_path, tmpfs
    ):
        filling = tmpfs("size=32m")
        (tmp_path / "file").touch()
        p, d = prefill_decode()
        specs = [
            replace(p, extra_config={"pushscope": {"dir": str(tmp_path / "file" / "rings")}}),
            replace(d, extra_config={"pushscope": {"dir": str(filling / "rings")}}),
        ]

        def fill() -> None:
            with pytest.raises(OSError, match="No space"):
                (filling / "filler").write_bytes(bytes(32 << 20))

        (p_says,), d_says = self.serve(specs, model, zygote, tmp_path, fill)
        assert "cannot make the ring folder" in p_says
        assert d_says == []
        with closing(RingsSource(filling / "rings")) as source:
            assert source.poll().events
