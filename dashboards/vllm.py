"""vLLM's own metrics, as far as boards set them beside ours: a closed list, as vLLM 0.32 exports them.

From ``nixl/stats.py`` (``NixlPromMetrics``) and ``v1/metrics/loggers.py``. Their ``engine`` is the number of a
data-parallel engine in one server, not an engine id: they are told apart by ``job`` and ``instance``.
"""

from __future__ import annotations

from typing import Final

from pushscope.telemetry.metrics.family import Family, Kind, Label, Of, closed

_MODEL: Final = Label("model_name", "The model that it serves.")


def _family(name: str, kind: Kind, own: tuple[Label, ...] = ()) -> Family:
    return Family(name=name, kind=kind, of=Of.ENGINE, own=(_MODEL, *own), help="vLLM's own.", good="")


XFER_SECONDS: Final = _family("vllm:nixl_xfer_time_seconds", Kind.HISTOGRAM)
POST_SECONDS: Final = _family("vllm:nixl_post_time_seconds", Kind.HISTOGRAM)
BYTES: Final = _family("vllm:nixl_bytes_transferred", Kind.HISTOGRAM)
DESCRIPTORS: Final = _family("vllm:nixl_num_descriptors", Kind.HISTOGRAM)
FAILED_TRANSFERS: Final = _family("vllm:nixl_num_failed_transfers_total", Kind.COUNTER)
FAILED_NOTIFICATIONS: Final = _family("vllm:nixl_num_failed_notifications_total", Kind.COUNTER)
EXPIRED: Final = _family("vllm:nixl_num_kv_expired_reqs_total", Kind.COUNTER)
LATE_NOTIFICATIONS: Final = _family("vllm:nixl_num_notifications_after_expiry_total", Kind.COUNTER)
TTFT_SECONDS: Final = _family("vllm:time_to_first_token_seconds", Kind.HISTOGRAM)
CACHE_USAGE: Final = _family("vllm:kv_cache_usage_perc", Kind.GAUGE)
KV_FETCH: Final = _family(
    "vllm:num_requests_kv_fetch_by_stage",
    Kind.GAUGE,
    (closed("stage", "Of the load.", "waiting_to_start", "in_progress", "completed_waiting"),),
)

FAMILIES: Final = (
    XFER_SECONDS,
    POST_SECONDS,
    BYTES,
    DESCRIPTORS,
    FAILED_TRANSFERS,
    FAILED_NOTIFICATIONS,
    EXPIRED,
    LATE_NOTIFICATIONS,
    TTFT_SECONDS,
    CACHE_USAGE,
    KV_FETCH,
)
