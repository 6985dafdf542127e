"""What limits the truth of a screen is told, each limit in its own words, those of the sources' own notices."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import msgspec
import pytest

from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.remote import RemoteSource
from pushscope.telemetry.snapshot import ClockOffset, Engine, Snapshot
from pushscope.tui.columns import Cell
from pushscope.tui.conditions import conditions

from . import samples

AGENT = "http://127.0.0.1:9"
"""Nobody listens there."""


def told(snapshot: Snapshot) -> list[str]:
    return [cell.text for cell in conditions(snapshot)]


def unread(*notices: str) -> Snapshot:
    return samples.busy(unread=notices)


@pytest.fixture
def remote() -> Iterator[RemoteSource]:
    with closing(RemoteSource(AGENT)) as source:
        yield source


def test_a_healthy_screen_has_none() -> None:
    assert told(samples.busy()) == []


def test_before_the_first_answer_it_is_connecting(remote: RemoteSource) -> None:
    (notice,) = remote._connection()
    assert told(unread(notice)) == ["CONNECTING to 127.0.0.1:9"]


def test_an_agent_that_is_not_there_is_disconnected(remote: RemoteSource) -> None:
    with pytest.raises(PushscopeError, match="disconnected since"):
        remote.settle()
    (notice,) = remote._connection()
    assert told(unread(notice)) == ["DISCONNECTED from 127.0.0.1:9: what its engines do is not known"]


def test_an_agent_whose_news_are_old_is_lagging(remote: RemoteSource) -> None:
    remote._connected = True
    remote._delay_ns = remote._least_delay_ns = 0
    remote._whole_at_ns = time.monotonic_ns() - 20 * samples.S
    (notice,) = remote._connection()
    assert told(unread(notice)) == ["LAGGING: 127.0.0.1:9 is seconds behind"]


def test_of_many_agents_two_are_named() -> None:
    words = "disconnected since 10:00:00, what its engines do is not known: no route"
    notices = [f"http://10.0.0.{n}:7341: {words}" for n in range(5)]
    assert told(unread(*notices)) == [
        "DISCONNECTED from 10.0.0.0:7341, 10.0.0.1:7341 and 3 more: what its engines do is not known"
    ]


@pytest.mark.parametrize(("here", "other"), [("P", "D"), ("D", "P")])
def test_where_one_side_is_observed_the_other_is_named(here: str, other: str) -> None:
    engines = tuple(e for e in samples.ENGINES if e.side == here)
    assert told(samples.busy(engines=engines)) == [
        f"ONE-SIDED: only {here} is observed, what {other} does is not known"
    ]


def test_without_engines_nothing_is_one_sided() -> None:
    assert told(samples.nothing_found()) == []


def test_an_engine_that_is_both_sides_is_not_one_sided() -> None:
    assert told(samples.busy(engines=(samples.engine("B1", samples.P1, "P+D", 4101),))) == []


def test_events_lost_are_counted() -> None:
    assert told(samples.engine_gone()) == ["EVENTS LOST: 1,532; counts are too low"]


def test_clocks_are_unsure_only_where_no_bound_is_known() -> None:
    sure = ClockOffset(host="a", peer_host="b", offset_ns=5, uncertainty_ns=9)
    unsure = msgspec.structs.replace(sure, peer_host="c", uncertainty_ns=None)
    assert told(samples.busy(clocks=(sure,))) == []
    assert told(samples.busy(clocks=(sure, unsure))) == [
        "CLOCKS UNSURE: a/c; times across them are by the wall clocks"
    ]


def with_recording_off(engine: Engine, **changes: object) -> Engine:
    first, *others = engine.processes
    off = msgspec.structs.replace(first, recording=False, **changes)
    return msgspec.structs.replace(engine, processes=(off, *others))


def test_recording_off_names_the_engine_but_not_for_a_process_that_was_replaced() -> None:
    p1, *others = samples.ENGINES
    assert told(samples.busy(engines=(with_recording_off(p1), *others))) == [
        "RECORDING OFF at P1: what happens now is not seen"
    ]
    assert told(samples.busy(engines=(with_recording_off(p1, replaced=True), *others))) == []


def test_each_is_told_beside_the_others_and_by_words_not_by_tone_alone() -> None:
    everything = samples.busy(
        engines=(with_recording_off(samples.ENGINES[0]),),
        unread=("a:1: connecting", "b:1: disconnected since 10:00:00, …", "c:1: lagging, …"),
        clocks=(ClockOffset(host="a", peer_host="b", offset_ns=5, uncertainty_ns=None),),
        totals=msgspec.structs.replace(samples.busy().totals, events_lost=1),
    )
    heads = [cell.text.split(" ")[0].rstrip(":") for cell in conditions(everything)]
    assert heads == ["DISCONNECTED", "CONNECTING", "LAGGING", "ONE-SIDED", "EVENTS", "CLOCKS", "RECORDING"]


def test_a_name_from_outside_draws_nothing() -> None:
    cells: list[Cell] = conditions(unread("\x1b[2Jevil: connecting"))
    assert "\x1b" not in cells[0].text
