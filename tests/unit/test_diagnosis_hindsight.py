"""A request that its client gave up is judged as it was right before."""

from __future__ import annotations

from pathlib import Path

import pytest

from pushscope.telemetry import events as ev
from pushscope.telemetry.half import Half
from pushscope.telemetry.recording import RecordingSource
from pushscope.telemetry.why.account import answer

from .scenario import D_SCHEDULER, P_SCHEDULER, P_WORKER, Said, delivered, ms, until
from .test_why_cli import record, renamed, run


def given_up(said: Said, at: float, request_id: str) -> Said:
    return [*said, (D_SCHEDULER, ev.RequestEnded(ms(at), request_id, "finished_aborted"))]


def diagnosed(path: Path, text: str) -> list[list[str]]:
    account = answer(RecordingSource(path), text).account
    assert account is not None
    return [[d.code for d in attempt.diagnoses] for attempt in account.attempts]


@pytest.fixture
def hung(tmp_path) -> Path:
    wire = until(delivered("cmpl-hung-0", 100), ev.NotificationDrained)
    return record(tmp_path / "hung.psr", given_up(wire, 20_100, "cmpl-hung-0-bbbbbbbb"))


def test_what_it_waited_for_when_it_was_given_up(hung):
    assert diagnosed(hung, "hung") == [["write_never_finished"]]
    out = run("why", "hung", "--replay", str(hung)).stdout
    assert "aborted after 20.0 s" in out
    assert "error  write_never_finished  for 20 s, until it ended" in out
    assert "    20 s  P1 tp0  write 1: done" in out.splitlines()


def test_a_client_that_goes_at_once_left_nothing_wrong(tmp_path):
    queued = until(delivered("cmpl-gone-0", 100), ev.Matched)
    expired = (P_WORKER, ev.LeaseExpired(ms(30_150), "cmpl-gone-0-aaaaaaaa"))
    sent = (P_SCHEDULER, ev.SendFinished(ms(30_151), "cmpl-gone-0-aaaaaaaa"))
    path = record(tmp_path / "gone.psr", [*given_up(queued, 140, "cmpl-gone-0-bbbbbbbb"), expired, sent])
    assert diagnosed(path, "gone") == [[]]


def test_of_a_retry_each_attempt_has_its_own(tmp_path):
    first = given_up(until(delivered("cmpl-r-0", 100), ev.NotificationDrained), 20_100, "cmpl-r-0-bbbbbbbb")
    first += [
        (P_WORKER, ev.LeaseExpired(ms(30_150), "cmpl-r-0-aaaaaaaa")),
        (P_SCHEDULER, ev.SendFinished(ms(30_151), "cmpl-r-0-aaaaaaaa")),
    ]
    second = renamed(delivered("cmpl-r-0", 35_000), "cccccccc", "dddddddd")
    path = record(tmp_path / "r.psr", [*first, *second])
    one, two = diagnosed(path, "cmpl-r")
    assert "write_never_finished" in one or "lease_ended_during_write" in one
    assert two == []


def test_facts_before_a_moment():
    half = Half("engine", "r")
    half.add((0, 0), ev.RegistrationStaged(10, "r"))
    half.add((0, 0), ev.RequestEnded(20, "r", "finished_aborted"))
    facts = half.by_kind().before(20)
    assert facts.has(ev.RegistrationStaged)
    assert not facts.has(ev.RequestEnded)
    assert half.by_kind().before(10).all(ev.RegistrationStaged) == []
