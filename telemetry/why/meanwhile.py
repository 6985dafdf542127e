"""What the two engines of a request did meanwhile that may matter to it: handshakes with each other, ends, failures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from pushscope.telemetry import events as ev
from pushscope.telemetry import units
from pushscope.telemetry.story import EngineStory, InstanceStory
from pushscope.telemetry.transfer import Rank


class Happening(msgspec.Struct, frozen=True):
    """One event, in words."""

    t_ns: int
    side: str
    """``P`` or ``D``."""
    engine: str
    rank: Rank | None
    """None: the scheduler."""
    kind: str
    """The event's name in the vocabulary."""
    what: str
    of_engine: bool = False
    """It is about the engine, not about this request alone."""


_KINDS: Final[tuple[type[ev.Event], ...]] = (
    ev.EngineUp,
    ev.EngineDown,
    ev.RecordingSwitched,
    ev.ConnectorRaised,
    ev.WriterException,
    ev.ListenerDead,
)
_HANDSHAKES: Final[tuple[type[ev.Event], ...]] = (ev.HandshakeQueued, ev.HandshakeStarted, ev.HandshakeEnded)


def meanwhile(
    stories: Iterable[EngineStory],
    p_engine: str | None,
    d_engine: str | None,
    within: tuple[int, int],
    requests: Collection[str | None],
) -> Iterator[Happening]:
    """What its P and D engine did from the first moment of ``within`` to the last, in no particular order.

    Handshakes with others are left out, and what the writer raised over one of these ``requests``, which is theirs.
    """
    for story in stories:
        sides = [("P", "D", d_engine)] if story.engine_id == p_engine else []
        sides += [("D", "P", p_engine)] if story.engine_id == d_engine else []
        for side, other, peer in sides[:1]:
            for instance in story.instances:
                for event in _matter(instance, peer, requests):
                    if within[0] <= event.t <= within[1]:
                        kind, what = type(event).__name__, _words(event, other)
                        yield Happening(event.t, side, story.engine_id, instance.rank, kind, what, True)


def _matter(
    instance: InstanceStory, peer: str | None, requests: Collection[str | None]
) -> Iterator[ev.Event]:
    for kind in (*_KINDS, *_HANDSHAKES):
        for event in instance.all(kind):
            with_another = kind in _HANDSHAKES and getattr(event, "peer_engine", None) != peer
            of_its_own = isinstance(event, ev.WriterException) and event.request_id in requests
            if not with_another and not of_its_own:
                yield event


def _words(event: ev.Event, other: str) -> str:
    match event:
        case ev.EngineUp():
            return "begins to record"
        case ev.EngineDown():
            return "shuts down"
        case ev.RecordingSwitched(on=on):
            return f"recording is switched {'on' if on else 'off'}"
        case ev.ConnectorRaised(where=where, error=error):
            return f"the engine ends: {where} raised {error or 'an exception'}"
        case ev.WriterException(where=where, error=error, notifications_lost=lost):
            dropped = f", and {units.count(lost)} notifications of its batch are lost" if lost else ""
            return f"the writer thread failed in {where}: {error or 'no reason given'}{dropped}"
        case ev.ListenerDead(error=error):
            return f"the listener for handshakes died: {error or 'no reason given'}"
        case ev.HandshakeQueued(peer_host=host, peer_port=port):
            return f"a handshake with {other}{f' at {host}:{port}' if host else ''} is queued"
        case ev.HandshakeStarted():
            return f"the handshake with {other} begins"
        case ev.HandshakeEnded(error_type="", num_ranks=ranks):
            return f"the handshake with {other} is done, {units.count(ranks)} of its ranks are known"
        case ev.HandshakeEnded(error=error, error_type=kind):
            return f"the handshake with {other} failed: {error or kind}"
    raise TypeError(f"no words for {type(event).__name__}")
