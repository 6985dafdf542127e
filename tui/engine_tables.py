"""The tables of who is there: engines, the pairs that have to do with each other, the clocks of their hosts."""

from __future__ import annotations

from collections.abc import Callable

from pushscope.telemetry import units
from pushscope.telemetry.clocks import ClockOffset
from pushscope.telemetry.snapshot import Engine, Pair, Snapshot, Vitals
from pushscope.tui.columns import Cell, Column
from pushscope.tui.header import engine_state
from pushscope.tui.lookup import Lookup
from pushscope.tui.query import Fields
from pushscope.tui.table_kind import Sort, TableKind


def _vitals(engine: Engine, snapshot: Snapshot) -> Vitals | None:
    return next((v for v in snapshot.vitals if v.engine_id == engine.engine_id), None)


def _vital(value: Callable[[Vitals], Cell]) -> Callable[[Engine, Snapshot, int], Cell]:
    def cell(engine: Engine, snapshot: Snapshot, _: int) -> Cell:
        vitals = _vitals(engine, snapshot)
        return Cell(units.UNKNOWN) if vitals is None else value(vitals)

    return cell


def _state(engine: Engine, snapshot: Snapshot, _: int) -> Cell:
    if not all(p.recording for p in engine.processes if not p.replaced):
        return Cell("RECORDING OFF", "warn")
    return Cell(*engine_state(engine, snapshot.taken_ns))


def _where(engine: Engine, _: Snapshot, width: int) -> Cell:
    pid = f"/{engine.processes[0].pid}" if engine.processes else ""
    return Cell(units.clean(engine.host + pid, width))


def _ranks(engine: Engine) -> int:
    return len({p.rank for p in engine.processes if p.connector_role == "worker"})


def _lost(engine: Engine, _: Snapshot, __: int) -> Cell:
    lost = sum(p.events_lost for p in engine.processes)
    return Cell(units.count(lost), "bad" if lost else "")


def _handshakes(v: Vitals) -> Cell:
    told = (("FAILED", v.handshakes_failed), ("pending", v.handshakes_pending), ("done", v.handshakes_done))
    parts = [f"{units.count(n)} {words}" for words, n in told if n or words == "done"]
    return Cell(", ".join(parts), "bad" if v.handshakes_failed else "warn" if v.handshakes_pending else "")


def _tables(v: Vitals) -> Cell:
    told = (
        ("reg", v.registrations_unmatched),
        ("blk", v.blocks_unmatched),
        ("wr", v.writes),
        ("lease", v.leases),
    )
    return Cell(" ".join(f"{name} {units.count(n)}" for name, n in told if n is not None) or units.UNKNOWN)


def _diagnosed(engine: Engine, snapshot: Snapshot, _: int) -> Cell:
    codes = [d.code for d in snapshot.diagnoses if not d.attempt and d.subject == engine.engine_id]
    return Cell(", ".join(codes) or "-", "bad" if codes else "dim")


ENGINES: TableKind[Engine] = TableKind(
    title="Engines",
    empty="no engine is observed",
    rows=lambda snapshot: snapshot.engines,
    columns=(
        Column("engine", lambda e, _, __: Cell(units.clean(e.name, 8)), width=6),
        Column("state", _state, width=13, most=17),
        Column("host/pid", _where, width=14, most=20, drop=3),
        Column("ranks", lambda e, _, __: Cell(units.count(_ranks(e))), width=5, right=True, drop=6),
        Column("mode", lambda e, _, __: Cell(units.clean(e.mode, 4)), width=4, drop=9),
        Column("handshakes", _vital(_handshakes), width=14, most=30, drop=4),
        Column("pinned", _vital(lambda v: Cell(units.count(v.pinned_blocks))), width=7, right=True, drop=1),
        Column("tokens", _vital(lambda v: Cell(units.count(v.pinned_tokens))), width=7, right=True, drop=7),
        Column("held", _vital(lambda v: Cell(units.count(v.held_blocks))), width=5, right=True, drop=8),
        Column("loop", _vital(lambda v: Cell(units.share(v.loop_share))), width=5, right=True, drop=5),
        Column("lost", _lost, width=5, right=True, drop=2),
        Column("tables", _vital(_tables), width=22, most=30, drop=10),
        Column("diagnosed", _diagnosed, width=12, most=60, drop=11),
        Column("vLLM", lambda e, _, __: Cell(units.clean(e.vllm_version, 10)), width=8, drop=12),
        Column("side channel", lambda e, _, __: Cell(units.clean(e.side_channel, 28)), width=20, drop=13),
    ),
    sorts=(
        Sort("name", column="engine"),
        Sort("worst", lambda e, _: (e.alive, -sum(p.events_lost for p in e.processes)), column="state"),
        Sort("most pinned", lambda e, s: -(v.pinned_blocks if (v := _vitals(e, s)) else 0), column="pinned"),
        Sort("busiest loop", lambda e, s: -((v.loop_share or 0.0) if (v := _vitals(e, s)) else 0.0), "loop"),
    ),
    identity=lambda engine: engine.engine_id,
    fields=Fields(
        texts={
            "engine": lambda e, lookup: lookup.names(e.engine_id),
            "p": lambda e, lookup: lookup.names(e.engine_id) if "P" in e.side else (),
            "d": lambda e, lookup: lookup.names(e.engine_id) if "D" in e.side else (),
            "host": lambda e, _: (e.host.lower(),),
            "mode": lambda e, _: (e.mode,),
            "diagnosis": lambda e, lookup: lookup.codes_of_engine(e.engine_id),
        }
    ),
)


