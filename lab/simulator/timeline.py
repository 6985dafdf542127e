"""Virtual time: stories that go on when their time has come."""

from __future__ import annotations

from collections.abc import Generator
from heapq import heappop, heappush

Story = Generator[int, None, None]
"""Yields how many nanoseconds pass before it goes on."""


class Timeline:
    """Runs stories in the order of their times; those of one moment in the order in which they came."""

    def __init__(self, start_ns: int):
        self.now_ns = start_ns
        self._due: list[tuple[int, int, Story]] = []
        self._number = 0

    def start(self, story: Story, after_ns: int = 0) -> None:
        """Let a story begin, now or later."""
        self._number += 1
        heappush(self._due, (self.now_ns + after_ns, self._number, story))

    def run_until(self, t_ns: int) -> None:
        """Let everything happen up to that time."""
        due = self._due
        while due and due[0][0] <= t_ns:
            self.now_ns, _, story = heappop(due)
            wait_ns = next(story, None)
            if wait_ns is not None:
                self._number += 1
                heappush(due, (self.now_ns + wait_ns, self._number, story))
        self.now_ns = max(self.now_ns, t_ns)
