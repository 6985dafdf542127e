"""Marks: written by anyone who may write to the ring folder, shown once to everyone who reads it, in any way."""

import base64
import math
import os
import stat
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from pushscope.lab.main import app
from pushscope.lab.simulator.network import Relay
from pushscope.telemetry.apart import Apart
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.frames import MAGIC, Decoder, Encoder
from pushscope.telemetry.joined import JoinedSource
from pushscope.telemetry.marks import KEPT, OLDEST_S, Mark, Marks, MarksFile, write_mark
from pushscope.telemetry.recorder import Recorder
from pushscope.telemetry.recording import RecordingSource, RecordingWriter
from pushscope.telemetry.remote import RemoteSource
from pushscope.telemetry.source import Reading, RingsSource
from pushscope.telemetry.watch import Watcher

from .agents import serving, until
from .scenario import P_WORKER, ListSource, delivered, reading

NOW_S = 1_700_000_000.0


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = tmp_path / "rings"
    folder.mkdir(mode=0o700)
    return folder


def labels(marks) -> list[str]:
    return [mark.label for mark in marks]


def written(folder: Path, *lines: bytes) -> None:
    with (folder / "marks").open("ab") as file:
        file.write(b"".join(lines))


def line(label: str, unix_s: float = NOW_S) -> bytes:
    return msgspec.json.encode(Mark(unix_s, label, "a test")) + b"\n"


def given(*marks: Mark, at: float = 0.0) -> Reading:
    return msgspec.structs.replace(reading([], at), marks=marks)


# -- the file ------------------------------------------------------------------------------------------


def test_what_is_written_is_read_once(folder):
    file = MarksFile(folder)
    assert file.poll(time.time()) == ()
    start = write_mark(folder, "start", "a load")
    assert (start.label, start.by) == ("start", "a load")
    assert file.poll(time.time()) == (start,)
    assert file.poll(time.time()) == ()
    stop = write_mark(folder, "stop", "a load")
    assert file.poll(time.time()) == (stop,)
    assert MarksFile(folder).poll(time.time()) == (start, stop)
    assert file.asides == ()


@pytest.mark.parametrize(("folder_mode", "file_mode"), [(0o700, 0o600), (0o750, 0o640)])
def test_who_may_read_the_rings_may_read_the_marks(folder, folder_mode, file_mode):
    folder.chmod(folder_mode)
    before = os.umask(0o077)
    try:
        write_mark(folder, "start", "a test")
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "marks").stat().st_mode) == file_mode


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda folder: folder.rmdir(), "expected a folder of rings at .*start an engine"),
        (lambda folder: folder.chmod(0o777), "can be written by other users"),
        (lambda folder: (folder / "marks").mkdir(), "cannot write a mark to .*mark as the engines' user"),
        (lambda folder: (folder / "marks").symlink_to("/etc/passwd"), "cannot write a mark to"),
        (lambda folder: os.mkfifo(folder / "marks"), "expected a file of marks at .*found something else"),
    ],
)
def test_where_no_mark_can_be_written_one_sentence_says_why(folder, make, says):
    make(folder)
    with pytest.raises(PushscopeError, match=says) as raised:
        write_mark(folder, "start", "a test")
    assert "\n" not in str(raised.value)


def test_a_program_that_marks_without_end_is_told_so(folder):
    with (folder / "marks").open("wb") as file:
        file.truncate(20 << 20)
    with pytest.raises(PushscopeError, match=r"has grown to 20\.0 MiB; remove it"):
        write_mark(folder, "start", "a test")
    assert (folder / "marks").stat().st_size == 20 << 20


def test_a_label_is_one_line_that_a_terminal_does_not_obey(folder):
    mark = write_mark(folder, " rate\n8/s\x1b[31m" + "é" * 300, "\x07me")
    assert mark.label.startswith("rate 8/sé")
    assert len(mark.label.encode()) <= 200
    assert mark.by == "me"
    assert MarksFile(folder).poll(time.time()) == (mark,)


