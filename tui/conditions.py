"""What limits the truth of a screen, each in its own words: out of touch, late, one side only, events lost …"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.units import clean, count
from pushscope.tui.columns import Cell


def conditions(snapshot: Snapshot) -> list[Cell]:
    """All that hold; none on a healthy screen. Details stand in the notices. First the event that was stepped to."""
    return list(_conditions(snapshot))


def _conditions(snapshot: Snapshot) -> Iterator[Cell]:
    if snapshot.play is not None and snapshot.play.event:
        yield Cell(f"AT THE EVENT {clean(snapshot.play.event)}")
    cut = _sources(snapshot.unread, ": disconnected")
    if cut:
        yield Cell(f"DISCONNECTED from {_named(cut)}: what its engines do is not known", "bad")
    connecting = _sources(snapshot.unread, ": connecting")
    if connecting:
        yield Cell(f"CONNECTING to {_named(connecting)}", "warn")
    late = _sources(snapshot.unread, ": lagging")
    if late:
        yield Cell(f"LAGGING: {_named(late)} is seconds behind", "warn")
    sides = {side for engine in snapshot.engines for side in engine.side}
    if len(sides) == 1:
        (here,) = sides
        other = "D" if here == "P" else "P"
        yield Cell(f"ONE-SIDED: only {here} is observed, what {other} does is not known", "warn")
    if lost := snapshot.totals.events_lost:
        yield Cell(f"EVENTS LOST: {count(lost)}; counts are too low", "bad")
    unsure = [f"{c.host}/{c.peer_host}" for c in snapshot.clocks if c.uncertainty_ns is None]
    if unsure:
        yield Cell(f"CLOCKS UNSURE: {_named(unsure)}; times across them are by the wall clocks", "warn")
    off = [e.name for e in snapshot.engines if not all(p.recording for p in e.processes if not p.replaced)]
    if off:
        yield Cell(f"RECORDING OFF at {_named(off)}: what happens now is not seen", "warn")


def _sources(unread: Sequence[str], words: str) -> list[str]:
    return [notice.split(words)[0].removeprefix("http://") for notice in unread if words in notice]


def _named(names: Sequence[str], limit: int = 2) -> str:
    """``a, b and 3 more``."""
    more = len(names) - limit
    return clean(", ".join(names[:limit])) + (f" and {more} more" if more > 0 else "")
