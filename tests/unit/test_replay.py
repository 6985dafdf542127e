"""A recording that is moved about in at random, and what a session makes of it: the screen is what was so then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pushscope.telemetry import events as ev
from pushscope.telemetry.playback import Player
from pushscope.telemetry.recording import RecordingSource, RecordingWriter, extent
from pushscope.telemetry.session import Session
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.source import Reading
from pushscope.telemetry.watch import Watcher
from pushscope.telemetry.where import Where

from .scenario import P_WORKER, delivered, ms, reading, until

SECONDS = 12


class Clock:
    """Nanoseconds that pass only when told to."""

    def __init__(self) -> None:
        self.ns = 5_000_000_000

    def __call__(self) -> int:
        return self.ns

    def pass_s(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)


def readings() -> list[Reading]:
    """One transfer a second, each read in four parts; one of them waits to the end."""
    said = [each for second in range(SECONDS) for each in delivered(f"cmpl-{second}", second * 1_000)]
    said += until(delivered("cmpl-waits", 3_500), ev.BlocksStaged)
    said.sort(key=lambda each: each[1].t)
    made = []
    for end in range(0, SECONDS * 1_000 + 500, 10):
        begin = ms(end - 10)
        part = [each for each in said if begin <= each[1].t < ms(end)]
        if part or end % 500 == 0:
            made.append(reading(part, end))
    return made


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("played") / "run.psr"
    writer = RecordingWriter(path)
    for each in readings():
        writer.write(each)
    writer.close()
    return path


_OPEN: list[Player | Session | RecordingSource] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Whatever a test has opened is closed when it is over."""
    yield
    while _OPEN:
        _OPEN.pop().close()


class Played:
    """A player and the watcher that folds what it gives, anew when it has begun again."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        self.player = Player(path, self.clock)
        _OPEN.append(self.player)
        self._begun = 0
        self.watcher = Watcher(self.player)

    def after(self, seconds: float = 0.0) -> Snapshot:
        self.clock.pass_s(seconds)
        while True:
            if self.player.beginnings != self._begun:
                self._begun = self.player.beginnings
                self.watcher = Watcher(self.player)
            self.player.advance(self.watcher.poll)
            if not self.player.is_behind:
                return self.watcher.snapshot()

    @property
    def position(self) -> float:
        return self.player.state().position_s


def read_to(path: Path, seconds: float) -> Snapshot:
    """What a reader has who stops there."""
    source = RecordingSource(path)
    _OPEN.append(source)
    begin = extent(path)[0]
    given = []
    while (each := source.poll()) is not None and each.t_ns <= begin + seconds * 1e9:
        given.append(each)
    watcher = Watcher(_Given(given, source.label))
    watcher.run_to_end()
    return watcher.snapshot()


class _Given:
    ends = True

    def __init__(self, given: list[Reading], label: str) -> None:
        self.label = label
        self._given = iter(given)

    def poll(self) -> Reading | None:
        return next(self._given, None)

    def settle(self) -> None: ...
    def close(self) -> None: ...


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    moves=st.lists(
        st.one_of(
            st.tuples(st.just("seek"), st.floats(0, SECONDS)),
            st.tuples(st.just("play"), st.floats(0, 3)),
            st.tuples(st.just("step"), st.integers(1, 5)),
        ),
        max_size=6,
    ),
    target=st.floats(0, SECONDS),
)
def test_whatever_the_way_the_moment_is_the_same(
    path: Path, moves: list[tuple[str, float]], target: float
) -> None:
    played = Played(path)
    for how, number in moves:
        if how == "seek":
            played.player.seek(number)
            played.after()
        elif how == "play":
            played.player.play()
            played.after(number)
        else:
            played.player.step(int(number))
            played.after()
    played.player.pause()
    played.player.seek(target)
    assert played.after() == read_to(path, target)
    while _OPEN:
        _OPEN.pop().close()


class TestSession:
    """What a session makes of it."""

    def session(self, path: Path) -> tuple[Session, Clock]:
        clock = Clock()
        session = Session(Where(replay=path), now_ns=clock)
        _OPEN.append(session)
        return session, clock

    def test_it_tells_where_it_stands_and_what_ended(self, path: Path) -> None:
        session, clock = self.session(path)
        session.snapshot()
        clock.pass_s(5.5)
        shown = session.snapshot()
        assert shown.play is not None
        assert shown.play.position_s == pytest.approx(5.5)
        assert shown.pace.exposed["push"].count >= 4
        assert [s.delivered for s in shown.history].count(1) >= 4
        assert [(p.delivered >= 4, p.handshake) for p in shown.pairs] == [(True, "")]

    def test_what_was_folded_is_forgotten_when_it_goes_back(self, path: Path) -> None:
        session, clock = self.session(path)
        session.snapshot()
        clock.pass_s(60)
        while session.is_behind or not session.snapshot().play.over:  # type: ignore[union-attr]
            session.snapshot()
        assert session.player is not None
        session.player.pause()
        session.player.seek(1.5)
        session.snapshot()
        while session.is_behind:
            session.snapshot()
        shown = session.snapshot()
        assert shown.totals.outcomes == {"delivered": 2}
        assert shown.pace.transfers <= 2
        assert sum(s.delivered for s in shown.history) <= 2

    def test_an_event_that_was_stepped_to_is_told_in_words(self, path: Path) -> None:
        session, _ = self.session(path)
        session.snapshot()
        assert session.player is not None
        session.player.pause()
        session.player.step(3)
        shown = session.snapshot()
        assert shown.play is not None
        assert shown.play.event.startswith(("P1 ", "D1 "))
        assert "cmpl-0" in shown.play.event

    def test_whatever_an_engine_says_can_be_stepped_to(self, tmp_path: Path) -> None:
        of_engines = [
            ev.EngineUp(ms(1)),
            ev.Loop(ms(2), 10, 1_000, 500, True),
            ev.Tables(ms(3)),
            ev.HandshakeEnded(ms(4), "engine-d", ms(1), 1),
            ev.EngineDown(ms(5)),
        ]
        path = tmp_path / "engines.psr"
        writer = RecordingWriter(path)
        writer.write(reading([(P_WORKER, event) for event in of_engines], 10))
        writer.close()
        session, _ = self.session(path)
        assert session.player is not None
        session.player.pause()
        told = []
        for _ in of_engines:
            session.player.step()
            shown = session.snapshot()
            assert shown.play is not None
            told.append(shown.play.event)
        assert told == [
            f"P1 tp0: {kind}" for kind in ("engine up", "loop", "tables", "handshake ended", "engine down")
        ]

    def test_a_recording_is_not_recorded_nor_marked(self, path: Path, tmp_path: Path) -> None:
        session, _ = self.session(path)
        with pytest.raises(ValueError, match="is a recording already"):
            session.record(tmp_path / "again.psr")
        with pytest.raises(ValueError, match="can't be marked"):
            session.mark("now")
        assert list(tmp_path.iterdir()) == []

    def test_its_damage_is_a_notice(self, path: Path, tmp_path: Path) -> None:
        damaged = tmp_path / "damaged.psr"
        damaged.write_bytes(path.read_bytes()[:-2000] + b"\xff" * 2000)
        session, clock = self.session(damaged)
        session.snapshot()
        clock.pass_s(60)
        for _ in range(5):
            shown = session.snapshot()
        assert any("damaged" in notice for notice in shown.notices)
