"""The tables of transfers: their columns, their orders, and what their cells say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rich.cells import cell_len

from pushscope.telemetry import units
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.transfer import Outcome, Stage, Transfer
from pushscope.tui.bars import stage_bar
from pushscope.tui.columns import Cell, Column
from pushscope.tui.table_kind import Sort, TableKind
from pushscope.tui.transfer_fields import TRANSFER_FIELDS

OUTCOME_TONES = {
    Outcome.DELIVERED: "good",
    Outcome.FAILED: "bad",
    Outcome.EXPIRED: "bad",
    Outcome.LOST: "bad",
    Outcome.ABORTED: "warn",
}

STAGE_TITLES = {
    Stage.RELAY: "relay",
    Stage.ALLOCATION: "alloc.",
    Stage.REGISTRATION: "regist.",
    Stage.FLIGHT: "flight",
    Stage.RENDEZVOUS: "rendez.",
    Stage.HANDOFF: "handoff",
    Stage.HANDSHAKE: "handsh.",
    Stage.DESCRIPTORS: "descr.",
    Stage.SUBMIT: "submit",
    Stage.WIRE: "wire",
    Stage.NOTIFICATION: "notif.",
    Stage.WAKE: "wake",
}
"""Column titles of the stages, of up to seven cells."""

# Which stages stay longest in a narrow terminal: those that usually take the time.
_STAGE_DROPS = {
    Stage.WIRE: 3,
    Stage.RENDEZVOUS: 5,
    Stage.NOTIFICATION: 8,
    Stage.WAKE: 9,
    Stage.DESCRIPTORS: 10,
    Stage.SUBMIT: 11,
    Stage.FLIGHT: 12,
    Stage.HANDOFF: 13,
    Stage.REGISTRATION: 14,
    Stage.HANDSHAKE: 15,
    Stage.RELAY: 16,
    Stage.ALLOCATION: 17,
}


def identity(transfer: Transfer) -> tuple[str | None, str | None, int]:
    """A transfer's D request, or P's where D is not known."""
    if transfer.d_request is not None:
        return transfer.d_engine, transfer.d_request, transfer.attempt
    return transfer.p_engine, transfer.p_request or transfer.base_id, transfer.attempt


def route(transfer: Transfer, snapshot: Snapshot, width: int = 36) -> str:
    """``P1 -> D1``: the short names of the engines, ``?`` for one that isn't known yet, ``~>`` if the two were
    only paired by their base id.

    If that is longer than ``width``, the longer name is cut (an unobserved engine has no short name).
    """
    arrow = " ~> " if transfer.tentative else " -> "
    room = max(width - len(arrow), 2)
    p_name = units.clean(snapshot.engine_name(transfer.p_engine))
    d_name = units.clean(snapshot.engine_name(transfer.d_engine))
    p_room = max(room - cell_len(d_name), room // 2)
    p_name = units.clean(p_name, p_room)
    return p_name + arrow + units.clean(d_name, room - cell_len(p_name))


def seen(transfer: Transfer) -> str:
    """``P only`` or ``D only`` for a transfer of which the other side isn't observed, else nothing."""
    return f"{transfer.sides[0]} only" if len(transfer.sides) == 1 else ""


def stage_time(transfer: Transfer, stage: Stage) -> str:
    """How long a stage took on its slowest rank; ``≤`` is an upper bound, ``-`` was not seen or is open."""
    ended = [s for s in transfer.stages if s.stage is stage and s.end_ns is not None]
    if not ended:
        return units.UNKNOWN
    slowest = max(ended, key=lambda s: s.seconds or 0.0)
    return ("≤" if slowest.upper_bound else "") + units.duration(slowest.seconds)


def attempt_mark(transfer: Transfer) -> str:
    """`` #2`` for a second attempt, `` #1←2`` if P's blocks of the second met D's registration of the first."""
    if transfer.p_attempt not in (None, transfer.attempt):
        return f" #{transfer.attempt}←{transfer.p_attempt}"
    return f" #{transfer.attempt}" if transfer.attempt > 1 else ""


