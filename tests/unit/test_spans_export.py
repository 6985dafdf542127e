"""Spans in the forms of others: OTLP/JSON against OpenTelemetry's own encoder, Chrome's trace format; the commands."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest
from google.protobuf import json_format
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from opentelemetry.sdk.resources import Resource
from typer.testing import CliRunner

from pushscope.lab.main import app
from pushscope.telemetry.recording import RecordingWriter
from pushscope.telemetry.source import RingState
from pushscope.telemetry.spans import reference
from pushscope.telemetry.spans.attributes import RECEIVE, SEND
from pushscope.telemetry.spans.chrome import trace_events
from pushscope.telemetry.spans.otel import to_readable
from pushscope.telemetry.spans.otlp_json import resource_spans
from pushscope.telemetry.spans.resource import origins_of, resource_of
from pushscope.telemetry.spans.tree import tree_lines

from .failures import MET, aborted, done, posts, received
from .scenario import D_ENGINE, ORIGINS, P_ENGINE, delivered, ms, reading
from .span_scenes import CALLER, SCENES, UNSAMPLED, arrives, made, sent_on, traced

ROOT = Path(__file__).parents[2]
KNOWN = origins_of(RingState(o) for o in ORIGINS)
FLAGS_OF_THE_TRACE = 0xFF
WHOLE = MET + posts() + arrives(30) + done(31) + received(32) + sent_on(33)


def parsed(elements: list[dict]) -> TracesData:
    """OTLP/JSON read back: its ids are hex, where protobuf's own JSON has base64."""
    data = json.loads(msgspec.json.encode({"resourceSpans": elements}))
    for span in (s for r in data["resourceSpans"] for scope in r["scopeSpans"] for s in scope["spans"]):
        for holder in (span, *span.get("links", ())):
            for name in ("traceId", "spanId", "parentSpanId"):
                if name in holder:
                    holder[name] = base64.b64encode(bytes.fromhex(holder[name])).decode()
    return json_format.ParseDict(data, TracesData())


def comparable(data) -> dict:
    """Spans by id, without what the SDK's encoder leaves out (the trace's own flags) and the order of attributes."""
    found = {}
    for of_engine in data.resource_spans:
        resource = sorted((a.key, str(a.value)) for a in of_engine.resource.attributes)
        for of_scope in of_engine.scope_spans:
            for span in of_scope.spans:
                for holder in (span, *span.links):
                    holder.flags &= ~FLAGS_OF_THE_TRACE
                attributes = sorted((a.key, str(a.value)) for a in span.attributes)
                del span.attributes[:]
                scope = of_scope.scope.name
                found[span.span_id] = (
                    resource,
                    scope,
                    attributes,
                    span.SerializeToString(deterministic=True),
                )
    return found


@pytest.mark.parametrize("scene", ["under a caller", "TP 2 to 1", "pull", "failed", "aborted", "tried again"])
def test_otlp_json_is_what_opentelemetry_would_send(scene):
    spans = made(*SCENES[scene])
    readable = [to_readable(s, Resource(resource_of(s.engine_id, KNOWN))) for s in spans]
    ours, theirs = parsed(resource_spans(spans, KNOWN)), encode_spans(readable)
    mine = comparable(ours)
    assert len(mine) == len(spans)
    assert mine == comparable(theirs)


def test_a_readable_span_has_the_spans_own_ids():
    (send,) = (s for s in made(traced(WHOLE)) if s.name == SEND)
    readable = to_readable(send, Resource({}))
    assert (readable.context.trace_id, readable.context.span_id) == (send.trace_id, send.span_id)
    assert readable.context.trace_flags.sampled
    assert readable.parent is not None
    assert readable.parent.is_remote
    assert [link.context.span_id for link in readable.links] == [link.span_id for link in send.links]


# -- Chrome --------------------------------------------------------------------------------------------


def many(n: int = 5):
    """Transfers that overlap."""
    said = [each for i in range(n) for each in delivered(f"cmpl-{i}", 4 * i)]
    by_request = defaultdict(list)
    for span in made(said):
        by_request[span.trace_id].append(span)
    return list(by_request.values())


