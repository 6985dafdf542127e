"""A source, watched: polls it, folds what it gives, and says what is so now."""

from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from pushscope.telemetry import events as ev
from pushscope.telemetry.assembler import Assembler
from pushscope.telemetry.clocks import ClockOffset
from pushscope.telemetry.diagnosis.engines import diagnose_engines
from pushscope.telemetry.diagnosis.live import Diagnoses
from pushscope.telemetry.diagnosis.model import Diagnosis
from pushscope.telemetry.diagnosis.thresholds import Thresholds, from_environment
from pushscope.telemetry.group import Group
from pushscope.telemetry.hosts import Decoded, Hosts
from pushscope.telemetry.marks import Mark, Marks
from pushscope.telemetry.snapshot import Engine, EngineProcess, Snapshot, Totals
from pushscope.telemetry.source import FORGET_DEAD_NS, Reading, RingState, Source
from pushscope.telemetry.story import KEPT, Stories
from pushscope.telemetry.transfer import Outcome, Transfer
from pushscope.telemetry.usual import UsualTimes

WINDOW_NS: Final = 10_000_000_000
MAX_SHOWN_RECENT: Final = 200
_SIDES: Final = ("P", "PD", "D")
OnEvent = Callable[[RingState, ev.Event | None, bool], None]
"""Called with each event that is read: how its ring stands, the event (None if it can't be understood), and whether it
is news, as far as that is known: False for what an engine only says again of a request."""


def rest_the_collector() -> None:
    """Let Python look for cycles less often: watching makes many small objects, and no cycles.

    For a process that mainly watches. By default the search takes a sixth of its time.
    """
    gc.set_threshold(20_000, 10, 10)


class _Process:
    """Running figures of one ring."""

    def __init__(self) -> None:
        self.events = 0
        self.unknown = 0
        self.dropped = 0
        self.missed = 0
        self.lost_ns: int | None = None
        """When it was noticed, or said, last that events of it were lost."""
        self.last_t: int | None = None
        self.loop_calls = self.loop_ns = self.loop_max_ns = 0
        self.recording = True
        self.seams_off = ""
        self.down = False
        self.raised = ""


