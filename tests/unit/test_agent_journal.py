"""The journal: what it knows survives kill -9, damage and a full disk, and stays small."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pushscope.telemetry.agent import journal as journal_module
from pushscope.telemetry.agent.journal import NAME, Journal, keys_of
from pushscope.telemetry.transfer import Outcome, Transfer

from .samples import D1, P1


@pytest.fixture
def again(tmp_path):
    """A journal of the folder, as a new agent would open it."""
    opened: list[Journal] = []

    def open_one() -> Journal:
        opened.append(Journal().open(tmp_path))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def test_what_was_noted_is_known_to_the_next_agent(again):
    first = again()
    first.exported([1, 2], {"spans.exported": 8})
    first.exported([3], {"spans.exported": 1, "spans.dropped.failed": 2})
    second = again()
    assert second.trouble == ""
    assert all(second.is_exported((key,)) for key in (1, 2, 3))
    assert not second.is_exported((4,))
    assert second.counts() == {"spans.exported": 9, "spans.dropped.failed": 2}


def test_the_first_key_decides(again):
    journal = again()
    journal.exported([10, 20], {})
    assert journal.is_exported((10, 99))
    assert not journal.is_exported((99, 10))
    assert not journal.is_exported(())


def test_a_record_cut_off_in_the_middle_takes_nothing_else_with_it(again, tmp_path):
    first = again()
    first.exported([1], {"n": 1})
    first.exported([2], {"n": 1})
    os.truncate(tmp_path / NAME, (tmp_path / NAME).stat().st_size - 3)
    second = again()
    assert second.is_exported((1,))
    assert not second.is_exported((2,))
    assert second.counts() == {"n": 1}
    second.exported([3], {"n": 1})
    assert again().is_exported((3,)), "what is written after the damage can be read"


def test_damage_in_the_middle_costs_what_lies_behind_it(again, tmp_path):
    first = again()
    for key in range(1, 6):
        first.exported([key], {"n": 1})
    data = bytearray((tmp_path / NAME).read_bytes())
    data[-40] ^= 0xFF
    (tmp_path / NAME).write_bytes(data)
    second = again()
    assert second.is_exported((1,))
    assert not second.is_exported((5,))


@pytest.mark.parametrize("content", [b"", b"something else entirely", b"PUSHSCOPE JOURNAL 9\n...."])
def test_a_file_that_is_no_journal_is_told_and_replaced(again, tmp_path, content):
    (tmp_path / NAME).write_bytes(content)
    journal = again()
    assert "another version" in journal.trouble
    journal.exported([1], {})
    assert again().is_exported((1,))


def test_it_stays_small(again, tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "MAX_KEYS", 100)
    monkeypatch.setattr(journal_module, "_MAX_FILE_BYTES", 4000)
    journal = again()
    for key in range(1, 1001):
        journal.exported([key], {"n": 1})
        assert (tmp_path / NAME).stat().st_size <= 4000
    later = again()
    assert not later.is_exported((900,))
    assert all(later.is_exported((key,)) for key in range(901, 1001))
    assert later.counts() == {"n": 1000}
    assert sorted(os.listdir(tmp_path)) == [NAME]


def test_without_room_the_agent_goes_on_and_says_so(tmpfs):
    folder = tmpfs("size=64k")
    journal = Journal().open(folder)
    for key in range(20_000):
        journal.exported([key], {"n": 1})
    assert "No space left" in journal.trouble
    assert journal.is_exported((19_999,))
    journal.close()
    later = Journal().open(folder)
    assert later.is_exported((0,)), "what was written before is good"
    later.close()


def test_a_folder_that_may_only_be_read(tmp_path, tmpfs):
    folder = tmpfs("ro")
    journal = Journal().open(folder)
    assert "can't be written" in journal.trouble
    journal.exported([1], {"n": 1})
    assert journal.counts() == {"n": 1}


def test_nothing_is_lost_by_kill_9(tmp_path):
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from pushscope.telemetry.agent.journal import Journal\n"
        "journal = Journal().open(Path(sys.argv[1]))\n"
        "for key in range(1, 1_000_000):\n"
        "    journal.exported([key], {'n': 1})\n"
        "    print(key, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    said = 0
    for line in process.stdout:
        said = int(line)
        if said == 500:
            process.kill()
            break
    process.wait()
    said = max([said, *(int(line) for line in process.stdout if line.endswith("\n"))])
    process.stdout.close()
    journal = Journal().open(tmp_path)
    assert journal.is_exported((said,))
    assert journal.counts()["n"] in (said, said + 1), (
        "what was noted, and perhaps one more that was not yet said"
    )
    assert journal.is_exported((int(journal.counts()["n"]),))
    journal.close()


class TestKeys:
    def test_d_decides_then_p(self):
        both = made(d_engine=D1, d_request="d", p_engine=P1, p_request="p")
        only_d = made(d_engine=D1, d_request="d", p_engine=None, p_request=None)
        only_p = made(d_engine=None, d_request=None, p_engine=P1, p_request="p")
        assert keys_of(both)[0] == keys_of(only_d)[0]
        assert keys_of(both)[1] == keys_of(only_p)[0]
        assert len(keys_of(both)) == 2

    def test_retries_and_other_engines_have_other_keys(self):
        keys = {
            keys_of(made(d_engine=engine, d_request=request))[0]
            for engine in ("a", "ab")
            for request in ("bc", "c", "bc2")
        }
        assert len(keys) == 6


def made(**changes):
    given = {"base_id": "r", "outcome": Outcome.DELIVERED, "opened_ns": 0, "since_ns": 0}
    return Transfer(**(given | changes))
