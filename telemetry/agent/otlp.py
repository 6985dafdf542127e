"""What the standard ``OTEL_*`` variables ask for, and OTel's own OTLP exporter made accordingly.

Endpoint, headers, timeout, compression and certificates are read by the exporter itself; here is what lies before it:
whether to export at all, by which protocol, what ratio, how much may wait. Reading them imports no OpenTelemetry.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.events import cut

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

PROTOCOLS: Final = ("grpc", "http/protobuf")
_SAMPLERS: Final = {"always_on": 1.0, "always_off": 0.0, "traceidratio": None}
_MAX_QUEUE: Final = 8192
"""Spans that wait: more than OTel's 2048, since a transfer has about ten, and rings are read in bursts."""


class OtlpError(PushscopeError):
    """An ``OTEL_*`` variable that can't be followed; the message says which, what was expected, and found."""


class OtlpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment asks for."""

    off: str = ""
    """Why nothing is exported, in words; empty if spans are."""
    protocol: str = "grpc"
    endpoint: str = ""
    """As set, for people; empty: each engine's own ``otlp_traces_endpoint``."""
    ratio: float = 1.0
    """Of the transfers that need no explanation, the part that is exported."""
    max_queue: int = _MAX_QUEUE
    max_batch: int = 512
    """Spans."""
    delay_s: float = 5.0
    """The longest that a span waits for others before it is sent."""
    notices: tuple[str, ...] = ()
    """Variables that are not followed."""


def otlp_settings(environ: Mapping[str, str]) -> OtlpSettings:
    """What ``environ`` asks for. An unknown sampler is no error, as the specification wants it: it is noticed.

    Raises OtlpError for a protocol or a number that can't be followed.
    """
    max_queue = _number(environ, "OTEL_BSP_MAX_QUEUE_SIZE", _MAX_QUEUE)
    ratio, notices = _ratio(environ)
    return OtlpSettings(
        off=_off(environ),
        protocol=_protocol(environ),
        endpoint=endpoint_in(environ),
        ratio=ratio,
        max_queue=max_queue,
        max_batch=min(max_queue, _number(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)),
        delay_s=_number(environ, "OTEL_BSP_SCHEDULE_DELAY", 5000) / 1000,
        notices=notices,
    )


def endpoint_in(environ: Mapping[str, str]) -> str:
    """The endpoint that the variables name, or an empty text."""
    return (
        environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or ""
    )


def _off(environ: Mapping[str, str]) -> str:
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return "OTEL_SDK_DISABLED is true"
    exporters = [name.strip() for name in environ.get("OTEL_TRACES_EXPORTER", "otlp").split(",")]
    if "otlp" in exporters or exporters == [""]:
        return ""
    return f"OTEL_TRACES_EXPORTER is {','.join(exporters)}, and only otlp exports spans here"


def _protocol(environ: Mapping[str, str]) -> str:
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if protocol := environ.get(name, "").strip():
            if protocol not in PROTOCOLS:
                raise OtlpError(f"{name} is {protocol!r}; expected {' or '.join(PROTOCOLS)}")
            return protocol
    return PROTOCOLS[0]


def _ratio(environ: Mapping[str, str]) -> tuple[float, tuple[str, ...]]:
    sampler = environ.get("OTEL_TRACES_SAMPLER", "").strip() or "parentbased_always_on"
    kind = sampler.removeprefix("parentbased_")
    if kind not in _SAMPLERS:
        known = ", ".join(f"{name}, parentbased_{name}" for name in _SAMPLERS)
        return 1.0, (f"OTEL_TRACES_SAMPLER is {sampler!r}, which is not known here; known are {known}",)
    fixed = _SAMPLERS[kind]
    if fixed is not None:
        return fixed, ()
    argument = environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip() or "1.0"
    try:
        ratio = float(argument)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        return 1.0, (f"OTEL_TRACES_SAMPLER_ARG is {argument!r}; expected a ratio from 0 to 1",)
    return ratio, ()


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise OtlpError(f"{name} is {text!r}; expected a whole number of at least 1")
    return int(text)


