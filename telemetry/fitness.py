"""What an examination of the installed vLLM and NIXL says: what the examining process prints, doctor reads."""

from __future__ import annotations

import msgspec


class SeamOff(msgspec.Struct, frozen=True):
    """A seam that does not fit the installed vLLM."""

    seam: str
    """vLLM's method."""
    why: str
    loses: tuple[str, ...] = ()
    """Kinds of events that are then not recorded, in words."""


class Side(msgspec.Struct, frozen=True):
    """Scheduler or worker of one connector."""

    name: str = ""
    """``push worker``, ``pull scheduler`` …"""
    num_seams: int = 0
    off: tuple[SeamOff, ...] = ()
    error: str = ""
    """Why it could not be looked at: this vLLM has no such class."""


class VllmFitness(msgspec.Struct, frozen=True):
    """How pushscope fits the installed vLLM."""

    connector_version: int = 0
    """``NIXL_CONNECTOR_VERSION``: P's and D's must be equal; 0 if not known."""
    variables: tuple[str, ...] = ()
    """The ``VLLM_NIXL_*`` environment variables that this vLLM knows."""
    sides: tuple[Side, ...] = ()
    error: str = ""
    """Why vLLM could not be imported."""


class NixlFitness(msgspec.Struct, frozen=True):
    """What NIXL can do on this host, with the environment that the examination had."""

    plugins: tuple[str, ...] = ()
    backend_error: str = ""
    """Why the UCX backend, which vLLM takes by default, could not be made."""
    ucx_version: str = ""
    transports: tuple[str, ...] = ()
    """What UCX would use, as ``transport/device``."""
    error: str = ""
    """Why no NIXL agent could be made."""