@pytest.mark.parametrize("label", ["", " \n", "\x1b[0m"])
def test_a_label_that_says_nothing(folder, label):
    with pytest.raises(PushscopeError, match="expected a label"):
        write_mark(folder, label, "a test")


def test_lines_that_are_no_marks_are_skipped_and_counted(folder):
    bad = [
        b"start\n",
        b'{"label": "start"}\n',
        b'[1700000000, "\xff"]\n',
        b'[1e300, "far"]\n',
        b"[" * 1000 + b"\n",
        line("x" * 2000),
    ]
    written(folder, line("a"), *bad, b"\n", line("b"))
    file = MarksFile(folder)
    assert labels(file.poll(NOW_S)) == ["a", "b"]
    assert file.asides == (f"{folder}/marks: 6 lines are no marks and are skipped",)


def test_a_line_that_is_being_written_is_read_when_it_is_whole(folder):
    file = MarksFile(folder)
    written(folder, line("a"), line("b")[:9])
    assert labels(file.poll(NOW_S)) == ["a"]
    written(folder, line("b")[9:])
    assert labels(file.poll(NOW_S)) == ["b"]
    assert file.asides == ()


def test_a_line_that_was_never_finished_costs_no_other_mark(folder):
    written(folder, line("a"), line("b")[:9])
    write_mark(folder, "c", "a test")
    file = MarksFile(folder)
    assert labels(file.poll(NOW_S)) == ["a", "c"]
    assert file.asides == (f"{folder}/marks: 1 line is no mark and is skipped",)


def test_of_many_marks_the_last_are_read(folder):
    written(folder, *(line(f"mark {n}", NOW_S + n) for n in range(KEPT + 500)))
    marks = MarksFile(folder).poll(NOW_S)
    assert (len(marks), marks[0].label) == (KEPT, "mark 500")


def test_a_line_in_whose_middle_reading_begins_is_not_taken_for_a_damaged_one(folder):
    longest = "x" * (1024 - len(line("1234").rstrip()))
    written(folder, *(line(f"{n}{longest}", NOW_S + n) for n in range(1000, 3000)))
    file = MarksFile(folder)
    marks = file.poll(NOW_S)
    assert KEPT - 5 < len(marks) < KEPT
    assert marks[-1].label.startswith("2999")
    assert file.asides == ()


def test_a_mark_of_a_load_that_the_rings_have_forgotten_is_not_read(folder):
    written(folder, line("yesterday", NOW_S - 86_400), line("before", NOW_S - OLDEST_S + 1), line("now"))
    assert labels(MarksFile(folder).poll(NOW_S)) == ["before", "now"]


def test_a_file_that_was_removed_and_made_anew_is_read_from_its_beginning(folder):
    file = MarksFile(folder)
    written(folder, line("a"), line("b"))
    assert labels(file.poll(NOW_S)) == ["a", "b"]
    (folder / "marks").unlink()
    assert file.poll(NOW_S) == ()
    written(folder, line("b"), line("c"), line("d", NOW_S + 1))
    assert labels(file.poll(NOW_S)) == ["c", "d"]


def test_something_else_in_the_place_of_the_file_is_told_and_nothing_waits_for_it(folder):
    os.mkfifo(folder / "marks")
    file = MarksFile(folder)
    assert file.poll(NOW_S) == ()
    assert file.asides == (f"the marks in {folder}/marks cannot be read: it is no file",)
    (folder / "marks").unlink()
    assert file.poll(NOW_S) == ()
    assert file.asides == ()


# -- each once, in the order of time -------------------------------------------------------------------


def test_marks_are_kept_once_in_the_order_of_time():
    a, b, c = Mark(1.0, "a"), Mark(2.0, "b"), Mark(3.0, "c")
    marks = Marks()
    assert marks.add([c, a, c]) == (a, c)
    assert marks.add([b, a]) == (b,)
    assert marks.all == (a, b, c)


def test_the_same_label_at_the_same_moment_by_another_is_another_mark():
    two = {Mark(1.0, "stop", "load 1"), Mark(1.0, "stop", "load 2")}
    assert set(Marks().add(two)) == two


