"""An engine that is stopped is told from one that is idle: on its own host, and in what was recorded there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from pushscope.telemetry.diagnosis.model import Diagnosis
from pushscope.telemetry.holder import holder_of, is_stopped
from pushscope.telemetry.recording import RecordingSource, RecordingWriter
from pushscope.telemetry.source import RESCAN_NS, Reading, RingsSource, RingState
from pushscope.telemetry.stuck import causes
from pushscope.telemetry.watch import Watcher

from .failures import MET, S, posts, registers
from .scenario import D_ENGINE, ORIGINS, P_ENGINE, ListSource, Said, reading

ENGINE = """
import os, sys, time
from pathlib import Path
from pushscope.telemetry.events import Origin
from pushscope.telemetry.ring import RingWriter
writer = RingWriter(Path(sys.argv[1]), Origin(host="", boot_id="", time_namespace="", pid=os.getpid(),
    connector_role="worker", engine_id="e", kv_role="kv_producer", mode="push"), num_bytes=1 << 16)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def engine(tmp_path: Path):
    """A process that holds a ring in ``tmp_path``."""
    process = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(tmp_path / "rings")], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_the_reader_on_its_host_sees_a_stopped_engine(
    engine: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    source = RingsSource(tmp_path / "rings")

    def stopped_within(seconds: float, expected: bool) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            (ring,) = source.poll().rings
            assert ring.alive
            if ring.stopped is expected:
                return True
            time.sleep(RESCAN_NS / 5e9)
        return False

    assert not source.poll().rings[0].stopped
    os.kill(engine.pid, signal.SIGSTOP)
    assert stopped_within(10, True)
    os.kill(engine.pid, signal.SIGCONT)
    assert stopped_within(10, False)
    source.close()


def test_the_holder_of_a_ring_is_found_and_nobody_of_another_file(
    engine: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    (ring,) = (tmp_path / "rings").glob("*.ring")
    assert holder_of(ring) == engine.pid
    (tmp_path / "other").touch()
    assert holder_of(tmp_path / "other") is None
    assert holder_of(tmp_path / "missing") is None
    assert not is_stopped(2**22 + 1)


def with_stopped(given: Reading, *engines: str) -> Reading:
    rings = tuple(
        msgspec.structs.replace(ring, stopped=ring.origin.engine_id in engines) for ring in given.rings
    )
    return msgspec.structs.replace(given, rings=rings)


def test_a_recording_carries_it(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "a.psr")
    for at, engines in ((1, ()), (2, (P_ENGINE,)), (3, ())):
        writer.write(with_stopped(reading([], at), *engines))
    writer.close()
    source = RecordingSource(tmp_path / "a.psr")
    seen = []
    while given := source.poll():
        seen.append({ring.origin.engine_id for ring in given.rings if ring.stopped})
    assert seen == [set(), {P_ENGINE}, set()]


def found(said: Said, at_s: float, *engines: str) -> list[Diagnosis]:
    watcher = Watcher(ListSource([with_stopped(reading(said, at_s * S), *engines)]))
    watcher.run_to_end()
    return causes(watcher.snapshot().diagnoses)


def test_a_stopped_p_that_d_waits_for_is_named_and_what_waits_is_its_victim() -> None:
    (only,) = found(registers(), 8, P_ENGINE)
    assert (only.code, only.subject, only.severity) == ("engine_stopped", P_ENGINE, "error")
    assert only.sentence == (
        "P1 is stopped by a signal or a debugger (pid 100), last heard 7.99 s ago; it costs 1 request. It goes on when "
        "it is let."
    )
    assert only.costs == (("cmpl-r", 1),)
    assert [d.code for d in found(registers(), 8)] != ["engine_stopped"]


def test_an_idle_one_that_nobody_waits_for_is_worth_a_warning() -> None:
    (only,) = found([], 60, P_ENGINE)
    assert (only.code, only.severity) == ("engine_stopped", "warning")


def test_a_stopped_d_is_the_cause_of_a_write_that_does_not_end() -> None:
    watcher = Watcher(ListSource([with_stopped(reading(MET + posts(), 20 * S), D_ENGINE)]))
    watcher.run_to_end()
    diagnoses = watcher.snapshot().diagnoses
    assert [d.code for d in causes(diagnoses)] == ["engine_stopped"]
    write = next(d for d in diagnoses if d.code == "write_never_finished")
    assert "D is stopped and was last heard 20 s ago" in write.sentence


def test_one_that_is_gone_is_not_stopped() -> None:
    rings = tuple(RingState(o, alive=False, stopped=True) for o in ORIGINS)
    given = msgspec.structs.replace(reading(registers(), 8 * S), rings=rings)
    watcher = Watcher(ListSource([given]))
    watcher.run_to_end()
    assert "engine_stopped" not in [d.code for d in watcher.snapshot().diagnoses]
