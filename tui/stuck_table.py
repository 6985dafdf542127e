"""The table of diagnoses, and all tables together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pushscope.telemetry.stuck import Row, rows_of
from pushscope.telemetry.units import clean
from pushscope.tui.columns import Cell, Column
from pushscope.tui.severity import severity_cell
from pushscope.tui.stuck_view import engines, lasting, subject
from pushscope.tui.table_kind import Sort, TableKind
from pushscope.tui.tables import IN_FLIGHT, RECENT, WAITING
from pushscope.tui.transfer_fields import STUCK_FIELDS

STUCK: TableKind[Row] = TableKind(
    title="Stuck",
    empty="nothing is stuck",
    rows=rows_of,
    columns=(
        Column("how bad", lambda row, _, __: severity_cell(row.diagnosis.severity), width=7),
        Column("why", lambda row, _, __: Cell(row.diagnosis.code), width=22, most=34),
        Column(
            "request, engine", lambda row, s, width: Cell(subject(row, s, width)), width=16, widening=0.15
        ),
        Column("since", lambda row, s, _: Cell(lasting(row, s)), width=7, right=True),
        Column("P -> D", lambda row, s, width: Cell(engines(row, s, width)), width=10, most=14, drop=1),
        Column(
            "in words", lambda row, _, __: Cell(clean(row.diagnosis.sentence)), width=24, most=400, drop=2
        ),
    ),
    sorts=(
        Sort("worst", column="how bad"),
        Sort("oldest", lambda row, _: row.diagnosis.since_ns, column="since"),
        Sort("why", lambda row, _: row.diagnosis.code, column="why"),
        Sort("request", lambda row, _: row.diagnosis.subject, column="request, engine"),
    ),
    identity=lambda row: row.key,
    fields=STUCK_FIELDS,
    only_if_any=True,
)

OLDEST: TableKind[Row] = replace(
    STUCK,
    sorts=(STUCK.sorts[1], STUCK.sorts[0], *STUCK.sorts[2:]),
    only_if_any=False,
)
"""The same for a screen of its own, where the oldest comes first."""

KINDS: tuple[TableKind[Any], ...] = (STUCK, IN_FLIGHT, WAITING, RECENT)
"""What a page of text shows: what is wrong comes first."""
