"""A recording, played: at a speed, held, moved and stepped; wherever it stands is what reading to there gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pushscope.telemetry import events as ev
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.playback import FULL_SPEED, SPEEDS, Player
from pushscope.telemetry.recording import MAGIC, RecordingError, RecordingSource, RecordingWriter, extent
from pushscope.telemetry.session import Session
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.source import Reading
from pushscope.telemetry.transfer import Outcome
from pushscope.telemetry.watch import Watcher
from pushscope.telemetry.where import Where

from .scenario import ORIGINS, START_NS, Said, delivered, ms, reading

END_MS = 660
"""The last event is read then; a quiet reading after it would be left out of a recording."""
STEP_MS = 20


class Clock:
    """Nanoseconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def said() -> Said:
    both = delivered("a", 5) + delivered("b", 205) + delivered("c", 605, blocks_first=True)
    return sorted(both, key=lambda each: each[1].t)


def readings(every: int = STEP_MS) -> list[Reading]:
    """What was read every 20 ms."""
    ends = range(0, END_MS + 1, every)
    return [reading([(o, e) for o, e in said() if ms(end - every) < e.t <= ms(end)], end) for end in ends]


def written(path: Path, given_readings: list[Reading]) -> Path:
    writer = RecordingWriter(path)
    for each in given_readings:
        writer.write(each)
    writer.close()
    return path


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("recorded") / "run.psr", readings())


