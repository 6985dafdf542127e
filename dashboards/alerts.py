"""What wakes somebody up, or waits for the morning: each alert with what it watches, its threshold and its words.

``watched`` is what an alert looks at, without a threshold: it has data whenever there are engines (or the traffic that
it is about), and ``expr`` is where that is too much. Whoever wants another threshold changes it in alerts.yml.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from pushscope.dashboards import names
from pushscope.dashboards.promql import (
    TARGET_LABELS,
    Expr,
    Scope,
    Value,
    absent,
    highest,
    lowest,
    over_time,
    ratio,
    recorded,
    total,
)
from pushscope.dashboards.rules import USUAL_WINDOW
from pushscope.telemetry.metrics import catalogue as m
from pushscope.telemetry.metrics.family import Family

LEASE_SHARE: Final = 0.5
"""Of a lease: when P has waited for so much of it, its blocks are about to be given up."""
USUAL_TIMES: Final = 2.0
"""So many times its usual is an exposed time that somebody should look at."""
USUAL_MORE_S: Final = 0.05
"""And by so many seconds more: twice of next to nothing is still next to nothing."""
USUAL_LEAST: Final = 12
"""Five-minute steps with traffic before a usual time is known: an hour."""
RANK_TIMES: Final = 2.0
RANK_MORE_S: Final = 0.01
FAILING_SHARE: Final = 0.05
EXPIRED_SHARE: Final = 0.01
LEAST: Final = 3
"""Fewer within ten minutes are no share of anything."""
PINNED_BLOCKS: Final = 64
LOAD_TIMES: Final = 1.2
"""Blocks may grow with the load."""

Severity = Literal["critical", "warning"]
_FAILED: Final = ("failed", "lost")
_UP: Final = Expr("up", frozenset(TARGET_LABELS))
"""What Prometheus itself says of each target."""
_TEN, _BEFORE = Scope("10m"), Scope("10m", offset="10m1s")
"""The last ten minutes, and the ten before; a sample on the border is in one of them."""
_NOW: Final = Scope("5m")
_ENGINE: Final = ("job", "engine")


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert."""

    name: str
    watched: Expr
    expr: Expr
    wait: str
    """For how long it must be so (``for``)."""
    severity: Severity
    summary: str
    description: str
    board: str = names.OVERVIEW
    """The uid of the board to look at."""
    section: str = ""
    """Of the runbooks; its own if empty."""

    @property
    def annotations(self) -> dict[str, str]:
        """What a notification shows, as a template of Prometheus."""
        return {
            "summary": self.summary,
            "description": self.description,
            "runbook_url": names.runbook_url(self.section or self.name.lower()),
            "dashboard": names.board_path(self.board) + self._variables(),
        }

    def _variables(self) -> str:
        """A board shows what the alert is about."""
        shown = [f"var-{label}={{{{ $labels.{label} }}}}" for label in _ENGINE if label in self.expr.labels]
        return f"?{'&'.join(shown)}" if shown else ""


def _stuck(severity: str) -> Expr:
    return total(_NOW.now(m.STUCK, severity=severity), *_ENGINE, "code")


def _increase(family: Family, *by: str, **where: Value) -> Expr:
    return total(_TEN.increase(family, "", **where), *by)


def _ended(role: str, **how: Value) -> Expr:
    return _increase(m.TRANSFERS, *_ENGINE, role=role, **how)


def _share(outcomes: Value, role: str) -> Expr:
    return ratio(_ended(role, outcome=outcomes), _ended(role))


def _too_many(outcomes: Value, role: str, share: float) -> Expr:
    return (_share(outcomes, role) > share).both(_ended(role, outcome=outcomes) >= LEAST)


def _slow_exposed() -> Expr:
    """An engine's against what is usual in its deployment, which outlives the ids of engines."""
    p90, usual = recorded(names.ENGINE_EXPOSED_P90), recorded(names.EXPOSED_USUAL)
    mode = names.EXPOSED_USUAL.labels
    known = over_time("count", recorded(names.EXPOSED_P90), USUAL_WINDOW, "5m") >= USUAL_LEAST
    times = p90.matched(">", USUAL_TIMES * usual, *mode)
    more = p90.matched(">", usual + USUAL_MORE_S, *mode)
    return times.both(more).both(known, *mode)


