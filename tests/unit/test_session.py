"""A session: it watches, records what it watches, recalls events; and a replay of that has the same outcomes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec
import pytest

from pushscope.telemetry import events as ev
from pushscope.telemetry import recording as recordings
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.recorder import Recorder
from pushscope.telemetry.recording import RecordingError, RecordingWriter
from pushscope.telemetry.session import Session
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.source import Reading
from pushscope.telemetry.tap import Tap
from pushscope.telemetry.transfer import Outcome
from pushscope.telemetry.where import Where

from .scenario import ORIGINS, START_NS, ListSource, Said, delivered, reading, until


class Engines:
    """Real rings of a P and a D, into which events are written as of now."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._recorders = {
            o.instance: stack.enter_context(
                closing(Recorder(folder, msgspec.structs.replace(o, pid=os.getpid())))
            )
            for o in ORIGINS
        }
        # An event from before its engine's start would be of one that was restarted since.
        self._shift_ns = time.monotonic_ns() - START_NS

    def say(self, said: Said) -> None:
        for origin, event in sorted(said, key=lambda each: each[1].t):
            at = msgspec.structs.replace(event, t=event.t + self._shift_ns)
            self._recorders[origin.instance].record(at)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "rings"


@pytest.fixture
def engines(folder: Path) -> Iterator[Engines]:
    with ExitStack() as stack:
        yield Engines(folder, stack)


@pytest.fixture
def session(engines: Engines, folder: Path) -> Iterator[Session]:
    with closing(Session(Where(rings=folder))) as session:
        session.snapshot()
        yield session


def replayed(path: Path) -> Snapshot:
    with closing(Session(Where(replay=path))) as session:
        assert session.player is not None
        session.player.speed = float("inf")
        snapshot = session.snapshot()
        while session.is_behind:
            snapshot = session.snapshot()
        return snapshot


def ended(session: Session, number: int) -> Snapshot:
    """The first snapshot after so many transfers are known to be over."""
    for _ in range(1_000):
        snapshot = session.snapshot()
        if snapshot.pace is not None and snapshot.pace.transfers == number:
            return snapshot
        time.sleep(0.01)
    raise AssertionError(f"expected {number} transfers to end")


def outcomes(snapshot: Snapshot) -> dict[str, Outcome]:
    return {t.base_id: t.outcome for t in (*snapshot.recent, *snapshot.in_flight, *snapshot.waiting)}


def test_what_ended_while_one_watched_is_in_pace_history_and_pairs(
    engines: Engines, session: Session
) -> None:
    engines.say(delivered("a"))
    snapshot = ended(session, 1)
    assert outcomes(snapshot) == {"a": Outcome.DELIVERED}
    assert sum(second.delivered for second in snapshot.history) == 1
    assert [pair.delivered for pair in snapshot.pairs] == [1]
    assert snapshot.play is None
    assert snapshot.recording is None


def test_a_recording_replays_to_the_same_outcomes(engines: Engines, session: Session, tmp_path: Path) -> None:
    path = session.record(tmp_path / "run.psr")
    engines.say(delivered("a") + until(delivered("b", 5), ev.Submitted))
    seen = session.snapshot()
    assert seen.recording is not None
    assert seen.recording.num_events == seen.totals.events > 0
    session.stop_recording()
    assert session.snapshot().recording is None
    assert outcomes(replayed(path)) == outcomes(seen)
    assert set(outcomes(seen).values()) == {Outcome.DELIVERED, Outcome.MOVING}


def test_a_recording_begun_in_the_middle_makes_no_transfer_lost(
    engines: Engines, session: Session, tmp_path: Path
) -> None:
    whole = delivered("a")
    first = until(whole, ev.Submitted)
    engines.say(first)
    session.snapshot()
    path = session.record(tmp_path / "late.psr")
    engines.say([each for each in whole if each not in first])
    session.snapshot()
    session.stop_recording()
    assert Outcome.LOST not in outcomes(replayed(path)).values()


def test_an_existing_file_is_left_alone(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "run.psr"
    path.write_text("precious")
    with pytest.raises(RecordingError, match="exists already"):
        session.record(path)
    assert path.read_text() == "precious"
    assert session.snapshot().recording is None


def test_a_recording_of_a_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.psr"
    writer = RecordingWriter(path)
    writer.write(reading(delivered(), 100))
    writer.close()
    with (
        closing(Session(Where(replay=path))) as session,
        pytest.raises(PushscopeError, match="a recording already"),
    ):
        session.record(tmp_path / "again.psr")


def test_a_full_disk_ends_the_recording_not_the_watching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: RecordingWriter, __: Reading) -> None:
        raise RecordingError("cannot write the recording: No space left on device")

    tap = Tap(ListSource([reading(delivered(), 100), reading([], 200)]))
    tap.record(tmp_path / "run.psr")
    monkeypatch.setattr(recordings.RecordingWriter, "write", full)
    assert tap.poll() is not None
    state = tap.state()
    assert state is not None
    assert "No space left" in state.error
    assert tap.poll() is not None
    tap.close()
    assert tap.state() is None


def test_the_disk_that_is_really_full_is_a_sentence() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with pytest.raises(RecordingError):
        RecordingWriter(Path("/dev/full"))


def test_events_of_open_and_of_closed_transfers_are_recalled(engines: Engines, session: Session) -> None:
    engines.say(delivered("closed") + until(delivered("open", 5), ev.Submitted))
    snapshot = session.snapshot()
    for t in (*snapshot.recent, *snapshot.in_flight):
        attempt = session.explain(t)
        assert attempt is not None
        assert attempt.d_request == t.d_request
        assert len({h.what for h in attempt.happened}) > 5
    stranger = msgspec.structs.replace(snapshot.recent[0], base_id="x", d_request="x", p_request="x")
    assert session.explain(stranger) is None


def test_the_summary_counts_what_ended_and_knows_the_marks(engines: Engines, session: Session) -> None:
    engines.say(delivered("a") + delivered("b", 3))
    ended(session, 2)
    mark = session.mark("rate 8/s")
    assert (mark.label, mark.by) == ("rate 8/s", "top")
    assert session.snapshot().marks == (mark,)
    summary = session.summary()
    assert summary.total is not None
    assert summary.total.outcomes == {"delivered": 2}
    assert summary.phases[-1].label == "rate 8/s"
