"""What is left behind in an engine's memory: B1, B5, B6; and B13, what waiting for it costs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from pushscope.telemetry import events as ev
from pushscope.telemetry import units
from pushscope.telemetry.diagnosis.model import Diagnosis, Severity
from pushscope.telemetry.diagnosis.scene import Scene, counted, evidence, found, where
from pushscope.telemetry.story import MAX_ENDED, EngineStory, InstanceStory
from pushscope.telemetry.transfer import Outcome, Stage, Transfer
from pushscope.telemetry.waits import QUEUED

SPAN_NS: Final = 15_000_000_000
"""A pile is what was there for so long a time in which the engine took steps. Also what was open when a reader
came has been said again by then."""


def leftovers(scene: Scene, story: EngineStory, instance: InstanceStory, table: str) -> int:
    """How many entries of a table belong to no transfer: at no moment of the last seconds there were fewer.

    A transfer's time includes the time in which it has an entry, so what is counted beyond the transfers that were
    open is left over. A look at the table alone would not do: an engine that becomes idle says no size any more,
    so its last one may be of its busiest moment.
    """
    sizes = _lately(instance)
    least = scene.thresholds.leftovers
    if not sizes or min(getattr(size, table) for size in sizes) < least:
        return 0
    followed = [(t.opened_ns, t.closed_ns) for t in scene.with_engine(story.engine_id)]
    ended = story.ended[bisect_left(story.ended, sizes[0].t, key=attrgetter("closed_ns")) :]
    opened = sorted([*(begin for begin, _ in followed), *(e.opened_ns for e in ended)])
    closed = sorted([*(end for _, end in followed if end), *(e.closed_ns for e in ended)])
    if len(story.ended) == MAX_ENDED and story.ended[0].closed_ns > sizes[0].t:
        return 0  # more transfers ended meanwhile than are remembered
    beyond = min(
        getattr(size, table) - (bisect_right(opened, size.t) - bisect_right(closed, size.t - 1))
        for size in sizes
    )
    return beyond if beyond >= least else 0


def _lately(instance: InstanceStory) -> tuple[ev.Tables, ...]:
    """The newest sizes that span the time a pile must have been there; none if they don't go back so far."""
    sizes = instance.all(ev.Tables)
    for at in range(len(sizes) - 1, -1, -1):
        if sizes[-1].t - sizes[at].t >= SPAN_NS:
            return sizes[at:]
    return ()


# -- D ------------------------------------------------------------------------------------------------


def pinned_blocks(scene: Scene) -> Iterator[Diagnosis]:
    """B1: requests that D ended while it waited for P's push: only that push would free their blocks."""
    for story in scene.stories.values():
        mine = [
            t
            for t in scene.with_engine(story.engine_id)
            if t.d_engine == story.engine_id and t.mode == "push"
        ]
        pinned = sorted((t for t in mine if t.d_holds and scene.late(_ended(t))), key=_ended)
        if not pinned:
            continue
        queued = [t for t in mine if QUEUED in t.waits and scene.late(t.since_ns)]
        name, since_ns = scene.name(story.engine_id), _ended(pinned[0])
        blocks = counted(sum(t.num_blocks or 0 for t in pinned), "block")
        short = (
            f"; meanwhile {counted(len(queued), 'request')} queued at {name} can't get any" if queued else ""
        )
        yield found(
            "aborted_requests_pin_blocks",
            story.engine_id,
            f"{blocks} of {name}'s KV cache are held by {counted(len(pinned), 'request')} that ended before P's push "
            f"came, the first {scene.ago(since_ns)}: vLLM frees them when the push comes, and not otherwise{short}.",
            # They cost memory; somebody hangs of it only when that runs short.
            severity=Severity.WARNING
            if queued or len(pinned) >= scene.thresholds.leftovers
            else Severity.INFO,
            since_ns=since_ns,
            certain=not story.lost,
            costs=queued,
            seen=[
                evidence(story, None, _ended(t), f"{t.d_request} ended, waiting for {t.num_blocks} blocks")
                for t in pinned[:5]
            ],
        )


