"""Where a lab sends spans: those of vLLM's own tracing, the agent's, and the roots that its load begins."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from pushscope.telemetry.agent.otlp import PROTOCOLS, otlp_settings

_GRPC, _HTTP = PROTOCOLS
_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"


class Otlp(msgspec.Struct, frozen=True):
    """An OTLP receiver of traces."""

    endpoint: str
    """In full, with the path if it is HTTP: what vLLM and ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`` take."""
    protocol: str = _GRPC

    def arguments(self) -> list[str]:
        """For vLLM's API server: it traces requests, and takes their ``traceparent`` along."""
        return ["--otlp-traces-endpoint", self.endpoint]

    def environment(self) -> dict[str, str]:
        """For vLLM, which takes the protocol from here alone, and for the agent that it starts."""
        return {_ENDPOINT: self.endpoint, _PROTOCOL: self.protocol}


def otlp_at(url: str, protocol: str = _GRPC) -> Otlp:
    """The receiver at a URL; for HTTP ``/v1/traces`` is added to one without a path.

    Raises ValueError.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"Expected a URL of OTLP such as http://127.0.0.1:4317, found {url!r}.")
    if protocol not in PROTOCOLS:
        raise ValueError(f"Expected a protocol of OTLP, {_GRPC} or {_HTTP}, found {protocol!r}.")
    if protocol == _HTTP and parts.path in ("", "/"):
        url = _traces(url)
    return Otlp(url, protocol)


def otlp_in(environ: Mapping[str, str]) -> Otlp | None:
    """The receiver that the standard variables name; None if spans are to go nowhere.

    Raises OtlpError for a protocol or a number that can't be followed.
    """
    settings = otlp_settings(environ)
    if settings.off or not settings.endpoint:
        return None
    in_full = bool(environ.get(_ENDPOINT)) or settings.protocol == _GRPC
    return Otlp(settings.endpoint if in_full else _traces(settings.endpoint), settings.protocol)


def _traces(base: str) -> str:
    return f"{base.rstrip('/')}/v1/traces"
