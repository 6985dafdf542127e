"""The feed asks in a thread of its own, survives errors, and ends when told."""

from __future__ import annotations

import threading
import time

from pushscope.telemetry.snapshot import Snapshot
from pushscope.tui.feed import Feed

from . import samples


def ignore(_: object) -> None:
    """Nobody listens."""


def test_snapshots_arrive_until_it_is_stopped() -> None:
    got: list[Snapshot] = []
    enough = threading.Event()

    def listen(snapshot: Snapshot) -> None:
        got.append(snapshot)
        if len(got) == 3:
            enough.set()

    feed = Feed(samples.nothing_found, 0.001, on_snapshot=listen, on_error=ignore)
    feed.start()
    assert enough.wait(5)
    feed.stop()
    after = len(got)
    time.sleep(0.02)
    assert len(got) == after


def test_an_error_is_told_and_the_next_turn_asks_again() -> None:
    told: list[str] = []
    recovered = threading.Event()

    def source() -> Snapshot:
        if not told:
            raise OSError("no such folder")
        return samples.nothing_found()

    feed = Feed(source, 0.001, on_snapshot=lambda _: recovered.set(), on_error=told.append)
    feed.start()
    assert recovered.wait(5)
    feed.stop()
    assert told == ["OSError: no such folder"]


def test_a_source_that_hangs_does_not_hold_up_the_end() -> None:
    asked, release = threading.Event(), threading.Event()
    late: list[Snapshot] = []

    def source() -> Snapshot:
        asked.set()
        release.wait(10)
        return samples.nothing_found()

    feed = Feed(source, 0.001, on_snapshot=late.append, on_error=ignore)
    feed.start()
    assert asked.wait(5)
    started = time.monotonic()
    feed.stop(timeout_s=0.05)
    assert time.monotonic() - started < 2
    release.set()
    feed.stop(timeout_s=5)
    assert late == []  # what comes after the end is not told


def test_stopping_a_feed_that_never_started_is_fine() -> None:
    Feed(samples.nothing_found, 1, on_snapshot=ignore, on_error=ignore).stop()