def _request(transfer: Transfer, _: Snapshot, width: int) -> Cell:
    name = transfer.base_id or transfer.d_request or transfer.p_request or "?"
    mark = attempt_mark(transfer)
    return Cell(units.shorten(name, width - len(mark)) + mark)


def _route(transfer: Transfer, snapshot: Snapshot, width: int) -> Cell:
    return Cell(route(transfer, snapshot, width))


def _seen(transfer: Transfer, _: Snapshot, __: int) -> Cell:
    return Cell(seen(transfer), "warn")


def _stage(transfer: Transfer, _: Snapshot, __: int) -> Cell:
    return Cell(transfer.stage.value if transfer.stage else units.UNKNOWN)


def _age(transfer: Transfer, snapshot: Snapshot, _: int) -> Cell:
    return Cell(units.age((snapshot.taken_ns - transfer.since_ns) / 1e9))


def _ended(transfer: Transfer, snapshot: Snapshot, _: int) -> Cell:
    if transfer.closed_ns is None:
        return Cell(units.UNKNOWN)
    return Cell(units.age((snapshot.taken_ns - transfer.closed_ns) / 1e9))


def _ranks(transfer: Transfer, _: Snapshot, __: int) -> Cell:
    # How many ranks there are may not be known yet.
    return Cell(f"{transfer.ranks_done}/{transfer.ranks or '?'}")


def _bytes(transfer: Transfer, _: Snapshot, __: int) -> Cell:
    return Cell(units.size(transfer.num_bytes))


def _tokens(transfer: Transfer, _: Snapshot, __: int) -> Cell:
    return Cell(units.count(transfer.num_tokens))


def _blocks(transfer: Transfer, _: Snapshot, __: int) -> Cell:
    return Cell(units.count(transfer.num_blocks))


def _first(transfer: Transfer, _: Snapshot, __: int) -> Cell:
    return Cell(units.clean(transfer.order.removesuffix(" first")) or units.UNKNOWN)


def _waits(transfer: Transfer, _: Snapshot, __: int) -> Cell:
    return Cell(units.clean(transfer.waits) or units.UNKNOWN)


def _outcome(transfer: Transfer, _: Snapshot, __: int) -> Cell:
    why = units.clean("; ".join(filter(None, (transfer.error, transfer.pairing))))
    words = transfer.outcome.value + (f": {why}" if why else "")
    return Cell(words, OUTCOME_TONES.get(transfer.outcome, ""))


def _exposed(transfer: Transfer, _: Snapshot, __: int) -> Cell:
    return Cell(units.UNKNOWN if transfer.exposed_ns is None else units.duration(transfer.exposed_ns / 1e9))


def _bar(transfer: Transfer, snapshot: Snapshot, width: int) -> Cell:
    return stage_bar(transfer, snapshot.taken_ns, min(width, _BAR_CELLS))


def _stage_column(stage: Stage) -> Column[Transfer]:
    def cell(transfer: Transfer, _: Snapshot, __: int) -> Cell:
        return Cell(stage_time(transfer, stage))

    width = 8 if stage is Stage.WIRE else 7  # the wire may be an upper bound, which takes a mark
    return Column(STAGE_TITLES[stage], cell, width=width, drop=_STAGE_DROPS[stage], right=True)


def _largest(value: Callable[[Transfer], int | None]) -> Callable[[Transfer, Snapshot], int]:
    # Largest first; what is not known comes last.
    def key(transfer: Transfer, _: Snapshot) -> int:
        number = value(transfer)
        return 1 if number is None else -number

    return key


def _stage_length(stage: Stage) -> Callable[[Transfer], int | None]:
    def value(transfer: Transfer) -> int | None:
        return max(
            (s.end_ns - s.start_ns for s in transfer.stages if s.stage is stage and s.end_ns is not None),
            default=None,
        )

    return value


_BAR_CELLS: Final = 48
"""The most that a bar needs; a file has room for any width."""
_REQUEST: Column[Transfer] = Column("request", _request, width=16, widening=0.15)
_ROUTE: Column[Transfer] = Column("P -> D", _route, width=10, most=14, drop=2)
_SEEN: Column[Transfer] = Column("seen", _seen, width=6, drop=4)
_BYTES: Column[Transfer] = Column("bytes", _bytes, width=8, drop=6, right=True)

