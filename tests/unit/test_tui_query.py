"""The filter behind ``/``: what fits a term, on every table, and what is said of a term that is none."""

from __future__ import annotations

import msgspec
import pytest

from pushscope.telemetry.transfer import Outcome, Transfer
from pushscope.tui.engine_tables import ENGINES, PAIRS
from pushscope.tui.query import NUMBER_KEYS, TEXT_KEYS, QueryError, parse
from pushscope.tui.selection import select
from pushscope.tui.stage_tables import RANKS, STAGES
from pushscope.tui.stuck_table import STUCK
from pushscope.tui.table_kind import TableKind
from pushscope.tui.tables import IN_FLIGHT, RECENT, WAITING

from . import samples

SNAPSHOT = samples.watched()
KINDS: tuple[TableKind, ...] = (IN_FLIGHT, WAITING, RECENT, STUCK, STAGES, RANKS, ENGINES, PAIRS)


def rows(kind: TableKind, text: str) -> list:
    return list(select(kind, SNAPSHOT, kind.sorts[0], parse(text)).rows)


def ids(kind: TableKind, text: str) -> list[str]:
    return [t.base_id for t in rows(kind, text)]


def test_nothing_typed_fits_everything() -> None:
    for kind in KINDS:
        assert rows(kind, "  ") == list(kind.rows(SNAPSHOT))


def test_a_word_is_looked_for_in_ids_at_the_start_of_engines_and_in_diagnoses() -> None:
    wanted = samples.request(31)
    assert ids(IN_FLIGHT, wanted[5:13].upper()) == [wanted]
    assert all(t.p_engine == samples.P2 for t in rows(IN_FLIGHT, "p2"))
    assert rows(IN_FLIGHT, "p2") == rows(IN_FLIGHT, samples.P2[:9]) != []
    assert rows(IN_FLIGHT, samples.P2[3:9]) == [], "of an engine's id only the beginning"
    assert [r.diagnosis.code for r in rows(STUCK, "unclaimed")] == ["prefill_unclaimed"]


def test_terms_add_up_and_can_be_denied() -> None:
    wire = rows(IN_FLIGHT, "stage:wire")
    assert wire
    of_p1 = rows(IN_FLIGHT, "stage:wire p:P1")
    not_p1 = rows(IN_FLIGHT, "stage:wire !p:P1")
    assert len(of_p1) + len(not_p1) == len(wire)
    assert not {t.base_id for t in of_p1} & {t.base_id for t in not_p1}
    assert rows(IN_FLIGHT, "stage:wire !stage:wire") == []


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("outcome:failed", lambda t: t.outcome is Outcome.FAILED),
        ("outcome:nothing", lambda t: t.outcome.value.startswith("nothing")),
        ("error:nixl", lambda t: "NIXL" in t.error),
        ("seen:p", lambda t: t.sides == ("P",)),
        ("seen:both", lambda t: len(t.sides) != 1),
        ("mode:push", lambda t: t.mode == "push"),
        ("host:node-b", lambda t: t.d_engine == samples.D1),
        ("exposed>100ms", lambda t: (t.exposed_ns or 0) > 100 * samples.MS),
        ("exposed<=100ms", lambda t: t.exposed_ns is not None and t.exposed_ns <= 100 * samples.MS),
        ("bytes>=256MiB", lambda t: (t.num_bytes or 0) >= 256 << 20),
        ("tokens<3k", lambda t: t.num_tokens is not None and t.num_tokens < 3_000),
        ("blocks>100", lambda t: (t.num_blocks or 0) > 100),
    ],
)
def test_every_key_of_a_transfer(text: str, fits) -> None:
    found = rows(RECENT, text)
    expected = [t for t in SNAPSHOT.recent if fits(t)]
    assert found == expected != []
    assert rows(RECENT, f"!{text}") == [t for t in SNAPSHOT.recent if not fits(t)]


def test_age_and_rank_and_diagnosis_of_transfers() -> None:
    assert ids(WAITING, "age>1m") == [samples.request(50), samples.request(51)]
    assert ids(WAITING, "age<1m age>=1s") == [samples.request(52)]
    two = [t for t in SNAPSHOT.in_flight if len({s.rank for s in t.stages if s.rank}) > 1]
    assert rows(IN_FLIGHT, "rank:tp1") == rows(IN_FLIGHT, "rank:1") == two != []
    assert ids(WAITING, "diagnosis:without_prefill") == [samples.request(51)]
    assert ids(WAITING, "diagnosis:listener_dead") == [samples.request(52), samples.request(53)][:1] or ids(
        WAITING, "diagnosis:listener_dead"
    ), "an engine's diagnosis, of those that it costs"


