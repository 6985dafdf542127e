"""Peers that an engine cannot shake hands with: E1 to E4, and A16, what that costs the others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.model import Diagnosis, Severity
from pushscope.telemetry.diagnosis.processes import UNEQUAL_BLOCKS
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
from pushscope.telemetry.story import EngineStory, InstanceStory, PeerStory, is_loopback

# What vLLM's ``_nixl_handshake`` says, as far as 120 bytes of it are recorded.
_WRONG_ENGINE: Final = "engine ID mismatch"
_RECEIVED: Final = re.compile(r"received ([^'\",]+?)\.?(?:['\"]\)|$)")
_INCOMPATIBLE: Final = ("compatibility hash mismatch", "Failed to decode NixlHandshakePayload")
_NO_ANSWER: Final = frozenset({"Again", "ZMQError", "TimeoutError"})
_ONE_TRY_NS: Final = 5_000_000_000
"""vLLM's time-out for the answer of one rank."""


class _Failing(NamedTuple):
    """A peer with which an engine's handshakes fail, as one of its instances tells."""

    story: EngineStory
    instance: InstanceStory
    peer: PeerStory

    @property
    def last(self) -> ev.HandshakeEnded:
        return self.peer.failures[-1]


def _failing(scene: Scene) -> Iterator[_Failing]:
    """Each engine and peer once, as long as it stands or costs somebody."""
    seen: set[tuple[str, str]] = set()
    for story, instance in scene.alive:
        for peer in instance.peers().values():
            pair = (story.engine_id, peer.engine)
            if not peer.failures or pair in seen:
                continue
            if scene.stands(peer.failures[-1].t) or hanging(scene.between(*pair)):
                seen.add(pair)
                yield _Failing(story, instance, peer)


def _diagnosis(scene: Scene, f: _Failing, code: str, sentence: str, *, certain: bool = True) -> Diagnosis:
    """What a failed handshake tells: the cause, how often, since when, and whom it costs."""
    failures = f.peer.failures
    between = list(scene.between(f.story.engine_id, f.peer.engine))
    costs, spared = scene.hurt(between), scene.spared(between)
    itself = f"; D computed {counted(len(spared), 'prompt')} itself" if spared else ""
    return found(
        code,
        f.story.engine_id,
        f"{sentence} {counted(len(failures), 'handshake')} failed, the last {scene.ago(f.last.t)}{victims(costs)}"
        f"{itself}.",
        costs=costs,
        severity=Severity.WARNING if spared and not costs else None,
        since_ns=failures[0].t,
        certain=certain,
        seen=[
            evidence(f.story, f.instance, e.t, f"handshake with {f.peer.address} failed: {shown(e.error)}")
            for e in failures[-3:]
        ],
    )


# -- another answers, or nobody -------------------------------------------------------------------------


def wrong_answers(scene: Scene) -> Iterator[Diagnosis]:
    """E1, E3, and who gets no answer: the address leads to another engine, or to nobody."""
    for f in _failing(scene):
        wrong = _WRONG_ENGINE in f.last.error
        if not wrong and f.last.error_type not in _NO_ANSWER:
            continue
        if _misleads(scene, f, wrong=wrong):
            yield _loopback(scene, f, wrong=wrong)
        elif wrong:
            yield _diagnosis(
                scene,
                f,
                "engine_id_mismatch",
                f"{scene.name(f.story.engine_id)} was sent to {f.peer.address} for engine {f.peer.engine}, but "
                f"{_who_answers(scene, f)} answers there: the router names an engine that is gone.",
            )
        elif (unreachable := _unreachable(scene, f)) is not None:
            yield unreachable