def _route(pair: Pair, snapshot: Snapshot, width: int) -> Cell:
    names = (units.clean(snapshot.engine_name(i), width // 2) for i in (pair.p_engine, pair.d_engine))
    return Cell(" -> ".join(names))


def _handshake(pair: Pair, _: Snapshot, __: int) -> Cell:
    tone = (
        "bad" if pair.handshake.startswith("failed") else "warn" if pair.handshake.startswith("pend") else ""
    )
    return Cell(units.clean(pair.handshake) or units.UNKNOWN, tone)


def _offset(pair: Pair, snapshot: Snapshot, _: int) -> Cell:
    hosts = {e.engine_id: e.host for e in snapshot.engines}
    p, d = hosts.get(pair.p_engine), hosts.get(pair.d_engine)
    if p is None or d is None:
        return Cell("?", "dim")
    if p == d:
        return Cell("same host", "dim")
    for clock in snapshot.clocks:
        if {clock.host, clock.peer_host} == {p, d}:
            return clock_cell(clock)
    return Cell("?", "warn")


def clock_cell(clock: ClockOffset) -> Cell:
    """An offset with its uncertainty, or that it is not sure."""
    if clock.uncertainty_ns is None:
        return Cell("UNSURE", "warn")
    return Cell(f"{units.duration(clock.offset_ns / 1e9)} ±{units.duration(clock.uncertainty_ns / 1e9)}")


def _number(value: Callable[[Pair], int], tone: str = "") -> Callable[[Pair, Snapshot, int], Cell]:
    def cell(pair: Pair, _: Snapshot, __: int) -> Cell:
        number = value(pair)
        return Cell(units.count(number), tone if number else "")

    return cell


def _heartbeats(pair: Pair, _: Snapshot, __: int) -> Cell:
    return Cell(f"{units.count(pair.heartbeats_applied)}/{units.count(pair.heartbeats_ignored)}")


def _pair_names(pair: Pair, lookup: Lookup) -> tuple[str, ...]:
    return lookup.names(pair.p_engine, pair.d_engine)


PAIRS: TableKind[Pair] = TableKind(
    title="Pairs",
    empty="no two engines have had to do with each other",
    rows=lambda snapshot: snapshot.pairs,
    columns=(
        Column("P -> D", _route, width=10, most=14),
        Column("in flight", _number(lambda p: p.in_flight), width=9, right=True),
        Column("waiting", _number(lambda p: p.waiting), width=7, right=True),
        Column("oldest", lambda p, _, __: Cell(units.age(p.oldest_s)), width=7, right=True, drop=2),
        Column("delivered", _number(lambda p: p.delivered), width=9, right=True, drop=1),
        Column("bad", _number(lambda p: p.bad, "bad"), width=5, right=True),
        Column(
            "exposed p50",
            lambda p, _, __: Cell(units.duration(p.exposed.p50_s)),
            width=11,
            right=True,
            drop=3,
        ),
        Column("p99", lambda p, _, __: Cell(units.duration(p.exposed.p99_s)), width=8, right=True, drop=6),
        Column("bytes", lambda p, _, __: Cell(units.size(p.num_bytes)), width=8, right=True, drop=7),
        Column("handshake", _handshake, width=10, most=60, drop=4),
        Column("clock offset", _offset, width=16, drop=5),
        Column("heartbeats", _heartbeats, width=12, right=True, drop=8),
    ),
    sorts=(
        Sort("busiest", column="in flight"),
        Sort("oldest", lambda p, _: -(p.oldest_s or 0.0), column="oldest"),
        Sort("most bad", lambda p, _: -p.bad, column="bad"),
        Sort("longest exposed", lambda p, _: -(p.exposed.p99_s or 0.0), column="exposed p50"),
        Sort("engines", lambda p, s: (s.engine_name(p.p_engine), s.engine_name(p.d_engine)), column="P -> D"),
    ),
    identity=lambda pair: (pair.p_engine, pair.d_engine),
    fields=Fields(
        texts={
            "engine": _pair_names,
            "p": lambda pair, lookup: lookup.names(pair.p_engine),
            "d": lambda pair, lookup: lookup.names(pair.d_engine),
            "host": lambda pair, lookup: (
                lookup.hosts.get(i, "").lower() for i in (pair.p_engine, pair.d_engine)
            ),
        },
        numbers={"age": lambda pair, _: pair.oldest_s, "exposed": lambda pair, _: pair.exposed.p50_s},
    ),
)

CLOCKS: TableKind[ClockOffset] = TableKind(
    title="Clocks",
    empty="all engines are on the reader's own host",
    rows=lambda snapshot: snapshot.clocks,
    columns=(
        Column("host", lambda c, _, w: Cell(units.clean(c.host, w)), width=16, most=40),
        Column("beside", lambda c, _, w: Cell(units.clean(c.peer_host, w)), width=16, most=40),
        Column("offset", lambda c, _, __: clock_cell(c), width=24),
        Column(
            "what is known",
            lambda c, _, __: Cell(units.clean(c.notice) or "known"),
            width=20,
            most=90,
            drop=1,
        ),
    ),
    sorts=(Sort("host"),),
    identity=lambda clock: (clock.host, clock.peer_host),
    fields=Fields(texts={"host": lambda c, _: (c.host.lower(), c.peer_host.lower())}),
    only_if_any=True,
)
