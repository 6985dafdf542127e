"""What a fault is: a description, and a function that makes it and undoes it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from pushscope.lab.faults.ground import Ground


@dataclass(frozen=True, slots=True)
class Made:
    """A fault that is in effect. ``about`` is the request or the engine that it is about."""

    about: str
    nameable_from: float
    """time.monotonic() from which on it can be known: when it was made, or when a lease ended that it takes."""


Lease = Literal["", "half", "whole"]
Make = Callable[[Ground], AsyncIterator[Made]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault as a command.

    ``make`` is a context manager: when its block begins the fault is in effect, when it has ended the fault
    is undone.
    """

    name: str
    what: str
    """What is done, in one sentence."""
    code: str
    """The cause, of the catalogue, that it must be named with."""
    undone: str
    """How it is undone, in one sentence."""
    make: Callable[[Ground], AbstractAsyncContextManager[Made]]
    lease: Lease = ""
    """What of P's lease must run out before it can be named."""
    prefill_tp: int = 1
    """Ranks of P that it takes."""


def fault(
    name: str, code: str, *, what: str, undone: str, lease: Lease = "", prefill_tp: int = 1
) -> Callable[[Make], Fault]:
    """Makes a Fault of a generator: what stands before its ``yield`` makes it, what follows undoes it."""

    def wrap(make: Make) -> Fault:
        return Fault(name, what, code, undone, asynccontextmanager(make), lease, prefill_tp)

    return wrap