def _ended(transfer: Transfer) -> int:
    return transfer.closed_ns or transfer.since_ns


def notify_only_entries(scene: Scene) -> Iterator[Diagnosis]:
    """B5: D keeps an entry for each request that had nothing to receive, for ever."""
    for story, instance in scene.alive:
        if story.origin.mode != "push":
            continue
        nothing = sum(len(i.all(ev.NothingToReceive)) for i in story.current)
        kept = min(nothing, leftovers(scene, story, instance, "receiving"))
        if kept < scene.thresholds.leftovers:
            continue
        newest = instance.all(ev.Tables)[-1]
        yield found(
            "notify_only_entries_leak",
            story.engine_id,
            f"{scene.name(story.engine_id)}'s worker{where(instance.rank)} keeps {units.count(kept)} entries of "
            f"requests that had nothing to receive: the prompt was cached, or they ended in the "
            f"queue{_rise(instance, 'receiving')}. Nothing removes them.",
            since_ns=_lately(instance)[0].t,
            certain=not story.lost,
            seen=[evidence(story, instance, newest.t, f"{newest.receiving} requests are being received")],
        )


# -- P ------------------------------------------------------------------------------------------------


def stale_registrations(scene: Scene) -> Iterator[Diagnosis]:
    """B6: registrations that no prefill will meet stay at P for ever. Once for an engine, of its fullest rank."""
    for story in scene.stories.values():
        piles = [(leftovers(scene, story, i, "unmatched_registrations"), i) for i in story.workers if i.alive]
        count, instance = max(piles, key=lambda pile: pile[0], default=(0, None))
        if not count or instance is None:
            continue
        newest = instance.all(ev.Tables)[-1]
        others = sum(1 for n, _ in piles if n) - 1
        more = f", and {counted(others, 'other rank')} likewise" if others else ""
        yield found(
            "stale_registrations_pile_up",
            story.engine_id,
            f"{scene.name(story.engine_id)}{where(instance.rank)} keeps {units.count(count)} registrations that no "
            f"request waits for{_rise(instance, 'unmatched_registrations')}{more}. Nothing expires them, and a later "
            f"request of the same id can meet one. They come of decode legs that were ended, and of every further D "
            f"rank where D has more ranks than P.",
            since_ns=_lately(instance)[0].t,
            certain=not story.lost,
            seen=[
                evidence(
                    story, instance, newest.t, f"{newest.unmatched_registrations} registrations are unmatched"
                )
            ],
        )


def polling(scene: Scene) -> Iterator[Diagnosis]:
    """B13: as long as finished prefills wait for a registration, P's writer looks a thousand times a second."""
    for story in scene.stories.values():
        share_ns = scene.thresholds.lease_share * story.origin.lease_s * 1e9
        unclaimed = [
            stage.start_ns
            for t in scene.with_engine(story.engine_id)
            if t.p_engine == story.engine_id and t.outcome is Outcome.WAITING
            for stage in t.stages
            if stage.stage is Stage.RENDEZVOUS
            and stage.waited.startswith("P")
            and scene.now_ns - stage.start_ns >= share_ns
        ]
        busy = [
            (i, size)
            for i in story.workers
            if i.alive and (size := i.last(ev.Tables)) and size.unmatched_blocks
        ]
        if not unclaimed or not busy:
            continue
        instance, size = busy[0]
        yield found(
            "polling_for_unmatched",
            story.engine_id,
            f"{scene.name(story.engine_id)} never idles: its writer looks a thousand times a second for registrations "
            f"of {counted(len(unclaimed), 'finished prefill')} that nobody has claimed for "
            f"{scene.lasts(min(unclaimed))}.",
            since_ns=min(unclaimed),
            seen=[
                evidence(story, instance, size.t, f"{size.unmatched_blocks} finished prefills are unmatched")
            ],
        )


def _rise(instance: InstanceStory, table: str) -> str:
    """By how much a table has grown, and over which time; nothing if that is not known."""
    trend = instance.trend(table)
    return (
        f", {units.count(trend.rise)} more than {units.age(trend.span_ns / 1e9)} before" if trend.rise else ""
    )
