"""Engine pair: everything that two engines have to do with each other, told by either of them.

``peer`` has no wildcard here: All means the peers of the chosen engines. A selector takes what either side tells, so it
doesn't matter which of the two is chosen as engine and which as peer.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from pushscope.dashboards import frame, names, vllm
from pushscope.dashboards.frame import PAIR, PAIR_ENGINES, VLLM
from pushscope.dashboards.panel import Board, Column, Draw, Panel, Row, Target
from pushscope.dashboards.promql import Expr, aggregate, highest, ratio, total
from pushscope.dashboards.queries import quantiles
from pushscope.telemetry.metrics import catalogue as m
from pushscope.telemetry.metrics.family import Family

_lines = partial(Panel, draw=Draw.LINES, width=8)
_stat = partial(Panel, draw=Draw.STAT, width=4, height=4)
_OF_PAIR: Final = ("engine", "peer")
_SAID_BY: Final = "{{engine}} of {{peer}}"


def _at_hosts(family: Family) -> Expr:
    """Of clocks: what is about hosts of these engines."""
    hosts = highest(PAIR_ENGINES.now(m.ENGINE_INFO), "host")
    return PAIR_ENGINES.now(family).both(hosts, "host")


_WELL: Final = Row(
    "Does this pair work?",
    (
        _stat(
            title="Delivered",
            unit="ops",
            targets=(Target(total(PAIR.rate(m.PEER_TRANSFERS, result="delivered"), "role"), "{{role}}"),),
            when_empty="Nothing yet",
            good="As the router spreads the load; alike for P and D where both are watched.",
        ),
        _stat(
            title="Failed transfers",
            unit="ops",
            reduce="max",
            targets=(Target(total(PAIR.rate(m.PEER_TRANSFERS, result="failed"), "role"), "{{role}}"),),
            steps=((1e-6, "red"),),
            when_empty="Nothing yet",
            good="The worst of the time shown: 0. With one pair only: its link, or the engine on the other "
            "side. See the panels below for what failed.",
        ),
        _stat(
            title="Failed handshakes",
            unit="ops",
            reduce="max",
            targets=(Target(total(PAIR.rate(m.PEER_HANDSHAKES, result="failed"))),),
            steps=((1e-6, "red"),),
            when_empty="No handshakes yet",
            good="The worst of the time shown: 0. Otherwise a side channel can't be reached from the other host, or "
            "the versions differ (runbooks: handshake_failed, reverse_handshake_failed).",
            links=(frame.runbook("handshake_failed"), frame.runbook("reverse_handshake_failed")),
        ),
        _stat(
            title="Completions, n of N",
            unit="percentunit",
            reduce="min",
            decimals=1,
            maximum=1,
            targets=(
                Target(
                    ratio(
                        total(PAIR.rate(m.PEER_COMPLETIONS, result="came")),
                        total(PAIR.rate(m.PEER_COMPLETIONS)),
                    )
                ),
            ),
            when_empty="Told by D only",
            good="The worst of the time shown. 100 %: each D rank heard of each of its P ranks. Less: clients left "
            "before, or some rank never told and they gave up waiting (runbook: notifications_missing).",
            links=(frame.runbook("notifications_missing"),),
        ),
        _stat(
            title="Oldest that waits",
            unit="s",
            targets=(Target(highest(PAIR_ENGINES.now(m.OLDEST_WAITING), "role"), "{{role}}"),),
            steps=((5, "yellow"), (15, "red")),
            good="Seconds, of these engines with any peer. Past half a lease P will give the blocks up.",
        ),
        _stat(
            title="Clocks are known to",
            unit="s",
            targets=(Target(highest(_at_hosts(m.CLOCK_UNCERTAINTY))),),
            when_empty="One host, or not known",
            good="Far below the joined times (exposed, flight, wire): they are known no better than this. On one host "
            "there is one clock, and nothing to know.",
        ),
    ),
)

_TRANSFERS: Final = Row(
    "How do its transfers go?",
    (
        _lines(
            title="Transfers by result",
            unit="ops",
            targets=(
                Target(
                    total(PAIR.rate(m.PEER_TRANSFERS), *_OF_PAIR, "result"), f"{{{{result}}}}, {_SAID_BY}"
                ),
            ),
            when_empty="Nothing yet",
            good="delivered and nothing_to_move. failed at one of the two only: the other is not watched, or has not "
            "noticed yet.",
        ),
        _lines(
            title="Exposed time",
            unit="s",
            targets=quantiles(m.EXPOSED_SECONDS, PAIR),
            links=(frame.TRACES_LINK,),
            good="As on other pairs of like links. Dots are exemplars: each leads to its trace.",
        ),
        _lines(
            title="Bytes",
            unit="binBps",
            targets=(Target(total(PAIR.rate(m.PEER_BYTES), *_OF_PAIR), "{{engine}} to or from {{peer}}"),),
            when_empty="Told by the side that posts",
            good="As the load, told by the engine that posts: P in push mode, D in pull mode.",
        ),
        _lines(
            title="Mean of each stage",
            unit="s",
            logarithmic=True,
            targets=(
                Target(PAIR.mean(m.PEER_STAGE_SECONDS, *_OF_PAIR, "stage"), f"{{{{stage}}}}, {_SAID_BY}"),
            ),
            width=16,
            good="As on other pairs (*Stages and ranks*). wire alone is high: the link. flight: P is idle or busy and "
            "does not drain. notification, wake: D's engine steps are long.",
        ),
        _lines(
            title="In flight and waiting",
            unit="short",
            targets=(
                Target(
                    total(PAIR_ENGINES.now(m.IN_FLIGHT), "engine", "role"), "in flight, {{engine}} ({{role}})"
                ),
                Target(
                    total(PAIR_ENGINES.now(m.WAITING), "engine", "role"), "waiting, {{engine}} ({{role}})"
                ),
            ),
            good="Back to zero with the load. Of these engines with any peer.",
        ),
    ),
)

_MEETING: Final = Row(
    "Do they reach each other?",
    (
        _lines(
            title="Handshakes",
            unit="ops",
            targets=(
                Target(
                    total(PAIR.rate(m.PEER_HANDSHAKES), *_OF_PAIR, "result"),
                    "{{result}}, {{engine}} to {{peer}}",
                ),
            ),
            when_empty="No handshakes yet",
            links=(frame.runbook("handshake_failed"),),
            good="A few after each start, in both directions in push mode, none failed; then none.",
        ),
        _lines(
            title="How long a handshake takes",
            unit="s",
            targets=(Target(PAIR.mean(m.HANDSHAKE_SECONDS, *_OF_PAIR), "{{engine}} to {{peer}}"),),
            when_empty="No handshakes in this time",
            links=(frame.runbook("cold_handshake"),),
            good="Under a second; the first transfer waits for it. Many seconds: a peer that does not answer holds up "
            "all others (runbook: handshake_queue_blocked).",
        ),
        _lines(
            title="Registrations",
            unit="ops",
            targets=(
                Target(
                    total(PAIR_ENGINES.rate(m.REGISTRATIONS), "engine", "result"), "{{result}}, {{engine}}"
                ),
            ),
            links=(frame.runbook("registration_lost"),),
            good="sent at D is received at P, with all peers together; failed is 0. Received less than sent: they get "
            "lost, or P makes no steps (runbook: registration_lost).",
        ),
        _lines(
            title="Failures by cause",
            width=12,
            unit="ops",
            targets=(
                Target(
                    total(PAIR_ENGINES.rate(m.FAILED), "engine", "error_type") > 0,
                    "{{error_type}}, {{engine}}",
                ),
            ),
            when_empty="No failures",
            good="Empty. What vLLM logged as NIXL transfer failure, of these engines with any peer.",
        ),
        _lines(
            title="Writer threads",
            width=12,
            unit="ops",
            targets=(
                Target(total(PAIR_ENGINES.rate(m.WRITER_EXCEPTIONS), "engine"), "exceptions, {{engine}}"),
                Target(
                    total(PAIR_ENGINES.rate(m.EVICTIONS), "engine", "held"), "{{held}} evicted, {{engine}}"
                ),
            ),
            links=(frame.runbook("writer_exception"),),
            good="0. An exception loses a request or the rest of a batch; an eviction is a half that the other half "
            "never met.",
        ),
        Panel(
            title="Stuck on these engines",
            draw=Draw.TABLE,
            width=24,
            height=7,
            unit="short",
            targets=(Target(total(PAIR_ENGINES.now(m.STUCK), "engine", "code", "severity") > 0),),
            columns=frame.STUCK_COLUMNS,
            when_empty="Nothing is stuck",
            good="Empty, or of severity info. Click a diagnosis for its runbook.",
        ),
    ),
)

_TOLD: Final = Row(
    "Are the ends told, and in time?",
    (
        _lines(
            title="Completions that D was due, n of N",
            unit="ops",
            targets=(
                Target(
                    total(PAIR.rate(m.PEER_COMPLETIONS), *_OF_PAIR, "result"),
                    "{{result}}, {{engine}} from {{peer}}",
                ),
            ),
            when_empty="Told by D only",
            links=(frame.runbook("notifications_missing"),),
            good="Only came. missing: of transfers that ended, pairs of ranks from which nothing came: the client left "
            "before, or had to give up.",
        ),
        _lines(
            title="Notifications",
            unit="ops",
            targets=(
                Target(
                    total(PAIR_ENGINES.rate(m.NOTIFICATIONS), "engine", "result"), "{{result}}, {{engine}}"
                ),
                Target(total(VLLM.rate(vllm.LATE_NOTIFICATIONS), "job"), "vLLM's after expiry, {{job}}"),
                Target(total(VLLM.rate(vllm.FAILED_NOTIFICATIONS), "job"), "vLLM's failed, {{job}}"),
            ),
            links=(frame.runbook("write_to_untracked_request"),),
            good="Only counted. unrecognised: it wrote into blocks that may be another request's by now (runbook: "
            "write_to_untracked_request). lost: drained by a writer thread that then raised.",
        ),
        _lines(
            title="Heartbeats",
            unit="ops",
            targets=(
                Target(
                    total(PAIR_ENGINES.rate(m.HEARTBEAT_IDS), "engine", "result"), "{{result}}, {{engine}}"
                ),
            ),
            links=(frame.runbook("heartbeat_id_mismatch"),),
            good="Request ids in them. unsent is 0. ignored alone means nothing: where both legs are sent at once, all "
            "are ignored, and a lease is what a transfer has.",
        ),
        _lines(
            title="Leases",
            unit="ops",
            targets=(
                Target(total(PAIR_ENGINES.rate(m.LEASES), "engine", "event"), "{{event}}, {{engine}}"),
                Target(total(VLLM.rate(vllm.EXPIRED), "job"), "vLLM's expired, {{job}}"),
            ),
            when_empty="Told by P only",
            links=(frame.runbook("heartbeat_id_mismatch"),),
            good="expired is 0. set as transfers come; extended where heartbeats are applied.",
        ),
        _lines(
            title="D's watchdog",
            unit="ops",
            targets=(Target(total(PAIR_ENGINES.rate(m.WATCHDOG_FIRED), "engine"), "{{engine}}"),),
            when_empty="Told by D only",
            links=(frame.runbook("watchdog_fired"),),
            good="0. It only logs: such a request hangs until its client gives up (runbook: watchdog_fired).",
        ),
        _lines(
            title="vLLM's tables",
            unit="short",
            targets=(
                Target(total(PAIR_ENGINES.now(m.TABLE_ENTRIES), "engine", "table"), "{{table}}, {{engine}}"),
            ),
            links=(frame.runbook("stale_registrations_pile_up"),),
            good="Back to zero with the load. One that only grows is a leak (runbooks: stale_registrations_pile_up, "
            "notify_only_entries_leak).",
        ),
    ),
)

_CLOCKS: Final = Row(
    "Who are they, and how far apart are their clocks?",
    (
        _lines(
            title="Clock offset",
            unit="s",
            minimum=None,
            targets=(Target(_at_hosts(m.CLOCK_OFFSET), "{{peer_host}} after {{host}}"),),
            when_empty="One host, or only one side is seen",
            good="Anything steady: joined times are corrected by it. A jump: a host slept, was moved or restarted. "
            "Below zero the peer's clock is behind.",
        ),
        _lines(
            title="Clock uncertainty",
            unit="s",
            targets=(Target(_at_hosts(m.CLOCK_UNCERTAINTY), "{{peer_host}} beside {{host}}"),),
            when_empty="One host, or not known",
            good="Far below the joined times. It grows between messages and falls with each: an idle pair grows "
            "slowly unsure.",
        ),
        Panel(
            title="Up and recording",
            draw=Draw.STATES,
            width=8,
            unit="bool_on_off",
            targets=(
                Target(aggregate("min", PAIR_ENGINES.now(m.ENGINE_UP), "engine"), "{{engine}} up"),
                Target(aggregate("min", PAIR_ENGINES.now(m.RECORDING), "engine"), "{{engine}} recording"),
            ),
            words=((0, "no", "red"), (1, "yes", "green")),
            good="All yes. Not recording: every other figure of that engine stands still (`pushscope recording on`).",
        ),
        Panel(
            title="The engines",
            draw=Draw.TABLE,
            width=24,
            height=6,
            unit="short",
            targets=(
                Target(
                    highest(
                        PAIR_ENGINES.now(m.ENGINE_INFO),
                        *(label.name for label in m.ENGINE_INFO.own),
                        "engine",
                    )
                ),
            ),
            columns=(
                Column("engine", "Engine", links=(frame.ENGINE_OF_ROW,), width=310),
                Column("role", "Role", width=60),
                Column("mode", "Mode", width=70),
                Column("host", "Host"),
                Column("side_channel", "Side channel", width=140),
                Column("model", "Model", width=230),
                Column("tp_size", "TP", width=50),
                Column("pp_size", "PP", width=50),
                Column("vllm_version", "vLLM", width=90),
                Column("nixl_version", "NIXL", width=90),
                Column("pushscope_version", "pushscope", width=100),
            ),
            good="The same versions and model on both sides. A side channel at 127.0.0.1 is out of reach from another "
            "host (runbook: loopback_side_channel).",
            links=(frame.runbook("incompatible_engines"), frame.runbook("loopback_side_channel")),
        ),
    ),
)

PAIR_BOARD: Final = Board(
    uid=names.PAIR,
    title="Engine pair",
    description="One P and one D: handshakes, registrations, notifications n of N, heartbeats, leases, clocks.",
    rows=(_WELL, _TRANSFERS, _MEETING, _TOLD, _CLOCKS),
    variables=frame.variables(frame.VLLM_JOB, peer=frame.PEER_OF_PAIR),
    annotations=frame.ANNOTATIONS,
    links=frame.LINKS,
)
