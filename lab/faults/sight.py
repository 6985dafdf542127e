"""What the rings of the lab's engines show, for faults that have to wait for a stage."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from pushscope.lab.spec import Role
from pushscope.telemetry.snapshot import Engine, Snapshot
from pushscope.telemetry.source import RingsSource
from pushscope.telemetry.transfer import Transfer
from pushscope.telemetry.watch import Watcher

_EVERY_S = 0.05
_SIDES = {"prefill": "P", "decode": "D"}
T = TypeVar("T")


class NotSeenError(RuntimeError):
    """What had to happen was not seen to."""


class Sight:
    """A watcher of a folder of rings."""

    def __init__(self, rings: Path) -> None:
        self._source = RingsSource(rings)
        self._watcher = Watcher(self._source)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._source.close()

    def look(self) -> Snapshot:
        """What is so now."""
        self._watcher.poll()
        return self._watcher.snapshot()

    async def until(
        self,
        seen: Callable[[Snapshot], T | None],
        what: str,
        timeout_s: float = 20.0,
        every_s: float = _EVERY_S,
    ) -> T:
        """Look until ``seen`` finds something, and return that.

        Raises NotSeenError that says ``what`` was expected.
        """
        end = time.monotonic() + timeout_s
        while True:
            if (found := seen(self.look())) is not None:
                return found
            if time.monotonic() > end:
                raise NotSeenError(
                    f"Expected to see {what} within {timeout_s:g} s, found that it did not happen."
                )
            await asyncio.sleep(every_s)

    async def transfer(self, base_id: str, such: Callable[[Transfer], bool], what: str) -> Transfer:
        """Wait until there is a transfer of that base id for which ``such`` holds."""

        def seen(snapshot: Snapshot) -> Transfer | None:
            known = (*snapshot.in_flight, *snapshot.waiting, *snapshot.recent)
            return next((t for t in known if t.base_id == base_id and such(t)), None)

        return await self.until(seen, f"{what} ({base_id})")

    async def engine(self, role: Role, side_channel_port: int) -> Engine:
        """The engine that advertises this side channel now."""

        def seen(snapshot: Snapshot) -> Engine | None:
            return next(
                (
                    engine
                    for engine in snapshot.engines
                    if engine.alive
                    and engine.side == _SIDES[role]
                    and engine.side_channel.rpartition(":")[2] == str(side_channel_port)
                ),
                None,
            )

        return await self.until(seen, f"the recording of the {role} engine at port {side_channel_port}")
