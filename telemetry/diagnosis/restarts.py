"""A17: a peer was restarted under its old engine id, and the NIXL agent that died with it is still used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.model import Diagnosis, Severity
from pushscope.telemetry.diagnosis.scene import (
    Scene,
    counted,
    evidence,
    found,
    hanging,
    shown,
    victims,
)
from pushscope.telemetry.story import EngineStory, InstanceStory


def stale_agents(scene: Scene) -> Iterator[Diagnosis]:
    """Each engine and peer once."""
    for story in scene.stories.values():
        for peer in sorted({rank.peer_engine for i in story.workers for rank in i.all(ev.PeerRank)}):
            target = scene.stories.get(peer)
            if target is None:
                told = _unobserved(scene, story, peer)
            elif target.alive:
                told = _observed(scene, story, target)
            else:
                told = None  # that it is gone is said of it
            if told is not None:
                yield told


class _Stale(NamedTuple):
    """One rank of the peer, known to one instance by an agent that is gone."""

    instance: InstanceStory
    known: ev.PeerRank
    now: ev.Origin


def _observed(scene: Scene, story: EngineStory, target: EngineStory) -> Diagnosis | None:
    """Both are seen: the agents that one knows are not those that the other has."""
    agents = {i.rank: i.origin for i in target.workers if i.origin.nixl_agent}
    stale = [
        _Stale(instance, known, origin)
        for instance in story.workers
        if instance.alive
        for known in _newest_by_rank(instance, target.engine_id)
        if (origin := agents.get((known.peer_pp, known.peer_tp))) is not None
        and known.agent != origin.nixl_agent
        and known.t < origin.anchor_monotonic_ns
    ]
    if not stale:
        return None
    restarted_ns = min(s.now.anchor_monotonic_ns for s in stale)
    hang = [
        t for t in hanging(scene.between(story.engine_id, target.engine_id)) if t.since_ns >= restarted_ns
    ]
    one, other = scene.name(story.engine_id), scene.name(target.engine_id)
    return found(
        "stale_agent_after_restart",
        story.engine_id,
        f"{other} was restarted under its old engine id {scene.ago(restarted_ns)}, and {one} still uses the NIXL agent "
        f"that died with it ({counted(len(stale), 'rank')}): it never shakes hands with that id again, so nothing that "
        f"it sends there arrives{victims(hang)}.",
        severity=Severity.ERROR if hang or _refused(stale) else Severity.WARNING,
        costs=hang,
        since_ns=restarted_ns,
        seen=[
            *(
                evidence(story, s.instance, s.known.t, f"knows {other} by its agent {s.known.agent}")
                for s in stale[:3]
            ),
            evidence(
                target, None, restarted_ns, f"{other} began again, with agent {stale[0].now.nixl_agent}"
            ),
        ],
    )


def _newest_by_rank(instance: InstanceStory, engine: str) -> tuple[ev.PeerRank, ...]:
    peer = instance.peers().get(engine)
    return peer.ranks if peer else ()


def _refused(stale: list[_Stale]) -> bool:
    """Whether NIXL has refused a heartbeat to one of these agents, last."""
    return any(e.error for s in stale if (e := _last_heartbeat(s.instance, s.known.agent)) is not None)


def _last_heartbeat(instance: InstanceStory, agent: str) -> ev.HeartbeatSent | None:
    return next((e for e in reversed(instance.all(ev.HeartbeatSent)) if e.agent == agent), None)


def _unobserved(scene: Scene, story: EngineStory, peer: str) -> Diagnosis | None:
    """The peer is not seen: NIXL refuses every message to an agent that it knew."""
    refused = [
        (instance, e)
        for instance in story.workers
        if instance.alive
        for known in _newest_by_rank(instance, peer)
        if (e := _last_heartbeat(instance, known.agent)) is not None and e.error and e.t > known.t
    ]
    if not refused:
        return None
    since_ns = min(_refused_since(instance, e.agent) for instance, e in refused)
    last = max((e for _, e in refused), key=lambda e: e.t)
    hang = hanging(scene.between(story.engine_id, peer))
    if scene.now_ns - since_ns < scene.thresholds.late_after_ns(None, one_sided=True) or not (
        hang or scene.stands(last.t)
    ):
        return None
    one, other = scene.name(story.engine_id), scene.name(peer)
    return found(
        "stale_agent_after_restart",
        story.engine_id,
        f"NIXL has refused {one}'s messages to {other} for {scene.lasts(since_ns)} ({shown(last.error)}): {other} is "
        f"gone, or was restarted under its old engine id, with which {one} never shakes hands again{victims(hang)}. "
        f"Which of the two it is {one} alone can't tell.",
        severity=Severity.ERROR if hang else Severity.WARNING,
        costs=hang,
        since_ns=since_ns,
        certain=False,
        seen=[
            evidence(story, instance, e.t, f"heartbeat to {other} refused: {shown(e.error)}")
            for instance, e in refused[:3]
        ],
    )


def _refused_since(instance: InstanceStory, agent: str) -> int:
    """Since when, without a heartbeat that went well in between."""
    sent = [e for e in instance.all(ev.HeartbeatSent) if e.agent == agent]
    well = max((i for i, e in enumerate(sent) if not e.error), default=-1)
    return sent[well + 1].t
