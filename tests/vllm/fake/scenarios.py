"""The scenarios, each with what must be seen of it, written by hand.

Sizes that the figures come from: a prompt of 100 tokens fills 4 blocks of 32; a block of one layer, all 8 heads,
is 65,536 bytes; there are 4 layers. So 100 tokens are 16 descriptors and 1,048,576 bytes on one rank, and as
blocks 1 to 4 lie side by side NIXL makes one of each layer's four.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.vllm.fake.fabric import Agent, FabricError
from tests.vllm.fake.layout import Layout
from tests.vllm.fake.world import World

BLOCK_BYTES = 65_536
PROMPT = 4 * 4 * BLOCK_BYTES
"""KV of 100 tokens: 4 blocks, 4 layers."""
P1, P2 = "cmpl-a-0-11111111", "cmpl-a-0-33333333"
D1, D2 = "cmpl-a-0-22222222", "cmpl-a-0-44444444"


@dataclass(frozen=True)
class Seen:
    """One transfer as it must be assembled; a field that is None must be None there too."""

    outcome: str = "delivered"
    attempt: int = 1
    ranks: tuple[int, int] = (1, 1)
    """Notifications counted and expected."""
    blocks: int | None = 4
    bytes: int | None = PROMPT
    descriptors: int | None = 16
    merged: int | None = 4
    writes: frozenset[tuple[int, int]] | None = frozenset({(0, 0)})
    """(P's tensor-parallel rank, D's) of each NIXL transfer; None where there was none."""
    base: str = "cmpl-a-0"
    mode: str = "push"
    error: str = ""
    """A part of the error in words; empty: no error."""
    waits: str = ""
    """A part of who waits for what."""
    pairing: str = ""
    """A part of how P paired otherwise than the legs were sent."""
    order: str | None = None


@dataclass(frozen=True)
class Scenario:
    name: str
    play: Callable[[World], None]
    seen: tuple[Seen, ...]
    p: Layout = field(default_factory=Layout)
    d: Layout = field(default_factory=Layout)
    mode: str = "Push"
    beside: Mapping[str, Sequence[str]] | None = None
    """With a MultiConnector: its other children, by the engine's role."""


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    name: str, *seen: Seen, **layout: Any
) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    def declare(play: Callable[[World], None]) -> Callable[[World], None]:
        SCENARIOS[name] = Scenario(name, play, seen, **layout)
        return play

    return declare


# -- pieces -------------------------------------------------------------------------------------------


def registration_first(w: World) -> None:
    w.decode(D1, 100, of=P1)
    w.settle(4)
    w.prefill(P1, 100)
    w.settle()


def blocks_first(w: World) -> None:
    w.prefill(P1, 100)
    w.settle(4)
    w.decode(D1, 100, of=P1)
    w.settle()


def at_once(w: World) -> None:
    w.prefill(P1, 100)
    w.decode(D1, 100, of=P1)
    w.settle()


def pull(w: World) -> None:
    w.prefill(P1, 100)
    w.settle(3)
    w.decode(D1, 100, of=P1)
    w.settle()


def pairs(*ranks: tuple[int, int]) -> frozenset[tuple[int, int]]:
    return frozenset(ranks)


# -- orders -------------------------------------------------------------------------------------------

scenario("registration first", Seen(order="registration first"))(registration_first)
scenario("blocks first", Seen(order="blocks first"))(blocks_first)
scenario("at once", Seen(order="blocks first"))(at_once)  # D has to shake hands first

# -- ranks --------------------------------------------------------------------------------------------

