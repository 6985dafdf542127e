"""What is typed after ``/``: what each key finds in each table, and what is said of a filter that can't be read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pushscope.telemetry.transfer import Outcome, Stage, Transfer
from pushscope.tui.engine_tables import ENGINES, PAIRS
from pushscope.tui.query import NUMBER_KEYS, TEXT_KEYS, Query, QueryError, parse
from pushscope.tui.selection import select
from pushscope.tui.stage_tables import RANKS, STAGES
from pushscope.tui.stuck_table import STUCK
from pushscope.tui.table_kind import TableKind
from pushscope.tui.tables import IN_FLIGHT, RECENT, WAITING

from . import samples

SNAPSHOT = samples.watched()
LIMIT = 1_000


def kept(kind: TableKind[Any], text: str) -> tuple[Any, ...]:
    """The rows of a table that fit a filter, in the snapshot's order."""
    return select(kind, SNAPSHOT, kind.sorts[0], parse(text), LIMIT).rows


def divided(kind: TableKind[Any], text: str) -> tuple[int, int]:
    """How many rows fit a filter and its denial; together they are all, and neither is none."""
    return len(kept(kind, text)), len(kept(kind, f"!{text}"))


def stage_names(rows: tuple[Transfer, ...]) -> set[Stage | None]:
    return {t.stage for t in rows}


@pytest.mark.parametrize("text", ["", "   ", "!", " ! "])
def test_nothing_typed_filters_nothing(text: str) -> None:
    assert not parse(text)
    assert len(kept(RECENT, text)) == len(SNAPSHOT.recent)


def test_a_word_is_looked_for_in_ids_engines_and_diagnoses() -> None:
    base = SNAPSHOT.in_flight[0].base_id
    assert [t.base_id for t in kept(IN_FLIGHT, base.upper())] == [base]
    assert {t.p_engine for t in kept(IN_FLIGHT, "p2")} == {samples.P2}
    assert [row.diagnosis.code for row in kept(STUCK, "unclaimed")] == ["prefill_unclaimed"]


def test_all_terms_must_fit_and_a_denied_one_must_not() -> None:
    both = kept(IN_FLIGHT, "p:p1 stage:wire")
    assert both
    assert all(t.p_engine == samples.P1 and t.stage is Stage.WIRE for t in both)
    others = kept(IN_FLIGHT, "p:p1 !stage:wire")
    assert Stage.WIRE not in stage_names(others)
    assert len(both) + len(others) == len(kept(IN_FLIGHT, "p:p1"))


@pytest.mark.parametrize(
    "text",
    [
        f"id:{SNAPSHOT.recent[0].base_id}",
        "engine:p1",
        "p:p2",
        f"p:{samples.P2[:6]}",
        "outcome:failed",
        "error:remote_disconnect",
        "seen:p",
        "seen:both",
        "age>5s",
        "exposed>=100ms",
        "bytes>1MiB",
    ],
)
def test_a_key_divides_the_ended_transfers(text: str) -> None:
    yes, no = divided(RECENT, text)
    assert yes
    assert no
    assert yes + no == len(SNAPSHOT.recent)


@pytest.mark.parametrize(
    "text", ["stage:wire", "rank:tp1", "rank:1", "tokens>=8k", "blocks>128", "age<100ms", "bytes>=1gib"]
)
def test_a_key_divides_the_transfers_in_flight(text: str) -> None:
    yes, no = divided(IN_FLIGHT, text)
    assert yes
    assert no
    assert yes + no == len(SNAPSHOT.in_flight)


@pytest.mark.parametrize("text", ["d:d1", "seen:p", "diagnosis:unclaimed", "age>1m"])
def test_a_key_divides_those_that_wait(text: str) -> None:
    yes, no = divided(WAITING, text)
    assert yes
    assert no
    assert yes + no == len(SNAPSHOT.waiting)


