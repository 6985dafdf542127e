"""Recordings: what was watched is what is replayed, and a damaged file says so in one sentence."""

import os
import time
from contextlib import closing

import msgspec
import pytest

from pushscope.telemetry import events as ev
from pushscope.telemetry.recorder import Recorder
from pushscope.telemetry.recording import MAGIC, RecordingError, RecordingSource, RecordingWriter
from pushscope.telemetry.source import RingsSource
from pushscope.telemetry.watch import Watcher

from .scenario import D_WORKER, P_WORKER, ListSource, delivered, reading, until


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.psr"


def readings():
    said = sorted(delivered("a") + until(delivered("b", 5), ev.Submitted), key=lambda oe: oe[1].t)
    half = len(said) // 2
    return [reading(said[:half], 25), reading(said[half:], 60), reading([], 1500), reading([], 9000)]


def record(path, given):
    writer = RecordingWriter(path)
    for r in given:
        writer.write(r)
    writer.close()
    return writer


def test_a_replay_gives_every_snapshot_again(path):
    live = Watcher(ListSource(readings(), label=str(path)))
    record(path, readings())
    replayed = Watcher(RecordingSource(path))
    for _ in readings():
        assert live.poll()
        assert replayed.poll()
        assert replayed.snapshot() == live.snapshot()
    assert not replayed.poll()


def test_an_existing_file_is_never_overwritten(path):
    path.write_text("precious")
    with pytest.raises(RecordingError, match="exists already"):
        RecordingWriter(path)
    assert path.read_text() == "precious"


def test_quiet_polls_are_thinned_to_one_a_second(path):
    writer = record(path, [reading([], t) for t in range(0, 5000, 50)])
    source, count = RecordingSource(path), 0
    while source.poll():
        count += 1
    assert count == 5
    assert writer.num_bytes == path.stat().st_size


def test_a_file_cut_in_the_middle_is_good_up_to_there(path):
    record(path, readings())
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    watcher = Watcher(RecordingSource(path))
    watcher.run_to_end()
    assert watcher.snapshot().taken_ns == readings()[2].t_ns


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "expected a recording"),
        (b"\x7fELF", "another kind of file"),
        (MAGIC + b"\x04\x00\x00\x00\x00\x00\x00\x00abcd", "damaged at byte"),
        (MAGIC + b"\xff\xff\xff\xff\x00\x00\x00\x01abcd", "damaged at byte"),
    ],
)
def test_another_file_is_one_clear_sentence(path, data, says):
    path.write_bytes(data)
    with pytest.raises(RecordingError, match=says):
        Watcher(RecordingSource(path)).run_to_end()


def test_a_missing_file_is_one_clear_sentence(path):
    with pytest.raises(RecordingError, match="cannot read the recording"):
        RecordingSource(path)


def test_an_event_of_a_later_version_is_counted_not_fatal(path):
    first = reading([], 0)
    unknown = msgspec.msgpack.encode([9999, 1, "r"])
    record(path, [msgspec.structs.replace(first, events=[(0, unknown)])])
    watcher = Watcher(RecordingSource(path))
    watcher.run_to_end()
    assert watcher.snapshot().totals.events_lost == 1


def test_rings_that_come_and_go_are_followed(tmp_path):
    folder = tmp_path / "rings"
    source = RingsSource(folder)
    assert "start an engine with pushscope.connector" in source.poll().notices[0]
    a = Recorder(folder, P_WORKER)
    source._scan_due = 0
    assert [s.origin.instance for s in source.poll().rings] == [a.origin.instance]
    b = Recorder(folder, D_WORKER)
    source._scan_due = 0
    assert len(source.poll().rings) == 2
    b.path.unlink()
    (folder / "junk.ring").write_text("junk")
    source._scan_due = 0
    again = source.poll()
    assert [s.origin.instance for s in again.rings] == [a.origin.instance]
    assert "another kind of file" in again.notices[0]
    source.close()
    a.close()
    b.close()


def test_an_engine_that_ends_while_the_folder_is_looked_at_is_read(tmp_path, monkeypatch):
    """Its last event is later than the poll's beginning, and is of today all the same."""
    folder = tmp_path / "rings"
    recorder = Recorder(folder, msgspec.structs.replace(P_WORKER, anchor_monotonic_ns=time.monotonic_ns()))
    listed = os.listdir

    def ends_first(fd):
        recorder.record(ev.EngineDown(time.monotonic_ns()))
        recorder.close()
        return listed(fd)

    monkeypatch.setattr(os, "listdir", ends_first)
    with closing(RingsSource(folder)) as source:
        first = source.poll()
    assert [(s.origin.instance, s.alive) for s in first.rings] == [(recorder.origin.instance, False)]
    assert len(first.events) == 1


def test_losing_sight_of_the_folder_for_a_while_reads_nothing_twice(tmp_path):
    folder = tmp_path / "rings"
    recorder = Recorder(folder, P_WORKER)
    source = RingsSource(folder)
    recorder.record(ev.BlocksPickedUp(1, "a"))
    assert len(source.poll().events) == 1
    folder.chmod(0o777)
    source._scan_due = 0
    recorder.record(ev.BlocksPickedUp(2, "b"))
    blinded = source.poll()
    assert "can be written by other users" in blinded.notices[0]
    assert len(blinded.events) == 1, "a ring that is open can still be read"
    folder.chmod(0o700)
    source._scan_due = 0
    assert source.poll().events == []
    source.close()
    recorder.close()