for p_tp, d_tp, done, writes in (
    (1, 2, (2, 2), pairs((0, 0), (0, 1))),
    (1, 4, (4, 4), pairs((0, 0), (0, 1), (0, 2), (0, 3))),
    (2, 1, (2, 2), pairs((0, 0), (1, 0))),
    (2, 2, (2, 2), pairs((0, 0), (1, 1))),
    (4, 2, (4, 4), pairs((0, 0), (1, 0), (2, 1), (3, 1))),
    (8, 4, (8, 8), pairs((0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (7, 3))),
):
    # Each write is 4 blocks of 4 layers: whole blocks, or a part of the heads of each. What is a part of a block
    # on either side does not lie beside the next one's, and NIXL can't merge it.
    merged = 4 * len(writes) if p_tp == d_tp else 16 * len(writes)
    seen = Seen(ranks=done, descriptors=16 * len(writes), merged=merged, writes=writes)
    layouts = {"p": Layout(tp=p_tp), "d": Layout(tp=d_tp)}
    scenario(f"TP {p_tp} to {d_tp}", seen, **layouts)(registration_first)
    scenario(f"TP {p_tp} to {d_tp}, blocks first", seen, **layouts)(blocks_first)

scenario(
    "fewer KV heads than ranks, 4 to 4",
    # Two heads: P's ranks 0 and 1 hold the same one, and so do 2 and 3; each rank writes to its like.
    Seen(
        ranks=(4, 4),
        descriptors=64,
        merged=16,
        writes=pairs((0, 0), (1, 1), (2, 2), (3, 3)),
        bytes=PROMPT // 2,
    ),
    p=Layout(tp=4, kv_heads=2),
    d=Layout(tp=4, kv_heads=2),
)(registration_first)
scenario(
    "fewer KV heads than ranks, 2 to 4",
    # Nor a P with a D of more ranks; D waits on.
    Seen(
        "failed", ranks=(0, 4), bytes=None, descriptors=None, merged=None, writes=None, error="AssertionError"
    ),
    p=Layout(tp=2, kv_heads=2),
    d=Layout(tp=4, kv_heads=2),
)(registration_first)
scenario(
    "fewer KV heads than ranks, 4 to 2",
    # vLLM 0.32 does not let a D shake hands with a P of more ranks whose heads are copies.
    Seen(
        "failed", ranks=(0, 4), bytes=None, descriptors=None, merged=None, writes=None, error="AssertionError"
    ),
    p=Layout(tp=4, kv_heads=2),
    d=Layout(tp=2, kv_heads=2),
)(registration_first)

MLA_PROMPT = 4 * 4 * 32 * 64 * 4
"""4 blocks, 4 layers, 32 tokens of 64 numbers."""
scenario(
    "MLA, 2 to 2",
    Seen(ranks=(2, 2), bytes=2 * MLA_PROMPT, descriptors=32, merged=8, writes=pairs((0, 0), (1, 1))),
    p=Layout(tp=2, mla=True),
    d=Layout(tp=2, mla=True),
)(registration_first)
scenario(
    "MLA, 1 to 2: written to every rank",
    Seen(ranks=(2, 2), bytes=2 * MLA_PROMPT, descriptors=32, merged=8, writes=pairs((0, 0), (0, 1))),
    p=Layout(tp=1, mla=True),
    d=Layout(tp=2, mla=True),
)(registration_first)
scenario(
    "MLA, 4 to 2: every P rank writes the same",
    Seen(
        ranks=(4, 4),
        bytes=4 * MLA_PROMPT,
        descriptors=64,
        merged=16,
        writes=pairs((0, 0), (1, 0), (2, 1), (3, 1)),
    ),
    p=Layout(tp=4, mla=True),
    d=Layout(tp=2, mla=True),
)(registration_first)
scenario(
    "PP 2 to 1",
    # Each stage writes its two layers.
    Seen(ranks=(2, 2), descriptors=16, merged=4, writes=pairs((0, 0))),
    p=Layout(pp=2),
    d=Layout(),
)(registration_first)
scenario(
    "PP 2, TP 2 to TP 2",
    Seen(ranks=(4, 4), descriptors=32, merged=8, writes=pairs((0, 0), (1, 1))),
    p=Layout(pp=2, tp=2),
    d=Layout(tp=2),
)(registration_first)

# -- blocks -------------------------------------------------------------------------------------------


scenario(
    "two physical blocks in a logical one",
    # 100 tokens: 2 logical blocks of 64, 4 physical of 32.
    Seen(blocks=2),
    p=Layout(block_size=64, kernel_block_size=32),
    d=Layout(block_size=64, kernel_block_size=32),
)(registration_first)
scenario("host buffer", Seen(), p=Layout(host_buffer=True), d=Layout(host_buffer=True))(registration_first)


scenario(
    "two cache groups, one with a window",
    # Layers 1 and 3 keep a window of 32 tokens: 2 blocks of theirs move, 4 of layers 0 and 2.
    Seen(blocks=6, descriptors=12, bytes=12 * BLOCK_BYTES, merged=4),
    p=Layout(window=32),
    d=Layout(window=32),
)(registration_first)

NOTHING = {"bytes": None, "descriptors": None, "merged": None, "writes": None}
"""No NIXL transfer at all."""
NONE_NEEDED = {"ranks": (0, 0), "blocks": 0, "bytes": 0, "descriptors": 0, "merged": 0, "writes": None}
"""There was nothing to move, and that is known."""


@scenario(
    "blocks of 32 at P and 64 at D",
    # vLLM 0.32 does not push to larger blocks: P can't shake hands, and D is never told.
    Seen("failed", ranks=(0, 1), blocks=2, error="push_handshake_failed", **NOTHING),
    p=Layout(block_size=32),
    d=Layout(block_size=64),
)
def _(w: World) -> None:
    registration_first(w)
    assert w.engines["D"].scheduler.requests, "D waits on"


# -- prefix caching -----------------------------------------------------------------------------------


def warmed(w: World, engine: str, num_tokens: int) -> None:
    """An engine that has computed a prompt by itself."""
    w.engines[engine].add(f"warm-{engine}", _prompt(num_tokens), 1)
    w.settle(3)


def _prompt(num_tokens: int) -> list[int]:
    from tests.vllm.fake.world import prompt_of

    return prompt_of(num_tokens)


CACHED = Layout(prefix_caching=True)


@scenario("partial prefix hit at D", Seen(blocks=2, descriptors=8, bytes=PROMPT // 2, merged=4), d=CACHED)
def _(w: World) -> None:
    warmed(w, "D", 70)  # two whole blocks of the prompt's four
    registration_first(w)


@scenario(
    "partial prefix hit at both",
    Seen(blocks=2, descriptors=8, bytes=PROMPT // 2, merged=4),
    p=CACHED,
    d=CACHED,
)
def _(w: World) -> None:
    warmed(w, "D", 70)
    warmed(w, "P", 40)
    registration_first(w)


@scenario("prefix hit of all but the last block", Seen(blocks=1, descriptors=4, bytes=PROMPT // 4), d=CACHED)
def _(w: World) -> None:
    warmed(w, "D", 100)
    w.decode(D1, 100, of=P1)  # vLLM never takes the whole of a prompt from its cache
    w.settle(3)
    w.prefill(P1, 100)
    w.settle()


@scenario("D needs nothing", Seen("nothing to receive", **NONE_NEEDED))
def _(w: World) -> None:
    w.prefill(P1, 100)
    w.settle(3)
    w.decode(D1, 100, of=P1, prompt_logprobs=0)  # computes the whole prompt itself
    w.settle()
    w.pass_time(31, turns=3)  # nobody told P, which held its blocks for the whole lease


@scenario("chunked prefill", Seen(), p=Layout(max_tokens_a_step=32))
def _(w: World) -> None:
    registration_first(w)
    w.settle()


# -- who gives up -------------------------------------------------------------------------------------


@scenario(
    "D aborts before it is scheduled", Seen("aborted", ranks=(0, 1), error="finished_aborted", **NOTHING)
)
def _(w: World) -> None:
    w.prefill(P1, 100)
    w.settle(3)
    w.decode(D1, 100, of=P1)
    w.engines["D"].abort(D1)
    w.settle()
    w.pass_time(31, turns=3)


@scenario(
    "D aborts while it waits",
    # P's leg comes when D's is over: as far as anybody can tell, another try.
    Seen("aborted", ranks=(1, 1), error="finished_aborted", pairing="attempt 1, which D had ended"),
)
def _(w: World) -> None:
    w.decode(D1, 100, of=P1)
    w.settle(4)
    w.engines["D"].abort(D1)
    w.settle(2)
    w.prefill(P1, 100)  # P knows nothing of it and writes
    w.settle()


@scenario("D aborts while blocks are on their way", Seen("aborted", ranks=(1, 1), error="finished_aborted"))
def _(w: World) -> None:
    w.fabric.held = lambda _agent, _handle: True
    registration_first(w)
    w.engines["D"].abort(D1)
    w.settle(3)
    w.fabric.land()
    w.settle()


@scenario("D aborts while it decodes", Seen())
def _(w: World) -> None:
    w.decode(D1, 100, of=P1, max_tokens=50)
    w.settle(3)
    w.prefill(P1, 100)
    w.settle(6)
    w.engines["D"].abort(D1)
    w.settle()


@scenario("P aborts in the queue", Seen("waiting", ranks=(0, 1), waits="a prefill that P gave up", **NOTHING))
def _(w: World) -> None:
    w.decode(D1, 100, of=P1)
    w.settle(3)
    w.prefill(P1, 100)
    w.engines["P"].abort(P1)
    w.settle()


@scenario(
    "P aborts amid the prefill",
    Seen("waiting", ranks=(0, 1), waits="a prefill that P gave up", **NOTHING),
    p=Layout(max_tokens_a_step=32),
)
def _(w: World) -> None:
    w.decode(D1, 100, of=P1)
    w.prefill(P1, 100)
    w.settle(2)
    w.engines["P"].abort(P1)
    w.settle()


@scenario("the decode leg never comes", Seen("expired", ranks=(0, 1), error="lease", **NOTHING))
def _(w: World) -> None:
    w.prefill(P1, 100)
    w.settle(4)
    w.pass_time(31, turns=3)


@scenario("the prefill leg never comes", Seen("waiting", ranks=(0, 1), waits="P's prefill", **NOTHING))
def _(w: World) -> None:
    w.decode(D1, 100, of=P1)
    w.settle(4)
    w.pass_time(500, turns=3)  # the watchdog only says so


FULL = Layout(num_blocks=9)
"""One block is vLLM's own; with a neighbour of 6 a prompt of 4 must wait."""


def crowded(w: World, engine: str) -> None:
    """A neighbour takes most of the cache, and goes on for long."""
    w.engines[engine].add("neighbour", _prompt(170), 400)
    w.settle(2)


@scenario(
    "heartbeats extend the lease",
    Seen(order="blocks first", merged=16),  # the neighbour's blocks come back in reverse
    d=FULL,
)
def _(w: World) -> None:
    crowded(w, "D")
    w.prefill(P1, 100)
    w.settle(3)
    w.decode(D1, 100, of=P1)
    for _ in range(10):
        w.pass_time(6)
    assert P1 in w.engines["P"].scheduler.requests, "a minute on, the lease of 30 s still holds"
    w.engines["D"].abort("neighbour")
    w.settle()


@scenario(
    "heartbeats name another id",
    Seen("waiting", ranks=(0, 1), waits="P has released its blocks", **NOTHING),
    d=FULL,
)
def _(w: World) -> None:
    crowded(w, "D")
    w.prefill(P1, 100)
    w.settle(3)
    w.decode(D1, 100, of=P1, remote_request_id="cmpl-a-0")  # as a router guesses it
    for _ in range(6):
        w.pass_time(6)
    assert P1 not in w.engines["P"].scheduler.requests


@scenario(
    "D comes when the lease is over",
    Seen("waiting", ranks=(0, 1), waits="blocks that P has released", **NOTHING),
)
def _(w: World) -> None:
    w.prefill(P1, 100)
    w.settle(3)
    w.pass_time(31, turns=3)
    w.decode(D1, 100, of=P1)
    w.settle()


@scenario("preempted amid the prefill", Seen(merged=16), p=Layout(num_blocks=8, max_tokens_a_step=32))
def _(w: World) -> None:
    p = w.engines["P"]
    p.add("neighbour", _prompt(95), 30)
    w.settle(3)  # its next token but one needs a fourth block
    w.decode(D1, 100, of=P1)
    w.prefill(P1, 100)
    w.settle(40)
    assert p.preempted == [P1]


@scenario("preempted while it decodes", Seen(), d=Layout(num_blocks=10))
def _(w: World) -> None:
    d = w.engines["D"]
    d.add("neighbour", _prompt(90), 70)
    w.settle(2)
    w.decode(D1, 100, of=P1, max_tokens=70)
    w.settle(3)
    w.prefill(P1, 100)
    w.settle(160)
    assert set(d.preempted) == {D1}
    assert len(d.outputs[D1]) == 70


@scenario("a long decode", Seen())
def _(w: World) -> None:
    w.decode(D1, 100, of=P1, max_tokens=40)
    w.settle(3)
    w.prefill(P1, 100)
    w.settle(6)
    for _ in range(4):
        w.pass_time(6)  # D has its blocks: no heartbeat any more


@scenario(
    "a peer silent for too long is forgotten",
    Seen(),
    Seen(base="cmpl-b-0", merged=16),
    p=Layout(extra={"engine_ttl": 100}),
    d=Layout(extra={"engine_ttl": 100}),
)
def _(w: World) -> None:
    registration_first(w)
    w.pass_time(200, turns=2)
    w.decode("cmpl-b-0-88888888", 100, of="cmpl-b-0-77777777")
    w.settle(4)
    w.prefill("cmpl-b-0-77777777", 100)
    w.settle()


@scenario("engines shut down", Seen())
def _(w: World) -> None:
    registration_first(w)
    for engine in w.engines.values():
        engine.shut_down()


# -- what fails ---------------------------------------------------------------------------------------


def failing(
    call: str, *, times: int = 1, who: str = "", about: bytes = b"", after: int = 0
) -> Callable[[Agent, str, Any], None]:
    """A fault: ``call`` fails, so many times, at agents whose label starts with ``who``.

    ``after`` so many calls that went well, counting those that are ``about`` something.
    """
    left, well = [times], [after]

    def fault(agent: Agent, called: str, subject: Any) -> None:
        wanted = called == call and agent.label.startswith(who) and about in (subject or b"")
        if wanted and well[0]:
            well[0] -= 1
        elif wanted and left[0]:
            left[0] -= 1
            raise FabricError(f"NIXL_ERR_BACKEND in {call}")

    return fault


@scenario(
    "the write cannot be posted",
    Seen("failed", ranks=(0, 1), bytes=None, merged=None, error="transfer_setup_failed"),
)
def _(w: World) -> None:
    w.fabric.fault = failing("transfer", who="P")
    registration_first(w)


@scenario(
    "the write cannot be prepared",
    Seen(
        "failed",
        ranks=(0, 1),
        bytes=None,
        descriptors=None,
        merged=None,
        writes=None,
        error="transfer_setup_failed",
    ),
)
def _(w: World) -> None:
    w.fabric.fault = failing("make_prepped_xfer", who="P")
    registration_first(w)


@scenario(
    "the write fails on its way",
    Seen("failed", ranks=(0, 1), bytes=None, merged=None, error="transfer_failed"),
)
def _(w: World) -> None:
    w.fabric.held = lambda _agent, _handle: True
    registration_first(w)
    w.fabric.land("ERR")
    w.settle()


@scenario(
    "the write fails, and cannot be released at first",
    Seen("failed", ranks=(0, 1), bytes=None, merged=None, error="transfer_failed"),
)
def _(w: World) -> None:
    w.fabric.held = lambda _agent, _handle: True
    registration_first(w)
    w.fabric.fault = failing("release_xfer_handle", times=3, who="P")
    w.fabric.land("ERR")
    w.settle()


@scenario(
    "one rank's write fails",
    Seen(
        "failed",
        ranks=(1, 2),
        descriptors=32,
        bytes=PROMPT // 2,
        merged=16,
        writes=pairs((0, 0), (1, 0)),
        error="transfer_failed",
    ),
    p=Layout(tp=2),
)
def _(w: World) -> None:
    w.fabric.held = lambda agent, _handle: agent.label == "P (0, 1)"
    registration_first(w)
    w.fabric.land("ERR")
    w.settle()


@scenario("the state of a write cannot be had", Seen(bytes=None, merged=None))
def _(w: World) -> None:
    w.fabric.fault = failing("check_xfer_state", who="P")
    registration_first(w)


@scenario(
    "the registration cannot be sent",
    # vLLM counts it and keeps D waiting: earlier ones may still bring a write.
    Seen("waiting", ranks=(0, 1), error="push_reg_notif_failed", waits="P's prefill", **NOTHING),
)
def _(w: World) -> None:
    w.fabric.fault = failing("send_notif", who="D", about=b"PUSH_REG")
    w.decode(D1, 100, of=P1)
    w.settle(4)


@scenario(
    "D knocks at the wrong engine",
    Seen("failed", ranks=(0, 1), error="push_reg_handshake_failed", **NOTHING),
)
def _(w: World) -> None:
    w.decode(D1, 100, of=P1, remote_engine_id="somebody-else")
    w.settle()


@scenario("an exception reaches the writer", Seen("moving", ranks=(0, 1), **NOTHING))
def _(w: World) -> None:
    w.decode(D1, 100, of=P1)
    w.settle(3)
    writer = w.engines["P"].workers[0].nixl
    start = writer._ensure_handshake

    def broken(*_: Any, **__: Any) -> Any:
        writer._ensure_handshake = start
        raise KeyError("a bug in the writer")

    writer._ensure_handshake = broken
    w.prefill(P1, 100)
    w.settle()


# -- more than one ------------------------------------------------------------------------------------


@scenario(
    "several prompts in one request",
    Seen(base="cmpl-a-0"),
    Seen(base="cmpl-a-1", blocks=2, descriptors=8, bytes=PROMPT // 2),
)
def _(w: World) -> None:
    w.decode(D1, 100, of=P1)
    w.decode("cmpl-a-1-66666666", 60, of="cmpl-a-1-55555555")
    w.settle(3)
    w.prefill(P1, 100)
    w.prefill("cmpl-a-1-55555555", 60)
    w.settle()


@scenario(
    "the request is retried after it ended",
    Seen(),
    Seen(attempt=2, merged=16),  # freed blocks come back in reverse: no two follow each other on both sides
)
def _(w: World) -> None:
    registration_first(w)
    w.decode(D2, 100, of=P2)
    w.settle(3)
    w.prefill(P2, 100)
    w.settle()


@scenario(
    "the prefill is retried while D waits",
    Seen(pairing="P's blocks of attempt 2 met D's registration of attempt 1"),
)
def _(w: World) -> None:
    w.decode(D1, 100, of=P1)
    w.settle(3)
    w.prefill(P1, 100)
    w.engines["P"].abort(P1)
    w.settle(2)
    w.prefill(P2, 100)
    w.settle()


@scenario(
    "a retry meets an older registration",
    Seen(
        "aborted",
        ranks=(1, 1),
        error="finished_aborted",
        pairing="P's blocks of attempt 2 met D's registration of attempt 1, which D had ended",
    ),
    Seen("waiting", attempt=2, ranks=(0, 1), waits="blocks that P gave to attempt 1", **NOTHING),
)
def _(w: World) -> None:
    w.decode(D1, 100, of=P1)
    w.settle(4)
    w.engines["D"].abort(D1)  # its client went away; P still has the registration
    w.settle(2)
    w.decode(D2, 100, of=P2)
    w.settle(3)
    w.prefill(P2, 100)  # pairs with the first of the two
    w.settle()


@scenario(
    "one P, two D",
    Seen(),
    Seen(base="cmpl-b-0", merged=32, ranks=(2, 2), descriptors=32, writes=pairs((0, 0), (0, 1))),
)
def _(w: World) -> None:
    w.engine("D2", Layout(tp=2))
    w.decode(D1, 100, of=P1)
    w.decode("cmpl-b-0-88888888", 100, of="cmpl-b-0-77777777", d="D2")
    w.settle(4)
    w.prefill(P1, 100)
    w.prefill("cmpl-b-0-77777777", 100)
    w.settle()


@scenario(
    "two ranks pair differently",
    # D1's registration does not reach P's rank 1: there P1's blocks meet D2's.
    Seen(
        "moving",
        ranks=(1, 2),
        bytes=PROMPT // 2,
        writes=pairs((0, 0)),
        merged=16,
        error="push_reg_notif_failed",
        pairing="P's ranks paired attempts differently",
    ),
    Seen(
        "moving",
        attempt=2,
        ranks=(1, 2),
        bytes=PROMPT // 2,
        writes=pairs((1, 0)),
        merged=16,
        waits="P's tp0 to pair it",
        pairing="P's ranks paired attempts differently",
    ),
    p=Layout(tp=2),
)
def _(w: World) -> None:
    w.fabric.fault = failing("send_notif", who="D", about=b"PUSH_REG", after=1)
    w.decode(D1, 100, of=P1)
    w.settle(4)
    w.decode(D2, 100, of=P1)
    w.settle(3)
    w.prefill(P1, 100)
    w.settle()


@scenario(
    "a surplus registration takes the next prefill",
    Seen(ranks=(2, 2), descriptors=32, merged=32, writes=pairs((0, 0), (0, 1))),
    # P writes once more into the same blocks of D, which counts on nothing.
    Seen(
        "aborted",
        attempt=2,
        ranks=(2, 2),
        descriptors=32,
        merged=32,
        writes=pairs((0, 0), (0, 1)),
        error="D did not wait for these blocks",
        pairing="met a registration of attempt 1 that had been met before",
    ),
    d=Layout(tp=2),
)
def _(w: World) -> None:
    w.prefill(P1, 100)
    w.prefill(P2, 100)
    w.settle(3)
    w.decode(D1, 100, of=P1)
    w.settle()


# -- as a child of MultiConnector ---------------------------------------------------------------------

scenario("the only child", Seen(), beside={})(registration_first)
scenario(
    "a child that was not chosen",
    Seen("nothing to receive", **NONE_NEEDED),
    beside={"kv_consumer": ["DecodeBenchConnector"]},
)(blocks_first)


# -- pull ---------------------------------------------------------------------------------------------

for p_tp, d_tp, reads in (
    (1, 1, pairs((0, 0))),
    (1, 2, pairs((0, 0), (0, 1))),
    (2, 1, pairs((0, 0), (1, 0))),
    (2, 2, pairs((0, 0), (1, 1))),
    (8, 4, pairs((0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (7, 3))),
):
    n = len(reads)
    scenario(
        f"pull, TP {p_tp} to {d_tp}",
        Seen(
            mode="pull",
            ranks=(n, n),
            descriptors=16 * n,
            merged=(4 if p_tp == d_tp else 16) * n,
            writes=reads,
        ),
        mode="Pull",
        p=Layout(tp=p_tp),
        d=Layout(tp=d_tp),
    )(pull)


@scenario(
    "pull, partial prefix hit",
    Seen(mode="pull", blocks=2, descriptors=8, bytes=PROMPT // 2, merged=4),
    mode="Pull",
    d=CACHED,
)
def _(w: World) -> None:
    warmed(w, "D", 70)
    pull(w)


@scenario(
    "pull, D aborts in the queue",
    Seen("aborted", mode="pull", ranks=(0, 1), error="aborted", **NOTHING),
    mode="Pull",
    d=FULL,
)
def _(w: World) -> None:
    crowded(w, "D")
    w.prefill(P1, 100)
    w.settle(3)
    w.decode(D1, 100, of=P1)
    w.settle(2)
    w.engines["D"].abort(D1)
    w.settle()


@scenario("pull, D needs nothing", Seen("nothing to receive", mode="pull", **NONE_NEEDED), mode="Pull")
def _(w: World) -> None:
    w.prefill(P1, 100)
    w.settle(3)
    w.decode(D1, 100, of=P1, prompt_logprobs=0)
    w.settle()
    assert P1 not in w.engines["P"].scheduler.requests, "D notified P"


@scenario(
    "pull, the read fails on its way",
    Seen("failed", mode="pull", ranks=(0, 1), bytes=None, merged=None, error="transfer_failed"),
    mode="Pull",
)
def _(w: World) -> None:
    w.fabric.held = lambda _agent, _handle: True
    pull(w)
    w.fabric.land("ERR")
    w.settle()


@scenario(
    "pull, the read cannot be posted",
    Seen("failed", mode="pull", ranks=(0, 1), bytes=None, merged=None, error="transfer_setup_failed"),
    mode="Pull",
)
def _(w: World) -> None:
    w.fabric.fault = failing("transfer", who="D")
    pull(w)


@scenario(
    "pull, nobody reads", Seen("expired", mode="pull", ranks=(0, 1), error="lease", **NOTHING), mode="Pull"
)
def _(w: World) -> None:
    w.prefill(P1, 100)
    w.settle(3)
    w.pass_time(31, turns=3)
