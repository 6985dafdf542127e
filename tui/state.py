"""The words at the right of the first line: live, held, old, or where a recording stands; and that one is made."""

from __future__ import annotations

from dataclasses import dataclass

from pushscope.telemetry import units
from pushscope.telemetry.playback import FULL_SPEED, PlayState
from pushscope.telemetry.snapshot import RecordingState
from pushscope.tui.columns import Cell


@dataclass(frozen=True)
class Held:
    """The screen is held: since when it is so old, and how many transfers it does not show."""

    age_s: float
    new: int


@dataclass(frozen=True)
class Freshness:
    """How it stands with what is shown."""

    started: bool = True
    held: Held | None = None
    error: bool = False
    silent_s: float = 0.0
    """For how long the source gave nothing, if that is too long."""


def state_cell(
    fresh: Freshness, play: PlayState | None = None, recording: RecordingState | None = None
) -> Cell:
    """What is said: the most important first."""
    cell = _state(fresh, play)
    return Cell(f"{told} · {cell.text}", cell.tone) if (told := _recording(recording)) else cell


def _state(fresh: Freshness, play: PlayState | None) -> Cell:
    if fresh.held is not None:
        shown = units.coarse_age(fresh.held.age_s)
        return Cell(f"PAUSED, {units.count(fresh.held.new)} new, shown is {shown} old", "warn")
    if fresh.error:
        return Cell("SOURCE ERROR, trying again", "bad")
    if fresh.silent_s:
        return Cell(f"STALE: nothing from the source for {units.coarse_age(fresh.silent_s)}", "bad")
    if play is not None:
        return _playing(play)
    return Cell("live" if fresh.started else "starting")


def _playing(play: PlayState) -> Cell:
    at = f"{_clock(play.position_s)} of {_clock(play.duration_s)}"
    if play.seeking is not None:
        return Cell(f"SEEKING {units.share(play.seeking)} · {at}", "warn")
    if play.event:
        return Cell(f"STEP {at}", "warn")
    if play.over:
        return Cell(f"OVER {at}", "warn")
    if not play.playing:
        return Cell(f"HELD {at}", "warn")
    speed = "at full speed" if play.speed == FULL_SPEED else f"x{play.speed:g}"
    return Cell(f"PLAYING {speed} {at}")


def _recording(recording: RecordingState | None) -> str:
    if recording is None:
        return ""
    if recording.error:
        return "RECORDING FAILED"
    return f"REC {units.coarse_age(recording.seconds)} {units.size(recording.num_bytes)}"


def _clock(seconds: float) -> str:
    """``1:23.4``."""
    minutes, rest = divmod(round(max(0.0, seconds), 1), 60)
    return f"{int(minutes)}:{rest:04.1f}"
