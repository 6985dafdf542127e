"""Watching for a while: what a screen needs of one place, and what can be done with it.

Everything in one thread. What a snapshot has beyond a watcher's comes from here: the pace and the history of what
ended while one watched, the pairs, the marks, how a recording stands that is played or made.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from pushscope.telemetry import events as ev
from pushscope.telemetry.apart import Stepped
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.history import HistoryFold
from pushscope.telemetry.marks import Mark, Marks, mark_of, write_mark
from pushscope.telemetry.pace import PaceFold
from pushscope.telemetry.pairs import PairsFold
from pushscope.telemetry.playback import Player, PlayState
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.source import Source
from pushscope.telemetry.summary import Summary, SummaryFold
from pushscope.telemetry.tap import Tap
from pushscope.telemetry.transfer import Transfer, rank_name
from pushscope.telemetry.vitals import VitalsLook
from pushscope.telemetry.watch import Watcher
from pushscope.telemetry.where import Where
from pushscope.telemetry.why.account import Attempt
from pushscope.telemetry.why.recall import Recall
from pushscope.telemetry.why.words import in_words

_CAPITAL: Final = re.compile("(?<!^)(?=[A-Z])")
BY: Final = "top"
"""Who makes the marks of a session."""


class Session:
    """Watches engines, or plays a recording. ``close`` it.

    Raises PushscopeError for a file that is no recording, and a URL that is none.
    """

    def __init__(self, where: Where, *, now_ns: Callable[[], int] = time.monotonic_ns):
        self._where = where
        recording = where.recording
        self.player = Player(recording, now_ns) if recording is not None else None
        source: Source = where.open() if self.player is None else self.player
        self._tap = Tap(source)
        self._begun = 0
        self._begin()
        self._seen = self._watcher.snapshot()
        """The watcher's newest."""

    def _begin(self) -> None:
        """Fold anew: at first, and when a recording was begun again."""
        self._recall = Recall()
        self._pace, self._history, self._pairs = PaceFold(), HistoryFold(), PairsFold()
        self._summary = SummaryFold()
        self._marks = Marks()
        """Those that the summary was told."""
        self._watcher = Watcher(self._tap, on_closed=self._ended, on_forgotten=self._recall.forgotten)
        self._recall.watcher = self._watcher
        self._vitals = VitalsLook(self._watcher)

    def _ended(self, transfer: Transfer) -> None:
        for fold in (self._pace.add, self._history.ended, self._pairs.ended, self._summary.ended):
            fold(transfer)

    # -- looking -----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """What is so now, or where the recording stands. Raises PushscopeError if nothing can be read."""
        if self.player is None:
            self._watcher.poll()
        else:
            self._play(self.player)
        snapshot = self._seen = self._watcher.snapshot()
        self._history.note(snapshot)
        for mark in self._marks.add(snapshot.marks):
            self._summary.mark(mark)
        self._summary.note(snapshot)
        player = self.player
        return msgspec.structs.replace(
            snapshot,
            vitals=self._vitals.vitals(snapshot),
            pairs=self._pairs.pairs(self._watcher, snapshot),
            pace=self._pace.pace(),
            history=self._history.seconds(),
            play=None if player is None else self._play_state(player, snapshot),
            recording=self._tap.state(),
            notices=(*snapshot.notices, *((player.damage,) if player is not None and player.damage else ())),
        )

    @property
    def is_behind(self) -> bool:
        """Whether there is more to read at once: a recording is on its way to where it was sent."""
        return self.player is not None and self.player.is_behind

    def _play(self, player: Player) -> None:
        if player.beginnings != self._begun:
            self._begun = player.beginnings
            self._begin()
        player.advance(self._watcher.poll)

    def _play_state(self, player: Player, snapshot: Snapshot) -> PlayState:
        state, stepped = player.state(), player.stepped
        if stepped is None:
            return state
        return msgspec.structs.replace(state, event=_words(stepped, self._watcher, snapshot))

    def explain(self, transfer: Transfer) -> Attempt | None:
        """All that was seen of a transfer; None if its events are not held any more."""
        return self._recall.attempt(transfer, self._seen)

    def summary(self) -> Summary:
        """What all of it amounts to, so far."""
        return self._summary.summary()

    # -- doing -------------------------------------------------------------------------------------

    def record(self, path: Path | None = None) -> Path:
        """Record from now on; without a path to a file in the working folder that is named after the time.

        What is open by now is said again by its engines within ten seconds, and so is in the recording. Raises
        PushscopeError if the file can't be made.
        """
        if self.player is not None:
            raise PushscopeError(f"{self._where.replay} is a recording already")
        return self._tap.record(path or Path(time.strftime("pushscope-%Y%m%d-%H%M%S.psr")))

    def stop_recording(self) -> None:
        """Close the recording; nothing if none is made."""
        self._tap.stop()

    def mark(self, label: str) -> Mark:
        """Give this moment a name: in the ring folder, for everybody, where this user may write there; else for this
        session and its recording alone. Raises PushscopeError in a recording, and for a label that says nothing.
        """
        if self.player is not None:
            raise PushscopeError("a recording can't be marked: its moments are over")
        folder = self._where.folder
        if folder is not None and os.access(folder, os.W_OK):
            return write_mark(folder, label, BY)
        mark = mark_of(label, BY)
        self._tap.add(mark)
        return mark

    def close(self) -> None:
        self._tap.close()


def _words(stepped: Stepped, watcher: Watcher, snapshot: Snapshot) -> str:
    """``P1 tp0: the transfer was submitted``."""
    origin = stepped.ring.origin
    place = (
        "scheduler" if origin.connector_role == "scheduler" else rank_name((origin.pp_rank, origin.tp_rank))
    )
    event = stepped.event
    rank_of = watcher.assembler.rank_of
    of_d = origin.kv_role == "kv_consumer"
    if event is None:
        what = "an event of another version"
    elif isinstance(event, ev.RequestEvent):
        what = in_words(event, of_d=of_d, rank_of=rank_of)
    else:
        what = _CAPITAL.sub(" ", type(event).__name__).lower()
    request = f" ({event.request_id})" if isinstance(event, ev.RequestEvent) else ""
    return f"{snapshot.engine_name(origin.engine_id)} {place}: {what}{request}"
