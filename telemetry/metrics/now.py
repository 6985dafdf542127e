"""What is so at this moment: the gauges, taken from a snapshot and from what a watcher follows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from pushscope.telemetry.clocks import ClockOffset
from pushscope.telemetry.diagnosis.catalogue import CATALOGUE
from pushscope.telemetry.diagnosis.model import Diagnosis
from pushscope.telemetry.group import Group
from pushscope.telemetry.holds import Holds, abandoned, pinned
from pushscope.telemetry.metrics import catalogue as m
from pushscope.telemetry.metrics.family import Family
from pushscope.telemetry.metrics.figures import Labels
from pushscope.telemetry.metrics.place import Place, parts_of
from pushscope.telemetry.snapshot import Engine, Snapshot
from pushscope.telemetry.transfer import Transfer

Gauge = tuple[Family, Labels, float]
"""A value with all of its labels, in the family's order."""
IsLocal = Callable[[str], bool]
_SCHEDULER_TABLES: Final = ("staged",)
_WORKER_TABLES: Final = ("unmatched_blocks", "unmatched_registrations", "writes", "leases", "receiving")


def gauges(
    snapshot: Snapshot,
    places: Sequence[Place],
    groups: Iterable[Group],
    followed: Iterable[Transfer],
    is_local: IsLocal,
) -> Iterator[Gauge]:
    """Every gauge of engines that are local, and of clocks. ``groups`` and ``followed``: the assembler's, by now."""
    engines = [engine for engine in snapshot.engines if is_local(engine.engine_id)]
    by_engine: defaultdict[str, list[Place]] = defaultdict(list)
    for place in places:
        by_engine[place.origin.engine_id].append(place)
    for engine in engines:
        yield from _of_engine(engine, by_engine[engine.engine_id])
    parts = {engine.engine_id: tuple(engine.side) for engine in engines}
    yield from _transfers(snapshot, parts)
    yield from _stuck(snapshot, parts)
    yield from _memory(engines, pinned(groups), abandoned(followed))
    yield from clocks(snapshot.clocks)


def clocks(offsets: Iterable[ClockOffset]) -> Iterator[Gauge]:
    """What is known of how the hosts' clocks are apart."""
    for clock in offsets:
        hosts = (clock.host, clock.peer_host)
        yield m.CLOCK_OFFSET, hosts, clock.offset_ns / 1e9
        if clock.uncertainty_ns is not None:
            yield m.CLOCK_UNCERTAINTY, hosts, clock.uncertainty_ns / 1e9


def _of_engine(engine: Engine, places: Sequence[Place]) -> Iterator[Gauge]:
    labels = (engine.engine_id,)
    processes = [process for process in engine.processes if not process.replaced]
    yield m.ENGINE_UP, labels, engine.alive
    yield m.RECORDING, labels, all(process.recording for process in processes)
    yield m.SEAMS_OFF, labels, sum(bool(process.seams_off) for process in processes)
    if places:
        yield m.ENGINE_INFO, (*labels, *_what_it_is(engine, places)), 1
        if "P" in engine.side:
            yield m.LEASE_SECONDS, labels, max(places, key=_age).origin.lease_s
    newest = {place.rank: place for place in sorted(places, key=_age)}  # one that was restarted has several
    for rank, place in newest.items():
        if place.tables is not None:
            for table in _SCHEDULER_TABLES if rank == "scheduler" else _WORKER_TABLES:
                yield m.TABLE_ENTRIES, (*labels, rank, table), getattr(place.tables, table)


def _age(place: Place) -> int:
    return place.origin.anchor_monotonic_ns


def _what_it_is(engine: Engine, places: Sequence[Place]) -> Labels:
    origin = max(places, key=_age).origin
    return (
        "".join(parts_of(origin.kv_role)),
        origin.mode,
        engine.host,
        engine.side_channel,
        origin.model,
        str(origin.tp_size),
        str(origin.pp_size),
        origin.vllm_version,
        origin.nixl_version,
        origin.pushscope_version,
    )


