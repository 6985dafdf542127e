"""What became of a request, and of a load as a whole."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pushscope.telemetry.units import duration, percentile


class RequestResult(msgspec.Struct, frozen=True, kw_only=True):
    """One request as its client saw it. Times are seconds; a time that wasn't reached is None."""

    index: int
    request_id: str
    """As the client knows it, without ``cmpl-``: sent as X-Request-Id, or made by the router."""
    num_prompt_tokens: int
    start_s: float
    """Since the start of the load."""
    latency_s: float
    """Until the last token or the error."""
    ttft_s: float | None = None
    """Until the first output token arrived."""
    tpot_s: float | None = None
    """Mean time between two output tokens; None with fewer than two."""
    num_output_tokens: int = 0
    token_ids: tuple[int, ...] = ()
    text: str = ""
    error: str | None = None
    trace_id: str | None = None
    """Of the ``traceparent`` that was sent."""
    prefill: str | None = None
    """URL of the engine, where the client chose it."""
    decode: str | None = None

    @property
    def ok(self) -> bool:
        return self.error is None


class Percentiles(msgspec.Struct, frozen=True):
    """Seconds; None without values."""

    p50: float | None
    p90: float | None
    p99: float | None


class LoadSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A load as a whole. Failed requests count in nothing but ``num_failed`` and ``errors``."""

    num_ok: int
    num_failed: int
    duration_s: float
    requests_per_s: float
    output_tokens_per_s: float
    ttft_s: Percentiles
    tpot_s: Percentiles
    errors: dict[str, int]
    """How many requests ended with each error."""
    seed: int
    num_learning: int = 0
    """Further requests, sent before those that are counted here to learn a P's engine id; each is a transfer
    too."""


def percentiles(values: Sequence[float]) -> Percentiles:
    """p50, p90 and p99."""
    return Percentiles(percentile(values, 50), percentile(values, 90), percentile(values, 99))


def summarise(results: Sequence[RequestResult], *, seed: int, num_learning: int = 0) -> LoadSummary:
    """Sum up a load. Its duration runs from the start of the load to the end of the last request."""
    done = [result for result in results if result.ok]
    duration_s = max((result.start_s + result.latency_s for result in results), default=0.0)
    errors: dict[str, int] = {}
    for result in results:
        if result.error is not None:
            errors[result.error] = errors.get(result.error, 0) + 1
    per_second = 1 / duration_s if duration_s else 0.0
    return LoadSummary(
        num_ok=len(done),
        num_failed=len(results) - len(done),
        duration_s=duration_s,
        requests_per_s=len(done) * per_second,
        output_tokens_per_s=sum(result.num_output_tokens for result in done) * per_second,
        ttft_s=percentiles([result.ttft_s for result in done if result.ttft_s is not None]),
        tpot_s=percentiles([result.tpot_s for result in done if result.tpot_s is not None]),
        errors=errors,
        seed=seed,
        num_learning=num_learning,
    )


def summary_text(summary: LoadSummary) -> str:
    """The summary for a terminal, a few lines."""
    total = summary.num_ok + summary.num_failed
    ttft, tpot = summary.ttft_s, summary.tpot_s
    lines = [
        f"{summary.num_ok} of {total} requests ok, {summary.num_failed} failed in {summary.duration_s:.1f} s"
        f" ({summary.requests_per_s:.2f} requests/s, {summary.output_tokens_per_s:.0f} output tokens/s;"
        f" seed {summary.seed})",
        f"TTFT  p50 {duration(ttft.p50)}  p90 {duration(ttft.p90)}  p99 {duration(ttft.p99)}",
        f"TPOT  p50 {duration(tpot.p50)}  p90 {duration(tpot.p90)}",
    ]
    if summary.num_learning:
        requests = "request" if summary.num_learning == 1 else "requests"
        lines.append(f"plus {summary.num_learning} {requests} to learn P's engine id, through both engines")
    lines += [f"{count} x {error}" for error, count in summary.errors.items()]
    return "\n".join(lines)
