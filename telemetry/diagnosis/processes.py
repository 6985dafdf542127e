"""Engines, processes and threads that died, stopped or failed: D1 to D5, engine_gone, engine_stopped, A14, A8."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pushscope.telemetry import events as ev
from pushscope.telemetry import units
from pushscope.telemetry.diagnosis.case import HUNG
from pushscope.telemetry.diagnosis.model import Diagnosis, Severity
from pushscope.telemetry.diagnosis.scene import (
    Scene,
    counted,
    evidence,
    found,
    hanging,
    shown,
    victims,
    where,
)
from pushscope.telemetry.story import EngineStory, InstanceStory, PeerStory, successor_of
from pushscope.telemetry.transfer import Outcome, Stage, Transfer

UNEQUAL_BLOCKS: Final = re.compile(r"[Ll]ocal block size (\d+) is not divisible by remote block size (\d+)")
"""vLLM's ``TransferTopology.block_size_ratio``: asked at a handshake, by the writer, and for results."""
_MISSING: Final = re.compile(r"KeyError\('(remote_\w+|tp_size|pp_size)'\)")
"""A plain look-up in ``kv_transfer_params`` (push_scheduler ``update_state_after_alloc``, metadata
``add_new_req_to_recv``)."""
_JUST_BEFORE_NS: Final = 5_000_000_000


# -- what ends an engine --------------------------------------------------------------------------------


def main_thread_exceptions(scene: Scene) -> Iterator[Diagnosis]:
    """D1, D2, D3, E4: an exception left the connector on the main thread, which ends vLLM's engine core."""
    for story in scene.stories.values():
        if (death := _died_of(scene, story)) is None:
            continue
        instance, raised = death
        name = scene.name(story.engine_id)
        code, cause = _cause(raised)
        lost = _lost_with(scene, story)
        end = "has ended of it" if not story.alive else "is still there, as far as its other processes tell"
        yield found(
            code,
            story.engine_id,
            f"{name}{where(instance.rank)} {cause}, {scene.ago(raised.t)}: {raised.where} raised "
            f"{shown(raised.error)}. The engine {end}{victims(lost)}.",
            costs=lost,
            since_ns=raised.t,
            seen=[evidence(story, instance, raised.t, f"{raised.where} raised {shown(raised.error)}")],
        )


def _died_of(scene: Scene, story: EngineStory) -> tuple[InstanceStory, ev.ConnectorRaised] | None:
    """The first exception of the processes that are there now, or were last."""
    told = [(i, raised) for i in story.current for raised in i.all(ev.ConnectorRaised)]
    if not told or _is_over(scene, story):
        return None
    instance, raised = min(told, key=lambda pair: pair[1].t)
    return (instance, raised) if not story.alive or scene.stands(told[-1][1].t) else None


def _is_over(scene: Scene, story: EngineStory) -> bool:
    """Whether the engine's end is history: forgotten, or another took its place and nothing hangs on it."""
    if story.engine_id not in scene.engines:
        return True
    if story.alive:
        return False
    later = successor_of(story, scene.stories.values())  # which, if it has ended too, is told of itself
    return later is not None and not _lost_with(scene, story)


def _cause(raised: ev.ConnectorRaised) -> tuple[str, str]:
    """Its code, and in words what the engine did."""
    if sizes := UNEQUAL_BLOCKS.search(raised.error):
        own, other = sizes.groups()
        return "block_sizes_differ", f"has blocks of {own} tokens and a peer with blocks of {other}"
    if missing := _MISSING.search(raised.error):
        return "incomplete_transfer_params", f"got a request whose kv_transfer_params lack {missing[1]}"
    code = "engine_main_thread_exception"
    if raised.where == "get_transfer_results" and raised.error.startswith(
        ("ValueError", "UnicodeDecodeError")
    ):
        return code, "got a notification that it cannot read, from a peer of another release"
    if raised.where == "update_connector_output":
        return code, "was told of the end of a transfer that it does not know (any more)"
    if raised.error.startswith("AssertionError") and "block" in raised.error:
        return code, "got blocks that do not fit the request, as with several prompts over one handoff"
    return code, "failed in its connector"