def _transfers(snapshot: Snapshot, parts: Mapping[str, tuple[str, ...]]) -> Iterator[Gauge]:
    """In flight and waiting: how many, and for how long the oldest, at each side that is local."""
    moving, waiting = _Ages(snapshot.taken_ns), _Ages(snapshot.taken_ns)
    for t in snapshot.in_flight:
        moving.add("P", t.p_engine if t.p_request else None, t)
        moving.add("D", t.d_engine if t.d_request else None, t)
    for t in snapshot.waiting:
        waiting.add("P", t.p_engine if t.lease_until_ns is not None else None, t)
        waiting.add("D", t.d_engine if t.d_waits else None, t)
    of_families = ((moving, m.IN_FLIGHT, m.OLDEST_IN_FLIGHT), (waiting, m.WAITING, m.OLDEST_WAITING))
    for ages, number, oldest in of_families:
        for engine_id, roles in parts.items():
            for role in roles:
                place = (engine_id, role)
                yield number, place, ages.counts[place]
                yield oldest, place, ages.oldest_ns.get(place, 0) / 1e9


class _Ages:
    """Transfers by engine and role."""

    def __init__(self, now_ns: int):
        self._now_ns = now_ns
        self.counts: Counter[tuple[str, str]] = Counter()
        self.oldest_ns: dict[tuple[str, str], int] = {}

    def add(self, role: str, engine_id: str | None, transfer: Transfer) -> None:
        if engine_id is None:
            return
        place = (engine_id, role)
        self.counts[place] += 1
        age_ns = max(0, self._now_ns - transfer.since_ns)
        self.oldest_ns[place] = max(age_ns, self.oldest_ns.get(place, 0))


def _stuck(snapshot: Snapshot, parts: Mapping[str, tuple[str, ...]]) -> Iterator[Gauge]:
    counts: Counter[Labels] = Counter()
    for engine_id in parts:
        counts.update({(engine_id, entry.code, entry.severity.value): 0 for entry in CATALOGUE.values()})
    if snapshot.diagnoses:
        transfers = {
            (t.base_id, t.attempt): t for t in (*snapshot.recent, *snapshot.waiting, *snapshot.in_flight)
        }
        for diagnosis in snapshot.diagnoses:
            engine_id = _told_at(diagnosis, transfers)
            if engine_id in parts:
                counts[engine_id, diagnosis.code, diagnosis.severity.value] += 1
    yield from ((m.STUCK, labels, number) for labels, number in counts.items())


def _told_at(diagnosis: Diagnosis, transfers: Mapping[tuple[str, int], Transfer]) -> str:
    """The engine that a diagnosis is told at: a transfer's at D, or at P where D is not observed."""
    if not diagnosis.attempt:
        return diagnosis.subject
    transfer = transfers.get((diagnosis.subject, diagnosis.attempt))
    if transfer is None:
        return ""
    at_d = "D" in transfer.sides and transfer.d_engine is not None
    return (transfer.d_engine if at_d else transfer.p_engine) or ""


def _memory(
    engines: Sequence[Engine], pinned_at: Mapping[str, Holds], abandoned_at: Mapping[str, Holds]
) -> Iterator[Gauge]:
    for engine in engines:
        labels = (engine.engine_id,)
        if "P" in engine.side:
            holds = pinned_at.get(engine.engine_id, Holds()) if engine.alive else Holds()
            yield m.PINNED_REQUESTS, labels, holds.requests
            yield m.PINNED_BLOCKS, labels, holds.blocks
            yield m.PINNED_TOKENS, labels, holds.tokens
        if "D" in engine.side:
            holds = abandoned_at.get(engine.engine_id, Holds()) if engine.alive else Holds()
            yield m.ABANDONED_REQUESTS, labels, holds.requests
            yield m.ABANDONED_BLOCKS, labels, holds.blocks
