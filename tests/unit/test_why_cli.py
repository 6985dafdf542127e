"""``pushscope why``: one request's story from a recording, by any of its ids; and where there is none, or several."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from pushscope.lab.main import app
from pushscope.telemetry import events as ev
from pushscope.telemetry.ids import recorded_id
from pushscope.telemetry.recorder import Recorder
from pushscope.telemetry.recording import RecordingSource, RecordingWriter
from pushscope.telemetry.why.account import MAX_KEPT, answer

from .scenario import (
    D_ENGINE,
    D_SCHEDULER,
    D_WORKER,
    ORIGINS,
    P_ENGINE,
    P_SCHEDULER,
    P_WORKER,
    Said,
    delivered,
    ms,
    only,
    reading,
    until,
)

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments), env={"TZ": "UTC"})


def record(
    path: Path, said: Said, *, until_ms: float = 40_000, gone: tuple[str, ...] = (), origins=ORIGINS
) -> Path:
    """A recording in steps of half a second, as closing takes time."""
    writer = RecordingWriter(path)
    steps = int(until_ms / 500)
    for step in range(steps + 1):
        at = step * 500
        new = [(o, e) for o, e in said if ms(at - 500) < e.t <= ms(at)]
        writer.write(reading(new, at, origins, gone=gone if step == steps else ()))
    writer.close()
    return path


def renamed(said: Said, p: str, d: str) -> Said:
    """The same for requests with other random suffixes."""

    def other(text: str) -> str:
        return text.replace("aaaaaaaa", p).replace("bbbbbbbb", d)

    fields = ("request_id", "peer_request_id")
    return [
        (o, msgspec.structs.replace(e, **{f: other(getattr(e, f)) for f in fields if hasattr(e, f)}))
        for o, e in said
    ]


def stuck(base: str, at: float) -> Said:
    return until(delivered(base, at), ev.BlocksStaged)


def retried(base: str, at: float) -> Said:
    """D's client gives up, P's lease runs out; then it is sent once more."""
    return [
        *until(delivered(base, at), ev.Matched),
        (D_SCHEDULER, ev.RequestEnded(ms(at + 600), f"{base}-bbbbbbbb", "finished_aborted")),
        (P_WORKER, ev.LeaseExpired(ms(at + 31_000), f"{base}-aaaaaaaa")),
        (P_SCHEDULER, ev.SendFinished(ms(at + 31_001), f"{base}-aaaaaaaa")),
        *renamed(delivered(base, at + 1200), "cccccccc", "dddddddd"),
    ]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """A healthy, a stuck and a retried request."""
    traced = (D_SCHEDULER, ev.TraceContext(ms(2), "cmpl-healthy-0-bbbbbbbb", TRACE, "transfer-9"))
    said = [
        *delivered("cmpl-healthy-0", 1),
        traced,
        *stuck("chatcmpl-stuck", 100),
        *retried("cmpl-retry-0", 300),
    ]
    return record(tmp_path_factory.mktemp("why") / "run.psr", said)


@pytest.mark.parametrize(
    "text",
    [
        "cmpl-healthy-0-aaaaaaaa",
        "cmpl-healthy-0-bbbbbbbb",
        "cmpl-healthy-0",
        "cmpl-healthy",
        "healthy",
        "heal",
        "transfer-9",
        TRACE,
        "0af7651916cd43dd8448eb211c80319c",
    ],
)
def test_any_id_that_the_user_holds(recorded, text):
    done = run("why", text, "--replay", str(recorded))
    assert done.exit_code == 0
    assert done.stdout.startswith("cmpl-healthy-0\n")
    assert "delivered after 33.0 ms, the first token waited 13.0 ms for it" in done.stdout


def test_a_healthy_request_is_told_whole(recorded):
    lines = run("why", "healthy", "--replay", str(recorded)).stdout.splitlines()
    assert "  P       cmpl-healthy-0-aaaaaaaa on P1 (host pid 100)" in lines
    assert "  D       cmpl-healthy-0-bbbbbbbb on D1 (host pid 200)" in lines
    assert "  moved   1 of 1 parts, 4.00 KiB, 4 blocks, 100 tokens, registration first" in lines
    assert any(line.split()[:3] == ["wire", "P1/tp0", "-"] for line in lines)
    assert lines[-1].split() == ["+33.0", "ms", "D1", "scheduler", "decode", "scheduled"]
    assert not any("did not come" in line for line in lines)
    told = lines[lines.index("  what happened") + 1 :]
    assert len(told) == len(delivered()) + 1  # and its trace context


def test_a_stuck_request_tells_what_did_not_come(recorded):
    done = run("why", "stuck", "--replay", str(recorded))
    assert done.exit_code == 0
    assert "waiting for 39 s in rendezvous: D waits for P's prefill, which is running" in done.stdout
    assert "    39 s  P1 scheduler  the prefill is done" in done.stdout.splitlines()


def test_attempts_are_told_one_after_the_other(recorded):
    lines = run("why", "retry", "--replay", str(recorded)).stdout.splitlines()
    assert lines[1].startswith("2 attempts; the last one: delivered after 33.0 ms")
    heads = [line for line in lines if line.startswith("attempt ")]
    assert [head.split(",")[0] for head in heads] == [
        "attempt 1: aborted after 600 ms",
        "attempt 2: delivered after 33.0 ms",
    ]
    assert any(line.endswith("the lease ran out: nobody took the blocks") for line in lines)


def test_no_line_of_it_is_cut_in_a_pipe_and_none_has_escapes(recorded):
    out = run("why", "retry", "--replay", str(recorded)).stdout
    assert "…" not in out
    assert "\x1b" not in out
    assert "has 4 blocks for 100 tokens, will register them with 127.0.0.1:5600" in out


def test_json_has_the_events_and_what_is_missing(recorded):
    account = json.loads(run("why", "stuck", "--json", "--replay", str(recorded)).stdout)
    assert account["base_id"] == "chatcmpl-stuck"
    assert [e["name"] for e in account["engines"]] == ["P1", "D1"]
    (attempt,) = account["attempts"]
    assert attempt["transfer"]["outcome"] == "waiting"
    assert attempt["missing"][0] == {
        "side": "P",
        "rank": None,
        "what": "the prefill is done",
        "since_ns": ms(101),
    }
    drained = attempt["happened"][-1]
    assert (drained["kind"], drained["side"], drained["engine"]) == ("RegistrationDrained", "P", P_ENGINE)


def test_a_lost_request_says_who_is_gone(tmp_path):
    lost = record(tmp_path / "lost.psr", stuck("cmpl-lost", 100), until_ms=4000, gone=(P_ENGINE,))
    out = run("why", "lost", "--replay", str(lost)).stdout
    assert "\nlost, last seen " in out
    assert "on P1 (host pid 100); P1 has gone without shutting down" in out
    assert "  error   P is gone" in out


def test_what_its_engines_did_meanwhile_is_told_and_marked(tmp_path):
    said = [
        *delivered("cmpl-mine", 1000),
        (D_WORKER, ev.HandshakeQueued(ms(1010.2), P_ENGINE, "10.0.0.7", 5600)),
        (D_WORKER, ev.HandshakeStarted(ms(1010.3), P_ENGINE)),
        (D_WORKER, ev.HandshakeEnded(ms(1010.9), P_ENGINE, ms(1010.3), 1)),
        (P_WORKER, ev.HandshakeEnded(ms(1023.1), D_ENGINE, ms(1022), error_type="Again", error="Again()")),
        (P_WORKER, ev.WriterException(ms(1024), "_drain", "", 2, "ValueError()")),
        # of others, and of other times
        (D_WORKER, ev.HandshakeStarted(ms(1010.4), "engine-other")),
        (P_WORKER, ev.HandshakeEnded(ms(500), D_ENGINE, ms(400), 1)),
        (P_WORKER, ev.WriterException(ms(1100), "_drain", "", 0, "ValueError()")),
    ]
    path = record(tmp_path / "m.psr", said)
    out = run("why", "mine", "--replay", str(path)).stdout.splitlines()
    assert [line.partition("engine: ")[2] for line in out if "engine: " in line] == [
        "a handshake with P at 10.0.0.7:5600 is queued",
        "the handshake with P begins",
        "the handshake with P is done, 1 of its ranks are known",
        "the handshake with D failed: Again()",
        "the writer thread failed in _drain: ValueError(), and 2 notifications of its batch are lost",
    ]
    account = json.loads(run("why", "mine", "--json", "--replay", str(path)).stdout)
    kinds = [h["kind"] for h in account["attempts"][0]["happened"] if h["of_engine"]]
    assert kinds == [
        "HandshakeQueued",
        "HandshakeStarted",
        "HandshakeEnded",
        "HandshakeEnded",
        "WriterException",
    ]


def test_a_request_that_hangs_hears_of_its_engines_until_now(tmp_path):
    said = [*stuck("cmpl-hangs", 100), (P_WORKER, ev.EngineDown(ms(9000)))]
    said.append((P_WORKER, ev.WriterException(ms(200), "_push", "cmpl-hangs-aaaaaaaa", 0, "ValueError()")))
    out = run("why", "hangs", "--replay", str(record(tmp_path / "h.psr", said))).stdout
    assert out.splitlines()[-1].endswith("engine: shuts down")
    assert "gave it up, _push raised ValueError()" in out
    assert "engine: the writer" not in out, "what it raised over this request is the request's"


def test_one_side_alone_says_so(tmp_path):
    of_p = record(
        tmp_path / "p.psr",
        only(delivered("cmpl-one"), P_SCHEDULER, P_WORKER),
        origins=(P_SCHEDULER, P_WORKER),
    )
    out = run("why", "one", "--replay", str(of_p)).stdout
    assert f"on {D_ENGINE}, which is not observed" in out
    assert "only P is observed" in out
    assert "≤" in out  # the wire is an upper bound


def test_a_prompt_that_is_only_being_computed(tmp_path):
    computed = record(
        tmp_path / "c.psr", [(P_SCHEDULER, ev.RequestArrived(ms(1), "cmpl-new-aaaaaaaa", "prefill"))]
    )
    done = run("why", "cmpl-new", "--replay", str(computed))
    assert done.exit_code == 0
    assert "no transfer yet: no blocks and no registration were seen" in done.stdout


def test_several_requests_are_named_newest_first(recorded):
    done = run("why", "c", "--replay", str(recorded))
    assert done.exit_code == 2
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "cmpl-retry-0",
        "chatcmpl-stuck",
        "cmpl-healthy-0",
    ]
    assert "delivered, 2 attempts, began 39 s ago" in done.stdout
    assert done.stderr == "pushscope: 'c' may be any of 3 requests: give more of the id\n"
    candidates = json.loads(run("why", "c", "--json", "--replay", str(recorded)).stdout)
    assert [c["base_id"] for c in candidates] == ["cmpl-retry-0", "chatcmpl-stuck", "cmpl-healthy-0"]


def test_an_exact_id_is_not_mistaken_for_the_beginning_of_another(tmp_path):
    both = record(tmp_path / "b.psr", [*delivered("cmpl-1-0", 1), *delivered("cmpl-12-0", 50)])
    assert run("why", "1", "--replay", str(both)).stdout.startswith("cmpl-1-0\n")


def test_a_request_that_is_not_there(recorded):
    done = run("why", "nobody\x1b[2J", "--replay", str(recorded))
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(
        f"pushscope: no request 'nobody' in {recorded}, as far as it reaches back; 3 requests"
    )
    assert json.loads(run("why", "nobody", "--json", "--replay", str(recorded)).stdout) == []


@pytest.mark.parametrize("text", ["", "  "])
def test_nothing_is_no_id(recorded, text):
    done = run("why", text, "--replay", str(recorded))
    assert done.exit_code == 2
    assert "expected a request id, found nothing" in done.stderr


def test_a_folder_that_is_not_there(tmp_path):
    done = run("why", "x", "--rings", str(tmp_path / "none"))
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1


def test_live_rings_are_read_whole(tmp_path):
    recorders = {o.instance: Recorder(tmp_path / "rings", o) for o in ORIGINS}
    for origin, event in sorted(delivered("cmpl-live"), key=lambda said: said[1].t):
        recorders[origin.instance].record(event)
    done = run("why", "live", "--rings", str(tmp_path / "rings"))
    for recorder in recorders.values():
        recorder.close()
    assert done.exit_code == 0, done.stderr
    assert "delivered after 33.0 ms" in done.stdout


def test_what_lies_before_the_damage_of_a_recording_is_told(tmp_path):
    damaged = record(tmp_path / "d.psr", delivered("cmpl-whole"), until_ms=2000)
    data = bytearray(damaged.read_bytes())
    data[-3] ^= 0xFF
    damaged.write_bytes(data)
    done = run("why", "whole", "--replay", str(damaged))
    assert done.exit_code == 2
    assert "delivered after" in done.stdout
    assert "is damaged at byte" in done.stderr


@pytest.mark.parametrize("hashed", [False, True])
def test_a_long_or_hashed_id_is_found_by_what_the_client_sent(tmp_path, hashed):
    client = "tenant/" + "x" * 120
    base = recorded_id(f"cmpl-{client}-0", hashed=hashed)
    path = record(tmp_path / "l.psr", delivered(base))
    assert run("why", client, "--replay", str(path)).stdout.startswith(base + "\n")


def test_legs_that_were_matched_under_different_ids_are_one_request(tmp_path):
    of_p = renamed(
        [(o, e) for o, e in delivered("cmpl-mine") if o in (P_SCHEDULER, P_WORKER)], "aaaaaaaa", "bbbbbbbb"
    )
    told = [
        (o, msgspec.structs.replace(e, request_id=e.request_id.replace("mine", "other")))
        if not isinstance(e, ev.RegistrationDrained)
        else (o, e)
        for o, e in of_p
    ]
    said = [*told, *only(delivered("cmpl-mine"), D_SCHEDULER, D_WORKER)]
    path = record(tmp_path / "m.psr", said)
    for text in ("cmpl-mine", "cmpl-other"):
        done = run("why", text, "--replay", str(path))
        assert done.exit_code == 0
        assert "cmpl-other-aaaaaaaa on P1" in done.stdout
        assert "cmpl-mine-bbbbbbbb on D1" in done.stdout


def test_hostile_ids_style_nothing(tmp_path):
    base = "[bold red]x[/]\x1b[2J"
    path = record(tmp_path / "h.psr", delivered(base))
    done = run("why", "[bold red]x[/]", "--replay", str(path))
    assert done.exit_code == 0
    assert "[bold red]x[/]" in done.stdout
    assert "\x1b" not in done.stdout


def test_what_is_kept_is_bounded(tmp_path):
    path = record(
        tmp_path / "many.psr",
        [said for i in range(MAX_KEPT + 50) for said in delivered(f"cmpl-{i:04}-0", at=i)],
        until_ms=45_000,
    )
    found = answer(RecordingSource(path), "cmpl")
    assert found.requests == MAX_KEPT + 50
    assert len(found.candidates) == MAX_KEPT
    assert {c.base_id for c in answer(RecordingSource(path), "0000").candidates} == set()
    told = answer(RecordingSource(path), "0000").account
    assert told is not None
    assert len(told.attempts[0].happened) == len(delivered())
