"""Realistic snapshots and transfers, made by hand: what the assembler would deliver, without an engine.

Times are nanoseconds of one monotonic clock; ``NOW`` is the moment of every snapshot made here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from pushscope.telemetry.diagnosis.model import Diagnosis, Evidence, Severity
from pushscope.telemetry.history import Second
from pushscope.telemetry.marks import Mark
from pushscope.telemetry.pace import Pace, RankPace, StagePace, Times
from pushscope.telemetry.snapshot import Engine, EngineProcess, Pair, Snapshot, Totals, Vitals
from pushscope.telemetry.transfer import PUSH_STAGES, Outcome, Rank, Stage, StageTime, Transfer

MS = 1_000_000
S = 1_000_000_000
NOW = 5_000 * S
UNIX_NOW = 1_800_000_000.0

P1 = "5b7c1f9e-0f5d-4b0e-9a53-3f2f7f1f8a01"
P2 = "8d1e44a2-93f1-4e6c-8f0a-9b0f0c4fd202"
D1 = "c2a9d1b4-6a1f-4f3b-8d27-71d3b5a1c003"

HOSTILE_IDS = (
    "[bold red]INJECTED[/bold red]",
    "[link=http://evil.example]click[/link]",
    "[@click=app.quit]quit[/]",
    "\x1b[2J\x1b]0;owned\x07clear-screen",
    "line\nbreak\r\tid",
    "rtl-\u202egnp.exe\u202c-tail",
    "東京-リクエスト-とても長い識別子-0123456789",
    "x" * 400 + "-tail-9f8e",
    "\\[bold]back\\slash\\",
    "c1-\x9b31m-\x85-end",
)

# What a usual stage takes, in the order of a request, for 'registration first' on one rank.
_LENGTHS = {
    Stage.REGISTRATION: 2 * MS,
    Stage.FLIGHT: 4 * MS,
    Stage.RENDEZVOUS: 180 * MS,
    Stage.HANDOFF: 1 * MS,
    Stage.DESCRIPTORS: 3 * MS,
    Stage.SUBMIT: MS // 2,
    Stage.WIRE: 12 * MS,
    Stage.NOTIFICATION: 2 * MS,
    Stage.WAKE: 6 * MS,
}


def request(number: int) -> str:
    """A base id as an OpenAI client sees it."""
    return f"cmpl-{number * 2654435761 % 2**32:08x}-7d1c-4a7e-b5f0-{number:012x}-0"


def engine(name: str, engine_id: str, side: str, pid: int, *, alive: bool = True, ranks: int = 1) -> Engine:
    worker_ranks: list[Rank] = [(0, tp) for tp in range(ranks)]
    return Engine(
        engine_id=engine_id,
        name=name,
        side=side,
        host="node-a" if side == "P" else "node-b",
        vllm_version="0.32.0",
        nixl_version="1.5.0",
        side_channel=f"10.0.0.{pid % 250}:5600",
        alive=alive,
        processes=(
            EngineProcess(pid=pid, connector_role="scheduler", alive=alive, events=1200),
            *(
                EngineProcess(pid=pid + 1 + i, connector_role="worker", rank=rank, alive=alive, events=9000)
                for i, rank in enumerate(worker_ranks)
            ),
        ),
    )


ENGINES = (engine("P1", P1, "P", 4101), engine("P2", P2, "P", 4201), engine("D1", D1, "D", 5101))


def delivered(number: int, *, ended_ago_ns: int = 0, scale: float = 1.0, base: str | None = None) -> Transfer:
    """A transfer of one rank, D early by 180 ms, seen whole on both sides."""
    length = {stage: int(ns * scale) for stage, ns in _LENGTHS.items()}
    end = NOW - ended_ago_ns
    wake = _back(Stage.WAKE, end, length, None)
    notification = _back(Stage.NOTIFICATION, wake.start_ns, length, (0, 0))
    wire = _back(Stage.WIRE, notification.start_ns, length, (0, 0))
    descriptors = _back(Stage.DESCRIPTORS, wire.start_ns, length, (0, 0))
    handoff = _back(Stage.HANDOFF, descriptors.start_ns, length, None)
    rendezvous = msgspec.structs.replace(
        _back(Stage.RENDEZVOUS, descriptors.start_ns, length, (0, 0)), waited="D waited for P"
    )
    flight = _back(Stage.FLIGHT, rendezvous.start_ns, length, (0, 0))
    registration = _back(Stage.REGISTRATION, flight.start_ns, length, None)
    submit = StageTime(Stage.SUBMIT, wire.start_ns, wire.start_ns + length[Stage.SUBMIT], (0, 0), (0, 0))
    stages = (registration, flight, handoff, rendezvous, descriptors, submit, wire, notification, wake)
    return Transfer(
        **_ids(base if base is not None else request(number), p_engine=P1 if number % 2 else P2),
        sides=("P", "D"),
        outcome=Outcome.DELIVERED,
        opened_ns=registration.start_ns,
        since_ns=end,
        closed_ns=end,
        order="registration first",
        ranks_done=1,
        ranks=1,
        num_tokens=2048,
        num_blocks=128,
        num_bytes=(256 << 20) + number * 4096,
        descriptors=4096,
        descriptors_merged=64,
        stages=stages,
        path=(registration, flight, rendezvous, descriptors, wire, notification, wake),
        exposed_ns=end - handoff.start_ns,
        hidden_ns=handoff.start_ns - registration.start_ns,
    )


def in_flight(number: int, stage: Stage, *, age_ns: int = 40 * MS, base: str | None = None) -> Transfer:
    """A matched transfer that has been in ``stage`` for ``age_ns``."""
    since = NOW - age_ns
    whole = delivered(number, base=base)
    shift = since - next((s.start_ns for s in whole.stages if s.stage is stage), since)
    done = tuple(
        msgspec.structs.replace(s, start_ns=s.start_ns + shift, end_ns=(s.end_ns or 0) + shift)
        for s in whole.stages
        if (s.end_ns or 0) + shift <= since
    )
    present = StageTime(stage, since, None, (0, 0), (0, 0))
    return msgspec.structs.replace(
        whole,
        outcome=Outcome.MOVING,
        stage=stage,
        opened_ns=min((s.start_ns for s in done), default=since),
        since_ns=since,
        closed_ns=None,
        ranks_done=1 if stage is Stage.WAKE else 0,
        stages=(*done, present),
        path=(),
        exposed_ns=None,
        hidden_ns=None,
    )


def two_by_two(number: int) -> Transfer:
    """Two P ranks write to two D ranks: one has arrived, one is still on the wire."""
    since = NOW - 30 * MS
    stages: list[StageTime] = []
    for tp in range(2):
        rank: Rank = (0, tp)
        stages += (
            StageTime(Stage.RENDEZVOUS, since - 60 * MS, since - 5 * MS, rank, rank, waited="P waited for D"),
            StageTime(Stage.DESCRIPTORS, since - 5 * MS, since, rank, rank),
            StageTime(Stage.SUBMIT, since, since + MS, rank, rank),
            StageTime(Stage.WIRE, since, since + 20 * MS if tp == 0 else None, rank, rank),
        )
    stages.append(StageTime(Stage.NOTIFICATION, since + 20 * MS, since + 22 * MS, (0, 0), (0, 0)))
    return Transfer(
        **_ids(request(number), p_engine=P2),
        sides=("P", "D"),
        outcome=Outcome.MOVING,
        stage=Stage.WIRE,
        opened_ns=since - 70 * MS,
        since_ns=since,
        order="blocks first",
        ranks_done=1,
        ranks=2,
        num_tokens=8192,
        num_blocks=512,
        num_bytes=1 << 30,
        descriptors=32768,
        descriptors_merged=512,
        stages=tuple(stages),
    )


def waiting(number: int, side: str, *, age_ns: int = 3 * S, base: str | None = None) -> Transfer:
    """Half a rendezvous: ``side`` (``P`` or ``D``) waits for the other."""
    base = request(number) if base is None else base
    since = NOW - age_ns
    p_waits = side == "P"
    ids = _ids(base, p_engine=P1)
    if p_waits:
        ids |= {"d_engine": None, "d_request": None}
    else:
        ids |= {"p_request": None}
    return Transfer(
        **ids,
        sides=("P",) if p_waits else ("P", "D"),
        outcome=Outcome.WAITING,
        stage=Stage.RENDEZVOUS,
        opened_ns=since - 5 * MS,
        since_ns=since,
        waits="P waits for D's registration" if p_waits else "D waits for P's prefill",
        num_tokens=1024 + number,
        num_blocks=64,
        stages=(StageTime(Stage.RENDEZVOUS, since, None, (0, 0), None),),
    )


def ended(number: int, outcome: Outcome, *, ended_ago_ns: int = 0, error: str = "") -> Transfer:
    """A transfer that ended otherwise than delivered: nothing but its registration was seen."""
    whole = delivered(number, ended_ago_ns=ended_ago_ns)
    return msgspec.structs.replace(
        whole, outcome=outcome, error=error, order="", stages=whole.stages[:2], path=(), num_bytes=None,
        descriptors=None, descriptors_merged=None, exposed_ns=None, hidden_ns=None, ranks_done=0,
    )  # fmt: skip


def one_sided(number: int, side: str, *, ended_ago_ns: int = 0) -> Transfer:
    """A delivered transfer of which only ``side`` was observed."""
    whole = delivered(number, ended_ago_ns=ended_ago_ns)
    p_stages = {Stage.HANDOFF, Stage.RENDEZVOUS, Stage.DESCRIPTORS, Stage.SUBMIT, Stage.WIRE}
    if side == "P":
        stages = tuple(
            msgspec.structs.replace(s, upper_bound=s.stage is Stage.WIRE)
            for s in whole.stages
            if s.stage in p_stages
        )
    else:
        stages = tuple(s for s in whole.stages if s.stage not in p_stages and s.stage is not Stage.FLIGHT)
    return msgspec.structs.replace(
        whole, sides=(side,), stages=stages, path=(), exposed_ns=None, hidden_ns=None,
        num_bytes=whole.num_bytes if side == "P" else None,
    )  # fmt: skip


def busy(**changes: object) -> Snapshot:
    """A snapshot with everything in it: every stage in flight, both sides waiting, every outcome."""
    recent = (
        delivered(1, ended_ago_ns=100 * MS),
        delivered(2, ended_ago_ns=400 * MS, scale=0.4),
        delivered(3, ended_ago_ns=900 * MS, scale=7.3),
        one_sided(4, "P", ended_ago_ns=2 * S),
        one_sided(5, "D", ended_ago_ns=3 * S),
        *(
            ended(10 + i, outcome, ended_ago_ns=(4 + i) * S, error=_ERRORS.get(outcome, ""))
            for i, outcome in enumerate(_NOT_DELIVERED)
        ),
        *(delivered(20 + i, ended_ago_ns=(12 + i) * S, scale=0.5 + i / 10) for i in range(20)),
    )
    fields: dict[str, object] = {
        "taken_ns": NOW,
        "taken_unix_s": UNIX_NOW,
        "source": "rings in /dev/shm/pushscope-1000",
        "engines": ENGINES,
        "in_flight": (*_every_stage(), two_by_two(40)),
        "waiting": (
            waiting(50, "P", age_ns=412 * S),
            waiting(51, "D", age_ns=95 * S),
            waiting(52, "P", age_ns=3 * S),
            waiting(53, "D", age_ns=420 * MS),
        ),
        "recent": recent,
        "totals": Totals(
            transfers=1287,
            outcomes={"delivered": 1240, "failed": 2, "expired": 1, "nothing to receive": 31},
            writes=1240,
            write_bytes=1240 << 28,
            in_flight=11,
            waiting=4,
            events=48213,
            transfers_per_s=12.3,
            bytes_per_s=3.07 * 2**30,
            window_s=10.0,
        ),
    }
    fields.update(changes)
    return Snapshot(**fields)  # type: ignore[arg-type]


def diagnosis(code: str, severity: Severity, subject: str, **changes: object) -> Diagnosis:
    fields: dict[str, object] = {
        "code": code,
        "severity": severity,
        "subject": subject,
        "attempt": 1,
        "sentence": f"Who waits for whom, since when: {code.replace('_', ' ')}.",
        "since_ns": NOW - 42 * S,
        "remedy": "Abort the decode leg: end the client's connection.",
    }
    return Diagnosis(**(fields | changes))  # type: ignore[arg-type]


def stuck(**changes: object) -> Snapshot:
    """Two transfers and an engine are ill, and one is only worth knowing of."""
    snapshot = busy()
    fields: dict[str, object] = {
        "diagnoses": (
            diagnosis("full_hit_held_until_lease", Severity.INFO, request(14), since_ns=NOW - 8 * S),
            diagnosis("prefill_unclaimed", Severity.WARNING, request(50), since_ns=NOW - 412 * S),
            diagnosis(
                "registration_without_prefill",
                Severity.ERROR,
                request(51),
                since_ns=NOW - 95 * S,
                sentence="D1 has waited 1m35s for a prefill that P1 gave up 1m34s ago (finished_aborted).",
                evidence=(
                    Evidence(NOW - 95 * S, D1, "registration sent to P's tp0", (0, 0)),
                    Evidence(NOW - 94 * S, P1, "the prefill leg ended without blocks: finished_aborted"),
                ),
            ),
            diagnosis(
                "handshake_listener_dead",
                Severity.ERROR,
                P2,
                attempt=0,
                since_ns=NOW - 600 * S,
                certain=False,
                costs=((request(52), 1), (request(53), 2)),
                sentence="P2's handshake listener ended 10m00s ago: no new peer can connect.",
            ),
        ),
    }
    return msgspec.structs.replace(snapshot, **(fields | changes))


def unclaimed(number: int) -> Snapshot:
    """A D has died: nobody claims what P has for it."""
    snapshot = busy()
    transfers = tuple(
        Transfer(
            base_id=request(100 + n),
            p_engine=P1,
            p_request=f"{request(100 + n)}-aaaaaaaa",
            outcome=Outcome.WAITING,
            opened_ns=NOW - (60 - n) * S,
            since_ns=NOW - (60 - n) * S,
            num_tokens=200,
            num_blocks=7,
        )
        for n in range(number)
    )
    diagnoses = tuple(
        diagnosis(
            "prefill_unclaimed",
            Severity.WARNING,
            t.base_id,
            since_ns=t.since_ns,
            sentence="P has held 7 blocks (200 tokens) for a while, and no decode has claimed them.",
        )
        for t in transfers
    )
    return msgspec.structs.replace(snapshot, waiting=transfers, diagnoses=diagnoses)


def nothing_found() -> Snapshot:
    """What a reader sees where nobody records."""
    return Snapshot(taken_ns=NOW, taken_unix_s=UNIX_NOW, source="rings in /dev/shm/pushscope-1000")


def engine_gone() -> Snapshot:
    """D died under load: its transfers are lost, its events partly too."""
    snapshot = busy()
    outcomes = {"delivered": 1240, "lost": 9}
    return msgspec.structs.replace(
        snapshot,
        engines=(*ENGINES[:2], engine("D1", D1, "D", 5101, alive=False)),
        totals=msgspec.structs.replace(snapshot.totals, events_lost=1532, outcomes=outcomes),
        notices=("D1 ended 4.2 s ago without closing its ring: 9 transfers to it are lost.",),
    )


def hostile() -> Snapshot:
    """Request ids, errors and names that try to draw on the screen."""
    evil = HOSTILE_IDS[0]
    stages = PUSH_STAGES
    return busy(
        engines=(engine("P1", P1, "P", 4101), engine(evil, D1, "D", 5101)),
        in_flight=tuple(
            in_flight(i, stages[i % len(stages)], base=text) for i, text in enumerate(HOSTILE_IDS)
        ),
        waiting=tuple(waiting(i, "PD"[i % 2], base=text) for i, text in enumerate(HOSTILE_IDS)),
        recent=(
            msgspec.structs.replace(ended(1, Outcome.FAILED, error=evil + "\x1b[2J"), base_id=evil),
            *(delivered(i, base=text) for i, text in enumerate(HOSTILE_IDS)),
        ),
        notices=(evil, HOSTILE_IDS[3]),
        source=evil,
    )


def crowd(in_flight_count: int) -> Snapshot:
    """Many transfers in flight, oldest first."""
    transfers = tuple(
        in_flight(i, Stage.WIRE, age_ns=(in_flight_count - i) * MS) for i in range(in_flight_count)
    )
    snapshot = busy()
    return msgspec.structs.replace(
        snapshot,
        in_flight=transfers,
        totals=msgspec.structs.replace(snapshot.totals, in_flight=in_flight_count),
    )


_NOT_DELIVERED = (
    Outcome.FAILED,
    Outcome.EXPIRED,
    Outcome.ABORTED,
    Outcome.LOST,
    Outcome.NOTHING_TO_RECEIVE,
    Outcome.NOTHING_TO_PUSH,
)
_ERRORS = {
    Outcome.FAILED: "NIXL_ERR_REMOTE_DISCONNECT",
    Outcome.LOST: "D1 ended",
}


def _every_stage() -> Iterator[Transfer]:
    for i, stage in enumerate(PUSH_STAGES):
        yield in_flight(30 + i, stage, age_ns=(len(PUSH_STAGES) - i) * 37 * MS)


def _back(stage: Stage, end_ns: int, length: dict[Stage, int], rank: Rank | None) -> StageTime:
    return StageTime(stage, end_ns - length[stage], end_ns, rank, rank)


def _ids(base: str, *, p_engine: str) -> dict[str, str | None]:
    return {
        "base_id": base,
        "d_engine": D1,
        "d_request": base + "-0d0d0d0d",
        "p_engine": p_engine,
        "p_request": base + "-0a0a0a0a",
    }


# -- what a session knows beside -----------------------------------------------------------------------


def times(p50_s: float, count: int = 400, *, spread: float = 3.0) -> Times:
    """Times around a median, in a shape with one peak."""
    peak = max(0, min(15, int(math.log10(max(p50_s, 1e-6) / 1e-6) * 2)))
    shape = tuple(max(0, count // 2 ** (1 + abs(n - peak)) - 2) for n in range(16))
    return Times(
        count=count, p50_s=p50_s, p90_s=p50_s * spread, p99_s=p50_s * spread**2, max_s=p50_s * 12, shape=shape
    )


def pace() -> Pace:
    """Push and pull, and two ranks of one engine of which the second is slow."""
    medians = {stage: ns / 1e9 for stage, ns in _LENGTHS.items()}
    push = tuple(StagePace(mode="push", stage=stage, times=times(s)) for stage, s in medians.items())
    of_pull = {
        Stage.RELAY: 0.02,
        Stage.ALLOCATION: 0.004,
        Stage.HANDOFF: 0.001,
        Stage.WIRE: 0.03,
        Stage.WAKE: 0.01,
    }
    pull = tuple(StagePace(mode="pull", stage=stage, times=times(s, 90)) for stage, s in of_pull.items())
    bound = StagePace(mode="push", stage=Stage.WIRE, upper_bound=True, times=times(0.05, 7))
    slow = RankPace(
        engine=P1, rank=(0, 1), stage=Stage.WIRE, times=times(0.048), others_p50_s=0.012, outlier=True
    )
    usual = RankPace(engine=P1, rank=(0, 0), stage=Stage.WIRE, times=times(0.012), others_p50_s=0.048)
    only = RankPace(engine=D1, rank=(0, 0), stage=Stage.WAKE, times=times(0.006))
    return Pace(
        transfers=490,
        exposed={"push": times(0.026), "pull": times(0.071, 90)},
        stages=(*push, *pull, bound),
        ranks=(slow, usual, only),
    )


def history(seconds: int = 90) -> tuple[Second, ...]:
    """A load that rises, with a dip."""
    return tuple(
        Second(
            int(UNIX_NOW) - seconds + n,
            delivered=0 if 40 <= n < 45 else 2 + n // 10,
            bad=int(n == 44),
            num_bytes=(2 + n // 10) * 30_000_000,
            in_flight=3 + n % 7,
            waiting=n // 20,
            stuck=int(n > 70),
        )
        for n in range(seconds)
    )


def watched(**changes: object) -> Snapshot:
    """What a session that has gone on for a while shows: everything that a screen can draw."""
    session: dict[str, object] = {
        "pace": pace(),
        "history": history(),
        "marks": (
            Mark(UNIX_NOW - 60, "start: 200 requests at 4/s", "lab load (pid 77)"),
            Mark(UNIX_NOW - 12, "rate 8/s", "lab load (pid 77)"),
        ),
        "vitals": (
            Vitals(
                engine_id=P1,
                pinned_requests=3,
                pinned_blocks=412,
                pinned_tokens=6_592,
                handshakes_done=2,
                registrations_unmatched=1,
                blocks_unmatched=2,
                writes=5,
                leases=3,
                loop_share=0.004,
            ),
            Vitals(
                engine_id=P2, handshakes_done=1, handshakes_failed=2, handshakes_pending=1, loop_share=0.02
            ),
            Vitals(engine_id=D1, held_blocks=64, handshakes_done=2),
        ),
        "pairs": (
            Pair(
                p_engine=P1,
                d_engine=D1,
                in_flight=8,
                waiting=2,
                oldest_s=95.0,
                delivered=1_240,
                num_bytes=31_000_000_000,
                exposed=times(0.026),
                handshake="done",
                heartbeats_applied=14,
                heartbeats_ignored=3,
            ),
            Pair(
                p_engine=P2,
                d_engine=D1,
                in_flight=3,
                bad=4,
                handshake="failed: connection refused by 10.0.0.9:5600",
            ),
        ),
    }
    return msgspec.structs.replace(stuck(), **(session | changes))
