"""Where events come from: this host's rings, a recording, agents. One protocol for every view."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

import msgspec

from pushscope.telemetry.clock import Host, this_host
from pushscope.telemetry.events import Origin, decode
from pushscope.telemetry.holder import holder_of, is_stopped
from pushscope.telemetry.marks import Mark, MarksFile
from pushscope.telemetry.ring import HOLE_NS, SUFFIX, RingError, RingReader, opened_folder

RESCAN_NS = 500_000_000
MARKS_NS: Final = 1_000_000_000
"""How often it is looked for new marks."""
FORGET_DEAD_NS = 600_000_000_000
"""A ring whose engine was gone, and silent, for this long when it is first seen belongs to another day."""
SAME_HOST_LAG_NS: Final = 20_000_000
"""An event may be recorded this long after its time: it is stamped before its slot is claimed."""
UNHEARD_NS: Final = 3_000_000_000
"""What is out of reach without a word is taken for that after so long at most."""
_LEAST_SHARE: Final = 100
"""Events of one ring in a poll that is bounded: one busy ring among many still comes forward."""
FROM_THE_OLDEST: Final[Mapping[str, int]] = MappingProxyType({})


class RingState(msgspec.Struct, frozen=True):
    """How a ring stood when it was polled."""

    origin: Origin
    alive: bool = True
    lost: int = 0
    """Events overwritten before this reader came to them."""
    torn: int = 0
    """Events whose slot was damaged, or claimed and never written."""
    forgotten: int = 0
    """Events that were overwritten before this reader came: not its loss, but it can't know them."""
    stopped: bool = False
    """Its process is there and stopped (SIGSTOP, a debugger). Only who reads the ring on its own host can see that,
    and whoever reads what that one streams or recorded."""
    position: int = 0
    """The number of the last event that was read, or passed over: where another reader may go on."""
    unheard: bool = False
    """Whoever reads it is out of reach, or behind: its silence says nothing of its process."""


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """What another host's clock said: after it was asked, and before that was heard, by the reading's clock."""

    host: Host
    t_ns: int
    heard_ns: int
    asked_ns: int | None = None
    """None: it was not asked, it spoke by itself."""


class Reading(msgspec.Struct, frozen=True):
    """One poll of a source: the events that are new, and how each ring stood.

    ``t_ns`` is CLOCK_MONOTONIC of ``host`` when the poll started; events are still encoded, each with the index of
    its ring in ``rings``, and have their own hosts' times.
    """

    t_ns: int
    unix_ns: int
    rings: tuple[RingState, ...] = ()
    events: Sequence[tuple[int, bytes]] = ()
    notices: tuple[str, ...] = ()
    """What could not be read, and why."""
    host: Host | None = None
    """None: the one that all its rings are on, as in recordings of former versions."""
    lag_ns: int = SAME_HOST_LAG_NS
    """An event may be read so long after its time."""
    stamps: tuple[Stamp, ...] = ()
    """What was heard of other hosts' clocks, apart from events."""
    more: bool = False
    """It is only a part: what lies in the rings by now has not all been read."""
    marks: tuple[Mark, ...] = ()
    """New ones; each comes once."""
    asides: tuple[str, ...] = ()
    """What must be known besides, and limits nothing that is told of transfers."""


class Source(Protocol):
    """Anything that gives readings."""

    label: str
    """What is read, for people."""
    ends: bool
    """Whether there is an end to come to (a recording), or it goes on for ever (rings)."""

    def poll(self) -> Reading | None:
        """What is new; None once there will never be more."""

    def settle(self) -> None:
        """Wait, some seconds at most, until all that was said by now can be polled.

        Raises PushscopeError if nothing can be read, and why.
        """

    def close(self) -> None: ...


