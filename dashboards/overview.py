"""KV transfer overview: is anything wrong, what do requests wait for, how much moves, what waits, what is held."""

from __future__ import annotations

from functools import partial
from typing import Final

from pushscope.dashboards import frame, names, vllm
from pushscope.dashboards.frame import BOARD, ENGINES, VLLM
from pushscope.dashboards.panel import Board, Column, Draw, Panel, Row, Target
from pushscope.dashboards.promql import aggregate, highest, most, total
from pushscope.dashboards.queries import bad_share, exposed_share, once, quantiles
from pushscope.telemetry.metrics import catalogue as m

_lines = partial(Panel, draw=Draw.LINES)
_stat = partial(Panel, draw=Draw.STAT, width=4, height=4)

_AT_A_GLANCE: Final = Row(
    "Is anything wrong?",
    (
        _stat(
            title="Stuck now",
            unit="short",
            targets=(Target(total(BOARD.now(m.STUCK, severity=("warning", "error")))),),
            steps=((1, "red"),),
            good="0. Otherwise the table *What is stuck* says of which engine and why, and leads to the runbook; "
            "`pushscope stuck` names the requests.",
        ),
        _stat(
            title="Failed transfers",
            unit="percentunit",
            decimals=1,
            maximum=1,
            targets=(Target(bad_share()),),
            steps=((0.001, "yellow"), (0.01, "red")),
            when_empty="No transfers",
            good="0 %: of the transfers that ended, those that failed, expired or were lost. See *How transfers end* "
            "and *Failures by cause*.",
        ),
        _stat(
            title="Exposed time, p99",
            unit="s",
            targets=(Target(BOARD.quantile(0.99, m.EXPOSED_SECONDS)),),
            steps=((1, "yellow"), (5, "red")),
            good="A small part of the time to the first token, and steady. If it rises, *Stages and ranks* shows in "
            "which stage.",
        ),
        _stat(
            title="Exposed share",
            unit="percentunit",
            decimals=0,
            maximum=1,
            targets=(Target(exposed_share()),),
            good="In push mode well below 100 %: the rest lies under the prefill and costs nobody anything. 100 % "
            "in push mode: the router sends D's leg only when P's is done (runbook: serial_router).",
            links=(frame.runbook("serial_router"),),
        ),
        _stat(
            title="Oldest that waits",
            unit="s",
            targets=(Target(highest(BOARD.now(m.OLDEST_WAITING))),),
            steps=((5, "yellow"), (15, "red")),
            good="Seconds. Past 15 s, half of a lease by default, P will give the blocks up and D waits for ever: "
            "`pushscope stuck`.",
        ),
        _stat(
            title="Up and recording",
            unit="short",
            targets=(
                Target(total(ENGINES.now(m.ENGINE_UP)), "up"),
                Target(total(ENGINES.now(m.RECORDING)), "recording"),
            ),
            good="Both are the number of engines. Fewer recording: `pushscope recording on`. Fewer up: "
            "`pushscope doctor` on their host.",
        ),
    ),
)

_WAITED_FOR: Final = Row(
    "What does the first token wait for?",
    (
        _lines(
            title="Exposed time",
            unit="s",
            targets=quantiles(m.EXPOSED_SECONDS),
            links=(frame.TRACES_LINK,),
            good="From P's blocks staged to D's decode scheduled: what the first token waits for the transfer. Steady; "
            "p99 within a few times p50. Dots are exemplars: each leads to its trace.",
        ),
        Panel(
            title="Exposed time, spread",
            draw=Draw.HEAT,
            unit="s",
            targets=(Target(BOARD.buckets(m.EXPOSED_SECONDS), exemplars=True),),
            good="One band. Two bands are two kinds of transfers: two links, long and short prompts, early and late "
            "decodes. A few cells far above: look at their exemplars.",
        ),
        _lines(
            title="Exposed, hidden, and time to the first token",
            unit="s",
            targets=(
                Target(BOARD.mean(m.EXPOSED_SECONDS, "mode"), "exposed, {{mode}}"),
                Target(BOARD.mean(m.HIDDEN_SECONDS, "mode"), "hidden, {{mode}}"),
                Target(VLLM.mean(vllm.TTFT_SECONDS, "job"), "vLLM's time to first token, {{job}}"),
            ),
            good="Means. Exposed is a small part of the time to the first token (of the decode engines; those of P "
            "count too, in their own job or mixed). Hidden costs nobody anything.",
        ),
        _lines(
            title="Exposed share, over time",
            unit="percentunit",
            maximum=1,
            targets=(Target(exposed_share(), "exposed"),),
            good="Steady. A jump to 100 %: the router began to send the legs one after the other, or P is so fast that "
            "nothing can hide.",
            links=(frame.runbook("serial_router"),),
        ),
    ),
)

