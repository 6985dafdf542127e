"""The recorder: it never raises, says again what is open, and can be switched off while it runs."""

import logging
import time

import pytest

from pushscope.telemetry import events as ev
from pushscope.telemetry import recorder as recorder_module
from pushscope.telemetry.recorder import SAY_AGAIN_NS, SWITCH_NAME, Recorder
from pushscope.telemetry.ring import RingReader

from .scenario import P_WORKER

SECOND = 1_000_000_000


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests turn: ``clock.t`` in ns."""

    class Clock:
        t = time.monotonic_ns()

        def __call__(self) -> int:
            return self.t

    clock = Clock()
    monkeypatch.setattr(recorder_module, "now", clock)
    return clock


@pytest.fixture
def recorder(tmp_path, clock):
    recorder = Recorder(tmp_path / "rings", P_WORKER)
    yield recorder
    recorder.close()


def read(reader: RingReader) -> list[ev.Event]:
    return [ev.decode(p) for p in reader.poll(time.monotonic_ns())]


def of(kind, recorder: Recorder) -> list[ev.Event]:
    reader = RingReader(recorder.path)
    found = [e for e in read(reader) if isinstance(e, kind)]
    reader.close()
    return found


def test_what_is_recorded_is_read(recorder):
    recorder.record(ev.SubmitStarted(1, "r", 7))
    assert of(ev.SubmitStarted, recorder) == [ev.SubmitStarted(1, "r", 7)]


def test_a_failure_is_counted_logged_once_and_never_raised(recorder, caplog, clock):
    with caplog.at_level(logging.WARNING, "vllm.pushscope"):
        recorder.record(ev.SubmitStarted(1, object(), 7))  # type: ignore[arg-type]
        recorder.record(ev.SubmitStarted(1, "x" * 500, 7))
    assert recorder.dropped == 2
    assert len(caplog.records) == 1
    clock.t += 2 * SECOND
    recorder.step()
    (dropped,) = of(ev.EventsDropped, recorder)
    assert dropped.total == 2
    assert "object" in dropped.error


def test_what_is_open_is_said_again_with_its_first_time_until_it_ends(recorder, clock):
    first = ev.RegistrationDrained(clock.t, "d", "engine-d")
    recorder.begin("d", first)
    for _ in range(3):
        clock.t += SAY_AGAIN_NS + SECOND
        recorder.step()
        recorder.step()
    said = of(ev.RegistrationDrained, recorder)
    assert len(said) >= 3
    assert set(said) == {first}
    recorder.end("d")
    clock.t += SAY_AGAIN_NS + SECOND
    recorder.step()
    recorder.step()
    assert len(of(ev.RegistrationDrained, recorder)) == len(said)


def test_saying_again_is_bounded_per_step(recorder, clock):
    for n in range(100):
        recorder.begin(n, ev.BlocksPickedUp(clock.t, f"p-{n}"))
    clock.t += SAY_AGAIN_NS + SECOND
    recorder.step()  # finds what is due
    per_step = []
    for _ in range(20):
        before = len(of(ev.BlocksPickedUp, recorder))
        recorder.step()
        per_step.append(len(of(ev.BlocksPickedUp, recorder)) - before)
    assert max(per_step) <= 8
    assert sum(per_step) == 100, "and every one has its turn"


def test_once_a_second_it_says_what_the_main_thread_lost(recorder, clock):
    recorder.took(2000)
    recorder.took(5000)
    recorder.step()
    assert of(ev.Loop, recorder) == []
    clock.t += SECOND
    recorder.step()
    assert [(e.calls, e.total_ns, e.max_ns) for e in of(ev.Loop, recorder)] == [(2, 7000, 5000)]


def test_a_flag_file_switches_recording_off_and_on(recorder, clock):
    switch = recorder.path.parent / SWITCH_NAME
    switch.touch()
    clock.t += SECOND
    recorder.step()
    recorder.record(ev.BlocksPickedUp(1, "unseen"))
    recorder.begin("k", ev.BlocksPickedUp(2, "begun unseen"))
    switch.unlink()
    clock.t += SECOND
    recorder.step()
    recorder.record(ev.BlocksPickedUp(3, "seen"))
    assert [e.request_id for e in of(ev.BlocksPickedUp, recorder)] == ["seen"]
    assert [e.on for e in of(ev.RecordingSwitched, recorder)] == [False, True]
    clock.t += SAY_AGAIN_NS + SECOND
    recorder.step()
    recorder.step()
    assert "begun unseen" in {e.request_id for e in of(ev.BlocksPickedUp, recorder)}, "it is still open"


def test_a_closed_recorder_takes_everything_and_records_nothing(recorder):
    recorder.close()
    recorder.record(ev.BlocksPickedUp(1, "late"))
    recorder.begin("k", ev.BlocksPickedUp(1, "late"))
    recorder.step()
    assert recorder.dropped == 0


def test_a_reader_that_comes_after_two_wraps_still_learns_what_is_open(tmp_path, clock):
    """The ring has forgotten the event; saying it again has not."""
    recorder = Recorder(tmp_path / "rings", P_WORKER, num_bytes=4096 + 64 * 256)
    first = ev.RegistrationDrained(clock.t, "stuck", "engine-d")
    recorder.begin("stuck", first)
    for step in range(200):
        clock.t += SECOND // 10
        recorder.record(ev.BlocksPickedUp(clock.t, f"other-{step}"))
        recorder.step()
    late = RingReader(recorder.path)
    events = read(late)
    assert len(events) <= 64
    assert first in events
    late.close()
    recorder.close()


def test_what_ended_meanwhile_is_not_said_again(recorder, clock):
    for n in range(20):
        recorder.begin(n, ev.BlocksPickedUp(clock.t, f"p-{n}"))
    clock.t += SAY_AGAIN_NS + SECOND
    recorder.step()  # finds what is due
    recorder.step()  # says eight
    for n in range(20):
        recorder.end(n)
    recorder.step()
    assert len(of(ev.BlocksPickedUp, recorder)) == 28


def test_when_it_is_switched_on_it_says_at_once_what_is_open(recorder, clock):
    switch = recorder.path.parent / SWITCH_NAME
    switch.touch()
    clock.t += SECOND
    recorder.step()
    recorder.begin("k", ev.BlocksPickedUp(clock.t, "begun unseen"))
    switch.unlink()
    for _ in range(3):
        clock.t += SECOND
        recorder.step()
    assert "begun unseen" in {e.request_id for e in of(ev.BlocksPickedUp, recorder)}
