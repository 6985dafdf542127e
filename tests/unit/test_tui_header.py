"""The engines' line: what it says of an engine that is there, silent, or gone."""

import msgspec
import pytest

from pushscope.telemetry.clocks import ClockOffset
from pushscope.telemetry.snapshot import Engine
from pushscope.tui.header import clock_pieces, engine_piece

from .samples import D1, engine

NOW_NS = 100_000_000_000


def last_heard(*seconds_ago: float | None, alive: bool = True) -> Engine:
    """An engine with a process for each newest event."""
    whole = engine("D1", D1, "D", 5101, alive=alive, ranks=len(seconds_ago) - 1)
    processes = [
        msgspec.structs.replace(
            process, last_event_ns=None if ago is None else NOW_NS - int(ago * 1e9), alive=alive
        )
        for process, ago in zip(whole.processes, seconds_ago, strict=True)
    ]
    return msgspec.structs.replace(whole, processes=tuple(processes))


@pytest.mark.parametrize(
    ("seconds_ago", "state"),
    [
        ((19.2, 300.0), "alive, silent 19 s"),  # the newest of all processes counts
        ((300.0, 245.0), "alive, silent 4m05s"),
        ((300.0, 4.9), "alive"),
        ((None, 6.0), "alive, silent 6 s"),
        ((None, None), "alive"),  # nothing was heard yet: since when, nobody knows
        ((-1.0, None), "alive"),
    ],
)
def test_a_live_engine_says_how_long_it_has_been_silent(
    seconds_ago: tuple[float | None, ...], state: str
) -> None:
    piece = engine_piece(last_heard(*seconds_ago), NOW_NS)
    assert (piece.text, piece.tone) == (f"D1 decode node-b/5101+1 {state}", "")


def test_an_engine_that_is_gone_is_not_silent() -> None:
    assert engine_piece(last_heard(30, 30, alive=False), NOW_NS).text.endswith("+1 GONE")


def test_how_far_clocks_are_known_is_said() -> None:
    known, unsure = clock_pieces(
        [ClockOffset("node-a", "node-b", 12, 1_200_000), ClockOffset("node-a", "node-c", 5, None)]
    )
    assert (known.text, known.tone) == ("clocks node-a/node-b ±1.20 ms", "")
    assert (unsure.text, unsure.tone) == ("clocks node-a/node-c UNSURE", "warn")