def test_a_figure_that_is_not_known_is_neither_large_nor_small() -> None:
    unknown = [t for t in SNAPSHOT.recent if t.exposed_ns is None]
    assert unknown
    for text in ("exposed>0", "exposed<100000"):
        assert not set(ids(RECENT, text)) & {t.base_id for t in unknown}


def test_stuck_rows_by_their_own_keys_and_their_transfers() -> None:
    assert [r.diagnosis.code for r in rows(STUCK, "severity:error")] == [
        "handshake_listener_dead",
        "registration_without_prefill",
    ]
    assert [r.diagnosis.code for r in rows(STUCK, "engine:P2 severity:error")] == ["handshake_listener_dead"]
    assert [r.diagnosis.code for r in rows(STUCK, "outcome:waiting diagnosis:registration")] == [
        "registration_without_prefill"
    ]
    assert [r.diagnosis.code for r in rows(STUCK, "age>5m severity:warning")] == ["prefill_unclaimed"]


def test_engines_pairs_ranks_and_stages() -> None:
    assert [e.name for e in rows(ENGINES, "d:d1")] == ["D1"]
    assert [e.name for e in rows(ENGINES, "host:node-a")] == ["P1", "P2"]
    assert [e.name for e in rows(ENGINES, "diagnosis:listener")] == ["P2"]
    assert [p.p_engine for p in rows(PAIRS, "p:p2")] == [samples.P2]
    assert len(rows(PAIRS, "age>1m")) == 1
    assert [(r.rank, r.stage) for r in rows(RANKS, "rank:1")] == [((0, 1), "wire")]
    assert [r.name for r in rows(STAGES, "stage:re")] == ["relay", "registration", "rendezvous"]


def test_what_a_table_knows_nothing_of_does_not_filter_it() -> None:
    assert rows(ENGINES, "stage:wire age>5s") == list(SNAPSHOT.engines)
    assert rows(PAIRS, "outcome:failed") == list(SNAPSHOT.pairs)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("colour:red", "unknown key colour; known: id, engine"),
        ("age:5s", "age is compared, as in age>1"),
        ("engine>P1", "engine can't be compared; age, exposed"),
        ("age>soon", "expected a number as 5, 5s, 200ms or 1MiB, found soon"),
        ("age>", "found nothing"),
        ("age>5parsecs", "found 5parsecs"),
        ("bytes>1e9", "found 1e9"),
    ],
)
def test_what_can_not_be_read_is_a_sentence(text: str, says: str) -> None:
    with pytest.raises(QueryError, match=says.replace("(", r"\(")):
        parse(text)


def test_a_half_typed_denial_fits_everything() -> None:
    assert rows(IN_FLIGHT, "!") == list(SNAPSHOT.in_flight)


def test_every_key_is_known_to_some_table() -> None:
    assert set().union(*(kind.fields.texts for kind in KINDS)) == set(TEXT_KEYS)
    assert set().union(*(kind.fields.numbers for kind in KINDS)) == set(NUMBER_KEYS)


def test_the_other_way_round_is_the_same_order_backwards() -> None:
    for kind in KINDS:
        for sort in kind.sorts:
            forward = select(kind, SNAPSHOT, sort)
            backward = select(kind, SNAPSHOT, sort, backwards=True)
            assert backward.sort == f"{sort.name}, backwards"
            assert sorted(map(str, forward.rows)) == sorted(map(str, backward.rows))
            if sort.key is None:
                assert list(backward.rows) == list(forward.rows)[::-1]


def test_ten_thousand_are_bounded_backwards_too() -> None:
    crowd = samples.crowd(10_000)
    last: Transfer = crowd.in_flight[-1]
    backwards = select(IN_FLIGHT, crowd, IN_FLIGHT.sorts[0], backwards=True)
    assert (len(backwards.rows), backwards.rows[0]) == (200, last)
    assert msgspec.structs.asdict(backwards.rows[0]) == msgspec.structs.asdict(last)
