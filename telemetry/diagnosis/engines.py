"""What is wrong with engines, or between two of them: each cause once, however many requests it costs.

Pure: a function of the engines' stories and states, the transfers, and the time. A cause that is undone is not
found any more, so that nothing has to be cleared. The rules are in the order of causes before consequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pushscope.telemetry.diagnosis import leftovers, pace, peers, processes, restarts
from pushscope.telemetry.diagnosis.model import Diagnosis
from pushscope.telemetry.diagnosis.scene import EngineRule, Scene
from pushscope.telemetry.diagnosis.thresholds import DEFAULT, Thresholds
from pushscope.telemetry.snapshot import Engine
from pushscope.telemetry.story import EngineStory
from pushscope.telemetry.transfer import Transfer

RULES: Final[tuple[EngineRule, ...]] = (
    processes.main_thread_exceptions,
    peers.misfits,
    peers.wrong_answers,
    restarts.stale_agents,
    processes.dead_listeners,
    processes.writer_exceptions,
    processes.engines_gone,
    processes.engines_stopped,
    processes.engines_silent,
    peers.blocked_queues,
    leftovers.pinned_blocks,
    leftovers.stale_registrations,
    leftovers.notify_only_entries,
    leftovers.polling,
    pace.missing_telemetry,
    pace.serial_routers,
    pace.busy_writers,
    pace.slow_links,
)


def diagnose_engines(
    stories: Iterable[EngineStory],
    engines: Iterable[Engine],
    followed: Sequence[Transfer],
    closed: Sequence[Transfer] = (),
    *,
    now_ns: int,
    thresholds: Thresholds = DEFAULT,
) -> tuple[Diagnosis, ...]:
    """Every cause that holds at ``now_ns``.

    ``followed`` are the transfers that are open or ended just now, ``closed`` the newest that are over.
    """
    scene = Scene(
        {story.engine_id: story for story in stories},
        {engine.engine_id: engine for engine in engines},
        followed,
        closed,
        now_ns,
        thresholds,
    )
    return tuple(diagnosis for rule in RULES for diagnosis in rule(scene))
