"""The page docs/reference/spans.md, made from the tables: ``python -m pushscope.telemetry.spans.reference``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from pushscope.telemetry.reference_page import write_page
from pushscope.telemetry.spans.attributes import ATTRIBUTES, ENDS, OF_VLLM, OURS, ErrorType, stage_name
from pushscope.telemetry.transfer import PULL_STAGES, PUSH_STAGES, Stage

PAGE: Final = Path("docs/reference/spans.md")

_OWNERS: Final = {
    Stage.RELAY: (
        "pull",
        "D",
        "beside receive",
        "Blocks staged at P → D has the request: the router's part.",
    ),
    Stage.ALLOCATION: ("pull", "D", "receive", "D has the request → it has blocks, and stages the read."),
    Stage.REGISTRATION: (
        "push",
        "D",
        "receive",
        "Registration staged → sent to the last P rank; one per D rank.",
    ),
    Stage.FLIGHT: (
        "push",
        "D, if P was observed",
        "receive",
        "Registration sent → drained at P; idling included.",
    ),
    Stage.HANDOFF: (
        "both",
        "P; pull: D",
        "send; pull: receive",
        "Scheduler → worker: blocks staged → picked up.",
    ),
    Stage.RENDEZVOUS: ("push", "P", "send", "First of (registration drained, blocks picked up) → matched."),
    Stage.HANDSHAKE: ("both", "P; pull: D", "send; pull: receive", "Deferred for a handshake → resumed."),
    Stage.DESCRIPTORS: (
        "both",
        "P; pull: D",
        "send; pull: receive",
        "Build of one write's descriptors → prepared.",
    ),
    Stage.SUBMIT: ("both", "P; pull: D", "send; pull: receive", "Around NIXL's `transfer()`."),
    Stage.WIRE: (
        "both",
        "D; P, if D was not observed",
        "receive; P alone: send",
        "Submit started → notification drained at D. P alone: → done seen (`upper_bound`). Pull: → done seen by D.",
    ),
    Stage.NOTIFICATION: ("push", "D", "receive", "Drained → counted; one per P rank."),
    Stage.WAKE: ("both", "D", "receive", "Last notification counted (pull: read done) → decode scheduled."),
}
"""Mode, whose span it is, its parent, and what it is."""

_HEAD: Final = """\
# Spans

Made from the code by `make references`; a test holds the two together.

A transfer is one prompt's KV moving from a P engine to a D engine. Its spans are made from what the engines recorded,
outside of them, when it has ended, was abandoned, or has expired. A stage that was not seen has no span. What one side
can't know is absent where only that side was observed, never zero.

## Which trace

| the request | trace id | parent of receive, send |
|---|---|---|
| came with a `traceparent` | the caller's | the caller's span, beside vLLM's `llm_request` |
| came without, push | a hash of D's engine and D's request id | none |
| came without, pull | a hash of P's engine and P's request id | none |
| came without, and P never met D | P's spans: a hash of P's engine and P's request id | none |

D's `traceparent` travels to P in the registration, so that P's spans are under the same caller though the router sent P
none. A `traceparent` of P's own goes before it. In pull mode nothing tells P of D's: an agent that reads both sides'
events puts P's spans under it too; one that reads P's alone can't.

Receive and send link to each other, in the same trace or in two. Neither is the other's parent: P may begin long before
D has the request, and hold blocks long after D decodes, so neither encloses the other. A stage lies within its parent.

Ids are hashes of what both sides know: trace id, side, engine, the request id that joins both sides (D's in push mode,
P's in pull mode), ranks, stage, and which of several alike it is. So each side can name the other's spans without
talking to it, a span that is sent again has the same id, retries of one request have different ones, and nothing comes
from the global `random`, which vLLM seeds alike in every rank.

## Which transfers

Every one that failed, was lost, expired, has a diagnosis of a warning or an error, or of which a stage took more than
twice its usual time (99th percentile) between the same two engines. Of the rest a share, by a hash of the ids that join
both sides: agents that never talk to each other pick the same ones. Where the caller decided (the `sampled` flag of its
`traceparent`), that stands: all, or none.
"""


def page() -> str:
    """The whole page."""
    return "\n".join(
        (
            _HEAD,
            "## Names\n",
            *_table(
                ("span", "kind", "what it is"),
                ((f"`{span.name}`", span.kind.value.upper(), span.meaning) for span in ENDS),
            ),
            "Their stages, INTERNAL, per rank:\n",
            *_table(
                ("span", "mode", "made by", "parent", "what it is"),
                ((f"`{stage_name(stage)}`", *_OWNERS[stage]) for stage in Stage),
            ),
            "Resource: the engine. `service.name` is `vllm-prefill`, `vllm-decode` or `vllm` (both roles) unless the "
            "environment\nsays otherwise; `service.instance.id` is the engine id, `host.name` its host, "
            "`kv_transfer.side` `P`, `D` or `PD`.\n",
            "## Attributes\n",
            *_table(("name", "type", "on", "what it says"), ((f"`{a.name}`", *a[1:]) for a in ATTRIBUTES)),
            "## error.type\n",
            "Set on receive, send, and the stage that ended with it; the status is then ERROR, but for `aborted`.\n",
            *_errors("vLLM's failure types:", OF_VLLM),
            *_errors("Ours:", OURS),
        )
    )


def _errors(title: str, errors: Iterable[ErrorType]) -> list[str]:
    return [title + "\n", *_table(("value", "meaning"), ((f"`{e.name}`", e.meaning) for e in errors))]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = (head, ["---"] * len(head), *rows)
    return [*("| " + " | ".join(line) + " |" for line in lines), ""]


def main() -> None:
    """Write the page."""
    write_page(PAGE, page())


assert set(_OWNERS) == {*PULL_STAGES, *PUSH_STAGES}

if __name__ == "__main__":
    main()