class Played:
    """A session that plays a recording, with its clock."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        self.session = Session(Where(replay=path), now_ns=self.clock)
        assert self.session.player is not None
        self.player = self.session.player

    def after(self, milliseconds: float = 0.0) -> Snapshot:
        self.clock.now += round(milliseconds * 1e6)
        snapshot = self.session.snapshot()
        while self.session.is_behind:
            snapshot = self.session.snapshot()
        return snapshot


@pytest.fixture
def played(recording: Path) -> Iterator[Played]:
    played = Played(recording)
    with closing(played.session):
        yield played


def read_to(path: Path, end_ns: int) -> Snapshot:
    """What a watcher has read that reads on until the next reading would be later."""
    source = RecordingSource(path)
    due = []
    while (each := source.poll()) is not None:
        if each.t_ns <= end_ns:
            due.append(each)
    watcher = Watcher(_Given(due, str(path)))
    watcher.run_to_end()
    return watcher.snapshot()


class _Given:
    ends = True

    def __init__(self, given_readings: list[Reading], label: str) -> None:
        self._readings, self.label = given_readings, label

    def poll(self) -> Reading | None:
        return self._readings.pop(0) if self._readings else None

    def settle(self) -> None:
        pass

    def close(self) -> None:
        pass


def position_ms(snapshot: Snapshot) -> float:
    assert snapshot.play is not None
    return snapshot.play.position_s * 1e3


def transfers(snapshot: Snapshot) -> object:
    return snapshot.in_flight, snapshot.waiting, snapshot.recent, snapshot.engines, snapshot.taken_ns


def test_it_plays_as_fast_as_it_was_made_and_is_over_at_its_end(played: Played) -> None:
    assert played.after().play is not None
    assert position_ms(played.after(100)) == pytest.approx(100)
    assert played.player.state().position_s == pytest.approx(0.1)
    snapshot = played.after(5_000)
    assert snapshot.play is not None
    assert snapshot.play.over
    assert snapshot.play.position_s == snapshot.play.duration_s == END_MS / 1e3
    assert [t.outcome for t in snapshot.recent] == [Outcome.DELIVERED] * 3


def test_its_speed_can_be_changed_on_the_way(played: Played) -> None:
    played.after(100)
    played.player.speed = 4.0
    assert position_ms(played.after(100)) == pytest.approx(500)
    played.player.speed = 0.5
    assert position_ms(played.after(100)) == pytest.approx(550)
    played.player.speed = FULL_SPEED
    assert position_ms(played.after()) == pytest.approx(END_MS)


@pytest.mark.parametrize("speed", [0.0, -1.0, SPEEDS[0] / 2, SPEEDS[1] * 2, float("nan")])
def test_another_speed_is_a_sentence(played: Played, speed: float) -> None:
    with pytest.raises(PushscopeError, match=r"expected a speed of 0\.1 to 100"):
        played.player.speed = speed


def test_while_it_is_held_nothing_comes(played: Played) -> None:
    played.after(100)
    played.player.pause()
    snapshot = played.after(700)
    assert position_ms(snapshot) == pytest.approx(100)
    assert snapshot.play is not None
    assert not snapshot.play.playing
    played.player.play()
    assert position_ms(played.after(100)) == pytest.approx(200)


def test_it_goes_back_and_plays_on_from_there(played: Played) -> None:
    assert len(played.after(5_000).recent) == 3
    played.player.seek(0.3)
    assert len(played.after().recent) == 2
    assert position_ms(played.after(100)) == pytest.approx(400)


@pytest.mark.parametrize(("asked_s", "found_ms"), [(-5.0, 0), (99.0, END_MS)])
def test_it_stays_within_the_recording(played: Played, asked_s: float, found_ms: int) -> None:
    played.player.seek(asked_s)
    assert position_ms(played.after()) == pytest.approx(found_ms)


def test_it_steps_from_event_to_event_in_the_order_of_time(recording: Path) -> None:
    session = Session(Where(replay=recording), now_ns=Clock())
    with closing(session):
        assert session.player is not None
        times, words = [], []
        for _ in said():
            session.player.step()
            snapshot = session.snapshot()
            assert snapshot.play is not None
            times.append(snapshot.taken_ns)
            words.append(snapshot.play.event)
        assert times == [event.t for _, event in said()]
        assert all(words)
        assert "sched" in words[0]
        session.player.step(-3)
        back = session.snapshot().play
        while session.is_behind:
            back = session.snapshot().play
        assert back is not None
        assert back.event == words[-4]


def test_what_was_stepped_to_is_not_given_again(played: Played) -> None:
    for _ in range(7):
        played.player.step()
        played.after()
    played.player.play()
    snapshot = played.after(5_000)
    assert snapshot.totals.events == len(said())
    assert len(snapshot.recent) == 3


def test_a_step_back_from_the_first_event_stays_there(played: Played) -> None:
    played.player.step()
    first = played.after().taken_ns
    played.player.step(-1)
    played.player.state()
    assert played.after().taken_ns == first


def test_a_step_at_the_end_stays_there(played: Played) -> None:
    played.after(5_000)
    played.player.step()
    snapshot = played.after()
    assert position_ms(snapshot) == pytest.approx(END_MS)
    assert not played.session.is_behind


@pytest.mark.filterwarnings("ignore")
@given(at=st.integers(0, END_MS), first=st.integers(0, END_MS))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_moment_is_the_same_however_it_is_reached(recording: Path, at: int, first: int) -> None:
    by_reading = transfers(read_to(recording, ms(at)))
    ways: list[Callable[[Played], Snapshot]] = [_playing(at), _seeking(at), _seeking(first, at)]
    for way in ways:
        played = Played(recording)
        with closing(played.session):
            assert transfers(way(played)) == by_reading


def _playing(at: int) -> Callable[[Played], Snapshot]:
    return lambda played: played.after(at)


def _seeking(*places: int) -> Callable[[Played], Snapshot]:
    def way(played: Played) -> Snapshot:
        for place in places:
            played.player.seek(place / 1e3)
            snapshot = played.after()
        return snapshot

    return way


def test_one_that_is_damaged_is_played_up_to_there_and_says_so_for_good(
    recording: Path, tmp_path: Path
) -> None:
    data = recording.read_bytes()
    damaged = tmp_path / "damaged.psr"
    middle = len(data) // 2
    damaged.write_bytes(data[:middle] + b"\xff" * 64 + data[middle + 64 :])
    played = Played(damaged)
    with closing(played.session):
        snapshot = played.after(5_000)
        assert snapshot.play is not None
        assert snapshot.play.over
        assert any("damaged at byte" in notice for notice in snapshot.notices)
        played.player.seek(0.0)
        assert any("damaged at byte" in notice for notice in played.after().notices)


def test_the_extent_of_a_whole_and_of_a_cut_recording(recording: Path, tmp_path: Path) -> None:
    assert extent(recording) == (START_NS, ms(END_MS))
    cut = tmp_path / "cut.psr"
    cut.write_bytes(recording.read_bytes()[:-7])
    begin, end = extent(cut)
    assert begin == START_NS
    assert begin < end < ms(END_MS)


def test_an_empty_recording_has_no_extent_and_is_over_at_once(tmp_path: Path) -> None:
    empty = tmp_path / "empty.psr"
    empty.write_bytes(MAGIC)
    begin, end = extent(empty)
    assert begin == end
    player = Player(empty, Clock())
    with closing(player):
        assert player.poll() is None
        assert player.over


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot read the recording"):
        extent(tmp_path / "none.psr")
    with pytest.raises(RecordingError, match="cannot read the recording"):
        Player(tmp_path / "none.psr")


def test_begun_in_the_middle_it_makes_no_transfer_lost(tmp_path: Path) -> None:
    late = [(o, e) for o, e in delivered("a", 5) if e.t > ms(30) and not isinstance(e, ev.RequestArrived)]
    path = written(tmp_path / "late.psr", [reading(late, 60, ORIGINS), reading([], 5_000, ORIGINS)])
    played = Played(path)
    with closing(played.session):
        snapshot = played.after(10_000)
        assert not {t.outcome for t in snapshot.recent} & {Outcome.LOST, Outcome.FAILED}
        assert "lost" not in snapshot.totals.outcomes
