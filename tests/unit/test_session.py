"""Watching for a while: recording beside it, marks, and the events of what one looks at."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from pushscope.telemetry import events as ev
from pushscope.telemetry.marks import Mark
from pushscope.telemetry.recorder import Recorder
from pushscope.telemetry.recording import RecordingSource
from pushscope.telemetry.session import Session
from pushscope.telemetry.spans.ids import trace_id_of
from pushscope.telemetry.transfer import Outcome
from pushscope.telemetry.watch import Watcher
from pushscope.telemetry.where import Where

from . import samples
from .scenario import ORIGINS, Said, delivered, until


class Engines:
    """The rings of a P and a D, in which is written what a scenario says, as if it happened now."""

    def __init__(self, folder: Path) -> None:
        now_ns = time.monotonic_ns() - 10_000_000_000  # before whatever they will say
        origins = [msgspec.structs.replace(o, anchor_monotonic_ns=now_ns, instance="") for o in ORIGINS]
        self._recorders = dict(zip(ORIGINS, [Recorder(folder, o) for o in origins], strict=True))

    def say(self, said: Said) -> None:
        first = min(e.t for _, e in said)
        now_ns = time.monotonic_ns() - 100_000_000
        for origin, event in sorted(said, key=lambda each: each[1].t):
            self._recorders[origin].record(msgspec.structs.replace(event, t=now_ns + event.t - first))

    def close(self) -> None:
        for recorder in self._recorders.values():
            recorder.close()


@pytest.fixture
def engines(tmp_path: Path):
    with closing(Engines(tmp_path / "rings")) as engines:
        yield engines


@pytest.fixture
def session(tmp_path: Path, engines: Engines):
    with closing(Session(Where(rings=tmp_path / "rings"))) as session:
        session.snapshot()
        yield session


def test_what_is_watched_is_recorded_and_shows_the_same_again(
    tmp_path: Path, engines: Engines, session: Session
) -> None:
    engines.say(delivered("cmpl-before"))
    session.snapshot()
    path = session.record(tmp_path / "run.psr")
    engines.say(delivered("cmpl-a") + until(delivered("cmpl-b", 5), ev.BlocksStaged))
    shown = session.snapshot()
    assert shown.recording is not None
    assert shown.recording.num_events == 30
    assert shown.recording.path == str(path)
    session.stop_recording()
    assert session.snapshot().recording is None
    engines.say(delivered("cmpl-after"))
    session.snapshot()

    replayed = Watcher(RecordingSource(path))
    replayed.run_to_end()
    now = replayed.snapshot()
    assert {t.base_id: t.outcome for t in (*now.recent, *now.waiting)} == {
        "cmpl-a": Outcome.DELIVERED,
        "cmpl-b": Outcome.WAITING,
    }


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path, session: Session) -> None:
    (tmp_path / "there.psr").write_text("precious")
    with pytest.raises(ValueError, match="exists already"):
        session.record(tmp_path / "there.psr")
    assert (tmp_path / "there.psr").read_text() == "precious"
    assert session.snapshot().recording is None


def test_a_disk_that_is_full_ends_the_recording_and_not_the_watching(
    tmp_path: Path, engines: Engines, session: Session
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    session.record(tmp_path / "run.psr")
    session._tap._writer._file.close()  # type: ignore[union-attr]
    session._tap._writer._file = open("/dev/full", "wb", buffering=0)  # type: ignore[union-attr]  # noqa: SIM115
    engines.say(delivered("cmpl-a"))
    shown = session.snapshot()
    assert shown.recording is not None
    assert "cannot go on writing" in shown.recording.error
    engines.say(delivered("cmpl-b"))
    assert session.snapshot().totals.outcomes == {"delivered": 2}
    session.stop_recording()


def test_a_mark_is_for_everybody_where_the_folder_can_be_written(tmp_path: Path, session: Session) -> None:
    made = session.mark("  rate 8/s\x1b[31m ")
    assert made.label == "rate 8/s"
    with closing(Session(Where(rings=tmp_path / "rings"))) as another:
        assert _marks(another) == [made]
    assert _marks(session) == [made]


def test_a_mark_is_the_sessions_own_where_it_cannot(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    path = session.record(tmp_path / "run.psr")
    made = session.mark("mine")
    assert _marks(session) == [made]
    session.stop_recording()
    replayed = Watcher(RecordingSource(path))
    replayed.run_to_end()
    assert list(replayed.snapshot().marks) == [made], "its recording has it too"
    with closing(Session(Where(rings=tmp_path / "rings"))) as another:
        assert _marks(another) == []


def _marks(session: Session) -> list[Mark]:
    """Marks are looked for once a second."""
    end = time.monotonic() + 3
    while not (marks := session.snapshot().marks) and time.monotonic() < end:
        time.sleep(0.1)
    return list(marks)


def test_a_mark_that_says_nothing_is_a_sentence(session: Session) -> None:
    with pytest.raises(ValueError, match="expected a label"):
        session.mark(" \x1b[0m ")


def test_the_events_of_what_is_open_and_of_what_has_ended_are_held(
    engines: Engines, session: Session
) -> None:
    engines.say(delivered("cmpl-a") + until(delivered("cmpl-b", 5), ev.BlocksStaged))
    shown = session.snapshot()
    (waiting,) = shown.waiting
    attempt = session.explain(waiting)
    assert attempt is not None
    assert [h.kind for h in attempt.happened][-1] == "RegistrationDrained"
    assert [m.what for m in attempt.missing]

    (ended,) = shown.recent
    attempt = session.explain(ended)
    assert attempt is not None
    assert {"Matched", "Submitted", "DecodeScheduled"} <= {h.kind for h in attempt.happened}
    assert attempt.trace_id == f"{trace_id_of(ended.d_engine or '', ended.d_request or ''):032x}", (
        "nobody called"
    )
    assert attempt.missing == ()


def test_of_a_transfer_that_was_never_seen_there_is_nothing_to_tell(session: Session) -> None:
    assert session.explain(samples.delivered(1)) is None


def test_what_ended_is_summed_up_between_marks(engines: Engines, session: Session) -> None:
    engines.say(delivered("cmpl-a"))
    session.snapshot()
    session.mark("second")
    _marks(session)
    engines.say(delivered("cmpl-b") + delivered("cmpl-c", 3))
    session.snapshot()
    time.sleep(0.2)
    session.snapshot()
    summary = session.summary()
    assert summary.total is not None
    assert summary.total.outcomes in ({"delivered": 3}, {"delivered": 2}, {})  # what is closed by now
    assert [phase.label for phase in summary.phases] == ["", "second"]


def test_a_recording_begun_in_the_middle_makes_nothing_of_it_lost(
    tmp_path: Path, engines: Engines, session: Session
) -> None:
    said = delivered("cmpl-a")
    engines.say(until(said, ev.Matched))
    session.snapshot()
    path = session.record(tmp_path / "run.psr")
    engines.say([each for each in said if each not in until(said, ev.Matched)])
    session.snapshot()
    session.stop_recording()
    replayed = Watcher(RecordingSource(path))
    replayed.run_to_end()
    snapshot = replayed.snapshot()
    assert Outcome.LOST not in {t.outcome for t in snapshot.recent}
    assert snapshot.diagnoses == ()
