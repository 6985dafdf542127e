"""What a soak showed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
from bench.machine import Machine

from pushscope.telemetry.diagnosis.model import Severity

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
JSON, PAGE = FOLDER / "soak.json", FOLDER / "soak.md"
REAL, SIMULATED = 5_000, 1_000_000
"""Requests of a whole soak."""
RELAY_S, REPLAY_S = 600, 3_600
"""How long engines write that are watched far away, and those of a recording that is played."""
FLAT_MIB = 32.0
"""Memory is flat if it grows by no more, from the middle of a simulation to its end."""


class Named(msgspec.Struct, frozen=True):
    """How often a cause was named: for so many transfers or engines, or again when it had been gone."""

    code: str
    severity: Severity
    count: int


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What was watched in one go."""

    name: str
    simulated: bool
    transfers: int
    """Those that ended."""
    outcomes: dict[str, int]
    events: int
    events_lost: int
    snapshots: int
    watched_s: float
    """By the clock of the engines."""
    wall_s: float
    resident_mib: tuple[float, ...]
    """Of the watching process: the first when a tenth was done, the last at the end."""
    named: tuple[Named, ...]
    errors: tuple[str, ...] = ()
    """What the first diagnoses of severity error said."""
    wrong: dict[str, int] = {}
    """Simulated: what had truly gone wrong, which the mix is made to avoid. Real: what clients were refused."""

    @property
    def error_count(self) -> int:
        return sum(named.count for named in self.named if named.severity is Severity.ERROR)

    @property
    def grown_mib(self) -> float:
        """By how much the process grew from the middle to the end."""
        return self.resident_mib[-1] - self.resident_mib[len(self.resident_mib) // 2]

    @property
    def is_well(self) -> bool:
        """Whether there was no false alarm, and nothing was missed."""
        return not self.error_count and not self.wrong and not self.events_lost

    @property
    def held(self) -> bool:
        """Whether it is well, and (over a long simulation) memory was flat."""
        return self.is_well and (not self.simulated or self.grown_mib <= FLAT_MIB)


class Relayed(msgspec.Struct, frozen=True, kw_only=True):
    """What a session saw of two agents over a hard network, and what there was to see."""

    watched: Part
    written: int
    """Events."""
    at_home: dict[str, int]
    """Transfers by outcome, as a watcher on the engines' own host counted them."""
    delay_s: float
    """Of every byte, in each direction."""
    resets: int
    stalls: int
    """Of both connections."""
    reconnects: int
    cuts_told: int
    """How often it was said that an agent is out of reach."""
    silent_s: float
    """The longest time without news of an engine."""

    @property
    def events_twice(self) -> int:
        """Events that were counted beyond those written."""
        return max(0, self.watched.events + self.watched.events_lost - self.written)

    @property
    def is_whole(self) -> bool:
        """Whether all that was written was counted, once, and came to the same transfers as at home."""
        return self.watched.events == self.written and self.watched.outcomes == self.at_home

    @property
    def held(self) -> bool:
        """Whether all was counted without a false alarm. Memory is not looked at: rings that fill are mapped."""
        return self.watched.is_well and self.is_whole


class Result(msgspec.Struct, frozen=True):
    """Parts, each with the machine that it ran on."""

    parts: tuple[tuple[Machine, Part], ...]
    relay: tuple[Machine, Relayed] | None = None
    replay: tuple[Machine, Part] | None = None

    def of_kind(self, *, simulated: bool) -> tuple[Part, ...]:
        return tuple(part for _, part in self.parts if part.simulated is simulated)

    def updated(self, machine: Machine, parts: Iterable[Part]) -> Result:
        """This result with a kind of part replaced by later ones."""
        later = tuple((machine, part) for part in parts)
        kinds = {part.simulated for _, part in later}
        kept = tuple(each for each in self.parts if each[1].simulated not in kinds)
        sorted_parts = tuple(sorted((*kept, *later), key=lambda each: each[1].simulated))
        return msgspec.structs.replace(self, parts=sorted_parts)

    def write(self) -> None:
        """As what is committed."""
        JSON.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")


def read() -> Result:
    """The committed run; an empty one if there is none yet."""
    return msgspec.json.decode(JSON.read_bytes(), type=Result) if JSON.exists() else Result(())