_MOVES: Final = Row(
    "How much moves, and how does it end?",
    (
        _lines(
            title="How transfers end",
            unit="ops",
            stacked=True,
            targets=(Target(once(m.TRANSFERS, "outcome"), "{{outcome}}"),),
            good="delivered and nothing_to_receive. aborted: clients gave up, perhaps because they waited. failed, "
            "expired, lost: see *Failures by cause* and *What is stuck*. Counted at D, or at P where no D is watched.",
        ),
        _lines(
            title="Transfers by side that counts them",
            unit="ops",
            targets=(Target(total(BOARD.rate(m.TRANSFERS), "role", "mode"), "{{role}}, {{mode}}"),),
            good="P and D agree. One is lower: some engines of that side are not watched, or not chosen above.",
        ),
        _lines(
            title="Bytes",
            unit="binBps",
            targets=(
                Target(total(BOARD.rate(m.NIXL_BYTES, "sum"), "mode"), "{{mode}}"),
                Target(total(VLLM.rate(vllm.BYTES, "sum"), "job"), "vLLM's, {{job}}"),
            ),
            good="As the load. Ours and vLLM's are the same figure of each NIXL transfer; vLLM's comes with an "
            "engine's next step. Less per transfer than usual: prefixes are cached at D.",
        ),
        _lines(
            title="Failures by cause",
            unit="ops",
            targets=(
                Target(total(BOARD.rate(m.FAILED), "error_type") > 0, "{{error_type}}"),
                Target(
                    total(VLLM.rate(vllm.FAILED_TRANSFERS), "job") > 0, "vLLM's failed transfers, {{job}}"
                ),
            ),
            when_empty="No failures",
            good="Empty. A cause names what vLLM logged; the runbook has a section for most. vLLM's one figure mixes "
            "transfers, handshakes and notifications, and lacks registrations that were not sent.",
        ),
    ),
)

_NOW: Final = Row(
    "What is under way, what waits, what is stuck?",
    (
        Panel(
            title="What is stuck",
            draw=Draw.TABLE,
            unit="short",
            width=14,
            targets=(Target(total(BOARD.now(m.STUCK), "engine", "code", "severity") > 0),),
            columns=frame.STUCK_COLUMNS,
            when_empty="Nothing is stuck",
            good="Empty, or of severity info. Click a diagnosis for its runbook; `pushscope stuck` on the host names "
            "the requests.",
        ),
        _lines(
            title="Stuck by diagnosis",
            unit="short",
            width=10,
            stacked=True,
            targets=(Target(total(BOARD.now(m.STUCK), "code", "severity") > 0, "{{code}} ({{severity}})"),),
            links=(frame.RUNBOOK_OF_CODE,),
            when_empty="Nothing is stuck",
            good="Empty. One that stays or grows needs its runbook: vLLM gives no waiting decode up by itself.",
        ),
        _lines(
            title="In flight and waiting",
            unit="short",
            targets=(
                Target(total(BOARD.now(m.IN_FLIGHT), "role"), "in flight, seen by {{role}}"),
                Target(total(BOARD.now(m.WAITING), "role"), "{{role}} waits"),
            ),
            good="They rise and fall with the load and come back to zero. D waits while P computes; P that waits keeps "
            "blocks pinned.",
        ),
        _lines(
            title="Oldest in flight, oldest that waits",
            unit="s",
            targets=(
                Target(highest(BOARD.now(m.OLDEST_IN_FLIGHT), "role"), "in flight, seen by {{role}}"),
                Target(highest(BOARD.now(m.OLDEST_WAITING), "role"), "{{role}} waits"),
            ),
            steps=((15, "red"),),
            good="A saw with low teeth. A line that climbs without end is one request that hangs. The mark at 15 s is "
            "half of vLLM's default lease. vLLM's own histograms never see such a one.",
        ),
        _lines(
            title="vLLM's own view of requests that wait for KV",
            unit="short",
            targets=(Target(total(VLLM.now(vllm.KV_FETCH), "job", "stage"), "{{stage}}, {{job}}"),),
            good="in_progress is D's part of *In flight and waiting*, told by the decode engines themselves. It has no "
            "age: one that hangs looks like one that has just come.",
        ),
        _lines(
            title="Engines with the oldest",
            unit="s",
            targets=(
                Target(
                    most(5, highest(BOARD.now(m.OLDEST_WAITING), "engine", "role")),
                    "{{engine}} ({{role}})",
                ),
            ),
            good="All low. One engine above the others: look at its pairs, in the table below.",
        ),
    ),
)

