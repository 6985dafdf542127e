"""The ring: two readers, a forked child, torn slots, damaged headers, full and forbidden folders."""

import fcntl
import os
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from pushscope.telemetry import ring as ring_module
from pushscope.telemetry.events import Origin
from pushscope.telemetry.ring import (
    HEADER_BYTES,
    HOLE_NS,
    SLOT_BYTES,
    RingError,
    RingReader,
    RingWriter,
    opened_folder,
    reap,
)

from .scenario import P_WORKER

SLOTS = 64
SMALL = HEADER_BYTES + SLOTS * SLOT_BYTES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "rings"


@pytest.fixture
def writer(folder: Path):
    writer = RingWriter(folder, P_WORKER, num_bytes=SMALL)
    yield writer
    writer.close()


@pytest.fixture
def reader(writer: RingWriter):
    reader = RingReader(writer.path)
    yield reader
    reader.close()


def numbers(payloads: list[bytes]) -> list[int]:
    return [int(p) for p in payloads]


def write(writer: RingWriter, *values: int) -> None:
    for value in values:
        writer.write(str(value).encode())


def slot_at(n: int) -> int:
    return HEADER_BYTES + n % SLOTS * SLOT_BYTES


def poke(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as f:
        f.seek(at)
        f.write(data)


class TestReading:
    def test_everything_comes_in_order_and_once(self, writer, reader):
        write(writer, *range(10))
        assert numbers(reader.poll(0)) == list(range(10))
        assert reader.poll(0) == []
        write(writer, 10, 11)
        assert numbers(reader.poll(0)) == [10, 11]
        assert (reader.lost, reader.torn) == (0, 0)

    def test_two_readers_see_the_same_and_both_see_the_engine_alive(self, writer, reader):
        other = RingReader(writer.path)
        write(writer, 1, 2, 3)
        assert numbers(reader.poll(0)) == numbers(other.poll(0)) == [1, 2, 3]
        assert reader.alive()
        assert other.alive()
        writer.close()
        assert not reader.alive()
        assert not other.alive()
        other.close()

    def test_a_late_reader_gets_what_the_ring_still_holds(self, writer):
        write(writer, *range(3 * SLOTS))
        late = RingReader(writer.path)
        assert numbers(late.poll(0)) == list(range(2 * SLOTS, 3 * SLOTS))
        assert (late.lost, late.forgotten) == (0, 2 * SLOTS), "what was gone before it came is not its loss"
        late.close()

    def test_a_reader_that_was_lapped_counts_what_it_missed(self, writer, reader):
        write(writer, 0)
        assert numbers(reader.poll(0)) == [0]
        write(writer, *range(1, 3 * SLOTS))
        got = numbers(reader.poll(0))
        assert got[-1] == 3 * SLOTS - 1
        assert got == list(range(got[0], 3 * SLOTS))
        assert reader.lost == got[0] - 1

    def test_a_reader_never_writes(self, writer, reader):
        write(writer, 1)
        before = writer.path.read_bytes()
        reader.poll(0)
        reader.alive()
        assert writer.path.read_bytes() == before

    def test_what_a_killed_engine_wrote_last_is_still_there(self, folder):
        child = subprocess.run(
            [sys.executable, "-c", _KILLED, str(folder)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
            timeout=60,
        )
        assert child.returncode == -9
        (path,) = folder.glob("*.ring")
        reader = RingReader(path)
        assert not reader.alive()
        assert numbers(reader.poll(0)) == [1, 2, 3]
        reader.close()


_KILLED = """
import os, sys
from pathlib import Path
from pushscope.telemetry.events import Origin
from pushscope.telemetry.ring import RingWriter
w = RingWriter(Path(sys.argv[1]), Origin(host="", boot_id="", time_namespace="", pid=os.getpid(),
    connector_role="worker", engine_id="e", kv_role="kv_producer", mode="push"))
for n in (1, 2, 3):
    w.write(str(n).encode())
os.kill(os.getpid(), 9)
"""


class TestDamage:
    def test_a_hole_is_waited_for_and_then_skipped(self, writer, reader):
        write(writer, 1, 2, 3)
        poke(writer.path, slot_at(2) + SLOT_BYTES - 8, bytes(8))  # claimed, not committed
        assert numbers(reader.poll(0)) == [1]
        assert numbers(reader.poll(HOLE_NS // 2)) == []
        assert numbers(reader.poll(HOLE_NS + 1)) == [3]
        assert reader.torn == 1

    def test_a_slot_that_is_committed_late_is_read(self, writer, reader):
        write(writer, 1, 2, 3)
        commit = struct.pack("<Q", 2)
        poke(writer.path, slot_at(2) + SLOT_BYTES - 8, bytes(8))
        assert numbers(reader.poll(0)) == [1]
        poke(writer.path, slot_at(2) + SLOT_BYTES - 8, commit)
        assert numbers(reader.poll(1)) == [2, 3]
        assert reader.torn == 0

    def test_a_torn_payload_is_skipped_and_counted(self, writer, reader):
        write(writer, 1, 2, 3)
        poke(writer.path, slot_at(2) + 14, b"X")
        got = numbers(reader.poll(0)) + numbers(reader.poll(2 * HOLE_NS)) + numbers(reader.poll(4 * HOLE_NS))
        assert got == [1, 3]
        assert reader.torn == 1

    def test_many_torn_slots_in_a_crashed_ring_do_not_hide_what_follows(self, folder):
        big = RingWriter(folder, P_WORKER, num_bytes=HEADER_BYTES + 512 * SLOT_BYTES)
        for n in range(1, 401):
            big.write(str(n).encode())
        big.close()
        poke(big.path, HEADER_BYTES + 100 * SLOT_BYTES, bytes(150 * SLOT_BYTES))
        reader = RingReader(big.path)
        got: list[int] = []
        for k in range(400):
            got += numbers(reader.poll(k * 2 * HOLE_NS))
        assert got == [*range(1, 100), *range(250, 401)]
        assert reader.torn == 150
        reader.close()

    @pytest.mark.parametrize(
        ("at", "data", "says"),
        [
            (0, b"NOTARING", "another kind of file"),
            (8, struct.pack("<I", 99 << 16), "layout 99.0"),
            (16, struct.pack("<I", 1 << 20), "damaged"),
            (40, b"\xff\xff\xff", "damaged"),
        ],
    )
    def test_a_bad_header_is_one_clear_sentence(self, writer, at, data, says):
        poke(writer.path, at, data)
        with pytest.raises(RingError, match=says):
            RingReader(writer.path)

    def test_a_folder_or_a_pipe_in_place_of_a_ring(self, tmp_path):
        (tmp_path / "folder.ring").mkdir()
        os.mkfifo(tmp_path / "pipe.ring")
        for name in ("folder.ring", "pipe.ring"):
            with pytest.raises(RingError, match="expected a pushscope ring"):
                RingReader(tmp_path / name)

    def test_an_empty_file_is_one_clear_sentence(self, tmp_path):
        path = tmp_path / "x.ring"
        path.touch()
        with pytest.raises(RingError, match="expected a pushscope ring"):
            RingReader(path)


class TestThreads:
    def test_many_writers_lose_nothing_and_tear_nothing(self, folder):
        writer = RingWriter(folder, P_WORKER, num_bytes=4 << 20)
        reader = RingReader(writer.path)
        each, threads = 3000, 4

        def work(k: int) -> None:
            for i in range(each):
                writer.write(b"%d %d" % (k, i))

        workers = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
        for w in workers:
            w.start()
        got: list[bytes] = []
        while any(w.is_alive() for w in workers):
            got += reader.poll(time.monotonic_ns())
        got += reader.poll(time.monotonic_ns())
        for k in range(threads):
            mine = [int(p.split()[1]) for p in got if p.startswith(b"%d " % k)]
            assert mine == list(range(each)), "each thread's events are in its order"
        assert (reader.lost, reader.torn) == (0, 0)
        reader.close()
        writer.close()

    def test_a_forked_child_neither_writes_nor_keeps_the_engine_alive(self, writer, reader):
        go, say = os.pipe()
        back, answer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(say)
            writer.write(b"999")
            os.write(answer, b"written")
            os.read(go, 1)
            os._exit(0)
        os.close(go)
        assert os.read(back, 7) == b"written"
        write(writer, 1)
        assert numbers(reader.poll(0)) == [1]
        writer.close()
        assert not reader.alive(), "the child still runs, the engine is gone"
        os.close(say)
        os.waitpid(pid, 0)
        os.close(back)
        os.close(answer)


class TestFolder:
    def test_folder_and_file_are_for_this_user_alone(self, writer, folder):
        assert folder.stat().st_mode & 0o777 == 0o700
        assert writer.path.stat().st_mode & 0o777 == 0o600

    @pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give a file to any group")
    def test_ring_and_folder_are_of_the_group_that_may_read(self, folder):
        writer = RingWriter(folder, P_WORKER, num_bytes=SMALL, group="2000")
        assert writer.path.parent.stat().st_gid == 2000
        assert writer.path.stat().st_gid == 2000
        writer.close()

    def test_a_group_may_read_if_told_so(self, folder):
        writer = RingWriter(folder, P_WORKER, num_bytes=SMALL, group=str(os.getgid()))
        assert folder.stat().st_mode & 0o777 == 0o750
        assert writer.path.stat().st_mode & 0o777 == 0o640
        writer.close()

    def test_a_link_in_place_of_the_folder_is_refused(self, tmp_path):
        (tmp_path / "real").mkdir(mode=0o700)
        (tmp_path / "link").symlink_to(tmp_path / "real")
        with pytest.raises(RingError, match="found none that can be opened"):
            RingWriter(tmp_path / "link", P_WORKER, num_bytes=SMALL)

    def test_a_folder_that_others_can_write_is_refused_by_readers(self, folder):
        folder.mkdir()
        folder.chmod(0o777)
        with pytest.raises(RingError, match="can be written by other users"), opened_folder(folder):
            pass

    def test_a_folder_that_is_there_keeps_its_mode(self, tmp_path):
        """It may be /tmp: a folder of everybody's is refused, not taken away from them."""
        shared = tmp_path / "shared"
        shared.mkdir()
        shared.chmod(0o1777)
        with pytest.raises(RingError, match="can be written by other users"):
            RingWriter(shared, P_WORKER, num_bytes=SMALL)
        assert shared.stat().st_mode & 0o7777 == 0o1777
        shared.chmod(0o755)
        RingWriter(shared, P_WORKER, num_bytes=SMALL).close()
        assert shared.stat().st_mode & 0o7777 == 0o755

    def test_a_folder_below_a_file_cannot_be_made(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(RingError, match="cannot make the ring folder"):
            RingWriter(tmp_path / "file" / "rings", P_WORKER, num_bytes=SMALL)

    def test_a_missing_folder_says_what_to_do(self, tmp_path):
        with (
            pytest.raises(RingError, match="start an engine with"),
            opened_folder(tmp_path / "no"),
        ):
            pass

    @pytest.mark.skipif(os.getuid() != 0, reason="mounting needs root")
    def test_a_file_system_that_is_too_small_is_refused_before_anything_is_mapped(self, tmpfs):
        folder = tmpfs("size=1m")
        with pytest.raises(RingError, match="less than half of that file system"):
            RingWriter(folder / "rings", P_WORKER)
        assert not list((folder / "rings").glob("*"))

    @pytest.mark.skipif(os.getuid() != 0, reason="mounting needs root")
    def test_a_file_system_that_fills_up_later_does_no_harm(self, tmpfs):
        folder = tmpfs("size=16m")
        writer = RingWriter(folder / "rings", P_WORKER)
        reader = RingReader(writer.path)
        with pytest.raises(OSError, match="No space"):
            (folder / "filler").write_bytes(bytes(16 << 20))
        num_slots = (ring_module.DEFAULT_BYTES - HEADER_BYTES) // SLOT_BYTES
        write(writer, *range(num_slots))  # every page of it: a sparse file would raise SIGBUS here
        assert len(reader.poll(0)) == num_slots
        reader.close()
        writer.close()

    @pytest.mark.skipif(os.getuid() != 0, reason="mounting needs root")
    def test_a_read_only_file_system_is_one_clear_sentence(self, tmpfs):
        folder = tmpfs("size=16m")
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        with pytest.raises(RingError, match="Read-only file system"):
            RingWriter(folder / "rings", P_WORKER)

    def test_a_ring_that_is_too_small_to_be_one_is_refused(self, folder):
        with pytest.raises(RingError, match='option "bytes" is 5000'):
            RingWriter(folder, P_WORKER, num_bytes=5000)

    def test_dead_rings_are_reaped_by_age_and_live_ones_never(self, writer, folder):
        dead = RingWriter(folder, P_WORKER, num_bytes=SMALL)
        dead.close()
        with opened_folder(folder) as fd:
            assert reap(fd, older_than_s=3600) == 0
            assert reap(fd, older_than_s=-1) == 1
        assert list(folder.glob("*.ring")) == [writer.path]

    def test_a_file_without_tmpfile_support_is_published_by_rename(self, folder, monkeypatch):
        real_open = os.open

        def no_tmpfile(path, flags, *args, **kwargs):
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(95, "Operation not supported")
            return real_open(path, flags, *args, **kwargs)

        monkeypatch.setattr(os, "open", no_tmpfile)
        writer = RingWriter(folder, P_WORKER, num_bytes=SMALL)
        monkeypatch.undo()
        assert [p.name for p in folder.iterdir()] == [writer.path.name]
        reader = RingReader(writer.path)
        assert reader.alive()
        reader.close()
        writer.close()


def test_a_header_that_does_not_fit_is_refused(folder):
    huge = msgspec.structs.replace(P_WORKER, side_channel="h" * 5000)
    with pytest.raises(RingError, match="a ring header holds"):
        RingWriter(folder, huge, num_bytes=SMALL)


def test_origin_comes_back(writer, reader):
    assert isinstance(reader.origin, Origin)
    assert reader.origin == writer.origin
    assert reader.origin.instance == writer.path.stem


def test_the_probe_for_life_never_blocks_a_writer(writer, reader):
    """A reader's shared lock must not be in a starting writer's way: writers lock before they have a name."""
    fd = os.open(writer.path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(fd)
