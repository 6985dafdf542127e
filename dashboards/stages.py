"""Stages and ranks: in which stage the time goes, whether one rank is slower, who waited for whom, what NIXL does."""

from __future__ import annotations

from functools import partial
from typing import Final

from pushscope.dashboards import frame, names, vllm
from pushscope.dashboards.frame import BOARD, VLLM
from pushscope.dashboards.panel import Board, Draw, Panel, Row, Target, Variable, VariableKind
from pushscope.dashboards.promql import Expr, Like, aggregate, highest, most, ratio, total
from pushscope.dashboards.queries import QUANTILES, quantiles, rate_while_moving
from pushscope.telemetry.metrics import catalogue as m
from pushscope.telemetry.transfer import Stage

_lines = partial(Panel, draw=Draw.LINES)

STAGE: Final = Variable(
    name="stage",
    label="Stage",
    kind=VariableKind.CUSTOM,
    query=",".join(stage.value for stage in Stage),
    description="For the panels that look at one stage.",
    everything=".+",
    chosen=Stage.WIRE.value,
)
_CHOSEN: Final = Like("$stage")

_WHERE: Final = Row(
    "Where does the time go?",
    (
        _lines(
            title="Time in each stage",
            unit="s",
            stacked=True,
            targets=(Target(total(BOARD.rate(m.STAGE_SECONDS, "sum"), "stage"), "{{stage}}"),),
            good="Seconds that transfers spent in a stage, for each second. wire is most of it; rendezvous and flight "
            "may be large where D is early, and cost nothing then. Anything else that shows is worth a look.",
        ),
        _lines(
            title="Mean of each stage",
            unit="s",
            logarithmic=True,
            targets=(Target(BOARD.mean(m.STAGE_SECONDS, "stage", "role"), "{{stage}} ({{role}})"),),
            good="wire: bytes over the link's rate. registration, handoff, descriptors, submit, notification: up to a "
            "few milliseconds. wake: an engine step of D. wire told by P is an upper bound.",
        ),
        _lines(
            title="p99 of each stage",
            unit="s",
            logarithmic=True,
            targets=(Target(BOARD.quantile(0.99, m.STAGE_SECONDS, "stage"), "{{stage}}"),),
            good="Within a few times the mean. A stage whose p99 is far above it hits some requests hard: choose it "
            "above and look at its exemplars.",
        ),
        _lines(
            title="Stages of the chosen engines, by peer",
            unit="s",
            targets=(
                Target(
                    BOARD.mean(m.PEER_STAGE_SECONDS, "engine", "peer", stage=_CHOSEN),
                    "{{engine}} with {{peer}}",
                ),
            ),
            good="Of the stage that is chosen above: peers on like links are alike. One is slower: its link "
            "(runbook: slow_link), then its load.",
            links=(frame.runbook("slow_link"),),
        ),
        _lines(
            title="Stage $stage",
            unit="s",
            targets=quantiles(m.STAGE_SECONDS, stage=_CHOSEN),
            links=(frame.TRACES_LINK,),
            good="p99 within a few times p50. Dots are exemplars: each leads to its trace, where the slow rank shows.",
        ),
        Panel(
            title="Stage $stage, spread",
            draw=Draw.HEAT,
            unit="s",
            targets=(Target(BOARD.buckets(m.STAGE_SECONDS, stage=_CHOSEN), exemplars=True),),
            good="One band. Two bands: two kinds of links or prompts. All stages at once mean little here: choose one.",
        ),
    ),
)


def _rank_mean(*by: str) -> Expr:
    return BOARD.mean(m.RANK_STAGE_SECONDS, *by, stage=_CHOSEN)


def _beside_others() -> Expr:
    """Each rank's mean over the mean of all ranks of its engine."""
    of_engine = ("engine", "role")
    others = aggregate("avg", _rank_mean(*of_engine, "rank"), *of_engine)
    return _rank_mean(*of_engine, "rank").matched("/", others > 0, *of_engine)


_RANKS: Final = Row(
    "Is one rank slower than the others?",
    (
        Panel(
            title="Stage $stage by rank",
            draw=Draw.GRID,
            unit="s",
            height=10,
            targets=(Target(_rank_mean("engine", "role", "rank"), "{{engine}} {{rank}}"),),
            good="The mean of the chosen stage, a row for each rank: rows of one engine have one colour. A row that "
            "stays red is a slow rank, and every request of its engine waits for it. Columns that turn red together "
            "are load.",
        ),
        _lines(
            title="Slowest rank beside the mean of its engine's ranks",
            unit="short",
            height=10,
            steps=((1.5, "yellow"), (3, "red")),
            targets=(Target(highest(_beside_others(), "engine", "role"), "{{engine}} ({{role}})"),),
            good="1 is even; up to 1.5 is usual. Higher, and it stays: one rank's link, NUMA node or GPU. Engines with "
            "one rank are 1 always.",
        ),
        Panel(
            title="Outlier ranks",
            draw=Draw.BARS,
            unit="short",
            decimals=2,
            steps=((1.5, "yellow"), (3, "red")),
            targets=(Target(most(10, _beside_others()), "{{engine}} {{rank}}"),),
            good="The ten ranks that are farthest above the mean of their engine, in the chosen stage. About 1 each. "
            "One of 3 triples the wait of every request of its engine.",
        ),
        _lines(
            title="Bytes by rank",
            unit="binBps",
            targets=(Target(total(BOARD.rate(m.RANK_BYTES), "engine", "rank"), "{{engine}} {{rank}}"),),
            good="Alike on all ranks of an engine, at the side that posts (P in push mode). One rank without bytes "
            "does not write: see *What is stuck*.",
        ),
        _lines(
            title="What the connector takes from the main thread",
            unit="percentunit",
            targets=(
                Target(
                    total(BOARD.rate(m.CONNECTOR_SECONDS), "engine", "rank"),
                    "{{engine}} {{rank}}",
                ),
            ),
            good="A small share of a core: decoding waits for it. Push is there to make it small on D.",
        ),
        _lines(
            title="One call of the connector",
            unit="s",
            targets=(
                Target(
                    ratio(
                        total(BOARD.rate(m.CONNECTOR_SECONDS), "engine", "rank"),
                        total(BOARD.rate(m.CONNECTOR_CALLS), "engine", "rank"),
                    ),
                    "{{engine}} {{rank}}",
                ),
            ),
            good="Microseconds. Milliseconds delay each step of that engine: it polls many writes, or is held up.",
        ),
    ),
)