def _slow_rank() -> Expr:
    mean, others = recorded(names.RANK_MEAN), recorded(names.RANK_OTHERS)
    return (mean > RANK_TIMES * others).both(mean > others + RANK_MORE_S)


def _growing() -> Expr:
    """A step up is over at once; a load that grows explains blocks that grow."""
    least = highest(_TEN.over_gauge("min_over_time", m.PINNED_BLOCKS), *_ENGINE)
    most = highest(_BEFORE.over_gauge("max_over_time", m.PINNED_BLOCKS), *_ENGINE)
    load, before = (total(scope.rate(m.TRANSFERS, role="P"), *_ENGINE) for scope in (_TEN, _BEFORE))
    return (least > most).both(least > PINNED_BLOCKS).unless(load > LOAD_TIMES * before)


def _waited() -> Expr:
    oldest = highest(_NOW.now(m.OLDEST_WAITING, role="P"), *_ENGINE)
    return ratio(oldest, highest(_NOW.now(m.LEASE_SECONDS), *_ENGINE))


def _agent_down() -> Expr:
    was_one = Scope("1d").over_gauge("count_over_time", m.AGENT_INFO)
    return _UP.is_(0).both(was_one, *TARGET_LABELS)


_RECORDING: Final = lowest(_NOW.now(m.RECORDING), *_ENGINE)
_FAILURES: Final = _increase(m.FAILED, *_ENGINE, "error_type")
_HANDSHAKES: Final = _increase(m.HANDSHAKES, *_ENGINE, result="failed")
_LOST: Final = _increase(m.EVENTS_LOST, *_ENGINE, "cause")

