"""Every name that a span may bear, and what it means: a closed list. docs/reference/spans.md is made from it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from pushscope.telemetry.spans.model import Kind
from pushscope.telemetry.transfer import Stage

NAMESPACE: Final = "kv_transfer"
RECEIVE: Final = f"{NAMESPACE} receive"
SEND: Final = f"{NAMESPACE} send"


def stage_name(stage: Stage) -> str:
    """The name of a stage's span."""
    return f"{NAMESPACE} {stage.value}"


class SpanName(NamedTuple):
    """A kind of span."""

    name: str
    kind: Kind
    meaning: str


ENDS: Final = (
    SpanName(
        RECEIVE,
        Kind.CONSUMER,
        "D's part. Push: registration staged → decode scheduled; pull: D has the request → decode scheduled. Of one "
        "that did not get there: → the receive failed, or the request ended.",
    ),
    SpanName(
        SEND,
        Kind.PRODUCER,
        "P's part, one per P rank: the first of (registration drained, blocks staged) → the last write of this rank "
        "seen done, or failed, or its lease expired. Pull: blocks staged → D's notification counted.",
    ),
)


class On(StrEnum):
    """On which spans an attribute is."""

    ENDS = "receive, send"
    RECEIVE = "receive"
    RANKED = "send, stages"
    STAGES = "stages"
    CLAMPED = "receive, stages"
    WRITES = "descriptors, submit, wire"
    DESCRIPTORS = "receive, send, descriptors"
    MOVED = "receive, send, wire"
    RENDEZVOUS = "rendezvous"
    SUBMIT = "submit"
    WIRE = "wire"
    NOTIFICATION = "notification"
    JOINED = "receive, relay, flight, wire"
    ANY = "any"


class Attribute(NamedTuple):
    """An attribute: its type in OpenTelemetry's words (``string[]`` is a sequence)."""

    name: str
    type: str
    on: On
    meaning: str


ATTRIBUTES: Final = (
    Attribute("kv_transfer.base_id", "string", On.ENDS, "What the request ids of P and D have in common."),
    Attribute("kv_transfer.p.engine_id", "string", On.ENDS, "P's engine; absent while D has not said which."),
    Attribute("kv_transfer.p.request_id", "string", On.ENDS, "P's own id of the request, as recorded."),
    Attribute("kv_transfer.d.engine_id", "string", On.ENDS, "D's engine."),
    Attribute("kv_transfer.d.request_id", "string", On.ENDS, "D's own id of the request, as recorded."),
    Attribute("kv_transfer.transfer_id", "string", On.ENDS, "The router's id for both legs, if it gave one."),
    Attribute("kv_transfer.mode", "string", On.ENDS, "`push` or `pull`."),
    Attribute("kv_transfer.attempt", "int", On.ENDS, "Which try at this request it is, from 1."),
    Attribute("kv_transfer.outcome", "string", On.ENDS, "How it ended, or (exported before its end) stands."),
    Attribute("kv_transfer.sides", "string[]", On.ENDS, "Which sides were observed: `P`, `D`."),
    Attribute(
        "kv_transfer.tentative", "boolean", On.ENDS, "True: P and D were only paired by their base id."
    ),
    Attribute(
        "kv_transfer.pairing", "string", On.ENDS, "In words, if P paired otherwise than the legs were sent."
    ),
    Attribute(
        "kv_transfer.order", "string", On.ENDS, "Who was early: `registration first` (D), `blocks first` (P)."
    ),
    Attribute(
        "kv_transfer.diagnosis", "string", On.ENDS, "Why it was stuck, lost or slow: the code of the cause."
    ),
    Attribute(
        "kv_transfer.diagnoses", "string[]", On.ENDS, "The codes of all that was found, the cause first."
    ),
    Attribute(
        "kv_transfer.ranks_done",
        "int",
        On.RECEIVE,
        "Notifications counted (pull: reads done), on all D ranks.",
    ),
    Attribute("kv_transfer.ranks_expected", "int", On.RECEIVE, "Of how many."),
    Attribute("kv_transfer.tokens", "int", On.ENDS, "Tokens of the prompt that are to move."),
    Attribute("kv_transfer.blocks", "int", On.ENDS, "KV blocks that D asked for, or P holds."),
    Attribute(
        "kv_transfer.bytes",
        "int",
        On.MOVED,
        "Bytes moved, as NIXL tells: on all ranks, this rank, this write.",
    ),
    Attribute(
        "kv_transfer.descriptors", "int", On.DESCRIPTORS, "NIXL descriptors built, before neighbours merge."
    ),
    Attribute(
        "kv_transfer.merged_descriptors", "int", On.MOVED, "Descriptors left after NIXL merged neighbours."
    ),
    Attribute(
        "kv_transfer.exposed_seconds",
        "double",
        On.RECEIVE,
        "Blocks staged at P → decode scheduled at D: what the first token waited for the transfer.",
    ),
    Attribute(
        "kv_transfer.hidden_seconds",
        "double",
        On.RECEIVE,
        "What lay before blocks staged, under the prefill.",
    ),
    Attribute(
        "kv_transfer.path_stages",
        "string[]",
        On.RECEIVE,
        "The critical path through the last rank: stages, and the gaps between them (`before submit`).",
    ),
    Attribute(
        "kv_transfer.path_seconds",
        "double[]",
        On.RECEIVE,
        "How long each of `path_stages` took: disjoint, up to decode scheduled; the sum is `exposed_seconds`.",
    ),
    Attribute("kv_transfer.stage", "string", On.STAGES, "The stage, as in the span's name."),
    Attribute("kv_transfer.p.rank", "string", On.RANKED, "The P rank: `tp0`, or with a pipeline `pp1tp0`."),
    Attribute("kv_transfer.d.rank", "string", On.STAGES, "The D rank."),
    Attribute(
        "kv_transfer.write", "int", On.WRITES, "The number of the NIXL transfer at the rank that posted it."
    ),
    Attribute("kv_transfer.waited", "string", On.RENDEZVOUS, "Who waited for whom: `P waited for D` …"),
    Attribute(
        "kv_transfer.nixl_post_seconds", "double", On.SUBMIT, "NIXL's own figure for posting this transfer."
    ),
    Attribute(
        "kv_transfer.nixl_transfer_seconds",
        "double",
        On.WIRE,
        "NIXL's own figure; it ends when it is polled.",
    ),
    Attribute("kv_transfer.notification", "int", On.NOTIFICATION, "The how-manyeth this D rank counted."),
    Attribute(
        "kv_transfer.upper_bound",
        "boolean",
        On.WIRE,
        "True: D was not observed, so the span ends when P's poll saw the write done, which is later than it was.",
    ),
    Attribute(
        "kv_transfer.unfinished", "boolean", On.STAGES, "True: its end was not seen; it ends with its parent."
    ),
    Attribute(
        "kv_transfer.clamped",
        "boolean",
        On.CLAMPED,
        "True: a border was moved: two hosts' clocks put it where it can't be (a notification before its write was "
        "posted), or it lay after D had ended its part.",
    ),
    Attribute(
        "kv_transfer.clock_uncertainty_seconds",
        "double",
        On.JOINED,
        "By how much the offset between the clocks of P's and D's hosts may be wrong; absent on one host.",
    ),
    Attribute(
        "kv_transfer.clock_unsure", "boolean", On.JOINED, "True: that is not known; only wall clocks tell."
    ),
    Attribute(
        "gen_ai.request.model", "string", On.ENDS, "The model, as the engine that made the span serves it."
    ),
    Attribute("server.address", "string", On.ENDS, "The other engine's side channel: its host."),
    Attribute("server.port", "int", On.ENDS, "The other engine's side channel: its port."),
    Attribute("error.type", "string", On.ANY, "What went wrong: one of the words below."),
)


