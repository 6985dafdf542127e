"""What a failure on vLLM's own classes is: how it is played, and what it must be named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from faults.result import Wait

from tests.vllm.fake.layout import Layout
from tests.vllm.fake.world import World


@dataclass(frozen=True)
class Fault:
    play: Callable[[World], None]
    p: Layout = field(default_factory=Layout)
    d: Layout = field(default_factory=Layout)
    mode: str = "Push"
    beside: Mapping[str, Sequence[str]] | None = None
    observed: str = "PD"
    """Whose rings there are."""
    begins_s: float = 0.0
    """When it begins, from the play's begin."""
    lease: Wait = ""
    """What must have run out before it can be known."""


FAULTS: dict[str, tuple[str, Fault]] = {}
"""What is done -> the code that it must be named by."""


def fault(what: str, code: str, **changes: Any) -> Callable[[Callable[[World], None]], None]:
    def declare(play: Callable[[World], None]) -> None:
        FAULTS[what] = (code, Fault(play, **changes))

    return declare


def in_place_of(w: World, target: Any, name: str, value: Any) -> None:
    """Put something in place of a method, until the fault is undone."""
    w.broken.enter_context(mock.patch.object(target, name, value))