@pytest.mark.parametrize(
    "text",
    [
        f"id:{samples.request(50)}",
        "engine:p2",
        "p:p1",
        "d:d1",
        "host:node-b",
        "rank:0",
        "stage:rendezvous",
        "outcome:waiting",
        "diagnosis:listener",
        "severity:error",
        "mode:push",
        "seen:p",
        "age>5m",
    ],
)
def test_a_key_divides_what_is_stuck(text: str) -> None:
    yes, no = divided(STUCK, text)
    assert yes
    assert no
    assert yes + no == len(SNAPSHOT.diagnoses)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ENGINES, "engine:d1"),
        (ENGINES, "p:p1"),
        (ENGINES, "d:d1"),
        (ENGINES, "host:node-b"),
        (ENGINES, "diagnosis:handshake"),
        (PAIRS, "engine:p1"),
        (PAIRS, "p:p2"),
        (PAIRS, "age>1m"),
        (PAIRS, "exposed>1ms"),
        (RANKS, "engine:d1"),
        (RANKS, "host:node-a"),
        (RANKS, "rank:tp1"),
        (RANKS, "rank:1"),
        (RANKS, "stage:wake"),
        (STAGES, "stage:allocation"),
        (STAGES, "mode:pull"),
    ],
)
def test_a_key_divides_engines_pairs_ranks_and_stages(kind: TableKind[Any], text: str) -> None:
    yes, no = divided(kind, text)
    assert yes
    assert no
    assert yes + no == len(kind.rows(SNAPSHOT))


@pytest.mark.parametrize("kind", [ENGINES, PAIRS, RANKS, STAGES, STUCK, IN_FLIGHT, RECENT])
def test_a_key_that_a_table_lacks_does_not_filter_it(kind: TableKind[Any]) -> None:
    lacking = [f"{key}:nonsense" for key in TEXT_KEYS if key not in kind.fields.texts]
    lacking += [f"{key}>1" for key in NUMBER_KEYS if key not in kind.fields.numbers]
    assert lacking
    for text in lacking:
        assert divided(kind, text) == (len(kind.rows(SNAPSHOT)),) * 2, text


def test_every_key_is_known_to_some_table() -> None:
    kinds = (IN_FLIGHT, STUCK, ENGINES, PAIRS, RANKS, STAGES)
    assert {key for kind in kinds for key in kind.fields.texts} == set(TEXT_KEYS)
    assert {key for kind in kinds for key in kind.fields.numbers} == set(NUMBER_KEYS)


def test_a_figure_that_is_not_known_is_neither_more_nor_less() -> None:
    unknown = samples.waiting(1, "P")
    assert unknown.num_bytes is None
    snapshot = msgspec.structs.replace(SNAPSHOT, waiting=(unknown,))
    for sign in ("<", "<=", ">", ">="):
        assert not select(WAITING, snapshot, WAITING.sorts[0], parse(f"bytes{sign}1")).rows


@pytest.mark.parametrize(
    ("typed", "number"),
    [
        ("5", 5.0),
        ("5s", 5.0),
        ("0.5S", 0.5),
        ("200ms", 0.2),
        ("7us", 7e-6),
        ("7µs", 7e-6),
        ("2m", 120.0),
        ("1h", 3600.0),
        ("3k", 3e3),
        ("8b", 8.0),
        ("1kB", 1e3),
        ("1MB", 1e6),
        ("1GB", 1e9),
        ("1KiB", 2.0**10),
        ("1MiB", 2.0**20),
        ("1.5GiB", 1.5 * 2**30),
    ],
)
def test_numbers_have_units(typed: str, number: float) -> None:
    (term,) = parse(f"age>{typed}").terms
    assert term.number == pytest.approx(number)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("colour:red", "unknown key colour; known: id, engine"),
        ("!colour:red", "unknown key colour"),
        ("age:5", "age is compared, as in age>1"),
        ("stage>5", "stage can't be compared; age, exposed"),
        ("age>", "expected a number as 5, 5s, 200ms or 1MiB, found nothing"),
        ("age>soon", "found soon"),
        ("age>5parsecs", "found 5parsecs"),
        ("age>=-1", "found -1"),
        ("age>\x1b[2j", "found"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(text: str, says: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text)
    assert says in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_the_outcome_may_be_typed_as_far_as_it_is_clear() -> None:
    assert {t.outcome for t in kept(RECENT, "outcome:del")} == {Outcome.DELIVERED}
    assert {t.outcome for t in kept(RECENT, "!outcome:del")} >= {Outcome.FAILED, Outcome.EXPIRED}


def test_what_was_typed_is_kept_as_it_was() -> None:
    assert parse("  P2 age>5S ") == Query("P2 age>5S", parse("p2 age>5s").terms)