def _misleads(scene: Scene, f: _Failing, *, wrong: bool) -> bool:
    """Whether the address is a loopback address, and meant for another host.

    Who reaches itself by it was misled, wherever the other is. Else, where all engines are on one host, a loopback
    address is good. So it is if the peer is there, or if who answers is what the router looked for, only under another
    id.
    """
    if not is_loopback(f.peer.host):
        return False
    if wrong and _answering(scene, f) is f.story:
        return True
    target = scene.stories.get(f.peer.engine)
    if target is not None:
        return target.origin.host != f.story.origin.host
    answering = _answering(scene, f)
    return not wrong or answering is None or answering.side == f.story.side


def _loopback(scene: Scene, f: _Failing, *, wrong: bool) -> Diagnosis:
    asking, asked = scene.name(f.story.engine_id), scene.name(f.peer.engine)
    certain = f.peer.engine in scene.stories or _answering(scene, f) is not None
    answer = f"{_who_answers(scene, f)} answers there" if wrong else "nobody answers there"
    target = scene.stories.get(f.peer.engine)
    routed = target is not None and target.address not in ("", f.peer.address)
    says = (
        f"The router names {f.peer.address} for {asked}" if routed else f"{asked} advertises {f.peer.address}"
    )
    sure = "" if certain else f" That is as much as {asking} alone can tell: {asked} is not observed."
    return _diagnosis(
        scene,
        f,
        "loopback_side_channel",
        f"{says}, which for {asking} is a port of its own host; {answer}.{sure}",
        certain=certain,
    )


def _unreachable(scene: Scene, f: _Failing) -> Diagnosis | None:
    """D gets no answer from P. That P gets none from D is said of the transfers, whose registrations name D.

    None if the peer is gone or its listener has died: that is said of it.
    """
    target = scene.stories.get(f.peer.engine)
    if f.story.side == "P" or (target and not (target.alive and not _is_deaf(target))):
        return None
    asking, asked = scene.name(f.story.engine_id), scene.name(f.peer.engine)
    own = target.address if target else ""
    if own and own != f.peer.address:
        why = f"{asked} advertises {own}: the router names another address"
    elif target:
        why = "that is the address that it advertises: look for a firewall between the two"
    else:
        why = (
            f"nothing listens there, a firewall is between, or its listener has died: {asked} is not observed"
        )
    return _diagnosis(
        scene,
        f,
        "peer_unreachable",
        f"{asking} gets no answer from {asked}'s side channel at {f.peer.address}; {why}.",
        certain=bool(own),
    )


def _is_deaf(story: EngineStory) -> bool:
    return any(instance.last(ev.ListenerDead) for instance in story.current)


def _answering(scene: Scene, f: _Failing) -> EngineStory | None:
    """The engine whose id was received, if it is observed; the id may be cut short."""
    received = _received(f)
    known = [story for engine, story in scene.stories.items() if received and engine.startswith(received)]
    return known[0] if len(known) == 1 else None


def _received(f: _Failing) -> str:
    match = _RECEIVED.search(f.last.error)
    return match[1] if match else ""


def _who_answers(scene: Scene, f: _Failing) -> str:
    answering = _answering(scene, f)
    if answering is None:
        return f"engine {shown(_received(f))}" if _received(f) else "another engine"
    return "that engine itself" if answering is f.story else scene.name(answering.engine_id)


# -- who answers does not fit ---------------------------------------------------------------------------


def misfits(scene: Scene) -> Iterator[Diagnosis]:
    """E2, E4: two engines refuse one another. Said once for the pair, of the side that found out first."""
    seen: set[tuple[str, frozenset[str]]] = set()
    for f in sorted(_failing(scene), key=lambda f: f.peer.failures[0].t):
        if (told := _misfit(scene, f)) is None:
            continue
        code, sentence = told
        pair = (code, frozenset({f.story.engine_id, f.peer.engine}))
        if pair not in seen:
            seen.add(pair)
            yield _diagnosis(scene, f, code, sentence)