class ErrorType(NamedTuple):
    """A value of ``error.type``."""

    name: str
    meaning: str
    is_error: bool = True
    """Whether the span's status is ERROR."""


OF_VLLM: Final = (
    ErrorType("handshake_failed", "The handshake with the other engine failed."),
    ErrorType("handshake_setup_failed", "The handshake could not be begun."),
    ErrorType("notification_failed", "A notification could not be sent."),
    ErrorType(
        "push_handshake_failed", "P's handshake with D failed; its blocks wait for their lease to end."
    ),
    ErrorType("push_reg_handshake_failed", "D's handshake with P failed, so it could not register."),
    ErrorType("push_reg_notif_failed", "The registration could not be sent."),
    ErrorType("transfer_exception", "The poll of a NIXL transfer raised."),
    ErrorType("transfer_failed", "NIXL reported the transfer as failed."),
    ErrorType("transfer_release_failed", "A failed transfer's handle could not be released yet."),
    ErrorType("transfer_setup_failed", "The NIXL transfer could not be prepared or posted."),
)
"""vLLM's failure types (``_log_failure`` in its nixl package): a closed set."""
OURS: Final = (
    ErrorType("no_remote_agents", "D knows no NIXL agent of P; vLLM names no failure type here."),
    ErrorType("receive_failed", "D's worker reported the receive as failed, and nobody said why."),
    ErrorType("lease_expired", "P's lease ran out before the blocks were taken."),
    ErrorType("engine_lost", "An engine that the transfer needs is gone."),
    ErrorType(
        "aborted", "The request was ended before the blocks came. No error: the status is unset.", False
    ),
    ErrorType("_OTHER", "A failure type of a vLLM release that is not known here."),
)
ERROR_TYPES: Final = {error.name: error for error in (*OF_VLLM, *OURS)}


def known_error(error_type: str) -> str:
    """The ``error.type`` for a recorded failure type: the set stays closed whatever a release says."""
    return error_type if error_type in ERROR_TYPES else "_OTHER"
