"""A watched queue is vLLM's own in all else."""

import queue

import pytest

from pushscope.connector.queues import WatchedQueue


class Recorder:
    def __init__(self):
        self.failures = []

    def failed(self, error, where=""):
        self.failures.append((where, str(error)))


def test_each_item_is_told_once_before_it_is_handed_out_and_an_empty_queue_tells_nothing():
    told = []
    watched = WatchedQueue(told.append, Recorder(), "here")
    with pytest.raises(queue.Empty):
        watched.get_nowait()
    for n in range(3):
        watched.put(n)
    assert told == []
    assert [watched.get_nowait(), watched.get(timeout=1), watched.get()] == [0, 1, 2]
    assert told == [0, 1, 2]
    assert watched.empty()


def test_a_broken_ear_loses_nothing():
    def broken(item):
        raise RuntimeError("deaf")

    recorder = Recorder()
    watched = WatchedQueue(broken, recorder, "here")
    watched.put("item")
    assert watched.get_nowait() == "item"
    assert recorder.failures == [("here", "deaf")]
