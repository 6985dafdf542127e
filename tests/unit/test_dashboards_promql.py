"""Queries are made of names that are checked when they are made."""

from __future__ import annotations

import pytest

from pushscope.dashboards import names
from pushscope.dashboards.panel import Target
from pushscope.dashboards.promql import (
    Like,
    Recorded,
    Scope,
    UnknownNameError,
    Unlike,
    absent,
    ago,
    highest,
    most,
    over_time,
    ratio,
    recorded,
    total,
)
from pushscope.telemetry.metrics import catalogue as m

from .parsed_promql import parse, selectors

RULE = Scope("5m")
BOARD = Scope("$__rate_interval", (("job", Like("$job")), ("role", Like("$role"))))


@pytest.mark.parametrize(
    ("expr", "query"),
    [
        (RULE.now(m.STUCK, severity="error"), 'kv_transfer_stuck{severity="error"}'),
        (
            RULE.rate(m.LEASES, event=("set", "expired")),
            'rate(kv_transfer_leases_total{event=~"set|expired"}[5m])',
        ),
        (total(RULE.increase(m.EVICTED)), "sum (increase(pushscope_transfers_evicted_total[5m]))"),
        (
            RULE.quantile(0.99, m.STAGE_SECONDS, "stage", role="P"),
            'histogram_quantile(0.99, sum by (le, stage) (rate(kv_transfer_stage_seconds_bucket{role="P"}[5m])))',
        ),
        (
            RULE.mean(m.HANDSHAKE_SECONDS, "peer"),
            "sum by (peer) (rate(kv_transfer_handshake_seconds_sum[5m])) / "
            "(sum by (peer) (rate(kv_transfer_handshake_seconds_count[5m])) > 0)",
        ),
        (BOARD.now(m.WAITING), 'kv_transfer_waiting{job=~"$job", role=~"$role"}'),
        (BOARD.now(m.WAITING, role="D"), 'kv_transfer_waiting{job=~"$job", role="D"}'),
        (BOARD.now(m.ENGINE_UP), 'kv_transfer_engine_up{job=~"$job"}'),
        (RULE.now(m.STUCK, code=Unlike("a|b")), 'kv_transfer_stuck{code!~"a|b"}'),
        (
            recorded(names.EXPOSED_P99, mode="push") > 2 * recorded(names.EXPOSED_USUAL, mode="push"),
            'job_mode:kv_transfer_exposed_seconds:p99_rate5m{mode="push"} > '
            '(2 * job_mode:kv_transfer_exposed_seconds:p99_usual1d{mode="push"})',
        ),
        (1 - RULE.now(m.ENGINE_UP), "1 - kv_transfer_engine_up"),
        (RULE.now(m.ENGINE_UP).is_(0), "kv_transfer_engine_up == 0"),
        (absent(RULE.now(m.AGENT_INFO)), "absent(pushscope_agent_info)"),
        (ago(RULE.now(m.ENGINE_UP), "1m"), "kv_transfer_engine_up offset 1m"),
        (most(3, highest(RULE.now(m.WAITING), "engine")), "topk(3, max by (engine) (kv_transfer_waiting))"),
        (over_time("max", RULE.now(m.WAITING), "1h"), "max_over_time(kv_transfer_waiting[1h])"),
        (
            over_time("avg", total(RULE.now(m.WAITING), "job"), "1d", "5m"),
            "avg_over_time(sum by (job) (kv_transfer_waiting)[1d:5m])",
        ),
        (RULE.over_gauge("delta", m.PINNED_BLOCKS), "delta(kv_transfer_pinned_blocks[5m])"),
    ],
)
def test_a_query_is_written_as_it_is_said_and_another_parser_reads_it(expr, query):
    assert str(expr) == query
    parse(str(expr))


def test_arithmetic_keeps_its_order():
    a, b, c = (total(RULE.now(family)) for family in (m.WAITING, m.IN_FLIGHT, m.PINNED_BLOCKS))
    assert str(a * (b + c)) == f"{a} * ({b} + {c})"
    assert str((a - b) / c) == f"({a} - {b}) / {c}"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: RULE.now(m.STUCK, engin="x"), "has no label engin"),
        (lambda: RULE.now(m.STUCK, severity="bad"), 'never has severity="bad"'),
        (lambda: RULE.rate(m.TRANSFERS, outcome=("failed", "lots")), 'never has outcome="lots"'),
        (lambda: RULE.rate(m.STUCK), "is a gauge"),
        (lambda: RULE.now(m.TRANSFERS), "is a counter"),
        (lambda: RULE.rate(m.STAGE_SECONDS), "it has kv_transfer_stage_seconds_bucket"),
        (lambda: RULE.quantile(0.5, m.HANDSHAKE_SECONDS), "not kv_transfer_handshake_seconds_bucket"),
        (lambda: RULE.quantile(0.5, m.STAGE_SECONDS, "rank"), "has no label rank"),
        (lambda: total(RULE.now(m.STUCK), "peer"), "has no label peer"),
        (lambda: total(RULE.now(m.WAITING), "role") / total(RULE.now(m.WAITING)), "their labels differ"),
        (
            lambda: total(RULE.now(m.WAITING), "role") / total(RULE.now(m.WAITING), "engine"),
            "their labels differ",
        ),
        (lambda: recorded(names.EXPOSED_P99, engine="x"), "has no label engine"),
        (lambda: Target(total(RULE.now(m.WAITING), "role"), "{{engine}}"), "names engine"),
        (lambda: RULE.now(m.WAITING).both(RULE.now(m.CLOCK_OFFSET), "host"), "has no label host"),
    ],
)
def test_a_name_that_nothing_exports_raises_at_once(wrong, said):
    with pytest.raises(UnknownNameError, match=said):
        wrong()


def test_the_labels_of_an_answer_are_known():
    assert total(RULE.now(m.STUCK), "code").labels == {"code"}
    assert RULE.now(m.WAITING).labels == {"job", "instance", "engine", "role"}
    assert ratio(total(RULE.now(m.WAITING), "role"), total(RULE.now(m.IN_FLIGHT), "role")).labels == {"role"}
    info = RULE.now(m.ENGINE_INFO)
    joined = RULE.now(m.WAITING).matched("*", info, "engine", take=("host",))
    assert joined.labels == {"job", "instance", "engine", "role", "host"}
    assert [each.name for each in selectors(str(joined))] == [m.WAITING.name, m.ENGINE_INFO.name]


def test_names_of_recording_rules_say_their_labels():
    rules = [rule for rule in vars(names).values() if isinstance(rule, Recorded)]
    assert rules
    for rule in rules:
        level, metric, _ = rule.name.split(":")
        assert level == "_".join(rule.labels), rule.name
        assert metric in m.BY_NAME
