"""A recording, played: at a speed, held, moved to a moment, or stepped from event to event."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from pushscope.telemetry.apart import Apart, Stepped
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.recording import RecordingError, RecordingSource, extent
from pushscope.telemetry.source import Reading

SPEEDS: Final = (0.1, 100.0)
FULL_SPEED: Final = math.inf
"""As fast as it can be read."""
SLICE_NS: Final = 50_000_000
"""Reading goes on for about so long at a time, so that somebody who waits for it can be told how far it is."""


class PlayState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a recording stands."""

    position_s: float
    """From its beginning."""
    duration_s: float
    speed: float = 1.0
    """Times the speed at which it was made; infinite: as fast as it can be read."""
    playing: bool = True
    over: bool = False
    seeking: float | None = None
    """The share of the way to where it was sent that it has read, while it is on its way."""
    event: str = ""
    """The event that was stepped to, in words; empty after anything else."""


class Player:
    """A recording as a source. Who reads it calls ``advance``, again and again; not for several threads at once.

    To go back it is read again from the beginning: who folds its readings starts anew when ``beginnings`` has changed.
    What was stepped to counts as read, and is not given again when it plays on.

    Raises RecordingError for a file that is no recording. One that is damaged is played up to there: see ``damage``.
    """

    ends = True

    def __init__(self, path: Path, now_ns: Callable[[], int] = time.monotonic_ns):
        self.label = str(path)
        self.beginnings = 0
        """How often it was begun again."""
        self.damage = ""
        """Why it could not be read to its end, in a sentence."""
        self._path, self._now_ns = path, now_ns
        self._source = RecordingSource(path)
        self._begin_ns, self._end_ns = extent(path)
        self._playing, self._speed = True, 1.0
        self._at_ns, self._since_ns = self._begin_ns, now_ns()
        """Where it stood, by the recording's clock, and when that was."""
        self._target_ns: int | None = None
        """The moment that it is on its way to."""
        self._goal: int | None = None
        """The number of the event that it is on its way to."""
        self._from = 0.0
        """Where it was when it was sent there, in time or events."""
        self._begin()

    def _begin(self) -> None:
        self._given = 0
        """Events."""
        self._given_ns = self._begin_ns
        """The time of what was given last."""
        self._apart: Apart | None = None
        """The next reading, if a part of it was given."""
        self._was_apart = self._told = False
        """Whether any reading was taken apart; whether it was told that there is no more."""
        self._last: Reading | None = None
        self._stepped: Stepped | None = None
        self._next = self._fetch()

    # -- what it is told ---------------------------------------------------------------------------

    def play(self) -> None:
        """Go on from where it stands."""
        self._playing, self._stepped, self._since_ns = True, None, self._now_ns()

    def pause(self) -> None:
        """Stay where it stands."""
        self._at_ns, self._playing = self._position_ns(), False

    @property
    def speed(self) -> float:
        """Times the speed at which it was made: 0.1 to 100, or ``FULL_SPEED``."""
        return self._speed

    @speed.setter
    def speed(self, speed: float) -> None:
        if not (SPEEDS[0] <= speed <= SPEEDS[1] or speed == FULL_SPEED):
            raise PushscopeError(
                f"expected a speed of {SPEEDS[0]:g} to {SPEEDS[1]:g}, or an infinite one; found {speed:g}"
            )
        self._at_ns, self._since_ns = self._position_ns(), self._now_ns()
        self._speed = speed

    def seek(self, position_s: float) -> None:
        """Go to a moment, from the beginning on; ``advance`` takes it there. It then plays on, if it played."""
        target_ns = min(max(self._begin_ns + round(position_s * 1e9), self._begin_ns), self._end_ns)
        if target_ns < self._given_ns or self._was_apart:
            self._begin_again()
        self._target_ns, self._goal, self._from = target_ns, None, self._given_ns
        self._stepped = None

    def step(self, by: int = 1) -> None:
        """Go to the next event, or by so many, back too, in the order of time; and hold there."""
        self._target_ns, self._playing = None, False
        goal = max(1, self._given + by)
        if goal < self._given:
            self._begin_again()
        self._goal, self._from = goal, self._given

    def _begin_again(self) -> None:
        self._source.close()
        self._source = RecordingSource(self._path)
        self.beginnings += 1
        self._begin()

    # -- reading -----------------------------------------------------------------------------------

    def advance(self, fold: Callable[[], object]) -> None:
        """Call ``fold``, which polls, for each reading that is due; for some 50 ms at most."""
        began_ns = self._now_ns()
        while (due := self._is_due(began_ns)) and self._now_ns() - began_ns < SLICE_NS:
            fold()
        if self._goal is not None:
            self._at_ns = self._given_ns
            self._goal = self._goal if due else None
        elif self._target_ns is not None:
            self._at_ns = self._given_ns if due else min(self._target_ns, self._end_ns)
            self._target_ns = self._target_ns if due else None
        elif due or self._speed == FULL_SPEED:
            self._at_ns = self._given_ns  # what could not be read in time is not skipped
        else:
            return
        self._since_ns = self._now_ns()

    def poll(self) -> Reading | None:
        """The next reading, or what is left of it, or its part up to the event that it is on its way to.

        None at the end.
        """
        reading = self._next
        if reading is None:
            self._told = True
            return None
        wanted = 0 if self._goal is None else self._goal - self._given
        if 0 < wanted <= len(reading.events):
            if self._apart is None:
                self._apart, self._was_apart = Apart(reading, self._last), True
            part = self._apart.first(wanted)
            self._next, self._stepped = self._apart.rest, self._apart.stepped
            return self._gave(part)
        self._stepped = self._apart = None
        self._last = reading
        self._gave(reading)
        self._next = self._fetch()
        return reading

    def _gave(self, reading: Reading) -> Reading:
        self._given += len(reading.events)
        self._given_ns = max(self._given_ns, reading.t_ns)
        return reading

    def _fetch(self) -> Reading | None:
        try:
            reading = self._source.poll()
        except RecordingError as e:
            self.damage = str(e)
            reading = None
        if reading is not None:
            self._end_ns = max(self._end_ns, reading.t_ns)
        elif self.damage:
            self._end_ns = self._given_ns
        return reading

    def _is_due(self, now_ns: int) -> bool:
        """Whether the next reading, or once that there is none, is to be given."""
        if self._next is None:
            return not self._told
        if self._goal is not None:
            return self._given < self._goal
        if self._target_ns is not None:
            return self._next.t_ns <= self._target_ns
        return self._playing and self._next.t_ns <= self._position_ns(now_ns)

    def _position_ns(self, now_ns: int | None = None) -> int:
        if not self._playing or self._target_ns is not None or self._goal is not None:
            return self._at_ns
        if self._speed == FULL_SPEED:
            return self._end_ns
        passed_ns = (self._now_ns() if now_ns is None else now_ns) - self._since_ns
        return min(self._end_ns, self._at_ns + round(passed_ns * self._speed))

    # -- what it says ------------------------------------------------------------------------------

    @property
    def is_behind(self) -> bool:
        """Whether ``advance`` would read on at once: it is on its way, or not as fast as it should be."""
        return self._is_due(self._now_ns())

    @property
    def over(self) -> bool:
        """Whether all was given."""
        return self._next is None and self._told

    @property
    def stepped(self) -> Stepped | None:
        """The event that was stepped to, if nothing was given since."""
        return self._stepped

    def state(self) -> PlayState:
        """Where it stands; ``event`` is left to who knows the names of engines."""
        at_ns = self._given_ns if self._seeking is not None else self._position_ns()
        return PlayState(
            position_s=(at_ns - self._begin_ns) / 1e9,
            duration_s=(self._end_ns - self._begin_ns) / 1e9,
            speed=self._speed,
            playing=self._playing,
            over=self.over,
            seeking=self._seeking,
        )

    @property
    def _seeking(self) -> float | None:
        if self._goal is not None:
            return (self._given - self._from) / max(1.0, self._goal - self._from)
        if self._target_ns is not None:
            return min(1.0, (self._given_ns - self._from) / max(1.0, self._target_ns - self._from))
        return None

    def settle(self) -> None:
        """All is there."""

    def close(self) -> None:
        self._source.close()