class Watcher:
    """Follows one source. Not for several threads at once.

    All times that it tells are of the clock of its readings' host. Engines on several hosts it follows half a second
    later: see :mod:`pushscope.telemetry.hosts`.
    """

    def __init__(
        self,
        source: Source,
        *,
        on_closed: Callable[[Transfer], None] | None = None,
        on_forgotten: Callable[[Group], None] | None = None,
        on_event: OnEvent | None = None,
        thresholds: Thresholds | None = None,
    ):
        """``thresholds``: when a wait is too long; None: as the environment sets them."""
        self.source = source
        self.assembler = Assembler(self._closed, on_forgotten)
        self.stories = Stories()
        self.usual = UsualTimes()
        self._thresholds = thresholds or from_environment()
        self._diagnoses = Diagnoses(self.assembler, self.usual, self._thresholds, self._last_loss)
        self._on_closed, self._on_event = on_closed, on_event
        self._delivered: deque[int] = deque()
        """When the transfers ended that were delivered and closed in the last ten seconds."""
        self._hosts = Hosts()
        self._processes: dict[str, _Process] = {}
        self._rings: tuple[RingState, ...] = ()
        self._reading: Reading | None = None
        self._writes = self._write_bytes = 0
        self._newest_t = 0
        self._marks = Marks()
        self._window: deque[tuple[int, int]] = deque()
        """(time, bytes) of the WRITEs of the last ten seconds."""

    def poll(self) -> bool:
        """Read and fold what is new; False once the source has come to its end."""
        reading = self.source.poll()
        if reading is None:
            self._catch_up()
        elif self._hosts.are_several(reading):
            for decoded in self._hosts.take(reading):
                self._take_translated(decoded)
        else:
            self._take(reading)
        return reading is not None

    def _take(self, reading: Reading) -> None:
        processes = self._meet(reading)
        for index, payload in reading.events:
            try:
                event: ev.Event | None = ev.decode(payload)
            except msgspec.MsgspecError:
                event = None
            self._fold(reading.rings[index], processes[index], event)
        self._taken(reading)

    def _take_translated(self, decoded: Decoded) -> None:
        reading = decoded.reading
        processes = self._meet(reading)
        for index, event in decoded.events:
            self._fold(reading.rings[index], processes[index], event)
        self._taken(reading)

    def _meet(self, reading: Reading) -> list[_Process]:
        """The rings of a reading: their figures, in the same order."""
        self._reading, self._rings = reading, reading.rings
        self._marks.add(reading.marks)
        self.assembler.rings(reading.rings)
        self.stories.rings(reading.rings)
        return [self._processes.setdefault(s.origin.instance, _Process()) for s in reading.rings]

    def _taken(self, reading: Reading) -> None:
        self._note_losses(reading)
        self.assembler.close_ended(reading.t_ns, reading.t_ns - reading.lag_ns)

    def _catch_up(self) -> None:
        """Fold what was read and is held back."""
        for decoded in self._hosts.rest():
            self._take_translated(decoded)

    def run_to_end(self) -> None:
        """Read a recording to its end."""
        while self.poll():
            pass

    def read_all(self) -> None:
        """Read a recording to its end; of rings and agents all that is there by now.

        Raises PushscopeError if nothing can be read.
        """
        if self.source.ends:
            self.run_to_end()
            return
        self.poll()
        self.source.settle()
        self.poll()
        self._catch_up()

    def _note_losses(self, reading: Reading) -> None:
        for state in reading.rings:
            process = self._processes[state.origin.instance]
            missed = state.lost + state.torn + process.unknown
            if missed > process.missed:
                process.missed, process.lost_ns = missed, reading.t_ns

    def _last_loss(self, engine_id: str | None) -> int:
        """When events of an engine were lost last."""
        rings = (state.origin for state in self._rings if state.origin.engine_id == engine_id)
        return max((self._processes[origin.instance].lost_ns or 0 for origin in rings), default=0)

    def _closed(self, transfer: Transfer) -> None:
        self._diagnoses.closed(transfer, self._now_ns)
        self.usual.learn(transfer)
        if transfer.outcome is Outcome.DELIVERED:
            self._delivered.append(transfer.closed_ns or 0)
        self.stories.closed(transfer)
        if self._on_closed is not None:
            self._on_closed(transfer)

    def _fold(self, ring: RingState, process: _Process, event: ev.Event | None) -> None:
        news = True
        if event is None:
            process.unknown += 1
        else:
            news = self._understood(ring.origin, process, event)
        if self._on_event is not None:
            self._on_event(ring, event, news)

    def _understood(self, origin: ev.Origin, process: _Process, event: ev.Event) -> bool:
        """Fold an event in; whether it was news."""
        news = True
        if type(event) in KEPT:
            self.stories.feed(origin, event)
        process.events += 1
        t = event.t
        if process.last_t is None or t > process.last_t:
            process.last_t = t
            if t > self._newest_t:
                self._newest_t = t
            self.assembler.heard(origin.engine_id, t)
        if isinstance(event, ev.RequestEvent):
            news = self.assembler.feed(origin, event)
            if isinstance(event, ev.TransferDone):
                num_bytes = max(0, event.num_bytes)
                self._writes += 1
                self._write_bytes += num_bytes
                self._window.append((event.t, num_bytes))
        else:
            self._note(origin, process, event)
        return news

    def _note(self, origin: ev.Origin, process: _Process, event: ev.Event) -> None:
        """What an engine says of itself."""
        if isinstance(event, ev.Loop):
            process.loop_calls += event.calls
            process.loop_ns += event.total_ns
            process.loop_max_ns = max(process.loop_max_ns, event.max_ns)
        elif isinstance(event, ev.EventsDropped):
            process.dropped = max(process.dropped, event.total)
            process.lost_ns = max(process.lost_ns or 0, event.t)
        elif isinstance(event, ev.RecordingSwitched):
            process.recording = event.on
            if event.on:
                self.assembler.gap_ended(origin.engine_id, event.t)
        elif isinstance(event, ev.EngineUp):
            process.seams_off = event.seams_off
        elif isinstance(event, ev.EngineDown):
            process.down = True
        elif isinstance(event, ev.ConnectorRaised):
            process.raised = f"{event.where} raised {event.error}"
            self.assembler.raised(origin.engine_id, event.t, process.raised)
        elif isinstance(event, ev.WriterException):
            self.assembler.feed(origin, event)

    # -- looking -----------------------------------------------------------------------------------

    @property
    def reading(self) -> Reading | None:
        """What the last poll read."""
        return self._reading

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The last ones, in the order of time."""
        return self._marks.all

    @property
    def _now_ns(self) -> int:
        """The time of the last poll; events that came during it were read too."""
        return max(self._reading.t_ns if self._reading else 0, self._newest_t)

    def wrong_with(self, transfer: Transfer) -> tuple[Diagnosis, ...]:
        """What is wrong with a transfer that is followed, or (``on_forgotten``) is about to be forgotten."""
        return self._diagnoses.of(transfer, self._now_ns)

    def clocks(self) -> tuple[ClockOffset, ...]:
        """How the clocks of the engines' hosts are apart; empty if all are on the reader's own host."""
        return self._hosts.offsets(self._reading.t_ns) if self._reading else ()

    def snapshot(self) -> Snapshot:
        """What is so at the last poll."""
        reading = self._reading or Reading(0, 0)
        followed = self.assembler.open_transfers()
        in_flight = sorted((t for t in followed if t.outcome is Outcome.MOVING), key=_opened)
        waiting = sorted((t for t in followed if t.outcome is Outcome.WAITING), key=_opened)
        ended = [t for t in followed if not t.is_open]
        recent = sorted((*ended, *self.assembler.recent), key=_ended, reverse=True)[:MAX_SHOWN_RECENT]
        outcomes = Counter(self.assembler.closed_by_outcome) + Counter(t.outcome for t in ended)
        engines = self._engines()
        clocks = self.clocks()
        return Snapshot(
            taken_ns=self._now_ns,
            taken_unix_s=reading.unix_ns / 1e9,
            source=self.source.label,
            engines=engines,
            in_flight=tuple(in_flight),
            waiting=tuple(waiting),
            recent=tuple(recent),
            diagnoses=self._diagnosed(engines, followed),
            clocks=clocks,
            totals=self._totals(reading.t_ns, outcomes, len(in_flight), len(waiting), ended),
            unread=tuple(reading.notices),
            notices=(*self._notices(reading, engines), *(c.notice for c in clocks if c.notice)),
            marks=self.marks,
        )

    def _diagnosed(self, engines: Sequence[Engine], followed: Sequence[Transfer]) -> tuple[Diagnosis, ...]:
        """What is wrong with engines, then what is wrong with transfers."""
        of_engines = diagnose_engines(
            self.stories.all(),
            engines,
            followed,
            self.assembler.recent,
            now_ns=self._now_ns,
            thresholds=self._thresholds,
        )
        return (*of_engines, *self._diagnoses.now(followed, self._now_ns))

    def _totals(
        self, t_ns: int, outcomes: Counter[Outcome], in_flight: int, waiting: int, ended: Sequence[Transfer]
    ) -> Totals:
        begin_ns = t_ns - WINDOW_NS
        while self._window and self._window[0][0] < begin_ns:
            self._window.popleft()
        while self._delivered and self._delivered[0] < begin_ns:
            self._delivered.popleft()
        first_t = min((p.origin.anchor_monotonic_ns for p in self._rings), default=t_ns)
        window_s = max(1e-9, min(WINDOW_NS, t_ns - first_t) / 1e9)
        delivered = len(self._delivered) + sum(
            t.outcome is Outcome.DELIVERED and (t.closed_ns or 0) >= begin_ns for t in ended
        )
        return Totals(
            transfers=sum(outcomes.values()) + in_flight + waiting,
            outcomes={outcome.value: outcomes[outcome] for outcome in Outcome if outcomes[outcome]},
            writes=self._writes,
            write_bytes=self._write_bytes,
            in_flight=in_flight,
            waiting=waiting,
            events=sum(p.events for p in self._processes.values()),
            events_lost=sum(self._lost(state) for state in self._rings),
            transfers_per_s=delivered / window_s,
            bytes_per_s=sum(num_bytes for _, num_bytes in self._window) / window_s,
            window_s=window_s,
        )

    def _lost(self, state: RingState) -> int:
        process = self._processes[state.origin.instance]
        return state.lost + state.torn + process.dropped + process.unknown

    def _engines(self) -> tuple[Engine, ...]:
        by_id: dict[str, list[RingState]] = {}
        for state in sorted(self._rings, key=lambda s: (s.origin.anchor_monotonic_ns, s.origin.instance)):
            by_id.setdefault(state.origin.engine_id, []).append(state)
        numbers: Counter[str] = Counter()
        engines = []
        now_ns = self._reading.t_ns if self._reading else 0
        for engine_id, states in by_id.items():
            newest = states[-1].origin
            # An engine that was restarted under its old id is as alive as its newest rings.
            current = {_place(s.origin): s.origin.instance for s in states}.values()
            last_t = max(self._processes[s.origin.instance].last_t or 0 for s in states)
            if not any(s.alive for s in states) and now_ns - last_t > FORGET_DEAD_NS:
                continue
            side = {"kv_producer": "P", "kv_consumer": "D"}.get(newest.kv_role, "PD")
            numbers[side] += 1
            engines.append(
                Engine(
                    engine_id=engine_id,
                    name=f"{side}{numbers[side]}",
                    side=side,
                    host=newest.host,
                    mode=newest.mode,
                    vllm_version=newest.vllm_version,
                    nixl_version=newest.nixl_version,
                    side_channel=next((s.origin.side_channel for s in states if s.origin.side_channel), ""),
                    alive=all(s.alive for s in states if s.origin.instance in current),
                    processes=tuple(
                        self._process(s, replaced=s.origin.instance not in current) for s in states
                    ),
                )
            )
        return tuple(sorted(engines, key=lambda e: _SIDES.index(e.side)))

    def _process(self, state: RingState, *, replaced: bool) -> EngineProcess:
        process, origin = self._processes[state.origin.instance], state.origin
        return EngineProcess(
            pid=origin.pid,
            connector_role=origin.connector_role,
            rank=(origin.pp_rank, origin.tp_rank),
            alive=state.alive,
            events=process.events,
            events_lost=self._lost(state),
            lost_ns=process.lost_ns,
            last_event_ns=process.last_t,
            recording=process.recording,
            seams_off=process.seams_off,
            shut_down=process.down,
            raised=process.raised,
            replaced=replaced,
            loop_calls=process.loop_calls,
            loop_s=process.loop_ns / 1e9,
            loop_max_s=process.loop_max_ns / 1e9,
        )

    def _notices(self, reading: Reading, engines: tuple[Engine, ...]) -> list[str]:
        notices = list(reading.notices)
        if not self._rings and not notices:
            notices.append(f"no engine records in {self.source.label}")
        for engine in engines:
            if end := engine.end:
                notices.append(f"{engine.name} {end}")
            if forgotten := sum(s.forgotten for s in self._rings_of(engine)):
                notices.append(
                    f"{engine.name}: {forgotten} events were overwritten before this reader came; of what happened "
                    f"then only what is still open is known"
                )
            if not all(process.recording for process in engine.processes):
                notices.append(f"{engine.name}: recording is switched off, what happens now is not seen")
            missing = {process.seams_off for process in engine.processes} - {""}
            notices.extend(f"{engine.name}: not recorded with this vLLM: {what}" for what in sorted(missing))
        sides = "".join(engine.side for engine in engines)
        if engines and not ("P" in sides and "D" in sides):
            here, other = ("P", "D") if "P" in sides else ("D", "P")
            notices.append(f"one-sided: only {here} is observed, what {other} does is not known")
        if self.assembler.evicted:
            notices.append(
                f"{self.assembler.evicted} transfers were dropped unfinished: too many open at once"
            )
        return [*notices, *reading.asides]

    def _rings_of(self, engine: Engine) -> list[RingState]:
        return [s for s in self._rings if s.origin.engine_id == engine.engine_id]


def _place(origin: ev.Origin) -> tuple[str, int, int, int]:
    """What only one live process of an engine can be."""
    return origin.connector_role, origin.dp_rank, origin.pp_rank, origin.tp_rank


def _opened(transfer: Transfer) -> tuple[int, str]:
    return transfer.opened_ns, transfer.base_id


def _ended(transfer: Transfer) -> tuple[int, str]:
    return transfer.closed_ns or transfer.since_ns, transfer.base_id
