"""Where spans go: to the endpoint that the environment names, else to each engine's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pushscope.telemetry.agent.export import Done, ExportStatus, Parcel, SpanExport
from pushscope.telemetry.agent.otlp import Answer, OtlpError, OtlpSender, OtlpSettings
from pushscope.telemetry.events import Origin
from pushscope.telemetry.spans.model import Span
from pushscope.telemetry.spans.resource import resource_of, scope_version

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

MAX_ENDPOINTS: Final = 8
"""Engines of one host that each name another endpoint: beyond so many their spans go nowhere."""


class Endpoints:
    """The exports of an agent, one for each endpoint; made when the first span goes there."""

    def __init__(
        self,
        settings: OtlpSettings,
        origins: Mapping[str, Origin],
        *,
        on_done: Callable[[Done], None],
        say: Callable[[str], None],
    ):
        """``origins``: engine id -> who records, of the engines that are read here; it may grow."""
        self._settings = settings
        self._origins = origins
        self._on_done, self._say = on_done, say
        self._exports: dict[str, SpanExport] = {}

    def of(self, engine_id: str) -> str:
        """The endpoint for the spans of an engine; empty if they go nowhere."""
        if self._settings.off:
            return ""
        origin = self._origins.get(engine_id)
        return self._settings.endpoint or (origin.otlp_traces_endpoint if origin else "")

    def put(self, keys: tuple[int, ...], spans: Sequence[Span], *, patience_s: float = 0.0) -> None:
        """Queue the spans of one transfer; where they don't fit, wait for at most ``patience_s`` until they do."""
        by_endpoint: dict[str, list[Span]] = {}
        for span in spans:
            by_endpoint.setdefault(self.of(span.engine_id), []).append(span)
        for endpoint, together in by_endpoint.items():
            if endpoint and (export := self._export(endpoint)) is not None:
                if patience_s > 0:
                    export.wait_for_room(len(together), patience_s)
                export.put(Parcel(keys, tuple(together)))

    def status(self) -> tuple[ExportStatus, ...]:
        """How each endpoint stands."""
        return tuple(export.status() for export in list(self._exports.values()))

    def close(self, timeout_s: float) -> int:
        """Send what waits, for at most ``timeout_s`` each. How many spans were left behind."""
        return sum(export.close(timeout_s) for export in self._exports.values())

    def _export(self, endpoint: str) -> SpanExport | None:
        if endpoint not in self._exports and len(self._exports) < MAX_ENDPOINTS:
            settings = self._settings
            # What the environment names, the exporter reads itself: it knows which path belongs to it.
            sender = ResourceSender(settings.protocol, "" if settings.endpoint else endpoint, self._origins)
            self._say(f"exporting spans to {endpoint} by OTLP ({settings.protocol})")
            self._exports[endpoint] = SpanExport(
                sender,
                endpoint,
                max_queue=settings.max_queue,
                max_batch=settings.max_batch,
                delay_s=settings.delay_s,
                on_done=self._on_done,
                on_trouble=lambda why: self._say(_of_trouble(endpoint, why)),
            )
        return self._exports.get(endpoint)


def _of_trouble(endpoint: str, why: str) -> str:
    if why:
        return f"spans can't be exported to {endpoint}: {why}"
    return f"spans are exported to {endpoint} again"


class ResourceSender:
    """Sends spans as OpenTelemetry has them, each with the resource of its engine.

    The exporter is made at the first send, in the thread that sends: OpenTelemetry takes half a second to import.
    """

    def __init__(self, protocol: str, endpoint: str, origins: Mapping[str, Origin]):
        """``endpoint`` empty: what the environment names."""
        self._protocol, self._endpoint = protocol, endpoint
        self._origins = origins
        self._otlp: OtlpSender | None = None
        self._resources: dict[str, Resource] = {}

    def send(self, spans: Sequence[Span]) -> tuple[Answer, str]:
        from pushscope.telemetry.spans.otel import to_readable  # noqa: PLC0415 - imports OpenTelemetry

        try:
            if self._otlp is None:
                self._otlp = OtlpSender(self._protocol, self._endpoint)
        except OtlpError as e:
            return Answer.REFUSED, str(e)
        origins = self._origins
        return self._otlp.send(
            [
                to_readable(span, self._resource(span.engine_id), scope_version(origins, span.engine_id))
                for span in spans
            ]
        )

    def close(self) -> None:
        if self._otlp is not None:
            self._otlp.close()

    def _resource(self, engine_id: str) -> Resource:
        if engine_id not in self._resources:
            self._resources[engine_id] = _resource(resource_of(engine_id, self._origins))
        return self._resources[engine_id]


def _resource(described: Mapping[str, str | int]) -> Resource:
    """An engine as it is described, with what OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say over it."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415 - as above

    return Resource.create(dict(described)).merge(OTELResourceDetector().detect())
