"""The words at the right of the first line: the most important first, and that a recording is made beside them."""

from __future__ import annotations

import math

import pytest

from pushscope.telemetry.playback import PlayState
from pushscope.telemetry.snapshot import RecordingState
from pushscope.tui.state import Freshness, Held, state_cell

HELD = Held(age_s=7.0, new=1_203)


def at(**changes: object) -> PlayState:
    fields: dict[str, object] = {"position_s": 83.4, "duration_s": 605.0}
    return PlayState(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fresh", "says", "tone"),
    [
        (Freshness(), "live", ""),
        (Freshness(started=False), "starting", ""),
        (Freshness(held=HELD), "PAUSED, 1,203 new, shown is 7 s old", "warn"),
        (Freshness(error=True), "SOURCE ERROR, trying again", "bad"),
        (Freshness(silent_s=12.0), "STALE: nothing from the source for 12 s", "bad"),
    ],
)
def test_of_engines(fresh: Freshness, says: str, tone: str) -> None:
    cell = state_cell(fresh)
    assert (cell.text, cell.tone) == (says, tone)


@pytest.mark.parametrize(
    ("play", "says"),
    [
        (at(), "PLAYING x1 1:23.4 of 10:05.0"),
        (at(speed=0.5), "PLAYING x0.5 1:23.4 of 10:05.0"),
        (at(speed=math.inf), "PLAYING at full speed 1:23.4 of 10:05.0"),
        (at(playing=False), "HELD 1:23.4 of 10:05.0"),
        (at(over=True, position_s=605.0), "OVER 10:05.0 of 10:05.0"),
        (at(playing=False, event="P1 tp0: submitted"), "STEP 1:23.4 of 10:05.0"),
        (at(seeking=0.42), "SEEKING 42% · 1:23.4 of 10:05.0"),
        (at(position_s=59.96), "PLAYING x1 1:00.0 of 10:05.0"),
        (at(position_s=-0.1), "PLAYING x1 0:00.0 of 10:05.0"),
    ],
)
def test_of_a_recording(play: PlayState, says: str) -> None:
    assert state_cell(Freshness(), play).text == says


def test_a_held_screen_is_told_before_an_error_and_an_error_before_silence_and_the_recording() -> None:
    everything = Freshness(held=HELD, error=True, silent_s=9.0)
    assert state_cell(everything, at()).text.startswith("PAUSED")
    assert state_cell(Freshness(error=True, silent_s=9.0), at()).text.startswith("SOURCE ERROR")
    assert state_cell(Freshness(silent_s=9.0), at()).text.startswith("STALE")


@pytest.mark.parametrize("fresh", [Freshness(), Freshness(held=HELD), Freshness(error=True)])
def test_that_a_recording_is_made_is_told_in_every_state(fresh: Freshness) -> None:
    made = RecordingState(path="/x/run.psr", seconds=75.0, num_events=9, num_bytes=3 << 20)
    assert state_cell(fresh, None, made).text == f"REC 1m15s 3.00 MiB · {state_cell(fresh).text}"
    assert state_cell(fresh, None, made).tone == state_cell(fresh).tone


def test_a_recording_that_failed_says_so() -> None:
    failed = RecordingState(path="/x/run.psr", seconds=1.0, num_events=9, num_bytes=1, error="no space left")
    assert state_cell(Freshness(), None, failed).text == "RECORDING FAILED · live"
