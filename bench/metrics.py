"""What metrics cost: counted while events are read, and shown to a scraper by an agent with very many engines."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from random import Random
from typing import Final, TypeVar

import msgspec
from prometheus_client.metrics_core import Metric

from bench.agent_process import OPEN_METRICS
from bench.estimate import Estimate, median_of
from bench.figure import Figure, Progress, Settings, compared
from bench.read import BUDGET_PER_S, WINDOW_NS, Handed
from bench.rings import D_WORKER, ORIGINS, P_WORKER
from bench.traffic import TRANSFER, stream
from pushscope.telemetry import events as ev
from pushscope.telemetry.agent.squeeze import squeezed
from pushscope.telemetry.metrics.cardinality import Deployment, series
from pushscope.telemetry.metrics.meter import Meter, Trace
from pushscope.telemetry.metrics.page import Own, gathered, rendered
from pushscope.telemetry.metrics.state import save
from pushscope.telemetry.source import Reading, RingState
from pushscope.telemetry.transfer import Outcome, Rank, Stage, StageTime, Transfer
from pushscope.telemetry.watch import Watcher, rest_the_collector

WINDOWS: Final = 24
WARM_WINDOWS: Final = 4
CROWD: Final = Deployment(p=32, d=32, tp=8)
SCRAPES: Final = 9
T = TypeVar("T")


def run(_settings: Settings, progress: Progress) -> list[Figure]:
    """Reading with and without a meter; a scrape of 64 engines of eight ranks, where every P writes to every D."""
    rest_the_collector()  # as the command does
    return [*_reading(progress), *_scraping(progress)]


# -- reading ------------------------------------------------------------------------------------------


def _reading(progress: Progress) -> list[Figure]:
    plain, metered = [], []
    for number, (without_s, with_s) in enumerate(_windows(progress)):
        if number >= WARM_WINDOWS:
            plain.append(without_s * 1e6)
            metered.append(with_s * 1e6)
    return [compared("an event folded, with metrics", "us", metered, plain, "without metrics")]


def _windows(progress: Progress) -> Iterator[tuple[float, float]]:
    """CPU seconds per event without and with a meter, window by window, each of them first in turn."""
    meter = Meter()
    handed = [Handed(), Handed()]
    watchers = [Watcher(handed[0]), Watcher(handed[1], on_closed=meter.on_closed, on_event=meter.on_event)]
    per_s = BUDGET_PER_S / len(TRANSFER)
    begin_ns = time.monotonic_ns()
    progress(0.0, "making the traffic")
    traffic = stream(int((WARM_WINDOWS + WINDOWS) * WINDOW_NS / 1e9 * per_s), begin_ns, per_s)
    rings = tuple(RingState(origin) for origin in ORIGINS)
    gc.collect()
    gc.freeze()  # the prepared traffic is not the reader's
    at = 0
    for number in range(WARM_WINDOWS + WINDOWS):
        progress(0.5 * number / (WARM_WINDOWS + WINDOWS), f"window {number + 1} of {WARM_WINDOWS + WINDOWS}")
        end_ns = begin_ns + (number + 1) * WINDOW_NS
        events = []
        while at < len(traffic) and traffic[at][0] < end_ns:
            events.append(traffic[at][1:])
            at += 1
        reading = Reading(end_ns, end_ns, rings, events)
        seconds = [0.0, 0.0]
        for which in (0, 1) if number % 2 else (1, 0):
            handed[which].reading = reading
            start = time.thread_time()
            watchers[which].poll()
            seconds[which] = (time.thread_time() - start) / max(1, len(events))
        yield seconds[0], seconds[1]


# -- scraping -----------------------------------------------------------------------------------------


def _scraping(progress: Progress) -> list[Figure]:
    progress(0.5, "filling the figures")
    watcher, meter = crowded(CROWD)
    gather_ms: list[float] = []
    render_ms: list[float] = []
    squeeze_ms: list[float] = []
    save_ms: list[float] = []
    body = small = state = b""
    for number in range(SCRAPES):
        progress(0.6 + 0.4 * number / SCRAPES, f"scrape {number + 1} of {SCRAPES}")
        metrics = _timed(gather_ms, lambda: gathered(watcher, meter, own=Own()))
        body = _timed(render_ms, partial(_text, metrics))
        small, _ = _timed(squeeze_ms, partial(squeezed, body, "gzip"))
        state = _timed(save_ms, lambda: save(meter.state(watcher)))
    lines = sum(not line.startswith(b"#") for line in body.splitlines())
    what = f"{CROWD.p + CROWD.d} engines, TP {CROWD.tp}, every peer seen"
    return [
        Figure(what=f"series, {what}", unit="", measured=_once(lines)),
        Figure(what="of it computed for the engines", unit="", measured=_once(series(CROWD))),
        Figure(
            what="a page of it, OpenMetrics with exemplars", unit="MiB", measured=_once(len(body) / 2**20)
        ),
        Figure(what="gathering it, while nothing else is read", unit="ms", measured=median_of(gather_ms)),
        Figure(what="writing it as text", unit="ms", measured=median_of(render_ms)),
        Figure(what="gzipping it, for who takes that", unit="ms", measured=median_of(squeeze_ms)),
        Figure(what="as it goes out then", unit="MiB", measured=_once(len(small) / 2**20)),
        Figure(what="saving it", unit="ms", measured=median_of(save_ms)),
        Figure(what="as it is saved", unit="MiB", measured=_once(len(state) / 2**20)),
    ]


def _text(metrics: list[Metric]) -> bytes:
    return rendered(metrics, OPEN_METRICS)[0]


def _timed(into: list[float], call: Callable[[], T]) -> T:
    start = time.thread_time()
    result = call()
    into.append((time.thread_time() - start) * 1e3)
    return result


def crowded(deployment: Deployment) -> tuple[Watcher, Meter]:
    """A watcher of that many engines, of which every pair has had transfers and handshakes."""
    draw = Random(1)
    meter = Meter()
    ranks: list[Rank] = [(0, tp) for tp in range(deployment.tp)]
    origins = [
        *(o for n in range(deployment.p) for o in _engine("P", n, P_WORKER, ranks)),
        *(o for n in range(deployment.d) for o in _engine("D", n, D_WORKER, ranks)),
    ]
    handed = Handed()
    watcher = Watcher(handed, on_event=meter.on_event)
    now_ns = time.monotonic_ns()
    said = [(at, event) for at, origin in enumerate(origins) for event in _told(origin, deployment, now_ns)]
    rings = tuple(RingState(origin) for origin in origins)
    handed.reading = Reading(now_ns, time.time_ns(), rings, [(at, ev.encode(event)) for at, event in said])
    watcher.poll()
    handed.reading = Reading(now_ns, time.time_ns(), rings)
    for p, d in product(range(deployment.p), range(deployment.d)):
        for number in range(4):
            traces = {side: Trace(draw.getrandbits(128), draw.getrandbits(64)) for side in "PD"}
            transfer = _transfer(_id("P", p), _id("D", d), ranks, draw, f"{p}-{d}-{number}")
            meter.on_closed(transfer, traces)
    return watcher, meter


def _id(side: str, number: int) -> str:
    return f"{side.lower()}{number:07x}-0f5d-4b0e-9a53-3f2f7f1f8a01"


def _engine(side: str, number: int, like: ev.Origin, ranks: list[Rank]) -> Iterator[ev.Origin]:
    engine_id = _id(side, number)
    for role, (_, tp) in [("scheduler", ranks[0]), *(("worker", rank) for rank in ranks)]:
        yield msgspec.structs.replace(
            like,
            engine_id=engine_id,
            connector_role=role,
            tp_rank=tp,
            tp_size=len(ranks),
            instance=f"{engine_id} {role} {tp}",
        )


def _told(origin: ev.Origin, deployment: Deployment, now_ns: int) -> Iterator[ev.Event]:
    yield ev.Tables(now_ns, 1, 2, 3, 4, 5, 6)
    yield ev.Loop(now_ns, 10, 1_000_000)
    if origin.connector_role == "scheduler":
        return
    at_p = origin.kv_role == "kv_producer"
    if at_p:
        yield ev.DescriptorsBuilt(now_ns, "r", 1, 64)
        yield ev.TransferDone(now_ns, "r", 1, 1 << 22, 16, 200, 5_000)
    for number in range(deployment.d if at_p else deployment.p):
        yield ev.HandshakeEnded(now_ns, _id("D" if at_p else "P", number), now_ns - 50_000_000, 8)


def _transfer(p_engine: str, d_engine: str, ranks: list[Rank], draw: Random, name: str) -> Transfer:
    """One that met every stage, on every rank."""
    stages = [StageTime(Stage.WAKE, 0, int(draw.lognormvariate(15, 2)))]
    for stage in Stage:
        if stage in (Stage.RELAY, Stage.ALLOCATION, Stage.WAKE):
            continue
        waited = draw.choice(("P waited for D", "D waited for P")) if stage is Stage.RENDEZVOUS else ""
        stages += [
            StageTime(stage, 0, int(draw.lognormvariate(15, 2)), rank, rank, waited=waited) for rank in ranks
        ]
    return Transfer(
        base_id=name,
        d_engine=d_engine,
        d_request=f"{name}-d",
        p_engine=p_engine,
        p_request=f"{name}-p",
        sides=("P", "D"),
        outcome=Outcome.DELIVERED,
        opened_ns=0,
        since_ns=1,
        closed_ns=time.monotonic_ns(),
        num_bytes=1 << 25,
        stages=tuple(stages),
        exposed_ns=int(draw.lognormvariate(17, 2)),
        hidden_ns=int(draw.lognormvariate(17, 2)),
    )


def _once(value: float) -> Estimate:
    return Estimate(value, value, value, "once")
