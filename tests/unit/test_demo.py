"""What the demo complains of."""

import pytest
from typer.testing import CliRunner

from pushscope.lab import demo as demo_module
from pushscope.lab.demo import complaints_of
from pushscope.lab.main import app
from pushscope.lab.results import RequestResult
from pushscope.telemetry import events as ev
from pushscope.telemetry.snapshot import Snapshot, Totals

from .scenario import assembled, delivered, ms, until

CLEAN = Snapshot(taken_ns=0, taken_unix_s=0)


def result(request_id: str, error: str | None = None) -> RequestResult:
    return RequestResult(
        index=0, request_id=request_id, num_prompt_tokens=1, start_s=0, latency_s=1, error=error
    )


def transfers(*said):
    return assembled([oe for part in said for oe in part]).open_transfers()


def test_all_well():
    long = "___prefill_addr_127.0.0.1:25080___decode_addr_127.0.0.1:24881_" + "f" * 32
    from pushscope.telemetry.ids import recorded_id

    base = recorded_id(f"cmpl-{long}-0")
    assert (
        complaints_of(
            [result("a"), result(long)], transfers(delivered("cmpl-a-0"), delivered(base, 5)), CLEAN
        )
        == []
    )


def test_a_failed_request_is_named():
    assert complaints_of([result("a", "timed out")], [], CLEAN) == ["request a failed: timed out"]


def test_a_failed_request_that_never_got_an_id_is_named_by_its_number():
    assert complaints_of([result("", "ConnectError")], [], CLEAN) == ["request number 1 failed: ConnectError"]


@pytest.mark.parametrize(("end", "status"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
def test_the_exit_status_says_what_ended_it(monkeypatch, end, status):
    def ended(*_args, **_options):
        raise end

    monkeypatch.setattr(demo_module, "NEEDED", ())
    monkeypatch.setattr(demo_module, "_demo", ended)
    done = CliRunner().invoke(app, ["demo", "--no-screen"])
    assert done.exit_code == status
    assert "Interrupted; nothing is left running." in done.output


def test_an_unobserved_transfer_is_named():
    (complaint,) = complaints_of([result("a"), result("b")], transfers(delivered("cmpl-a-0")), CLEAN)
    assert complaint == "request b was answered, but its transfer was not observed"


def test_a_transfer_that_was_not_seen_whole_is_named():
    said = [(o, e) for o, e in delivered("cmpl-a-0") if not isinstance(e, ev.SubmitStarted)]
    (complaint,) = complaints_of([result("a")], transfers(said), CLEAN)
    assert complaint == "request a was answered, but its transfer was not seen in submit, wire"


def test_a_transfer_that_ended_otherwise_is_named():
    said = until(delivered("cmpl-a-0"), ev.Submitted)
    said.append((said[0][0], ev.PrefillNotProcessed(ms(1), "x", "y")))
    (complaint,) = complaints_of([result("a")], transfers(said), CLEAN)
    assert complaint == "request a was answered, but its transfer ended as moving"


def test_lost_events_are_counted():
    lossy = Snapshot(taken_ns=0, taken_unix_s=0, totals=Totals(events_lost=3))
    assert complaints_of([], [], lossy) == ["3 events were lost"]


def test_without_the_serving_environment_one_sentence_and_exit_2(monkeypatch):
    monkeypatch.setattr(demo_module, "NEEDED", ("no_such_module",))
    done = CliRunner().invoke(app, ["demo", "--no-screen"])
    assert done.exit_code == 2
    assert "not installed here: no_such_module" in done.output
    assert "make demo" in done.output