def test_of_too_many_marks_the_oldest_go_and_do_not_come_again():
    marks = Marks()
    marks.add(Mark(float(n), "") for n in range(KEPT + 10))
    assert (len(marks.all), marks.all[0].unix_s) == (KEPT, 10.0)
    assert marks.add([Mark(5.0, "")]) == ()
    assert marks.all[0].unix_s == 10.0


@pytest.mark.parametrize("unix_s", [math.nan, math.inf, -1.0, 1e15])
def test_a_time_that_no_screen_can_show_is_no_mark(unix_s):
    marks = Marks()
    assert marks.add([Mark(unix_s, "when?")]) == ()
    assert marks.all == ()


# -- sources -------------------------------------------------------------------------------------------


def test_the_rings_source_looks_for_new_marks_now_and_then(folder):
    first = write_mark(folder, "start", "a test")
    with closing(RingsSource(folder)) as source:
        assert source.poll().marks == (first,)
        second = write_mark(folder, "stop", "a test")
        assert source.poll().marks == ()
        source._marks_due = 0
        assert source.poll().marks == (second,)


def test_a_line_that_is_no_mark_is_said_and_does_not_make_stuck_unsure(folder):
    Recorder(folder, msgspec.structs.replace(P_WORKER, anchor_monotonic_ns=time.monotonic_ns()))
    written(folder, b"start\n")
    with closing(RingsSource(folder)) as source:
        watcher = Watcher(source)
        watcher.poll()
    snapshot = watcher.snapshot()
    assert f"{folder}/marks: 1 line is no mark and is skipped" in snapshot.notices
    assert snapshot.unread == ()


def test_a_watcher_shows_marks_in_the_order_of_time():
    a, b = Mark(1.0, "a"), Mark(2.0, "b")
    watcher = Watcher(ListSource([given(b), given(a, b, at=50)]))
    watcher.run_to_end()
    assert watcher.marks == watcher.snapshot().marks == (a, b)


def test_a_recording_has_the_marks_of_a_quiet_moment(tmp_path):
    """Readings without events are thinned out, but not those with a mark."""
    a, b = Mark(1.0, "a", "me"), Mark(2.0, "b")
    writer = RecordingWriter(tmp_path / "run.psr")
    for r in (reading([], 0), given(a, at=50), given(b, at=100), reading([], 150)):
        writer.write(r)
    writer.close()
    source = RecordingSource(tmp_path / "run.psr")
    got = [r.marks for r in iter(source.poll, None)]
    assert got == [(), (a,), (b,)]


OF_BEFORE_MARKS = base64.b64decode(
    "UFVTSFNDT1BFIFJFQ09SRElORyAxCm8BAACgFh4bk6VyaW5nc5HeABukaG9zdKFop2Jvb3RfaWShYq50aW1lX25hbWVzcGFjZaF0o3BpZAGu"
    "Y29ubmVjdG9yX3JvbGWmd29ya2VyqWVuZ2luZV9pZKFlp2t2X3JvbGWra3ZfcHJvZHVjZXKkbW9kZaRwdXNop3BwX3JhbmsAp3RwX3JhbmsA"
    "p2RwX3JhbmsAp3BwX3NpemUBp3RwX3NpemUBp2RwX3NpemUBrHZsbG1fdmVyc2lvbqCsbml4bF92ZXJzaW9uoLFwdXNoc2NvcGVfdmVyc2lv"
    "bqCqbml4bF9hZ2VudKCsc2lkZV9jaGFubmVsoKVtb2RlbKCqYmxvY2tfc2l6ZQCxY29ubmVjdG9yX3ZlcnNpb24Ap2xlYXNlX3PLQD4AAAAA"
    "AAC0b3RscF90cmFjZXNfZW5kcG9pbnSgs2FuY2hvcl9tb25vdG9uaWNfbnMArmFuY2hvcl91bml4X25zAKhpbnN0YW5jZaFpwCYAAACdC4Wc"
    "m6VmcmFtZQUGkZXDAQAAB5GSAMQFkykDoWGRoW6QzgExLQCQwpA="
)
"""One reading at 5 ns, with one event and the notice ``n``, as it was written before there were marks."""


