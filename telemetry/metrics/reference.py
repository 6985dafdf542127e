"""docs/reference/metrics.md, made from the catalogue: ``make references`` writes it anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from pushscope.telemetry.metrics.cardinality import Deployment, series
from pushscope.telemetry.metrics.catalogue import (
    ENGINE_MEANING,
    FAMILIES,
    MODE,
    OUTCOME,
    PEER_MEANING,
    RANK,
    ROLE,
    STAGE,
)
from pushscope.telemetry.metrics.family import Family, Kind, Label, Of
from pushscope.telemetry.reference_page import write_page
from pushscope.telemetry.units import size

PAGE: Final = Path("docs/reference/metrics.md")
HEAD: Final = """\
<!-- Written by `make references`; what it says comes from telemetry/metrics/catalogue.py. -->

# Metrics

What `/metrics` of an agent shows. `kv_transfer_…` is about transfers and the engines that make them; `pushscope_…` is
about the watching itself: what was recorded, read, lost, and the agent's own work. Beside these there is what
prometheus_client tells of a process (`process_resident_memory_bytes`, `process_cpu_seconds_total` …).

* Times are seconds, sizes are bytes. Counters end in `_total` and are zero before the first event where their labels
  are known beforehand. Histograms and summaries begin with their first observation.
* **Who tells what.** An agent tells only of the engines of its own host. What needs both sides (*joined* below) is told
  by D's agent, once, and only if P is observed too: on the same host, or by an agent that is its peer. Else it is
  absent, not zero.
* **Each side counts its own.** A transfer is counted at P with `role="P"` and at D with `role="D"`. Take one of them
  for a total.
* **Beside vLLM's own.** vLLM shows NIXL's figures too, at the engine that posts. `kv_transfer_nixl_*` are the same to
  the unit (see the end); the rest is of whole transfers and their stages, which vLLM does not see.
* **Exemplars** (`trace_id`, `span_id`) are in OpenMetrics only, which Prometheus asks for; it keeps them with
  `--enable-feature=exemplar-storage`. Only spans that are exported are exemplars: none without an OTLP endpoint.
* **After a restart** of the agent, `kill -9` too, counters go on where they were: figures are saved before they are
  shown, and what rings hold beyond them is counted. Only `pushscope_poll_seconds` begins anew, with the process.
  Figures of an engine are dropped ten minutes after it is gone, those of a pair after an hour without anything between
  them, or when an engine has more than 256 peers.
* No label ever has a request's id.
"""
BESIDE_VLLM: Final = (
    (
        "`vllm:nixl_bytes_transferred`",
        "`kv_transfer_nixl_bytes`",
        "not at all: of each NIXL transfer, one rank to one rank, when its engine sees it done",
    ),
    (
        "`vllm:nixl_num_descriptors`",
        '`kv_transfer_nixl_descriptors{merged="true"}`',
        'not at all; `merged="false"` is what vLLM built before NIXL merged neighbours',
    ),
    (
        "`vllm:nixl_post_time_seconds`",
        '`kv_transfer_nixl_seconds{phase="post"}`',
        "sum and count are the same; there is no histogram here",
    ),
    (
        "`vllm:nixl_xfer_time_seconds`",
        '`kv_transfer_nixl_seconds{phase="transfer"}`',
        "as above. The clock stops at the poll that finds it done, so up to an engine step late; stage `wire` ends "
        "when D hears of the blocks",
    ),
    (
        "`vllm:nixl_num_failed_transfers_total`",
        "`kv_transfer_failures_total`",
        "vLLM's is one number for transfers, handshakes and notifications, each rank for itself; here by `error_type`, "
        "with causes that vLLM does not count (a registration that was not sent). Neither is of requests: what a "
        "request came to is in `kv_transfer_transfers_total`",
    ),
    (
        "`vllm:nixl_num_failed_notifications_total`",
        '`kv_transfer_failures_total{error_type="notification_failed"}`, `…="push_reg_notif_failed"`',
        "in vLLM these are in the number of failed transfers once more",
    ),
    (
        "`vllm:nixl_num_kv_expired_reqs_total`",
        '`kv_transfer_leases_total{event="expired"}`',
        "the same requests, at P; each rank counts, in both",
    ),
    (
        "`vllm:nixl_num_notifications_after_expiry_total`",
        '`kv_transfer_notifications_total{result="unrecognised"}`',
        "the same, one per pair of ranks: in push mode at D, where nothing expires, in pull mode at P",
    ),
    (
        "`vllm:num_requests_kv_fetch_by_stage`",
        '`kv_transfer_waiting{role="D"}`, `kv_transfer_in_flight{role="D"}`',
        "vLLM's are requests in D's scheduler that do not run yet, by how far their load is, and of any connector; "
        "here by whether the two sides have met, with the age of the oldest, and P's side beside it",
    ),
    (
        "`vllm:time_to_first_token_seconds`",
        "`kv_transfer_exposed_seconds`",
        "vLLM's is of a request, from its arrival at D's server to its first token, prefill and queue included; here "
        "what of it the transfer takes, from blocks staged at P to decode scheduled at D",
    ),
)
"""What vLLM shows, what answers the same question here, and how they differ."""
AFTER_IT: Final = """
vLLM's come with an engine step's statistics: the last transfer before a pause is in them when the next request comes.
They pool the ranks of an engine, and have neither the peer nor the request. A write that never ends is in no histogram
of either; here it is in `kv_transfer_in_flight`, `kv_transfer_oldest_in_flight_seconds` and `kv_transfer_stuck`. Their
`engine` is the number of a data-parallel engine in one server (`0`), not an engine id, and their buckets are others.