_HELD: Final = Row(
    "What is held that nobody else can use?",
    (
        _lines(
            title="Pinned blocks on P",
            unit="short",
            targets=(Target(total(BOARD.now(m.PINNED_BLOCKS), "engine"), "{{engine}}"),),
            links=(frame.runbook("prefill_unclaimed"),),
            good="It follows the load and comes back. Growing: D does not take them, until leases end "
            "(runbook: prefill_unclaimed).",
        ),
        _lines(
            title="Pinned tokens and requests on P",
            unit="short",
            targets=(
                Target(total(BOARD.now(m.PINNED_TOKENS)), "tokens"),
                Target(total(BOARD.now(m.PINNED_REQUESTS)), "requests"),
            ),
            logarithmic=True,
            good="As the blocks. Few requests with many tokens: long prompts; many with few: D is slow to come.",
        ),
        _lines(
            title="Leases that ran out",
            unit="ops",
            targets=(
                Target(total(BOARD.rate(m.LEASES, event="expired"), "engine"), "{{engine}}"),
                Target(total(VLLM.rate(vllm.EXPIRED), "job"), "vLLM's, {{job}}"),
            ),
            links=(frame.runbook("heartbeat_id_mismatch"),),
            good="0: blocks that nobody took in time were given up. The same requests as vLLM's; each rank counts. "
            "Full hits at D let leases run out too, harmlessly.",
        ),
        _lines(
            title="Blocks that D holds for requests that are gone",
            unit="short",
            targets=(Target(total(BOARD.now(m.ABANDONED_BLOCKS), "engine"), "{{engine}}"),),
            links=(frame.runbook("aborted_requests_pin_blocks"),),
            good="0. In push mode only P's write frees them: growing, D loses cache until it is restarted.",
        ),
        _lines(
            title="KV cache in use, vLLM's figure",
            unit="percentunit",
            maximum=1,
            targets=(Target(highest(VLLM.now(vllm.CACHE_USAGE), "job", "instance"), "{{instance}}"),),
            good="Room for what is to come. High on P with many pinned blocks: transfers hold it; high on D with "
            "blocks of requests that are gone: see the panel beside.",
        ),
        Panel(
            title="Engines",
            draw=Draw.STATES,
            unit="bool_on_off",
            targets=(Target(aggregate("min", ENGINES.now(m.ENGINE_UP), "engine"), "{{engine}}"),),
            words=((0, "down", "red"), (1, "up", "green")),
            good="All up. A line that ends and another that begins is a restart: a new engine has a new id.",
        ),
    ),
)

_PAIRS: Final = Row(
    "Between which engines?",
    (
        Panel(
            title="Pairs",
            draw=Draw.TABLE,
            unit="short",
            width=24,
            height=10,
            targets=(
                Target(total(BOARD.rate(m.PEER_TRANSFERS, result="delivered"), "engine", "peer", "role")),
                Target(total(BOARD.rate(m.PEER_TRANSFERS, result="failed"), "engine", "peer", "role")),
                Target(BOARD.mean(m.PEER_STAGE_SECONDS, "engine", "peer", "role", stage="wire")),
            ),
            columns=(
                Column("engine", "Engine", links=(frame.PAIR_OF_ROW, frame.ENGINE_OF_ROW)),
                Column("role", "Its role", width=80),
                Column("peer", "Peer", links=(frame.PAIR_OF_ROW,)),
                Column(0, "Delivered", "ops", width=130),
                Column(1, "Failed", "ops", width=130),
                Column(2, "Mean wire", "s", width=130),
            ),
            when_empty="No transfers yet",
            good="Nothing failed, and a like wire time on like links. One pair is worse: click it. Wire is told by D "
            "where both are seen, else by P as an upper bound.",
        ),
    ),
)

_TRUST: Final = Row(
    "Can these figures be trusted?",
    (
        _lines(
            title="Events lost",
            unit="ops",
            width=8,
            targets=(
                Target(total(BOARD.rate(m.EVENTS_LOST), "engine", "cause") > 0, "{{engine}}, {{cause}}"),
            ),
            when_empty="No events lost",
            links=(frame.runbook("telemetry_missing"),),
            good="Empty: figures miss what lost events told. overwritten: larger rings (`bytes`), or more CPU for the "
            "agent.",
        ),
        _lines(
            title="Events read",
            unit="ops",
            width=8,
            targets=(Target(total(BOARD.rate(m.EVENTS_READ), "engine"), "{{engine}}"),),
            good="Some 25 for each transfer and a few a second. None of an engine that works: recording is off, or the "
            "agent does not read its rings (`pushscope doctor`).",
        ),
        _lines(
            title="What agents cost and drop",
            unit="short",
            width=8,
            targets=(
                Target(total(BOARD.rate(m.POLL_SECONDS, "sum"), "instance"), "cores, {{instance}}"),
                Target(total(BOARD.rate(m.SPANS_DROPPED), "reason"), "spans dropped a second, {{reason}}"),
                Target(total(BOARD.rate(m.EVICTED)), "transfers evicted a second"),
            ),
            good="A few hundredths of a core for each agent, nothing dropped. Spans dropped: the agent's log says what "
            "the OTLP endpoint answered.",
        ),
    ),
)

OVERVIEW: Final = Board(
    uid=names.OVERVIEW,
    title="KV transfer overview",
    description="KV transfers between prefill (P) and decode (D) engines of vLLM: is anything wrong, what do requests "
    "wait for, what is stuck, what is held.",
    rows=(_AT_A_GLANCE, _WAITED_FOR, _MOVES, _NOW, _HELD, _PAIRS, _TRUST),
    variables=frame.variables(frame.VLLM_JOB),
    annotations=frame.ANNOTATIONS,
    links=frame.LINKS,
)