def test_a_recording_of_before_there_were_marks_is_read():
    decoder = Decoder()
    decoder.feed(OF_BEFORE_MARKS[len(MAGIC) :])
    old = decoder.next()
    assert (old.t_ns, old.notices, len(old.events), old.rings[0].position) == (5, ("n",), 1, 7)
    assert (old.marks, old.asides) == ((), ())


def test_a_reading_that_is_stepped_through_gives_its_marks_at_its_end():
    told = msgspec.structs.replace(reading(delivered(), 60), marks=(Mark(1.0, "a"),))
    apart = Apart(told, None)
    assert apart.first(1).marks == apart.first(3).marks == ()
    assert apart.rest.marks == told.marks


def test_marks_and_asides_go_through_bytes_unchanged():
    told = msgspec.structs.replace(given(Mark(1.5, "rate 8/s", "load")), asides=("1 line is no mark",))
    decoder = Decoder()
    decoder.feed(Encoder().encode(told))
    again = decoder.next()
    assert (again.marks, again.asides) == (told.marks, told.asides)


def test_sources_that_share_a_folder_tell_a_mark_once():
    a, b, c = Mark(1.0, "a"), Mark(2.0, "b"), Mark(3.0, "c")
    source = JoinedSource([ListSource([given(a), given(c)]), ListSource([given(b, a), given(c, a)])])
    assert source.poll().marks == (a, b)
    assert source.poll().marks == (c,)


def until_marked(source, number: int) -> list[Mark]:
    """Polls until so many have come, and a little longer; all of them, also those that came twice."""
    got: list[Mark] = []

    def enough() -> bool:
        got.extend(source.poll().marks)
        return len(got) >= number

    until(enough)
    return got


def test_an_agent_passes_marks_on_once_also_over_a_cut(folder):
    first = write_mark(folder, "start", "a test")
    with serving(folder) as agent:
        relay = Relay(agent.port)
        with closing(RemoteSource(relay.url)) as source:
            assert until_marked(source, 1) == [first]
            connections = relay.connections
            relay.cut()
            until(lambda: relay.connections > connections)
            second = write_mark(folder, "stop", "a test")
            assert until_marked(source, 1) == [second]
        relay.close()


def test_two_agents_of_one_folder_tell_a_mark_once(folder):
    first = write_mark(folder, "start", "a test")
    with serving(folder) as one, serving(folder) as other:
        two = [RemoteSource(one.url), RemoteSource(other.url)]
        with closing(JoinedSource([*two, RingsSource(folder)])) as source:
            source.settle()
            second = write_mark(folder, "stop", "a test")
            assert until_marked(source, 2) == [first, second]
            until(
                lambda: all(remote._marks.all == (first, second) for remote in two if not source.poll().marks)
            )


def test_what_an_agent_could_not_read_of_its_marks_is_said_with_its_name(folder):
    written(folder, b"start\n")
    with serving(folder) as agent, closing(RemoteSource(agent.url)) as source:
        until(
            lambda: (
                source.poll().asides == (f"{agent.url}: {folder}/marks: 1 line is no mark and is skipped",)
            )
        )


# -- the command ---------------------------------------------------------------------------------------


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_the_command_marks_this_moment(folder):
    before_s = time.time()
    done = run("mark", "rate\t8/s", "--rings", str(folder))
    assert (done.exit_code, done.output) == (0, f"marked in {folder}: rate 8/s\n")
    (mark,) = MarksFile(folder).poll(time.time())
    assert mark.label == "rate 8/s"
    assert before_s <= mark.unix_s <= time.time()


@pytest.mark.parametrize(
    ("label", "name", "says"),
    [("start", "no", "expected a folder of rings at"), ("\n", "rings", "expected a label to mark")],
)
def test_the_command_says_in_one_sentence_why_it_marked_nothing(folder, label, name, says):
    done = run("mark", label, "--rings", str(folder.with_name(name)))
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"pushscope: {says}")
    assert done.stderr.count("\n") == 1
    assert not (folder / "marks").exists()