def engines_gone(scene: Scene) -> Iterator[Diagnosis]:
    """An engine, or a rank of it, has gone: what it took with it. Its cause, if known, is named instead."""
    for story in scene.stories.values():
        engine = scene.engines.get(story.engine_id)
        if engine is None or not engine.gone or _died_of(scene, story) or _is_over(scene, story):
            continue
        lost = _lost_with(scene, story)
        partly = any(process.alive for process in engine.processes)
        clean = all(process.shut_down for process in engine.gone)
        last_ns = max(process.last_event_ns or 0 for process in engine.gone)
        crippled = partly and scene.late(last_ns)  # its processes don't end at one moment
        if clean and not crippled and not lost:
            continue
        yield found(
            "engine_gone",
            story.engine_id,
            f"{engine.name} {engine.end}, last heard {scene.ago(last_ns)}{_shaking_hands(scene, story, last_ns)}"
            f"{victims(lost)}.",
            costs=lost,
            severity=Severity.ERROR if lost or crippled else Severity.WARNING,
            since_ns=last_ns,
            seen=[
                evidence(
                    story,
                    instance,
                    process.last_event_ns or 0,
                    f"last event of {process.name} (pid {process.pid})",
                )
                for process in engine.gone
                for instance in story.instances
                if instance.origin.pid == process.pid
                and instance.origin.connector_role == process.connector_role
            ],
        )


def engines_stopped(scene: Scene) -> Iterator[Diagnosis]:
    """A process of an engine is stopped, which only its own host knows: to all others it is merely silent."""
    for story in scene.stories.values():
        stopped = [i for i in story.current if i.alive and i.stopped]
        engine = scene.engines.get(story.engine_id)
        if not stopped or engine is None:
            continue
        waiting = [t for t in hanging(scene.with_engine(story.engine_id)) if scene.late(t.since_ns)]
        pids = sorted({i.origin.pid for i in stopped})
        last_ns = max(process.last_event_ns or story.started_ns for process in engine.processes)
        yield found(
            "engine_stopped",
            story.engine_id,
            f"{engine.name} is stopped by a signal or a debugger (pid {', '.join(map(str, pids))}), last heard "
            f"{scene.ago(last_ns)}{victims(waiting)}. It goes on when it is let.",
            costs=waiting,
            severity=Severity.ERROR if waiting else Severity.WARNING,
            since_ns=min((t.since_ns for t in waiting), default=last_ns),
            seen=[evidence(story, None, last_ns, f"last event of {engine.name}")],
        )


def engines_silent(scene: Scene) -> Iterator[Diagnosis]:
    """A D that has requests in it makes a step all the time, and says so every second: this one makes none.

    It is in one long step (a kernel that is compiled, a machine without time for it), or it hangs.
    """
    for story in scene.stories.values():
        engine, here = scene.engines.get(story.engine_id), story.current
        heard = story.alive and not any(i.stopped or i.unheard or not i.recording for i in here)
        last_ns = max(i.last_loop_ns for i in here)
        if engine is None or not heard or not any(i.at_work for i in here) or not scene.late(last_ns):
            continue
        waiting = [
            t for t in scene.with_engine(story.engine_id) if t.d_waits and t.d_engine == story.engine_id
        ]
        if not waiting:
            continue
        hangs = scene.now_ns - last_ns >= HUNG * scene.thresholds.late_after_ns(None)
        yield found(
            "engine_silent",
            story.engine_id,
            f"{engine.name} has made no step for {scene.lasts(last_ns)}, with requests in it: it is in one long step, "
            f"or hangs{victims(waiting)}.",
            costs=waiting,
            severity=Severity.ERROR if hangs else Severity.WARNING,
            since_ns=last_ns,
            seen=[evidence(story, None, last_ns, f"last step of {engine.name} that was seen")],
        )


def _lost_with(scene: Scene, story: EngineStory) -> list[Transfer]:
    """Transfers that ended with it, and not only because D had given them up before."""
    return [t for t in scene.with_engine(story.engine_id) if t.outcome is Outcome.LOST and not t.d_holds]


def _shaking_hands(scene: Scene, story: EngineStory, last_ns: int) -> str:
    """D4: it went down amid a handshake with a peer that had just been restarted."""
    for instance in story.workers:
        for peer in instance.peers().values():
            begun, target = peer.running_ns, scene.stories.get(peer.engine)
            if begun is None or last_ns - begun > _JUST_BEFORE_NS or target is None:
                continue
            if target.restarted_ns is not None and target.restarted_ns < begun:
                return f", while it shook hands with {scene.name(peer.engine)}, which had been restarted"
    return ""