class RingsSource:
    """The rings in one folder of this host; engines may come and go.

    ``after`` says of rings (by instance) that were read before up to which position; others are read from their
    oldest event on. With ``at_most`` a poll gives about so many events at most, each ring its share, and says if there
    are more.
    """

    ends = False

    def __init__(self, folder: Path, after: Mapping[str, int] = FROM_THE_OLDEST, *, at_most: int = 1 << 60):
        self.folder = folder
        self.label = str(folder)
        self._after = after
        self._at_most = at_most
        self._host = this_host()
        self._readers: dict[str, RingReader] = {}
        self._refused: dict[str, str] = {}
        self._ignored: set[str] = set()
        self._holders: dict[str, int] = {}
        self._stopped: set[str] = set()
        self._folder_notice = ""
        self._scan_due = 0
        self._marks = MarksFile(folder)
        self._marks_due = 0

    def poll(self) -> Reading:
        t_ns, unix_ns = time.monotonic_ns(), time.time_ns()
        if t_ns >= self._scan_due:
            self._scan(t_ns)
            self._scan_due = t_ns + RESCAN_NS
        marks: tuple[Mark, ...] = ()
        if t_ns >= self._marks_due:
            marks = self._marks.poll(unix_ns / 1e9)
            self._marks_due = t_ns + MARKS_NS
        states: list[RingState] = []
        events: list[tuple[int, bytes]] = []
        more = False
        share = max(_LEAST_SHARE, self._at_most // max(1, len(self._readers)))
        for index, (name, reader) in enumerate(self._readers.items()):
            alive = reader.alive()  # before reading: what a dying engine still wrote is then read with it
            payloads = reader.poll(t_ns, share)
            events.extend((index, payload) for payload in payloads)
            more = more or len(payloads) == share
            stopped = alive and name in self._stopped
            counts = reader.lost, reader.torn, reader.forgotten
            states.append(RingState(reader.origin, alive, *counts, stopped, reader.position))
        notices = tuple(filter(None, (self._folder_notice, *self._refused.values())))
        return Reading(
            t_ns,
            unix_ns,
            tuple(states),
            events,
            notices,
            self._host,
            more=more,
            marks=marks,
            asides=self._marks.asides,
        )

    def settle(self) -> None:
        """A slot that a dying thread has claimed and never written is passed over only after a while."""
        time.sleep(HOLE_NS / 1e9)

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _scan(self, t_ns: int) -> None:
        try:
            with opened_folder(self.folder) as fd:
                names = {name for name in os.listdir(fd) if name.endswith(SUFFIX)}
        except RingError as e:
            self._folder_notice = str(e)
            return  # what is open can still be read
        self._folder_notice = ""
        for name in self._readers.keys() - names:
            self._readers.pop(name).close()
            self._holders.pop(name, None)
        self._refused = {name: why for name, why in self._refused.items() if name in names}
        self._ignored &= names
        for name in sorted(names - self._readers.keys() - self._refused.keys() - self._ignored):
            self._open(name, t_ns)
        self._stopped = {name for name, pid in self._holders.items() if is_stopped(pid)}

    def _open(self, name: str, t_ns: int) -> None:
        after = self._after.get(name.removesuffix(SUFFIX))
        try:
            reader = RingReader(self.folder / name, after)
            if after is None and not reader.alive() and self._is_of_another_day(reader, t_ns):
                self._ignored.add(name)
                reader.close()
                return
        except RingError as e:
            self._refused[name] = str(e)
            return
        self._readers[name] = reader
        if (pid := holder_of(reader.path)) is not None:
            self._holders[name] = pid

    def _is_of_another_day(self, reader: RingReader, t_ns: int) -> bool:
        """Whether a dead engine was silent for long when its ring was first seen; the reader is left as it was."""
        origin = reader.origin
        if self._host.boot_id and origin.boot_id not in ("", self._host.boot_id):
            return True
        try:
            with contextlib.closing(RingReader(reader.path)) as ahead:
                payloads = ahead.poll(t_ns)
        except RingError:
            return True  # it was removed meanwhile
        last_t = origin.anchor_monotonic_ns
        for payload in payloads[-64:]:
            with contextlib.suppress(msgspec.MsgspecError):
                last_t = max(last_t, decode(payload).t)
        # It may have ended since this poll began: its last event is then later than ``t_ns``.
        return not 0 <= time.monotonic_ns() - last_t < FORGET_DEAD_NS