That bytes, descriptors and times agree to the unit on one run of real engines is tested in push mode
(`tests/vllm/test_push.py`), in pull mode (`test_pull.py`) and over several ranks (`test_ranks.py`), each time by
`test_counts_agree_with_vllms_own_…`; failures and expired leases, with faults made, by
`test_failures_and_leases_agree_with_vllms_own` in `test_dashboards.py`.
"""
SIZES: Final = (
    Deployment(p=1, d=1),
    Deployment(p=1, d=1, tp=8),
    Deployment(p=4, d=4, tp=8),
    Deployment(p=4, d=4, tp=8, peers=32),
    Deployment(p=32, d=32, tp=8),
)
"""Of a host, of a host among many, and 64 engines at one agent, which is far more than a host has."""
AFTER_SIZES: Final = """
Computed (`telemetry/metrics/cardinality.py`), with every stage, peer and rank that there can be; a test holds it to a
page. The agent's own, some twenty, come on top. Two thirds of the last row are of its 1,024 pairs: that is why no
family is of a pair and a rank, and why stages by peer have no buckets. What a scrape of it takes:
[performance.md](../performance.md)."""
_SECTIONS: Final = {
    "How long": "kv_transfer_exposed_seconds",
    "How much": "kv_transfer_nixl_bytes",
    "What became of it": "kv_transfer_transfers_total",
    "What is so now": "kv_transfer_in_flight",
    "The watching itself": "pushscope_recording",
}
"""Where each section begins."""


def page() -> str:
    """The whole page."""
    return "\n".join((HEAD, *_labels(), *_families(), *_how_many(), *_beside_vllm()))


def _labels() -> Iterator[str]:
    yield "## Labels that many have\n"
    yield from _table(
        ("label", "meaning", "values"),
        [
            ("`engine`", ENGINE_MEANING, ""),
            ("`peer`", PEER_MEANING, ""),
            *(_label_row(label) for label in (ROLE, MODE, STAGE, RANK, OUTCOME)),
        ],
    )


def _how_many() -> Iterator[str]:
    yield "\n## How many series\n"
    yield from _table(
        ("an agent that reads", "ranks each", "engines that each has to do with", "series at most"),
        [
            (f"{each.p} P, {each.d} D", str(each.tp), str(each.peers or each.p), f"{series(each):,}")
            for each in SIZES
        ],
    )
    yield AFTER_SIZES


def _beside_vllm() -> Iterator[str]:
    yield "\n## vLLM's own metrics, and these\n"
    yield from _table(("vLLM", "here", "how they differ"), BESIDE_VLLM)
    yield AFTER_IT


def _label_row(label: Label) -> tuple[str, str, str]:
    values = label.all_values
    return f"`{label.name}`", label.meaning, ", ".join(f"`{value}`" for value in values)


def _families() -> Iterator[str]:
    begins = {name: title for title, name in _SECTIONS.items()}
    for family in FAMILIES:
        if family.name in begins:
            yield f"\n## {begins[family.name]}"
        yield from _family(family)


def _family(family: Family) -> Iterator[str]:
    yield f"\n### {family.name}\n"
    facts = [family.kind.value, f"of {family.of.value}"]
    if family.parts != ("P", "D"):
        facts.append(f"{family.parts[0]} only")
    if family.joined:
        facts.append("joined" if family.of is Of.HOSTS else "joined: needs both sides")
    if family.exemplars:
        facts.append("exemplars")
    labels = ", ".join(f"`{name}`" for name in family.labels)
    yield f"*{' · '.join(facts)}*" + (f" · {labels}" if labels else "") + "\n"
    yield f"{family.help}\n"
    yield f"**Good:** {family.good}"
    for label in family.own:
        if label not in (ROLE, MODE, STAGE, RANK, OUTCOME):
            yield f"\n{_in_words(family, label)}"
    if family.kind is Kind.HISTOGRAM:
        yield f"\nBuckets: {', '.join(_bound(bound, family.unit) for bound in family.buckets)}."


def _in_words(family: Family, label: Label) -> str:
    values = ", ".join(f"`{value}`" for value in label.all_values)
    if label.name == "code":
        values = "see [runbooks](../runbooks.md)"
    shown = f" ({values})" if values and family.kind is not Kind.INFO else ""
    return f"`{label.name}`: {label.meaning}{shown}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _bound(bound: float, unit: str) -> str:
    if unit == "bytes":
        return size(int(bound))
    return f"{bound:.0f}" if bound >= 1 else f"{bound:g}"


def main() -> None:
    """Write the page."""
    write_page(PAGE, page())


if __name__ == "__main__":
    main()
