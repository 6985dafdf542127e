"""What each engine holds and does now, beyond its transfers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pushscope.telemetry import events as ev
from pushscope.telemetry.holds import Holds, abandoned, pinned
from pushscope.telemetry.snapshot import Snapshot, Vitals
from pushscope.telemetry.story import EngineStory
from pushscope.telemetry.watch import Watcher

LOOK_NS: Final = 1_000_000_000
"""How often it is looked at what is held, which takes a look at every request that is followed."""


class VitalsLook:
    """Looks at a watcher's engines; at what they hold, and their stories, at most once a second."""

    def __init__(self, watcher: Watcher):
        self._watcher = watcher
        self._looked_ns: int | None = None
        self._told: tuple[Vitals, ...] = ()

    def vitals(self, snapshot: Snapshot) -> tuple[Vitals, ...]:
        """Of each engine of the snapshot, in its order; as they were less than a second ago."""
        if self._looked_ns is None or not 0 <= snapshot.taken_ns - self._looked_ns < LOOK_NS:
            self._looked_ns = snapshot.taken_ns
            self._told = vitals(self._watcher, snapshot)
        return self._told


def vitals(watcher: Watcher, snapshot: Snapshot) -> tuple[Vitals, ...]:
    """Of each engine of a watcher's newest snapshot, in its order."""
    pinned_at = pinned(watcher.assembler.groups())
    abandoned_at = abandoned(watcher.assembler.open_transfers())
    stories = {story.engine_id: story for story in watcher.stories.all()}
    return tuple(
        _of(stories[engine.engine_id], pinned_at, abandoned_at, alive=engine.alive)
        for engine in snapshot.engines
        if engine.engine_id in stories
    )


def _of(
    story: EngineStory, pinned_at: Mapping[str, Holds], abandoned_at: Mapping[str, Holds], *, alive: bool
) -> Vitals:
    # What is gone holds nothing.
    holds = pinned_at.get(story.engine_id, Holds()) if alive else Holds()
    left = abandoned_at.get(story.engine_id, Holds()) if alive else Holds()
    peers = [peer for instance in story.current for peer in instance.peers().values()]
    tables = [t for worker in story.workers if (t := worker.last(ev.Tables)) is not None]
    shares = [share for instance in story.current if (share := instance.loop_share) is not None]
    return Vitals(
        engine_id=story.engine_id,
        pinned_requests=holds.requests,
        pinned_blocks=holds.blocks,
        pinned_tokens=holds.tokens,
        held_blocks=left.blocks,
        handshakes_done=sum(not e.error_type for peer in peers for e in peer.ended),
        handshakes_failed=sum(bool(e.error_type) for peer in peers for e in peer.ended),
        handshakes_pending=sum(peer.pending_ns is not None for peer in peers),
        registrations_unmatched=_sum(tables, "unmatched_registrations"),
        blocks_unmatched=_sum(tables, "unmatched_blocks"),
        writes=_sum(tables, "writes"),
        leases=_sum(tables, "leases"),
        loop_share=max(shares, default=None),
    )


def _sum(tables: list[ev.Tables], name: str) -> int | None:
    return sum(getattr(table, name) for table in tables) if tables else None
