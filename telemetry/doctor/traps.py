"""Settings and versions that go wrong later, without a word from vLLM. Pure functions.

Each is a known failure whose cause can be read off before it happens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pushscope.telemetry.doctor.check import Level

_NO = frozenset({"n", "no", "off", "0", "false", "disable"})
_YES = frozenset({"y", "yes", "on", "1", "true", "enable"})
"""As NIXL reads a yes or no, whatever the case (its ``strToBool``)."""

_FIRST_WITH_PUSH = (0, 24)
"""What says to be older is a build without a version of its own, or has no version at all."""
_FIXED = (
    (
        (0, 32, 0),
        "before vLLM 0.32 leases that ran out may never be reaped, finished pushes may hold P's blocks until the "
        "lease ends, and on hybrid models a failed receive may be served as good",
    ),
)
"""(release, what goes wrong before it): reports #58222, #58188 and #52234 of vLLM."""


class Trap(msgspec.Struct, frozen=True):
    """A setting that goes wrong."""

    variable: str
    level: Level
    finding: str
    remedy: str


def fixed_in(version: str) -> Iterator[tuple[str, str]]:
    """(release, what goes wrong until then) for every known fault that ``version`` still has."""
    installed = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    for release, what in _FIXED:
        if _FIRST_WITH_PUSH <= installed < release:
            yield ".".join(map(str, release)), what


def environment_traps(
    environment: Mapping[str, str], known: Sequence[str] | None, *, has_rdma: bool
) -> Iterator[Trap]:
    """What of ``environment`` goes wrong in an engine that has it.

    ``known``: the ``VLLM_NIXL_*`` variables that vLLM reads; None if that was not found out.
    """
    tls = environment.get("UCX_TLS", "")
    if _lacks_tcp(tls):
        yield Trap(
            "UCX_TLS",
            Level.WARNING if has_rdma else Level.FAILURE,
            f"{tls} has no tcp: "
            + (
                "where UCX then finds no way to a peer, no NIXL agent can be made"
                if has_rdma
                else "without an RDMA device no NIXL agent can be made"
            ),
            "unset UCX_TLS, or add tcp to it",
        )
    if (telemetry := environment.get("NIXL_TELEMETRY_ENABLE")) is not None:
        yield from _telemetry(telemetry)
    if environment.get("VLLM_DISABLE_REQUEST_ID_RANDOMIZATION", "0").lower() not in ("0", "false", ""):
        yield Trap(
            "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION",
            Level.WARNING,
            "request ids get no random end: two requests whose ids end in -<8 hex digits>, or that share one "
            "X-Request-Id, can be taken for one another",
            "unset it",
        )
    if environment.get("PUSHSCOPE_ENABLED", "true").lower() in ("0", "false"):
        yield Trap("PUSHSCOPE_ENABLED", Level.WARNING, "engines with it record nothing", "unset it")
    for name in sorted(environment):
        if known is not None and name.startswith("VLLM_NIXL_") and name not in known:
            yield Trap(
                name,
                Level.WARNING,
                "this vLLM does not know it, so that it does nothing",
                f"unset it; known are {', '.join(known)}; leases and backends are set in kv_connector_extra_config "
                "(kv_lease_duration, backends)",
            )


def _lacks_tcp(tls: str) -> bool:
    """Whether a list of transports leaves tcp out. ``all`` has it, and ``^`` begins a list of what is not used."""
    listed = set(tls.split(","))
    if tls.startswith("^"):
        return bool({"tcp", "^tcp"} & listed)
    return bool(tls) and not {"tcp", "all"} & listed


def _telemetry(value: str) -> Iterator[Trap]:
    variable, remedy = "NIXL_TELEMETRY_ENABLE", "unset it"
    if value.lower() in _NO:
        yield Trap(
            variable,
            Level.FAILURE,
            f"{value}: vLLM reads a transfer's telemetry when it is done, and counts it as failed if there is none",
            remedy,
        )
    elif value.lower() not in _YES:
        yield Trap(
            variable, Level.FAILURE, f"{value!r} is neither yes nor no: no NIXL agent can be made", remedy
        )
