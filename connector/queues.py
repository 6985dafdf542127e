"""A queue that tells what is taken from it, in the taking thread; in all else vLLM's own queue."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

from pushscope.telemetry.recorder import Recorder


class WatchedQueue(queue.Queue[Any]):
    """Calls ``taken(item)`` for each item, before whoever takes it has it.

    By the hook that ``queue.Queue`` offers for taking: it is called only where there is an item, and vLLM looks
    into these queues at every step, nearly always in vain.
    """

    def __init__(self, taken: Callable[[Any], None], recorder: Recorder, where: str):
        super().__init__()
        self._taken = taken
        self._recorder = recorder
        self._where = where

    def _get(self) -> Any:
        item = super()._get()
        try:
            self._taken(item)
        except Exception as e:  # noqa: BLE001 - telemetry never costs a request
            self._recorder.failed(e, self._where)
        return item
