"""Whose spans they are: an engine, described as OpenTelemetry's resources are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pushscope.telemetry import events as ev
from pushscope.telemetry.source import RingState

SCOPE: Final = "pushscope"
_SERVICES: Final = {"kv_producer": "vllm-prefill", "kv_consumer": "vllm-decode"}
_SIDES: Final = {"kv_producer": "P", "kv_consumer": "D"}


def origins_of(rings: Iterable[RingState]) -> dict[str, ev.Origin]:
    """One origin for each engine: that of the newest ring, of those the scheduler's."""
    found: dict[str, ev.Origin] = {}
    for origin in sorted((state.origin for state in rings), key=_newness):
        found[origin.engine_id] = origin
    return found


def resource_of(engine_id: str, origins: Mapping[str, ev.Origin]) -> dict[str, str | int]:
    """The attributes of an engine's resource; ``OTEL_SERVICE_NAME`` and the like go over them."""
    origin = origins.get(engine_id)
    if origin is None:
        return {"service.name": "vllm", "service.instance.id": engine_id}
    known: dict[str, str | int] = {
        "service.name": _SERVICES.get(origin.kv_role, "vllm"),
        "service.instance.id": engine_id,
        "service.version": origin.vllm_version,
        "host.name": origin.host,
        "process.pid": origin.pid,
        "kv_transfer.side": _SIDES.get(origin.kv_role, "PD"),
    }
    return {name: value for name, value in known.items() if value != ""}


def scope_version(origins: Mapping[str, ev.Origin], engine_id: str) -> str:
    """The release of pushscope that recorded."""
    origin = origins.get(engine_id)
    return origin.pushscope_version if origin else ""


def _newness(origin: ev.Origin) -> tuple[int, bool, str]:
    return origin.anchor_monotonic_ns, origin.connector_role == "scheduler", origin.instance