# -- sending ------------------------------------------------------------------------------------------


class Answer(StrEnum):
    """What became of a batch."""

    TAKEN = "taken"
    REFUSED = "refused"
    """The endpoint said no, and would say it again."""
    FAILED = "failed"
    """It was not reached, or did not answer in time, however often it was tried."""


_RETRYABLE_HTTP: Final = (408, 429)
_REFUSALS_GRPC: Final = frozenset(
    {
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
        "FAILED_PRECONDITION",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNKNOWN",
    }
)


class OtlpSender:
    """OTel's exporter for one endpoint, and what it had to say."""

    def __init__(self, protocol: str, endpoint: str = "", *, timeout_s: float | None = None):
        """``endpoint`` empty, or ``timeout_s`` None: as the exporter reads them from the environment.

        Raises OtlpError if no exporter can be made.
        """
        chosen = exporter_class(protocol)
        given: dict[str, Any] = {}
        if endpoint:
            given["endpoint"] = endpoint
        if timeout_s is not None:
            given["timeout"] = timeout_s
        try:
            self._exporter = chosen(**given)
        except Exception as e:
            raise OtlpError(f"no OTLP exporter can be made from the OTEL_* variables: {e}") from e
        self._heard = _listen_to(chosen)

    def send(self, spans: Sequence[ReadableSpan]) -> tuple[Answer, str]:
        """Send a batch; blocks as long as the exporter tries. What became of it, and why, in words."""
        from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: PLC0415 - only where spans are exported

        self._heard.begin()
        try:
            result = self._exporter.export(spans)
        except Exception as e:  # noqa: BLE001 - whatever it is, the agent goes on
            return Answer.FAILED, cut(e)
        if result is SpanExportResult.SUCCESS:
            return Answer.TAKEN, ""
        return self._heard.verdict()

    def close(self) -> None:
        """Give up what is on its way."""
        self._exporter.shutdown()


def exporter_class(protocol: str) -> Any:
    """OTel's exporter for one of :data:`PROTOCOLS`, imported only now."""
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        return OTLPSpanExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter as HttpSpanExporter,
    )

    return HttpSpanExporter


_VARIES: Final = re.compile(r", retrying in [\d.]+s| at 0x[0-9a-f]+|<[^<>]*object>[,:]? ?")
"""What differs in two lines that say the same."""


class _Heard(logging.Filter):
    """Takes what an exporter logs: only there does it say why it failed. Nothing of it goes on to other logs.

    Several exporters may share it, each used by a thread of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self._local = threading.local()

    def begin(self) -> None:
        self._local.records = []

    def filter(self, record: logging.LogRecord) -> bool:
        if (records := getattr(self._local, "records", None)) is None:
            return True  # said outside of a send: when it was made
        records.append(record)
        return False

    def verdict(self) -> tuple[Answer, str]:
        """Why the send of this thread failed. The last thing said with a cause is the cause."""
        records: list[logging.LogRecord] = self._local.records
        said = [cut(_VARIES.sub("", record.getMessage()), 300) for record in records]
        cause = next((text for text in reversed(said) if "max retries" not in text), "it gave no reason")
        refused = any(_refuses(argument) for record in records for argument in record.args or ())
        return (Answer.REFUSED if refused else Answer.FAILED), cause


def _refuses(argument: object) -> bool:
    """Whether an argument of a log line is a status by which an endpoint says no for good."""
    if isinstance(argument, int):
        return 400 <= argument < 500 and argument not in _RETRYABLE_HTTP
    return getattr(argument, "name", "") in _REFUSALS_GRPC


_listening: Final[dict[str, _Heard]] = {}


def _listen_to(chosen: type) -> _Heard:
    """Listen at the loggers of the modules that an exporter class is made of; once for each class."""
    if chosen.__module__ not in _listening:
        heard = _listening[chosen.__module__] = _Heard()
        for base in chosen.__mro__:
            if base.__module__.startswith("opentelemetry.exporter."):
                # Before its own filters, which hide what is said twice.
                logging.getLogger(base.__module__).filters.insert(0, heard)
    return _listening[chosen.__module__]