_BY_REQUEST: Sort[Transfer] = Sort("request", lambda transfer, _: transfer.base_id, column="request")
_BY_ENGINES: Sort[Transfer] = Sort("engines", route, column="P -> D")
_BY_BYTES: Sort[Transfer] = Sort("most bytes", _largest(lambda transfer: transfer.num_bytes), column="bytes")

IN_FLIGHT: TableKind[Transfer] = TableKind(
    identity=identity,
    fields=TRANSFER_FIELDS,
    title="In flight",
    empty="nothing in flight",
    rows=lambda snapshot: snapshot.in_flight,
    columns=(
        _REQUEST,
        _ROUTE,
        Column("stage", _stage, width=12),
        Column("age", _age, width=7, right=True),
        Column("ranks", _ranks, width=5, drop=1, right=True),
        _BYTES,
        _SEEN,
        Column("its time so far", _bar, width=12, most=_BAR_CELLS, drop=3),
        Column("tokens", _tokens, width=8, drop=7, right=True),
        Column("blocks", _blocks, width=7, drop=8, right=True),
        Column("first", _first, width=12, most=16, drop=9),
    ),
    sorts=(
        Sort("age", column="age"),
        _BY_BYTES,
        Sort("stage", lambda transfer, _: (transfer.stage or "", transfer.since_ns), column="stage"),
        _BY_ENGINES,
        _BY_REQUEST,
    ),
)

WAITING: TableKind[Transfer] = TableKind(
    identity=identity,
    fields=TRANSFER_FIELDS,
    title="Waiting rendezvous",
    empty="nobody waits",
    rows=lambda snapshot: snapshot.waiting,
    columns=(
        _REQUEST,
        Column("who waits for whom", _waits, width=29, most=48),
        Column("since", _age, width=7, right=True),
        _ROUTE,
        Column("tokens", _tokens, width=7, drop=5, right=True),
        Column("blocks", _blocks, width=6, drop=6, right=True),
        _SEEN,
    ),
    sorts=(
        Sort("age", column="since"),
        Sort("most tokens", _largest(lambda transfer: transfer.num_tokens), column="tokens"),
        Sort(
            "who waits", lambda transfer, _: (transfer.waits, transfer.since_ns), column="who waits for whom"
        ),
        _BY_ENGINES,
        _BY_REQUEST,
    ),
)

_RECENT_COLUMNS: tuple[Column[Transfer], ...] = (
    _REQUEST,
    _ROUTE,
    Column("outcome", _outcome, width=18, most=44),
    _SEEN,
    Column("ago", _ended, width=7, drop=16, right=True),
    Column("first", _first, width=12, drop=7),
    Column("exposed", _exposed, width=7, drop=1, right=True),
    *(_stage_column(stage) for stage in Stage),
    _BYTES,
)
_NEWEST: Sort[Transfer] = Sort("newest", column="ago")
_SLOWEST: Sort[Transfer] = Sort(
    "longest exposed", _largest(lambda transfer: transfer.exposed_ns), column="exposed"
)
_RECENT_SORTS: tuple[Sort[Transfer], ...] = (
    Sort("longest rendezvous", _largest(_stage_length(Stage.RENDEZVOUS)), column="rendez."),
    Sort("longest wire", _largest(_stage_length(Stage.WIRE)), column="wire"),
    Sort("outcome", lambda transfer, _: transfer.outcome.value, column="outcome"),
    _BY_BYTES,
    _BY_REQUEST,
)

RECENT: TableKind[Transfer] = TableKind(
    identity=identity,
    fields=TRANSFER_FIELDS,
    title="Recent",
    empty="nothing has ended yet",
    rows=lambda snapshot: snapshot.recent,
    columns=_RECENT_COLUMNS,
    sorts=(_NEWEST, _SLOWEST, *_RECENT_SORTS),
)
ENDED: TableKind[Transfer] = replace(RECENT, title="Ended lately", sorts=(_SLOWEST, _NEWEST, *_RECENT_SORTS))
"""The same for a screen of its own, where the slowest comes first."""