ALERTS: Final = (
    Alert(
        name="KVTransferStuck",
        watched=_stuck("error"),
        expr=_stuck("error") > 0,
        wait="1m",
        severity="critical",
        summary="{{ $labels.code }}: {{ $value }} at engine {{ $labels.engine }}",
        description="{{ $value }} of engine {{ $labels.engine }} have been diagnosed as {{ $labels.code }} for a "
        "minute or longer. vLLM gives none of them up by itself. `pushscope stuck` on its host names the requests.",
        section="{{ $labels.code }}",
    ),
    Alert(
        name="KVTransferSlowOrHeld",
        watched=_stuck("warning"),
        expr=_stuck("warning") > 0,
        wait="5m",
        severity="warning",
        summary="{{ $labels.code }}: {{ $value }} at engine {{ $labels.engine }}",
        description="{{ $value }} of engine {{ $labels.engine }} have been diagnosed as {{ $labels.code }} for five "
        "minutes or longer: nothing is lost yet, but it is slow, or memory is held. `pushscope stuck` names them.",
        section="{{ $labels.code }}",
    ),
    Alert(
        name="KVTransfersFailing",
        watched=_share(_FAILED, "D"),
        expr=_too_many(_FAILED, "D", FAILING_SHARE),
        wait="2m",
        severity="critical",
        summary="{{ $value | humanizePercentage }} of the transfers to engine {{ $labels.engine }} fail",
        description="Of the transfers to D engine {{ $labels.engine }} that ended in the last ten minutes, "
        "{{ $value | humanizePercentage }} failed or were lost.",
    ),
    Alert(
        name="KVTransferFailures",
        watched=_FAILURES,
        expr=_FAILURES > 0,
        wait="1m",
        severity="warning",
        summary='{{ $value | printf "%.0f" }} times {{ $labels.error_type }} at engine {{ $labels.engine }}',
        description="vLLM reported {{ $labels.error_type }} at engine {{ $labels.engine }} "
        '{{ $value | printf "%.0f" }} times in the last ten minutes.',
        board=names.PAIR,
    ),
    Alert(
        name="KVTransferHandshakesFailing",
        watched=_HANDSHAKES,
        expr=_HANDSHAKES > 0,
        wait="1m",
        severity="warning",
        summary="Handshakes of engine {{ $labels.engine }} fail",
        description='{{ $value | printf "%.0f" }} handshakes that engine {{ $labels.engine }} began have failed in '
        "the last ten minutes. The board says with which peer; no transfer with it gets through.",
        board=names.PAIR,
    ),
    Alert(
        name="KVTransferLeasesExpiring",
        watched=_share("expired", "P"),
        expr=_too_many("expired", "P", EXPIRED_SHARE),
        wait="1m",
        severity="warning",
        summary="{{ $value | humanizePercentage }} of the leases of engine {{ $labels.engine }} expire",
        description="Of the prefills of P engine {{ $labels.engine }} that ended in the last ten minutes, "
        "{{ $value | humanizePercentage }} were given up: nobody took their blocks before the lease was over.",
    ),
    Alert(
        name="KVTransferOldestWaiting",
        watched=_waited(),
        expr=_waited() > LEASE_SHARE,
        wait="1m",
        severity="warning",
        summary="Blocks of engine {{ $labels.engine }} wait for {{ $value | humanizePercentage }} of their lease",
        description="The oldest prefill that P engine {{ $labels.engine }} holds for a D has waited for "
        "{{ $value | humanizePercentage }} of a lease. When that is over its blocks are given up, and a D that comes "
        "later gets nothing.",
    ),
    Alert(
        name="KVTransferPinnedBlocksGrowing",
        watched=highest(_NOW.now(m.PINNED_BLOCKS), *_ENGINE),
        expr=_growing(),
        wait="10m",
        severity="warning",
        summary="Engine {{ $labels.engine }} holds ever more blocks",
        description="P engine {{ $labels.engine }} has not held fewer than {{ $value }} blocks for a D in the last ten "
        "minutes, which is more than it ever did in the ten before, and the load has not grown so.",
    ),
    Alert(
        name="KVTransferExposedTimeHigh",
        watched=recorded(names.ENGINE_EXPOSED_P90),
        expr=_slow_exposed(),
        wait="10m",
        severity="warning",
        summary="Transfers to engine {{ $labels.engine }} take {{ $value | humanizeDuration }}, far above their usual",
        description="The first token waits for the transfer to D engine {{ $labels.engine }} ({{ $labels.mode }}) for "
        f"{{{{ $value | humanizeDuration }}}} (p90), more than {USUAL_TIMES:g} times what was usual in this deployment "
        "over a day.",
        board=names.STAGES,
    ),
    Alert(
        name="KVTransferRankSlow",
        watched=recorded(names.RANK_OTHERS),
        expr=_slow_rank(),
        wait="10m",
        severity="warning",
        summary="{{ $labels.rank }} of engine {{ $labels.engine }} is slow in {{ $labels.stage }}",
        description="Rank {{ $labels.rank }} of engine {{ $labels.engine }} takes {{ $value | humanizeDuration }} for "
        f"{{{{ $labels.stage }}}} (mean), more than {RANK_TIMES:g} times what the engine's other ranks take. Every "
        "request waits for the slowest rank.",
        board=names.STAGES,
    ),
    Alert(
        name="PushscopeEventsLost",
        watched=_LOST,
        expr=_LOST > 0,
        wait="1m",
        severity="warning",
        summary="Events of engine {{ $labels.engine }} are lost ({{ $labels.cause }})",
        description='{{ $value | printf "%.0f" }} events of engine {{ $labels.engine }} were lost in the last ten '
        "minutes ({{ $labels.cause }}): its other figures miss what they told.",
    ),
    Alert(
        name="PushscopeRecordingOff",
        watched=_RECORDING,
        expr=_RECORDING.is_(0),
        wait="5m",
        severity="warning",
        summary="Engine {{ $labels.engine }} does not record",
        description="Recording is switched off in engine {{ $labels.engine }}: its other figures stand still, and no "
        "other alert can tell of it.",
    ),
    Alert(
        name="PushscopeAgentDown",
        watched=_NOW.now(m.AGENT_INFO),
        expr=_agent_down(),
        wait="2m",
        severity="warning",
        summary="The agent at {{ $labels.instance }} does not answer",
        description="The agent at {{ $labels.instance }} ({{ $labels.job }}) does not answer Prometheus: nothing is "
        "known of its host's engines, and no other alert can tell of them. Engines serve without it.",
    ),
    Alert(
        name="PushscopeAgentAbsent",
        watched=_NOW.now(m.AGENT_INFO),
        expr=absent(_NOW.now(m.AGENT_INFO)),
        wait="10m",
        severity="warning",
        summary="No agent is scraped at all",
        description="These rules are loaded, and Prometheus has had no agent of pushscope for ten minutes: no alert on "
        "KV transfers can fire.",
    ),
)
"""The worst first, and last what says that the others can't tell."""
