"""Memory that is held for requests that do not use it: prefills nobody has taken, receives nobody has filled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pushscope.telemetry import events as ev
from pushscope.telemetry.group import Group
from pushscope.telemetry.transfer import Transfer


class Holds(NamedTuple):
    """What an engine holds for requests that do not use it."""

    requests: int = 0
    blocks: int = 0
    tokens: int = 0


def pinned(groups: Iterable[Group]) -> dict[str, Holds]:
    """Per P engine: staged, and neither sent nor given up."""
    staged: dict[str, list[ev.BlocksStaged]] = {}
    for group in groups:
        for half in group.halves.values():
            if (pins := half.pins) is not None:
                staged.setdefault(half.engine, []).append(pins)
    return {
        engine: Holds(
            len(all_of_it), sum(e.num_blocks for e in all_of_it), sum(e.num_tokens for e in all_of_it)
        )
        for engine, all_of_it in staged.items()
    }


def abandoned(followed: Iterable[Transfer]) -> dict[str, Holds]:
    """Per D engine: asked for, never filled, and the request has ended."""
    found: dict[str, Holds] = {}
    for t in followed:
        if t.d_holds and t.d_engine is not None:
            before = found.get(t.d_engine, Holds())
            found[t.d_engine] = Holds(
                before.requests + 1, before.blocks + (t.num_blocks or 0), before.tokens + (t.num_tokens or 0)
            )
    return found
