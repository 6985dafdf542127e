"""The tables of the pace: each stage, push beside pull, and each rank, with the one that is slow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from pushscope.telemetry import units
from pushscope.telemetry.pace import RankPace, Times
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.transfer import Stage, rank_name
from pushscope.tui.bars import shape
from pushscope.tui.columns import Cell, Column
from pushscope.tui.lookup import Lookup
from pushscope.tui.query import Fields
from pushscope.tui.table_kind import Sort, TableKind

MODES: Final = ("push", "pull")
EXPOSED: Final = "exposed"
_NONE: Final = Times()
_ORDER: Final = {stage.value: n for n, stage in enumerate(Stage)}


@dataclass(frozen=True)
class StageRow:
    """One stage, or the exposed time, in both modes."""

    name: str
    upper_bound: bool
    of: dict[str, Times]
    """By mode."""

    @property
    def key(self) -> tuple[str, bool]:
        return self.name, self.upper_bound

    @property
    def slowest_s(self) -> float:
        return max((times.p50_s or 0.0 for times in self.of.values()), default=0.0)


def stage_rows(snapshot: Snapshot) -> tuple[StageRow, ...]:
    """Exposed time, then each stage in the order in which a request meets them."""
    pace = snapshot.pace
    rows = [StageRow(EXPOSED, False, pace.exposed)] if pace.exposed else []
    by_key: dict[tuple[Stage, bool], dict[str, Times]] = {}
    for each in pace.stages:
        by_key.setdefault((each.stage, each.upper_bound), {})[each.mode] = each.times
    keys = sorted(by_key, key=lambda key: (_ORDER[key[0].value], key[1]))
    return (*rows, *(StageRow(stage.value, bound, by_key[stage, bound]) for stage, bound in keys))


def rank_rows(snapshot: Snapshot) -> tuple[RankPace, ...]:
    return snapshot.pace.ranks


def _name(row: StageRow, _: Snapshot, __: int) -> Cell:
    return Cell(("≤ " if row.upper_bound else "") + row.name)


def _of_mode(mode: str, title: str, value: Callable[[Times], str], width: int, drop: int) -> Column[StageRow]:
    def cell(row: StageRow, _: Snapshot, __: int) -> Cell:
        times = row.of.get(mode, _NONE)
        return Cell(value(times) if times.count else units.UNKNOWN)

    return Column(f"{mode} {title}", cell, width=width, drop=drop, right=True)


def _shape_of(mode: str, drop: int) -> Column[StageRow]:
    def cell(row: StageRow, _: Snapshot, width: int) -> Cell:
        times = row.of.get(mode, _NONE)
        return Cell(shape(times.shape, width))

    return Column("1 µs … 100 s", cell, width=16, most=24, drop=drop)


def _columns(mode: str, later: int) -> tuple[Column[StageRow], ...]:
    return (
        _of_mode(mode, "p50", lambda t: units.duration(t.p50_s), 8, 0),
        _of_mode(mode, "p90", lambda t: units.duration(t.p90_s), 8, 5 + later),
        _of_mode(mode, "p99", lambda t: units.duration(t.p99_s), 8, 1 + later),
        _of_mode(mode, "max", lambda t: units.duration(t.max_s), 8, 7 + later),
        _of_mode(mode, "n", lambda t: units.count(t.count), 7, 9 + later),
        _shape_of(mode, 3 + later),
    )


def _ratio(row: StageRow, _: Snapshot, __: int) -> Cell:
    push, pull = (row.of.get(mode, _NONE).p50_s for mode in MODES)
    return Cell(f"{push / pull:.2f}" if push and pull else units.UNKNOWN)


STAGES: TableKind[StageRow] = TableKind(
    title="Stages",
    empty="nothing has ended yet",
    rows=stage_rows,
    columns=(
        Column("stage", _name, width=14),
        *_columns("push", 0),
        *_columns("pull", 1),
        Column("push/pull", _ratio, width=9, drop=4, right=True),
    ),
    sorts=(
        Sort("order of a request", column="stage"),
        Sort("slowest", lambda row, _: -row.slowest_s, column="push p50"),
        Sort("longest p99", lambda row, _: -max((t.p99_s or 0.0 for t in row.of.values()), default=0.0)),
    ),
    identity=lambda row: row.key,
    fields=Fields(texts={"stage": lambda row, _: (row.name,), "mode": lambda row, _: tuple(row.of)}),
)


def _rank(row: RankPace, snapshot: Snapshot, __: int) -> Cell:
    return Cell(units.clean(f"{snapshot.engine_name(row.engine)} {rank_name(row.rank)}"))


def _verdict(row: RankPace, _: Snapshot, __: int) -> Cell:
    if row.others_p50_s is None:
        return Cell("only rank", "dim")
    if not row.outlier:
        return Cell("as the others")
    p50_s = row.times.p50_s
    ratio = f" x{p50_s / row.others_p50_s:.1f}" if p50_s and row.others_p50_s else ""
    return Cell(f"SLOW{ratio}", "bad")


def _duration(value: Callable[[RankPace], float | None]) -> Callable[[RankPace, Snapshot, int], Cell]:
    return lambda row, _, __: Cell(units.duration(value(row)))


def _rank_names(row: RankPace, _: Lookup) -> Iterable[str]:
    return rank_name(row.rank), str(row.rank[1])


RANKS: TableKind[RankPace] = TableKind(
    title="Ranks",
    empty="no rank has had a part in what ended",
    rows=rank_rows,
    columns=(
        Column("rank", _rank, width=10, most=14),
        Column("stage", lambda row, _, __: Cell(row.stage.value), width=12),
        Column("beside others", _verdict, width=13),
        Column("p50", _duration(lambda row: row.times.p50_s), width=8, right=True),
        Column("others p50", _duration(lambda row: row.others_p50_s), width=10, right=True, drop=1),
        Column("p99", _duration(lambda row: row.times.p99_s), width=8, right=True, drop=2),
        Column("max", _duration(lambda row: row.times.max_s), width=8, right=True, drop=4),
        Column("n", lambda row, _, __: Cell(units.count(row.times.count)), width=7, right=True, drop=5),
        Column("1 µs to 100 s", lambda row, _, w: Cell(shape(row.times.shape, w)), width=16, most=24, drop=3),
    ),
    sorts=(
        Sort("outliers"),
        Sort("longest p50", lambda row, _: -(row.times.p50_s or 0.0), column="p50"),
        Sort("longest p99", lambda row, _: -(row.times.p99_s or 0.0), column="p99"),
        Sort("rank", lambda row, s: (s.engine_name(row.engine), row.rank, row.stage), column="rank"),
        Sort("stage", lambda row, _: (_ORDER[row.stage.value], -(row.times.p50_s or 0.0)), column="stage"),
    ),
    identity=lambda row: (row.engine, row.rank, row.stage),
    fields=Fields(
        texts={
            "engine": lambda row, lookup: lookup.names(row.engine),
            "host": lambda row, lookup: (lookup.hosts.get(row.engine, "").lower(),),
            "rank": _rank_names,
            "stage": lambda row, _: (row.stage.value,),
        }
    ),
)