def _misfit(scene: Scene, f: _Failing) -> tuple[str, str] | None:
    """Its code and a sentence, if that is why the handshake failed."""
    one, other = scene.name(f.story.engine_id), scene.name(f.peer.engine)
    if sizes := UNEQUAL_BLOCKS.search(f.last.error):
        has = f"{one} has blocks of {sizes[1]} tokens, {other} blocks of {sizes[2]}"
        return "block_sizes_differ", f"{has}: {one} refuses to shake hands."
    if any(text in f.last.error for text in _INCOMPATIBLE):
        why = _differences(scene, f)
        return "incompatible_engines", f"{one} refuses to shake hands with {other}: {why}."
    return None


def _differences(scene: Scene, f: _Failing) -> str:
    """In what the two differ, as far as both are observed; vLLM compares more than is recorded."""
    if (target := scene.stories.get(f.peer.engine)) is None:
        unseen = scene.name(f.peer.engine)
        return f"they are not compatible; as {unseen} is not observed, in what they differ is not known"
    mine, its = f.story.origin, target.origin
    differ = [
        f"{what} {a or 'unknown'} and {b or 'unknown'}"
        for what, a, b in (
            ("mode", mine.mode, its.mode),
            ("vLLM", mine.vllm_version, its.vllm_version),
            ("connector version", mine.connector_version, its.connector_version),
            ("model", mine.model, its.model),
        )
        if a != b
    ]
    return (
        "they differ in " + ", ".join(differ)
        if differ
        else (
            "they are not compatible, though of one mode, release and model: see their dtypes and attention backends"
        )
    )


# -- who does not answer holds up the others ------------------------------------------------------------


def blocked_queues(scene: Scene) -> Iterator[Diagnosis]:
    """A16: one thread does all handshakes of a worker; they wait behind a peer that does not answer."""
    for story, instance in scene.alive:
        peers = instance.peers().values()
        waiting = {
            p.engine: p.pending_ns
            for p in peers
            if p.pending_ns and not p.running_ns and scene.late(p.pending_ns)
        }
        since_ns = min(waiting.values(), default=scene.now_ns)
        blocking = [p for p in peers if p.engine not in waiting and _blocks(scene, p, since_ns)]
        if not waiting or not blocking:
            continue
        culprit = max(blocking, key=lambda p: len(p.failures))
        tried = (
            f"which does not answer ({counted(len(culprit.failures), 'time')} in vain so far)"
            if culprit.failures
            else f"whose handshake has lasted {scene.lasts(culprit.started_ns)}"
        )
        costs = [t for engine in waiting for t in hanging(scene.between(story.engine_id, engine))]
        too_long = scene.now_ns - since_ns > story.origin.lease_s * 1e9
        yield found(
            "handshake_queue_blocked",
            story.engine_id,
            f"{scene.name(story.engine_id)}{where(instance.rank)} has waited {scene.lasts(since_ns)} to shake hands "
            f"with {', '.join(map(scene.name, waiting))}: its one thread for handshakes is held up by "
            f"{scene.name(culprit.engine)} at {culprit.address}, {tried}{victims(costs)}.",
            costs=costs,
            severity=Severity.ERROR if too_long else Severity.WARNING,
            since_ns=since_ns,
            seen=[
                *(
                    evidence(story, instance, t, f"handshake with {scene.name(e)} queued")
                    for e, t in waiting.items()
                ),
                *(
                    evidence(
                        story, instance, e.t, f"handshake with {culprit.address} failed: {shown(e.error)}"
                    )
                    for e in culprit.failures[-3:]
                ),
            ],
        )


def _blocks(scene: Scene, peer: PeerStory, since_ns: int) -> bool:
    """Whether a peer that does not answer has had the thread since then.

    The first handshake with a peer may take seconds, so that alone is none.
    """
    unanswered = [e for e in peer.failures if e.error_type in _NO_ANSWER]
    if peer.running_ns:
        return bool(unanswered) or scene.now_ns - peer.running_ns > _ONE_TRY_NS
    return any(e.t >= since_ns for e in unanswered)
