"""What is so at one moment: the frozen data that the TUI draws and ``--json`` prints."""

from __future__ import annotations

import msgspec

from pushscope.telemetry.clocks import ClockOffset
from pushscope.telemetry.diagnosis.model import Diagnosis
from pushscope.telemetry.history import Second
from pushscope.telemetry.marks import Mark
from pushscope.telemetry.pace import Pace, Times
from pushscope.telemetry.playback import PlayState
from pushscope.telemetry.transfer import Rank, Transfer


class EngineProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One recording connector instance: a scheduler, or a worker of one rank."""

    pid: int
    connector_role: str
    """``scheduler`` or ``worker``."""
    rank: Rank = (0, 0)
    alive: bool = True
    events: int = 0
    events_lost: int = 0
    """Events that this reader missed, and that the engine could not record."""
    lost_ns: int | None = None
    """When it was last noticed that events were lost."""
    last_event_ns: int | None = None
    recording: bool = True
    """False while recording is switched off."""
    seams_off: str = ""
    """What is not recorded because this vLLM differs."""
    shut_down: bool = False
    """It said that it ends."""
    raised: str = ""
    """The exception that left its connector on the engine's main thread."""
    replaced: bool = False
    """A later process of the same engine id has its place."""
    loop_calls: int = 0
    loop_s: float = 0.0
    """Time that the connector took from the engine's main thread, over ``loop_calls`` calls."""
    loop_max_s: float = 0.0

    @property
    def name(self) -> str:
        """``scheduler``, ``worker 0`` (the tensor-parallel rank), ``worker 1.0`` (of pipeline stage 1)."""
        pp, tp = self.rank
        rank = "" if self.connector_role == "scheduler" else f" {pp}.{tp}" if pp else f" {tp}"
        return f"{self.connector_role}{rank}"


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """One engine whose rings are read."""

    engine_id: str
    name: str
    """A short name, unique in its snapshot: ``P1``, ``D1`` ..."""
    side: str
    """``P``, ``D`` or ``PD``, from kv_role and what it was seen to do."""
    host: str = ""
    mode: str = "push"
    vllm_version: str = ""
    nixl_version: str = ""
    side_channel: str = ""
    alive: bool = True
    """All of it is there."""
    processes: tuple[EngineProcess, ...] = ()

    @property
    def gone(self) -> tuple[EngineProcess, ...]:
        """Its processes that are gone and that no later one replaces, the first to fall silent first."""
        gone = (process for process in self.processes if not process.alive and not process.replaced)
        return tuple(sorted(gone, key=lambda process: process.last_event_ns or 0))

    @property
    def end(self) -> str:
        """How it, or a part of it, ended, after its name; empty while all of it is alive."""
        gone = self.gone
        cause = next((f": {process.raised}" for process in gone if process.raised), "")
        unclean = [process for process in gone if not process.shut_down]
        named = " and ".join(f"{process.name} (pid {process.pid})" for process in unclean or gone)
        if not gone:
            return ""
        if any(process.alive for process in self.processes):
            return f"has lost {named}{cause}; the rest of it is still there"
        if cause:
            return f"has gone{cause}"
        if not unclean:
            return "has shut down"
        return "has gone without shutting down" + (f": {named}" if len(unclean) < len(gone) else "")


class Vitals(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine holds and does now, beyond its transfers. None: not observed."""

    engine_id: str
    pinned_requests: int = 0
    pinned_blocks: int = 0
    """P: staged, and neither taken nor given up: memory that no prefill can have."""
    pinned_tokens: int = 0
    held_blocks: int = 0
    """D: allotted to requests that have ended, and that nobody has filled."""
    handshakes_done: int = 0
    handshakes_failed: int = 0
    handshakes_pending: int = 0
    registrations_unmatched: int | None = None
    blocks_unmatched: int | None = None
    writes: int | None = None
    leases: int | None = None
    """Entries in the tables of its connector, over all of its ranks."""
    loop_share: float | None = None
    """Which part of its main thread's time the connector takes, lately; of the rank with the most."""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """One P engine and one D engine that have to do with each other."""

    p_engine: str
    d_engine: str
    in_flight: int = 0
    waiting: int = 0
    oldest_s: float | None = None
    """The age of its oldest open transfer."""
    delivered: int = 0
    bad: int = 0
    """Failed, expired or lost, while one watched."""
    num_bytes: int = 0
    exposed: Times = Times()
    handshake: str = ""
    """How the two know each other, in words: ``done``, ``pending 4 s``, ``failed: …``; empty: nothing was seen."""
    heartbeats_applied: int = 0
    heartbeats_ignored: int = 0
    """At P, from all D: ignored alone means nothing, with concurrent dispatch all are."""


class RecordingState(msgspec.Struct, frozen=True, kw_only=True):
    """A recording that is being written."""

    path: str
    seconds: float = 0.0
    num_events: int = 0
    num_bytes: int = 0
    error: str = ""
    """Why it ended early."""


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the reader started (or since the oldest event still in the rings)."""

    transfers: int = 0
    outcomes: dict[str, int] = {}
    """Ended transfers by outcome."""
    writes: int = 0
    """NIXL WRITEs seen done, over all P ranks."""
    write_bytes: int = 0
    in_flight: int = 0
    waiting: int = 0
    events: int = 0
    events_lost: int = 0
    transfers_per_s: float = 0.0
    bytes_per_s: float = 0.0
    """Delivered transfers, and bytes of WRITEs seen done, over the last ``window_s`` seconds."""
    window_s: float = 0.0


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The world at ``taken_ns`` (CLOCK_MONOTONIC) / ``taken_unix_s``."""

    taken_ns: int
    taken_unix_s: float
    source: str = ""
    """What was read: a folder of rings, a recording."""
    engines: tuple[Engine, ...] = ()
    in_flight: tuple[Transfer, ...] = ()
    """Matched and moving, oldest first."""
    waiting: tuple[Transfer, ...] = ()
    """Rendezvous entries with one half missing, oldest first."""
    recent: tuple[Transfer, ...] = ()
    """Ended lately, newest first."""
    diagnoses: tuple[Diagnosis, ...] = ()
    """What is wrong, or was until lately: the most severe first, then the oldest."""
    clocks: tuple[ClockOffset, ...] = ()
    """How the clocks of the engines' hosts are apart; empty if all are on the reader's own host."""
    totals: Totals = Totals()
    unread: tuple[str, ...] = ()
    """What of the source could not be read, and why; ``notices`` has it too."""
    notices: tuple[str, ...] = ()
    """What the reader of this snapshot must know: nothing found, events lost, one side only ..."""

    # What only a session that goes on for a while knows (see :mod:`pushscope.telemetry.session`).
    vitals: tuple[Vitals, ...] = ()
    pairs: tuple[Pair, ...] = ()
    """Those with the most to do first. Bounded."""
    pace: Pace = Pace()
    history: tuple[Second, ...] = ()
    """The oldest first, without gaps."""
    marks: tuple[Mark, ...] = ()
    """The oldest first, the last ones only."""
    play: PlayState | None = None
    """Of a recording that is played."""
    recording: RecordingState | None = None

    def unix_s(self, t_ns: int) -> float:
        """The wall time of a moment, by the clock of the host that took the snapshot."""
        return self.taken_unix_s - (self.taken_ns - t_ns) / 1e9

    def engine_name(self, engine_id: str | None) -> str:
        """The short name of an engine, its id if it is not observed, or ``?``."""
        if engine_id is None:
            return "?"
        for engine in self.engines:
            if engine.engine_id == engine_id:
                return engine.name
        return engine_id[:8]
