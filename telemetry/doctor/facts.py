"""What is known of this host before anything is judged: frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from pushscope.telemetry.agent.health import Health
from pushscope.telemetry.fitness import NixlFitness, VllmFitness


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """The Python that doctor runs in, and what is installed for it: (distribution, version), or None."""

    python: str
    executable: str
    pushscope: str = ""
    vllm: tuple[str, str] | None = None
    nixl: tuple[str, str] | None = None
    nixl_builds: tuple[tuple[str, str], ...] = ()
    """What brings NIXL's library: one distribution for each kind of GPU."""
    router: tuple[str, str] | None = None


class RingFolder(msgspec.Struct, frozen=True, kw_only=True):
    """The folder of rings, and the file system that it lies in or would be made in."""

    path: str
    exists: bool
    error: str = ""
    """Why it can't be used for reading: a whole sentence."""
    makeable: bool = True
    """If it does not exist: whether this user could make it."""
    owner: str = ""
    mine: bool = True
    mode: int = 0
    ring_bytes: int = 0
    """Size of a new ring."""
    total_bytes: int = 0
    free_bytes: int = 0
    switched_off: bool = False
    refused: tuple[str, ...] = ()
    """Rings that can't be read: a sentence for each."""


class Place(StrEnum):
    """Where an address leads, seen from this host."""

    LOOPBACK = "loopback"
    ANY = "any"
    """0.0.0.0 or ``::``: no address at all for somebody else."""
    LOCAL = "local"
    """An address of this host that others can have a way to."""
    ELSEWHERE = "elsewhere"
    UNRESOLVED = "unresolved"


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """One engine whose rings are there."""

    name: str
    side: str
    """``P``, ``D`` or ``PD``."""
    engine_id: str
    host: str = ""
    here: bool = True
    """It runs under this host's name: what is an address of this host is one of the engine's."""
    alive: bool = True
    end: str = ""
    """If it, or a rank of it, is gone: how it ended, after its name."""
    shut_down: bool = False
    """It said that it ends."""
    mode: str = "push"
    model: str = ""
    vllm: str = ""
    nixl: str = ""
    pushscope: str = ""
    connector_version: int = 0
    block_size: int = 0
    tp_size: int = 1
    pp_size: int = 1
    lease_s: float = 30.0
    side_channel: str = ""
    otlp_endpoint: str = ""
    """Where it exports its own traces."""
    peer_hosts: tuple[str, ...] = ()
    """Side-channel hosts of other engines that it was told of."""
    schedulers: int = 1
    """Live ones that share this engine id and data-parallel rank: more than one is a mistake."""
    num_rings: int = 0
    events: int = 0
    lost: int = 0
    seams_off: tuple[str, ...] = ()
    recording: bool = True
    environment: Mapping[str, str] | None = None
    """What of its environment matters here; None if it can't be read."""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """Another host's agent, asked from here."""

    url: str
    error: str = ""
    """Why it did not answer."""
    version: str = ""


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """The agent that reads the folder."""

    pid: int = 0
    """As it sees itself; 0 if it could not leave a note."""
    host: str = ""
    url: str = ""
    version: str = ""
    error: str = ""
    """Why it did not answer."""
    health: Health | None = None
    peers: tuple[Peer, ...] = ()


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where spans go, by OTLP."""

    url: str
    protocol: str = ""
    off: str = ""
    """Why nothing is exported at all."""
    error: str = ""
    """Why an empty export was not taken."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that doctor looks at."""

    installed: Installed
    environment: Mapping[str, str]
    """What matters of doctor's own environment: an engine started from here would have it."""
    has_rdma: bool = False
    places: Mapping[str, Place] = {}
    """Of each host that is advertised somewhere."""
    folder: RingFolder
    engines: tuple[Engine, ...] = ()
    num_transfers: int = 0
    agent: Agent | None = None
    """None: none runs."""
    endpoints: tuple[Endpoint, ...] = ()
    vllm: VllmFitness | None = None
    nixl: NixlFitness | None = None
    """None: not examined."""