def slices(events: list[dict]) -> dict[tuple[int, int], list[tuple[float, float]]]:
    found = defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            found[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    return found


@pytest.mark.parametrize("transfers", [many(), [made(*SCENES["TP 2 to 1"])], [made(*SCENES["TP 1 to 2"])]])
def test_slices_of_a_thread_nest(transfers):
    """What overlaps without nesting is drawn wrongly by every viewer of this format."""
    events = list(trace_events(transfers, KNOWN))
    assert sum(e["ph"] == "X" for e in events) == sum(map(len, transfers))
    for of_thread in slices(events).values():
        open_until: list[float] = []
        for start, end in sorted(of_thread, key=lambda s: (s[0], -s[1])):
            while open_until and open_until[-1] <= start + 1e-6:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1e-6
            open_until.append(end)


def test_processes_are_engines_and_threads_are_ranks():
    events = list(trace_events([made(*SCENES["TP 2 to 1"])], KNOWN))
    names = {(e["name"], e["pid"], e["tid"]): e["args"].get("name") for e in events if e["ph"] == "M"}
    processes = {pid: name for (what, pid, _), name in names.items() if what == "process_name"}
    assert sorted(processes.values()) == [f"D {D_ENGINE}", f"P {P_ENGINE}"]
    threads = defaultdict(set)
    for (what, pid, _), name in names.items():
        if what == "thread_name":
            threads[processes[pid][0]].add(name.split(" (")[0])
    assert threads == {"P": {"tp0", "tp1"}, "D": {"scheduler", "tp0"}}


def test_an_arrow_leads_from_each_write_to_its_notification():
    events = list(trace_events([made(*SCENES["TP 2 to 1"])], KNOWN))
    placed = {(e["name"], e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    begin, end = ({e["id"]: e for e in events if e["ph"] == ph} for ph in "sf")
    assert len(begin) == 2
    assert begin.keys() == end.keys()
    for number, e in begin.items():
        assert ("kv_transfer submit", e["pid"], e["tid"], e["ts"]) in placed
        f = end[number]
        assert ("kv_transfer notification", f["pid"], f["tid"], f["ts"]) in placed
        assert e["ts"] <= f["ts"]
        assert e["pid"] != f["pid"]


def test_times_are_microseconds_since_the_first():
    events = list(trace_events([made(delivered())], KNOWN))
    (receive,) = (e for e in events if e["name"] == RECEIVE)
    assert (receive["ts"], receive["dur"]) == (0, 23_000)


# -- the tree ------------------------------------------------------------------------------------------


def test_the_tree_says_who_is_whose_child_when_and_how_long():
    lines = list(tree_lines(made(traced(WHOLE)), {P_ENGINE: "P1", D_ENGINE: "D1"}))
    assert lines[0] == f"trace {CALLER[3:35]}"
    assert lines[1].startswith("├─ kv_transfer receive D1  ")
    assert lines[1].endswith("delivered, called by b7ad6b7169203331")
    assert lines[2].split() == ["│", "├─", "kv_transfer", "registration", "tp0", "+0", "s", "1.00", "ms", "━"]
    assert any(line.startswith("   └─ kv_transfer submit tp0→tp0") for line in lines)
    assert len(lines) == 1 + len(made(traced(WHOLE)))


def test_the_bars_of_the_tree_lie_where_the_spans_do():
    spans = made(traced(WHOLE))
    began, ended = min(s.start_unix_ns for s in spans), max(s.end_unix_ns for s in spans)
    lines = list(tree_lines(spans, {}))[1:]
    columns = [(line.index("━"), line.rindex("━") + 1) for line in lines if "━" in line]
    left, right = min(a for a, _ in columns), max(b for _, b in columns)
    assert len(columns) == len(lines)
    assert right - left == 24
    (receive,) = (s for s in spans if s.name == RECEIVE)
    scale = 24 / (ended - began)
    assert columns[0] == (left, left + round((receive.end_unix_ns - began) * scale))
    assert receive.start_unix_ns == began


def test_the_tree_has_nothing_that_a_terminal_would_obey():
    evil = [msgspec.structs.replace(s, engine_id="\x1b[2J") for s in made(delivered())]
    assert not any("\x1b" in line for line in tree_lines(evil, {}))


# -- commands ------------------------------------------------------------------------------------------


def run(*arguments: str):
    return CliRunner().invoke(app, ["trace", *arguments])


@pytest.fixture
def recording(tmp_path) -> Path:
    """One that was delivered, one that its caller did not sample, one that is open at the end."""
    path = tmp_path / "run.psr"
    unsampled = [(o, msgspec.structs.replace(e, t=e.t + 100_000_000)) for o, e in traced(WHOLE, d=UNSAMPLED)]
    still_open = [(o, e) for o, e in delivered("cmpl-open-0", 19_900) if e.t < ms(19_922)]
    said = [*delivered("cmpl-good-0", 1), *unsampled, *still_open]
    writer = RecordingWriter(path)
    for at in range(0, 20_001, 500):
        writer.write(reading([(o, e) for o, e in said if ms(at - 500) < e.t <= ms(at)], at))
    writer.close()
    return path


def exported(recording: Path, form: str, *more: str) -> dict:
    output = recording.with_name(f"{form}{len(more)}.json")
    done = run("export", "--replay", str(recording), "-o", str(output), "--format", form, *more)
    assert done.exit_code == 0, done.output
    return json.loads(output.read_text())


def test_otlp_from_a_recording(recording):
    data = parsed(exported(recording, "otlp")["resourceSpans"])
    spans = [s for r in data.resource_spans for scope in r.scope_spans for s in scope.spans]
    bases = {a.value.string_value for s in spans for a in s.attributes if a.key == "kv_transfer.base_id"}
    assert bases == {"cmpl-good-0"}
    assert len(spans) == 11
    (receive,) = (s for s in spans if s.name == RECEIVE)
    assert receive.start_time_unix_nano == 1_700_000_000_011_000_000
    services = {
        a.value.string_value
        for r in data.resource_spans
        for a in r.resource.attributes
        if a.key == "service.name"
    }
    assert services == {"vllm-prefill", "vllm-decode"}


def test_all_has_what_is_open_and_what_the_caller_did_not_sample(recording):
    data = parsed(exported(recording, "otlp", "--all")["resourceSpans"])
    spans = [s for r in data.resource_spans for scope in r.scope_spans for s in scope.spans]
    bases = {a.value.string_value for s in spans for a in s.attributes if a.key == "kv_transfer.base_id"}
    assert bases == {"cmpl-good-0", "cmpl-r", "cmpl-open-0"}
    outcomes = {a.value.string_value for s in spans for a in s.attributes if a.key == "kv_transfer.outcome"}
    assert "waiting" in outcomes


def test_chrome_from_a_recording(recording):
    events = exported(recording, "chrome")["traceEvents"]
    assert sum(e["ph"] == "X" for e in events) == 11


def test_a_file_that_is_there_is_not_overwritten(recording, tmp_path):
    output = tmp_path / "there.json"
    output.write_text("mine")
    done = run("export", "--replay", str(recording), "-o", str(output))
    assert done.exit_code == 2
    assert "exists already" in done.output
    assert output.read_text() == "mine"


def test_a_file_that_cannot_be_written(recording, tmp_path):
    done = run("export", "--replay", str(recording), "-o", str(tmp_path / "none" / "x.json"))
    assert done.exit_code == 2
    assert "No such file or directory" in done.output


def test_of_a_damaged_recording_what_lies_before_is_written(recording, tmp_path):
    damaged = tmp_path / "damaged.psr"
    data = bytearray(recording.read_bytes())
    data[-10] ^= 0xFF
    damaged.write_bytes(data)
    output = tmp_path / "out.json"
    done = run("export", "--replay", str(damaged), "-o", str(output))
    assert done.exit_code == 2
    assert "is damaged at byte" in done.output
    assert json.loads(output.read_text())["traceEvents"]


@pytest.mark.parametrize("held", ["cmpl-good-0", "cmpl-good-0-bbbbbbbb", "good-0"])
def test_show_takes_any_id(recording, held):
    done = run("show", held, "--replay", str(recording))
    assert done.exit_code == 0, done.output
    assert "kv_transfer receive D1" in done.output
    assert done.output.count("\n") == 12


def test_show_takes_a_trace_id(recording):
    trace = run("show", "cmpl-good-0", "--replay", str(recording)).output.split()[1]
    assert run("show", trace, "--replay", str(recording)).output.count("kv_transfer send") == 1
    assert run("show", CALLER[3:35], "--replay", str(recording)).output.count("kv_transfer send") == 1


def test_show_says_what_it_does_not_know(recording):
    done = run("show", "nobody", "--replay", str(recording))
    assert done.exit_code == 2
    assert "no transfer of 'nobody'" in done.output


def test_the_commands_do_without_opentelemetry_and_servers():
    code = (
        "import sys\n"
        "for name in ('opentelemetry', 'uvicorn', 'starlette'): sys.modules[name] = None\n"
        "import pushscope.telemetry.spans.command, pushscope.lab.main\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(p for p in sys.path if p)}
    )


# -- the reference -------------------------------------------------------------------------------------


def test_the_reference_is_what_the_code_says():
    assert (ROOT / reference.PAGE).read_text() == reference.page(), (
        "python -m pushscope.telemetry.spans.reference"
    )


def test_what_is_abandoned_is_an_open_end():
    (receive,) = (s for s in made(MET + posts() + aborted(900)) if s.name == RECEIVE)
    assert receive.attributes["kv_transfer.outcome"] == "aborted"
