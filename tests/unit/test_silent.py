"""A D that makes no step is told once, of the engine; one that has nothing to do, or is not heard, is none."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.model import Diagnosis, Severity
from pushscope.telemetry.recording import RecordingSource, RecordingWriter
from pushscope.telemetry.source import Reading
from pushscope.telemetry.stuck import causes
from pushscope.telemetry.watch import Watcher

from .engine_failures import steps
from .failures import MET, S, posts, registers
from .scenario import D_ENGINE, D_SCHEDULER, ListSource, Said, ms, reading


def diagnosed(*readings: Reading) -> Sequence[Diagnosis]:
    watcher = Watcher(ListSource(list(readings)))
    watcher.run_to_end()
    return watcher.snapshot().diagnoses


def silent(*readings: Reading) -> list[Diagnosis]:
    return [d for d in diagnosed(*readings) if d.code == "engine_silent"]


def unheard(given: Reading) -> Reading:
    rings = tuple(msgspec.structs.replace(ring, unheard=True) for ring in given.rings)
    return msgspec.structs.replace(given, rings=rings)


WRITTEN: Said = [*MET, *posts(), *steps(D_SCHEDULER, 1)]
"""P writes; D was seen to step until one second after the begin."""


def test_it_is_a_warning_that_counts_the_requests_in_it() -> None:
    (only,) = silent(reading(WRITTEN, 9 * S))
    assert (only.subject, only.severity, only.certain) == (D_ENGINE, Severity.WARNING, True)
    assert only.sentence == (
        "D1 has made no step for 8.00 s, with requests in it: it is in one long step, or hangs; it costs 1 request."
    )
    assert only.costs == (("cmpl-r", 1),)
    assert [e.t_ns for e in only.evidence] == [only.since_ns] == [ms(S)]


@pytest.mark.parametrize("at_s", [5, 9, 16, 29, 32, 60])
def test_it_is_said_once_whatever_its_requests_look_like(at_s: int) -> None:
    (only,) = causes(diagnosed(reading(WRITTEN, at_s * S)))
    assert only.code == "engine_silent"
    assert only.severity is (Severity.ERROR if at_s >= 31 else Severity.WARNING)


@pytest.mark.parametrize(
    "said",
    [
        [*registers(), *steps(D_SCHEDULER, 20)],
        [*registers(), *steps(D_SCHEDULER, 18)],
        [*steps(D_SCHEDULER, 1)],
        [*registers(), *steps(D_SCHEDULER, 1, has_work=False)],
        [*registers()],
        [*registers(), *steps(D_SCHEDULER, 1), (D_SCHEDULER, ev.RecordingSwitched(ms(1.5 * S), on=False))],
    ],
    ids=["steps", "steps of late", "no request", "no work", "of an older pushscope", "recording off"],
)
def test_an_engine_that_is_not_known_to_be_silent_is_not_called_so(said: Said) -> None:
    assert not silent(reading(said, 20 * S))


def test_one_that_goes_on_is_not_called_so_any_more() -> None:
    goes_on = [(D_SCHEDULER, ev.Loop(ms(19 * S), 1, 0, 0, True))]
    assert not silent(reading(WRITTEN, 9 * S), reading(goes_on, 20 * S))


def test_silence_of_an_agent_out_of_reach_says_nothing_of_its_engines(tmp_path) -> None:
    away = unheard(reading(WRITTEN, 20 * S))
    assert not silent(away)
    writer = RecordingWriter(tmp_path / "a.psr")
    writer.write(away)
    writer.close()
    source = RecordingSource(tmp_path / "a.psr")
    assert not silent(source.poll())
    source.close()