# -- threads that die or fail ---------------------------------------------------------------------------


def dead_listeners(scene: Scene) -> Iterator[Diagnosis]:
    """A14: the thread that answers handshakes has ended, the engine runs on."""
    for story, instance in scene.alive:
        dead = instance.last(ev.ListenerDead)
        if dead is None:
            continue
        refused = _turned_away(scene, story, dead.t)
        hang = [t for other, _ in refused for t in hanging(scene.between(other.engine_id, story.engine_id))]
        tried = ", ".join(scene.name(other.engine_id) for other, _ in refused)
        yield found(
            "handshake_listener_dead",
            story.engine_id,
            f"{scene.name(story.engine_id)}'s side channel at {story.address} accepts connections and does not answer: "
            f"its listener thread died {scene.ago(dead.t)} of {shown(dead.error)}. No new peer can shake hands with it"
            + (f" ({tried} tried)" if tried else ", those that know it go on")
            + f"{victims(hang)}.",
            costs=hang,
            since_ns=dead.t,
            seen=[
                evidence(story, instance, dead.t, f"the listener died: {shown(dead.error)}"),
                *(
                    evidence(
                        other,
                        None,
                        peer.failures[-1].t,
                        f"handshake failed: {shown(peer.failures[-1].error)}",
                    )
                    for other, peer in refused
                ),
            ],
        )


def _turned_away(scene: Scene, story: EngineStory, died_ns: int) -> list[tuple[EngineStory, PeerStory]]:
    """Engines whose handshakes with it have failed since then, each once."""
    refused: dict[str, tuple[EngineStory, PeerStory]] = {}
    for other, instance in scene.alive:
        peer = instance.peers().get(story.engine_id)
        if peer is not None and peer.failures and peer.failures[-1].t >= died_ns:
            refused.setdefault(other.engine_id, (other, peer))
    return list(refused.values())


def writer_exceptions(scene: Scene) -> Iterator[Diagnosis]:
    """A8: an exception reached the writer loop. What it was about hangs, and what was drained with it is lost."""
    for story, instance in scene.alive:
        told = [e for e in instance.all(ev.WriterException) if not UNEQUAL_BLOCKS.search(e.error)]
        if not told:
            continue
        last = told[-1]
        hang = _hang_on(scene, story, told)
        if not hang and not scene.stands(last.t):
            continue
        times = f"{len(told)} times, last" if len(told) > 1 else "once,"
        about = f" over request {units.clean(last.request_id, 64)}" if last.request_id else ""
        lost = sum(e.notifications_lost for e in told)
        dropped = f" It dropped {counted(lost, 'notification')} of the same batch." if lost else ""
        yield found(
            "writer_exception",
            story.engine_id,
            f"{scene.name(story.engine_id)}'s push writer{where(instance.rank)} failed {times} {scene.ago(last.t)}, in "
            f"{last.where}{about}: {shown(last.error)}{victims(hang)}.{dropped}",
            costs=hang,
            severity=Severity.ERROR if hang else Severity.WARNING,
            since_ns=told[0].t,
            seen=[evidence(story, instance, e.t, f"{e.where} raised {shown(e.error)}") for e in told[-5:]],
        )


def _hang_on(scene: Scene, story: EngineStory, told: list[ev.WriterException]) -> list[Transfer]:
    """Requests that an exception was about, or whose registration was under way when it dropped a batch."""
    named = {e.request_id for e in told} - {""}
    dropped_ns = max((e.t for e in told if e.notifications_lost), default=0)
    return [
        t
        for t in hanging(scene.with_engine(story.engine_id))
        if {t.p_request, t.d_request} & named
        or (t.p_engine == story.engine_id and _was_on_its_way(t, dropped_ns))
    ]


def _was_on_its_way(transfer: Transfer, t_ns: int) -> bool:
    """Whether its registration had been sent to some P rank by then, and never came out there."""
    return any(s.stage is Stage.FLIGHT and s.end_ns is None and s.start_ns <= t_ns for s in transfer.stages)
