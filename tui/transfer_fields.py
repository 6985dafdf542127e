"""What transfers, and what is diagnosed of them, can be filtered by."""

from __future__ import annotations

from collections.abc import Iterable

from pushscope.telemetry.stuck import Row
from pushscope.telemetry.transfer import Transfer, rank_name
from pushscope.tui.lookup import Lookup
from pushscope.tui.query import Fields, Texts


def _ids(t: Transfer, _: Lookup) -> Iterable[str]:
    return (i.lower() for i in (t.base_id, t.d_request, t.p_request) if i)


def _engines(t: Transfer, lookup: Lookup) -> Iterable[str]:
    return lookup.names(t.p_engine, t.d_engine)


def _hosts(t: Transfer, lookup: Lookup) -> Iterable[str]:
    return (lookup.hosts.get(i or "", "").lower() for i in (t.p_engine, t.d_engine))


def _ranks(t: Transfer, _: Lookup) -> Iterable[str]:
    # ``tp1``, and ``1`` for short.
    ranks = {r for s in t.stages for r in (s.rank, s.peer_rank) if r is not None}
    return [name for rank in ranks for name in (rank_name(rank), *([] if rank[0] else [str(rank[1])]))]


def _stage(t: Transfer, _: Lookup) -> Iterable[str]:
    return (t.stage.value,) if t.stage else ()


def _seen(t: Transfer, _: Lookup) -> Iterable[str]:
    return (side.lower() for side in t.sides) if len(t.sides) == 1 else ("both",)


def _age(t: Transfer, lookup: Lookup) -> float:
    return (lookup.snapshot.taken_ns - t.since_ns) / 1e9


TRANSFER_FIELDS = Fields(
    texts={
        "id": _ids,
        "engine": _engines,
        "p": lambda t, lookup: lookup.names(t.p_engine),
        "d": lambda t, lookup: lookup.names(t.d_engine),
        "host": _hosts,
        "rank": _ranks,
        "stage": _stage,
        "outcome": lambda t, _: (t.outcome.value,),
        "diagnosis": lambda t, lookup: lookup.codes(t),
        "mode": lambda t, _: (t.mode,),
        "seen": _seen,
        "error": lambda t, _: (t.error.lower(),),
    },
    numbers={
        "age": _age,
        "exposed": lambda t, _: None if t.exposed_ns is None else t.exposed_ns / 1e9,
        "bytes": lambda t, _: t.num_bytes,
        "tokens": lambda t, _: t.num_tokens,
        "blocks": lambda t, _: t.num_blocks,
    },
)


def _row_ids(row: Row, lookup: Lookup) -> Iterable[str]:
    told = (row.diagnosis.subject.lower(),) if row.diagnosis.attempt else ()
    return (*told, *(_ids(row.transfer, lookup) if row.transfer else ()))


def _row_engines(row: Row, lookup: Lookup) -> Iterable[str]:
    if row.diagnosis.attempt:
        return _engines(row.transfer, lookup) if row.transfer else ()
    return lookup.names(row.diagnosis.subject)


def _of_its_transfer(texts: Texts) -> Texts:
    return lambda row, lookup: texts(row.transfer, lookup) if row.transfer else ()


_OF_THE_TRANSFER = ("p", "d", "host", "rank", "stage", "outcome", "mode", "seen", "error")

STUCK_FIELDS = Fields(
    texts={
        **{key: _of_its_transfer(TRANSFER_FIELDS.texts[key]) for key in _OF_THE_TRANSFER},
        "id": _row_ids,
        "engine": _row_engines,
        "diagnosis": lambda row, _: (row.diagnosis.code,),
        "severity": lambda row, _: (row.diagnosis.severity.value,),
    },
    numbers={"age": lambda row, lookup: (lookup.snapshot.taken_ns - row.diagnosis.since_ns) / 1e9},
)
"""A diagnosis has what its transfer has; an engine's has no transfer, and fits none of that."""