_WAITED: Final = Row(
    "Who waited for whom?",
    (
        _lines(
            title="Rendezvous: who was early, how often",
            unit="ops",
            stacked=True,
            targets=(
                Target(
                    total(BOARD.rate(m.RENDEZVOUS_WAIT_SECONDS, "count"), "waiting"), "{{waiting}} waited"
                ),
            ),
            when_empty="Only P tells, in push mode",
            good="D waited: nothing is lost, the wait is under the prefill. P waited: blocks stay pinned and the first "
            "token waits: D is queued, or the router sends it late (runbook: serial_router).",
            links=(frame.runbook("serial_router"),),
        ),
        _lines(
            title="Rendezvous: how long the early side waited",
            unit="s",
            targets=(Target(BOARD.mean(m.RENDEZVOUS_WAIT_SECONDS, "waiting"), "{{waiting}} waited"),),
            when_empty="Only P tells, in push mode",
            good="D's wait is about a prefill. P's wait is about nothing: seconds of it are D's queue, and near half a "
            "lease (15 s by default) blocks are about to be given up.",
        ),
    ),
)


def _merged(how: str) -> Expr:
    return BOARD.mean(m.NIXL_DESCRIPTORS, "mode", merged=how)


def _quantiles_of(stage: str) -> tuple[Target, ...]:
    return tuple(
        Target(BOARD.quantile(q, m.STAGE_SECONDS, stage=stage), f"{stage} p{q * 100:g}") for q in QUANTILES
    )


_NIXL: Final = Row(
    "What does NIXL do?",
    (
        _lines(
            title="Descriptors of a transfer",
            unit="short",
            logarithmic=True,
            targets=(
                Target(_merged("false"), "as built, {{mode}}"),
                Target(_merged("true"), "after NIXL merged neighbours, {{mode}}"),
                Target(VLLM.mean(vllm.DESCRIPTORS, "job"), "vLLM's (after), {{job}}"),
            ),
            links=(frame.runbook("many_descriptors"),),
            good="Few after merging. Many: blocks are small and scattered, and posting takes long: raise --block-size "
            "(runbook: many_descriptors).",
        ),
        _lines(
            title="What merging leaves of the descriptors",
            unit="percentunit",
            maximum=1,
            targets=(Target(ratio(_merged("true"), _merged("false")), "{{mode}}"),),
            good="Small. 100 %: no two blocks lie side by side, on one of the two engines at least.",
        ),
        _lines(
            title="Submitting a transfer",
            unit="s",
            targets=(
                *_quantiles_of("submit"),
                Target(BOARD.mean(m.NIXL_SECONDS, "mode", phase="post"), "NIXL's post, mean, {{mode}}"),
                Target(VLLM.quantile(0.99, vllm.POST_SECONDS), "vLLM's post, p99"),
            ),
            good="Under a millisecond; it grows with descriptors. submit is the call of transfer() as P sees it, post "
            "is what NIXL says of it. Seconds: NIXL or UCX hangs in it.",
        ),
        _lines(
            title="On the wire",
            unit="s",
            targets=(
                *_quantiles_of("wire"),
                Target(
                    BOARD.mean(m.NIXL_SECONDS, "mode", phase="transfer"), "NIXL's transfer, mean, {{mode}}"
                ),
                Target(VLLM.quantile(0.99, vllm.XFER_SECONDS), "vLLM's transfer, p99"),
            ),
            links=(frame.runbook("slow_link"),),
            good="Bytes over the link's rate. wire ends when D hears of it; NIXL's and vLLM's clock stops at P's next "
            "poll, up to an engine step later. vLLM's buckets end at 5 s.",
        ),
        _lines(
            title="Bytes of a transfer",
            unit="bytes",
            targets=(
                *quantiles(m.NIXL_BYTES),
                Target(VLLM.mean(vllm.BYTES, "job"), "vLLM's mean, {{job}}"),
            ),
            good="In proportion to prompts, divided by ranks. Far less than usual: prefixes are cached at D.",
        ),
        _lines(
            title="Bytes per second while moving",
            unit="binBps",
            targets=(
                Target(rate_while_moving(), "{{engine}}"),
                Target(
                    ratio(
                        total(VLLM.rate(vllm.BYTES, "sum"), "job"),
                        total(VLLM.rate(vllm.XFER_SECONDS, "sum"), "job"),
                    ),
                    "vLLM's, {{job}}",
                ),
            ),
            good="Of one NIXL transfer: near the link's rate for long prompts, less for short ones, whose time is an "
            "engine step. One engine far below the others: its link.",
        ),
    ),
)

STAGES: Final = Board(
    uid=names.STAGES,
    title="Stages and ranks",
    description="Where the time of KV transfers goes: by stage, by rank, by who waited for whom, and inside NIXL.",
    rows=(_WHERE, _RANKS, _WAITED, _NIXL),
    variables=frame.variables(STAGE, frame.VLLM_JOB),
    annotations=frame.ANNOTATIONS,
    links=frame.LINKS,
)
