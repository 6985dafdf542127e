"""Push against pull: the same panels side by side, push on the left and pull on the right."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from pushscope.dashboards import frame, names
from pushscope.dashboards.frame import BOARD, ENGINES
from pushscope.dashboards.panel import Board, Draw, Panel, Row, Target
from pushscope.dashboards.promql import Expr, Value, highest, total
from pushscope.dashboards.queries import bad_share, once, quantiles, rate_while_moving
from pushscope.telemetry.metrics import catalogue as m
from pushscope.telemetry.metrics.family import PULL, PUSH

_lines = partial(Panel, draw=Draw.LINES)
_EMPTY: Final = {mode: f"No {mode} transfers, or none with both sides seen" for mode in (PUSH, PULL)}


def _of_mode(expr: Expr, mode: str, **of_engine: Value) -> Expr:
    """What does not say the mode, of engines that have it (and are what ``of_engine`` says)."""
    has = highest(ENGINES.now(m.ENGINE_INFO, mode=mode, **of_engine), "job", "engine", "mode")
    return expr.matched("*", has, "job", "engine", take=("mode",))


def _exposed(mode: str) -> Panel:
    return _lines(
        title=f"{mode}: exposed time",
        unit="s",
        targets=quantiles(m.EXPOSED_SECONDS, mode=mode),
        links=(frame.TRACES_LINK,),
        good="Blocks staged at P to decode scheduled at D: what the first token waits for the transfer, and the figure "
        "by which the modes compare. Push is lower where D is early. Dots lead to traces.",
    )


def _spread(mode: str) -> Panel:
    return Panel(
        title=f"{mode}: exposed time, spread",
        draw=Draw.HEAT,
        unit="s",
        targets=(Target(BOARD.buckets(m.EXPOSED_SECONDS, mode=mode), exemplars=True),),
        good="One band. Pull's band is at least an engine step of D wide: D reads when it comes to it.",
    )


def _stages(mode: str) -> Panel:
    return _lines(
        title=f"{mode}: mean of each stage",
        unit="s",
        stacked=True,
        targets=(Target(BOARD.mean(m.STAGE_SECONDS, "stage", mode=mode), "{{stage}}"),),
        when_empty=_EMPTY[mode],
        good="Push: registration, flight and rendezvous lie mostly under the prefill. Pull: relay and allocation are "
        "the router's and D's, and all of it is exposed.",
    )


def _p99(mode: str) -> Panel:
    return _lines(
        title=f"{mode}: p99 of each stage",
        unit="s",
        logarithmic=True,
        targets=(Target(BOARD.quantile(0.99, m.STAGE_SECONDS, "stage", mode=mode), "{{stage}}"),),
        when_empty=_EMPTY[mode],
        good="Within a few times the mean beside which it stands.",
    )


def _ends(mode: str) -> Panel:
    return _lines(
        title=f"{mode}: how transfers end",
        unit="ops",
        stacked=True,
        targets=(Target(once(m.TRANSFERS, "outcome", mode=mode), "{{outcome}}"),),
        when_empty=_EMPTY[mode],
        good="delivered and nothing_to_receive. In push mode a failure leaves D waiting; in pull mode D fails the "
        "request by itself.",
    )


def _bad(mode: str) -> Panel:
    return _lines(
        title=f"{mode}: failed transfers",
        unit="percentunit",
        maximum=1,
        targets=(Target(bad_share("mode", mode=mode), "{{mode}}"),),
        when_empty=_EMPTY[mode],
        good="0 %. Above: *Failures by cause* on the overview.",
    )


def _bytes(mode: str) -> Panel:
    return _lines(
        title=f"{mode}: bytes",
        unit="binBps",
        targets=(Target(total(BOARD.rate(m.NIXL_BYTES, "sum", mode=mode), "engine"), "{{engine}}"),),
        when_empty=_EMPTY[mode],
        good="As the load; of the engines that post: P in push mode, D in pull mode. vLLM's own figures don't know the "
        "mode: they are on *Stages and ranks*.",
    )


def _while_moving(mode: str) -> Panel:
    return _lines(
        title=f"{mode}: bytes per second while moving",
        unit="binBps",
        targets=(Target(rate_while_moving(mode=mode), "{{engine}}"),),
        when_empty=_EMPTY[mode],
        good="Alike in both modes on the same link. Lower in one: its transfers are smaller, or it is polled later.",
    )


def _descriptors(mode: str) -> Panel:
    return _lines(
        title=f"{mode}: descriptors of a transfer",
        unit="short",
        targets=(
            Target(BOARD.mean(m.NIXL_DESCRIPTORS, mode=mode, merged="false"), "as built"),
            Target(BOARD.mean(m.NIXL_DESCRIPTORS, mode=mode, merged="true"), "after NIXL merged neighbours"),
        ),
        when_empty=_EMPTY[mode],
        good="Few after merging. Many: raise --block-size.",
    )


def _posts(mode: str) -> Panel:
    return _lines(
        title=f"{mode}: NIXL's own times",
        unit="s",
        targets=(
            Target(BOARD.mean(m.NIXL_SECONDS, "phase", mode=mode), "{{phase}}, mean"),
            Target(BOARD.quantile(0.99, m.STAGE_SECONDS, mode=mode, stage="submit"), "submit, p99"),
        ),
        when_empty=_EMPTY[mode],
        good="post is under a millisecond. transfer ends at the next poll of the engine that posted it.",
    )


def _under_way(mode: str) -> Panel:
    return _lines(
        title=f"{mode}: in flight and waiting",
        unit="short",
        targets=(
            Target(total(_of_mode(BOARD.now(m.IN_FLIGHT), mode), "role"), "in flight, seen by {{role}}"),
            Target(total(_of_mode(BOARD.now(m.WAITING), mode), "role"), "{{role}} waits"),
        ),
        when_empty=f"No {mode} engines",
        good="They come back to zero with the load. In pull mode P waits for every D: its blocks are pinned until the "
        "read is done.",
    )


def _pinned(mode: str) -> Panel:
    return _lines(
        title=f"{mode}: blocks pinned on P",
        unit="short",
        targets=(Target(total(_of_mode(BOARD.now(m.PINNED_BLOCKS), mode), "engine"), "{{engine}}"),),
        when_empty=f"No {mode} engines",
        good="It follows the load. Push pins them for a shorter time where D is early.",
    )


def _cost(mode: str) -> Panel:
    return _lines(
        title=f"{mode}: what the connector takes from D's main thread",
        unit="percentunit",
        targets=(
            Target(
                total(_of_mode(BOARD.rate(m.CONNECTOR_SECONDS), mode, role=("D", "PD")), "engine"),
                "{{engine}}",
            ),
        ),
        when_empty=f"No {mode} engines that decode",
        good="A small share of a core, all ranks of an engine together. Push is there to make it small: P does the "
        "work.",
    )


def _row(title: str, *both: Callable[[str], Panel]) -> Row:
    return Row(title, tuple(make(mode) for make in both for mode in (PUSH, PULL)))


MODES: Final = Board(
    uid=names.MODES,
    title="Push against pull",
    description="The same panels by mode, push on the left and pull on the right: where both are run, or before and "
    "after a change from one to the other.",
    rows=(
        _row("Which makes the first token wait less?", _exposed, _spread),
        _row("Where does the time go?", _stages, _p99),
        _row("Which brings more through, and more safely?", _ends, _bad, _bytes, _while_moving),
        _row("What does it cost?", _under_way, _pinned, _cost),
        _row("What does NIXL do?", _descriptors, _posts),
    ),
    variables=frame.variables(),
    annotations=frame.ANNOTATIONS,
    links=frame.LINKS,
)
