"""Every family: what the page shows, what docs/reference/metrics.md is made from, and what dashboards and rules name.

Names that begin with ``kv_transfer_`` are about transfers and the engines that make them; ``pushscope_`` is about the
watching itself: what was recorded, read, lost, and the agent's own work. A family with a label for ranks or for peers
is of its own, and a counter or a summary where a histogram would be too many series (:mod:`.cardinality`).
"""

from __future__ import annotations

from typing import Final

from pushscope.telemetry.diagnosis.catalogue import CATALOGUE
from pushscope.telemetry.diagnosis.model import Severity
from pushscope.telemetry.metrics.family import (
    BYTES,
    COUNTS,
    SECONDS,
    WAIT_SECONDS,
    Family,
    Kind,
    Label,
    Of,
    closed,
)
from pushscope.telemetry.spans.attributes import OF_VLLM
from pushscope.telemetry.transfer import OPEN_OUTCOMES, Outcome, Stage

# -- labels -------------------------------------------------------------------------------------------

OUTCOME_WORDS: Final = {o: o.value.replace(" ", "_") for o in Outcome if o not in OPEN_OUTCOMES}
"""How a transfer ended, as a label says it."""
OTHER: Final = "_OTHER"
"""A failure type of a vLLM release that is not known here."""
FAILURES: Final = (*(error.name for error in OF_VLLM), "no_remote_agents", OTHER)
"""vLLM's failure types (``_log_failure`` in its nixl package), and where it names none, one of ours."""

ENGINE_MEANING: Final = "The engine's id. `kv_transfer_engine_info` has the rest of what it is."
PEER_MEANING: Final = "The id of the engine on the other side, observed or not."

ROLE: Final = Label(
    "role",
    "The part that the engine played in what is counted: `P` or `D`. With `kv_role: kv_both` it can be both.",
    ("P",),
    ("D",),
)
MODE: Final = closed("mode", "`push` or `pull`.", "push", "pull")
STAGE: Final = closed("stage", "A stage of a transfer.", *(stage.value for stage in Stage))
RANK: Final = Label("rank", "`tp0` …, with a pipeline `pp1tp0` …; of some families also `scheduler`.")
OUTCOME: Final = closed("outcome", "How the transfer ended.", *OUTCOME_WORDS.values())

_OF_STAGES: Final = (
    "Of transfers that were delivered, each rank's stage for itself. A stage belongs to the side that is at work in "
    "it; what begins at one side and ends at the other (`relay`, `flight`, in push mode `wire`) belongs to D and needs "
    "both. `wire` with role P is an upper bound: P alone was seen, and it ends when P's poll says so."
)

# -- how long -----------------------------------------------------------------------------------------

EXPOSED_SECONDS: Final = Family(
    name="kv_transfer_exposed_seconds",
    kind=Kind.HISTOGRAM,
    of=Of.PAIR,
    own=(MODE,),
    parts=("D",),
    unit="seconds",
    buckets=WAIT_SECONDS,
    exemplars=True,
    joined=True,
    help="Blocks staged at P to decode scheduled at D: what the first token waited for the transfer. Each transfer "
    "once, at D; needs both sides.",
    good="A small, steady share of the time to the first token. If it rises: in which stage, "
    "kv_transfer_stage_seconds says.",
)
HIDDEN_SECONDS: Final = Family(
    name="kv_transfer_hidden_seconds",
    kind=Kind.HISTOGRAM,
    of=Of.ENGINE,
    own=(MODE,),
    parts=("D",),
    unit="seconds",
    buckets=WAIT_SECONDS,
    joined=True,
    help="What D did before P's blocks were staged, hidden by the prefill. Push mode; each transfer once, at D; needs "
    "both sides.",
    good="Above zero: D registers while P computes. All zero: the router sends D's leg only when P's is done.",
)
STAGE_SECONDS: Final = Family(
    name="kv_transfer_stage_seconds",
    kind=Kind.HISTOGRAM,
    of=Of.ENGINE,
    own=(ROLE, MODE, STAGE),
    unit="seconds",
    buckets=SECONDS,
    exemplars=True,
    help=f"How long a stage took. {_OF_STAGES}",
    good="wire is most of what is exposed; the others take milliseconds. A rendezvous may be long where one side is "
    "early.",
)
RANK_STAGE_SECONDS: Final = Family(
    name="kv_transfer_rank_stage_seconds",
    kind=Kind.SUMMARY,
    of=Of.ENGINE,
    own=(ROLE, STAGE, RANK),
    unit="seconds",
    help="Sum and count of kv_transfer_stage_seconds by rank of the engine.",
    good="The ranks of an engine are alike. One that takes longer keeps every request waiting.",
)
PEER_STAGE_SECONDS: Final = Family(
    name="kv_transfer_peer_stage_seconds",
    kind=Kind.SUMMARY,
    of=Of.PAIR,
    own=(ROLE, STAGE),
    unit="seconds",
    help="Sum and count of kv_transfer_stage_seconds by the engine on the other side.",
    good="Peers on like links are alike. One that takes longer: look at its link, then at its load.",
)
RENDEZVOUS_WAIT_SECONDS: Final = Family(
    name="kv_transfer_rendezvous_wait_seconds",
    kind=Kind.SUMMARY,
    of=Of.ENGINE,
    own=(closed("waiting", "Who was early: `P` has its blocks, `D` has registered.", "P", "D"),),
    parts=("P",),
    unit="seconds",
    help="How long the side that came first waited at P for the other, of transfers that were delivered; each P rank "
    "for itself.",
    good="D waits for P: nothing is lost. P waiting for D keeps blocks pinned and is exposed time.",
)
NIXL_SECONDS: Final = Family(
    name="kv_transfer_nixl_seconds",
    kind=Kind.SUMMARY,
    of=Of.ENGINE,
    own=(MODE, closed("phase", "NIXL's own figures.", "post", "transfer")),
    unit="seconds",
    help="NIXL's own times of each of its transfers (one rank to one rank), as in vllm:nixl_post_time_seconds and "
    "vllm:nixl_xfer_time_seconds. The second ends at vLLM's next poll, so later than the blocks arrive.",
    good="post: under a millisecond; it grows with descriptors. transfer: bytes over the link's rate, and one engine "
    "step.",
)

# -- how much -----------------------------------------------------------------------------------------

NIXL_BYTES: Final = Family(
    name="kv_transfer_nixl_bytes",
    kind=Kind.HISTOGRAM,
    of=Of.ENGINE,
    own=(MODE,),
    unit="bytes",
    buckets=BYTES,
    help="Bytes of each NIXL transfer (one rank to one rank), at the engine that posts it: P writes in push mode, D "
    "reads in pull mode.",
    good="In proportion to prompts. Far less than usual: prefixes are cached at D.",
)
NIXL_DESCRIPTORS: Final = Family(
    name="kv_transfer_nixl_descriptors",
    kind=Kind.HISTOGRAM,
    of=Of.ENGINE,
    own=(MODE, closed("merged", "After NIXL merged neighbours, or as built.", "false", "true")),
    buckets=COUNTS,
    help="Descriptors of each NIXL transfer, as vLLM built them and as NIXL merged neighbours.",
    good="Few after merging. Many mean scattered, small blocks and long post times: raise --block-size.",
)
RANK_BYTES: Final = Family(
    name="kv_transfer_rank_bytes_total",
    kind=Kind.COUNTER,
    of=Of.ENGINE,
    own=(MODE, RANK),
    unit="bytes",
    help="Bytes of NIXL transfers by the rank that posted them.",
    good="Alike on all ranks.",
)
PEER_BYTES: Final = Family(
    name="kv_transfer_peer_bytes_total",
    kind=Kind.COUNTER,
    of=Of.PAIR,
    own=(MODE,),
    unit="bytes",
    help="Bytes of transfers that have ended by the engine on the other side, at the engine that posted them.",
    good="As the router spreads the load.",
)

# -- what became of it --------------------------------------------------------------------------------

TRANSFERS: Final = Family(
    name="kv_transfer_transfers_total",
    kind=Kind.COUNTER,
    of=Of.ENGINE,
    own=(ROLE, MODE, OUTCOME),
    help="Transfers that ended, by outcome. Each side counts its own: a transfer is in here once with role P and once "
    "with role D, as far as these engines are observed. Take one role for a total.",
    good="delivered and nothing_to_receive. failed, expired, lost and aborted: see kv_transfer_stuck and the runbooks.",
)
PEER_TRANSFERS: Final = Family(
    name="kv_transfer_peer_transfers_total",
    kind=Kind.COUNTER,
    of=Of.PAIR,
    own=(
        ROLE,
        closed("result", "In three words.", "delivered", "nothing_to_move", "failed"),
    ),
    help="Transfers that ended, by the engine on the other side. `failed` is every outcome that is neither delivered "
    "nor without anything to move.",
    good="failed stays where it is. If it rises with one peer only, look at that engine and its link.",
)
PEER_COMPLETIONS: Final = Family(
    name="kv_transfer_peer_completions_total",
    kind=Kind.COUNTER,
    of=Of.PAIR,
    own=(closed("result", "Whether it came before the transfer ended.", "came", "missing"),),
    parts=("D",),
    help="What D was due by transfers that ended, one per pair of ranks: in push mode P's notifications, in pull mode "
    "its own reads.",
    good="Only came. missing: some rank of that peer did not deliver, and D waited for it until the client gave up.",
)
FAILED: Final = Family(
    name="kv_transfer_failures_total",
    kind=Kind.COUNTER,
    of=Of.ENGINE,
    own=(closed("error_type", "vLLM's failure type.", *FAILURES),),
    help="Failures that vLLM reported, by its own type; each rank for itself, and not all of them end a transfer.",
    good="Zero.",
)
REGISTRATIONS: Final = Family(
    name="kv_transfer_registrations_total",
    kind=Kind.COUNTER,
    of=Of.ENGINE,
    own=(
        Label(
            "result",
            "At D `sent` or `failed`; at P `received`, or `surplus`: its request is matched already.",
            ("received", "surplus"),
            ("sent", "failed"),
        ),
    ),
    help="Registrations of D with a P rank, one per pair of ranks.",
    good="failed is zero. surplus comes with more D ranks than P ranks; vLLM keeps each of them for ever.",
)
NOTIFICATIONS: Final = Family(
    name="kv_transfer_notifications_total",
    kind=Kind.COUNTER,
    of=Of.ENGINE,
    own=(
        closed(
            "result",
            "`unrecognised`: no such request any more; `lost`: drained by a writer thread that then raised.",
            "counted",
            "unrecognised",
            "lost",
        ),
    ),
    help="Completion notifications, at D in push mode and at P in pull mode; one per pair of ranks.",
    good="Only counted. An unrecognised one wrote into blocks that may be another request's by now.",
)
HANDSHAKES: Final = Family(
    name="kv_transfer_handshakes_total",
    kind=Kind.COUNTER,
    of=Of.ENGINE,
    own=(closed("result", "How it ended.", "succeeded", "failed"),),
    help="Handshakes that this engine began and that ended, each rank for itself.",
    good="A few after each start of an engine, none failed.",
)
PEER_HANDSHAKES: Final = Family(
    name="kv_transfer_peer_handshakes_total",
    kind=Kind.COUNTER,
    of=Of.PAIR,
    own=HANDSHAKES.own,
    help="Handshakes that this engine began and that ended, by the engine on the other side.",
    good="failed with one peer only: its side channel can't be reached from here, or it is another version.",
)
HANDSHAKE_SECONDS: Final = Family(
    name="kv_transfer_handshake_seconds",
    kind=Kind.SUMMARY,
    of=Of.PAIR,
    unit="seconds",
    help="How long handshakes with a peer took, failed ones included.",
    good="Under a second; the first transfer between two engines waits for it.",
)
HEARTBEAT_IDS: Final = Family(
    name="kv_transfer_heartbeat_ids_total",
    kind=Kind.COUNTER,
    of=Of.ENGINE,
    own=(
        Label(
            "result",
            "At D `sent` or `unsent`; at P `applied` to a lease, or `ignored`.",
            ("applied", "ignored"),
            ("sent", "unsent"),
        ),
    ),
    help="Request ids in heartbeats.",
    good="unsent is zero. ignored alone means nothing: with both legs sent at once every id is ignored.",
)
LEASES: Final = Family(
    name="kv_transfer_leases_total",
    kind=Kind.COUNTER,
    of=Of.ENGINE,
    own=(closed("event", "What happened to a lease.", "set", "extended", "expired"),),
    parts=("P",),
    help="Leases of blocks at P, each rank for itself.",
    good="expired is zero: blocks that nobody took in time were given up.",
)
WRITER_EXCEPTIONS: Final = Family(
    name="kv_transfer_writer_exceptions_total",
    kind=Kind.COUNTER,
    of=Of.ENGINE,
    help="Exceptions that reached vLLM's writer loop, which logs them and goes on.",
    good="Zero: each loses a request, or the rest of a batch of notifications.",
)
EVICTIONS: Final = Family(
    name="kv_transfer_evictions_total",
    kind=Kind.COUNTER,
    of=Of.ENGINE,
    own=(closed("held", "What was dropped.", "blocks", "registration"),),
    parts=("P",),
    help="Entries that a writer thread dropped unmatched, each rank for itself.",
    good="Zero: one half of a rendezvous never came.",
)
WATCHDOG_FIRED: Final = Family(
    name="kv_transfer_watchdog_fired_total",
    kind=Kind.COUNTER,
    of=Of.ENGINE,
    parts=("D",),
    help="Requests at D for which push_registration_timeout passed; vLLM only logs it.",
    good="Zero: such a request hangs until its client gives up.",
)
CONNECTOR_SECONDS: Final = Family(
    name="kv_transfer_connector_seconds_total",
    kind=Kind.COUNTER,
    of=Of.ENGINE,
    own=(RANK,),
    unit="seconds",
    help="Time that the connector took from the engine's main thread.",
    good="A small share of a core: what it takes, decoding waits for.",
)
CONNECTOR_CALLS: Final = Family(
    name="kv_transfer_connector_calls_total",
    kind=Kind.COUNTER,
    of=Of.ENGINE,
    own=(RANK,),
    help="Calls of the connector on the engine's main thread.",
    good="A few per engine step; none at all: the engine is idle, and neither drains nor polls.",
)

# -- what is so now -----------------------------------------------------------------------------------

IN_FLIGHT: Final = Family(
    name="kv_transfer_in_flight",
    kind=Kind.GAUGE,
    of=Of.ENGINE,
    own=(ROLE,),
    help="Transfers whose halves have met and whose blocks are on their way; each side counts its own.",
    good="Rises and falls with the load, and comes back to zero.",
)
WAITING: Final = Family(
    name="kv_transfer_waiting",
    kind=Kind.GAUGE,
    of=Of.ENGINE,
    own=(ROLE,),
    help="Transfers for which this engine waits: P has blocks and no taker, D has asked and gets nothing.",
    good="Few, and not for long. D waits while P computes; P waiting keeps blocks pinned.",
)
OLDEST_IN_FLIGHT: Final = Family(
    name="kv_transfer_oldest_in_flight_seconds",
    kind=Kind.GAUGE,
    of=Of.ENGINE,
    own=(ROLE,),
    unit="seconds",
    help="For how long the oldest of those in flight has been in its present stage; 0 if there is none.",
    good="Near the usual time of a stage. vLLM's own histograms never see a write that does not end.",
)
OLDEST_WAITING: Final = Family(
    name="kv_transfer_oldest_waiting_seconds",
    kind=Kind.GAUGE,
    of=Of.ENGINE,
    own=(ROLE,),
    unit="seconds",
    help="For how long the oldest of those that wait has waited; 0 if there is none.",
    good="Seconds. Past half a lease (15 s by default) P's blocks will be given up; D waits for ever.",
)
STUCK: Final = Family(
    name="kv_transfer_stuck",
    kind=Kind.GAUGE,
    of=Of.ENGINE,
    own=(
        closed("code", "The diagnosis: a section of the runbooks.", *CATALOGUE),
        closed("severity", "How bad it is.", *(severity.value for severity in Severity)),
    ),
    help="Transfers, or the engine itself, of which a diagnosis is true now or was in the last 30 seconds. A transfer "
    "is told at D, or at P where D is not observed.",
    good="Zero for error and warning. Each code is a section of the runbooks; `pushscope stuck` names the requests.",
)
PINNED_REQUESTS: Final = Family(
    name="kv_transfer_pinned_requests",
    kind=Kind.GAUGE,
    of=Of.ENGINE,
    parts=("P",),
    help="Prefilled requests whose blocks P holds for a D.",
    good="A few; it follows the load.",
)
PINNED_BLOCKS: Final = Family(
    name="kv_transfer_pinned_blocks",
    kind=Kind.GAUGE,
    of=Of.ENGINE,
    parts=("P",),
    help="KV blocks that P holds for a D; nothing else can use them.",
    good="A small part of the cache. Growing: D does not take them; look at waiting and at kv_transfer_stuck.",
)
PINNED_TOKENS: Final = Family(
    name="kv_transfer_pinned_tokens",
    kind=Kind.GAUGE,
    of=Of.ENGINE,
    parts=("P",),
    help="Tokens of the prompts whose blocks P holds for a D.",
    good="As the blocks.",
)
ABANDONED_REQUESTS: Final = Family(
    name="kv_transfer_abandoned_requests",
    kind=Kind.GAUGE,
    of=Of.ENGINE,
    parts=("D",),
    help="Requests that have ended at D while it holds blocks for them that nobody has filled.",
    good="Zero. In push mode only P's write frees them.",
)
ABANDONED_BLOCKS: Final = Family(
    name="kv_transfer_abandoned_blocks",
    kind=Kind.GAUGE,
    of=Of.ENGINE,
    parts=("D",),
    help="KV blocks that D holds for requests that have ended, and that nobody has filled.",
    good="Zero. Growing: D loses cache until it is restarted.",
)
TABLE_ENTRIES: Final = Family(
    name="kv_transfer_table_entries",
    kind=Kind.GAUGE,
    of=Of.ENGINE,
    own=(
        RANK,
        closed(
            "table",
            "`staged` is the scheduler's, the others a worker's.",
            "staged",
            "unmatched_blocks",
            "unmatched_registrations",
            "writes",
            "leases",
            "receiving",
        ),
    ),
    help="Sizes of vLLM's own tables, as the engine said them last.",
    good="They come back to zero when the load does. One that only grows is a leak; see the runbooks.",
)
CLOCK_OFFSET: Final = Family(
    name="kv_transfer_clock_offset_seconds",
    kind=Kind.GAUGE,
    of=Of.HOSTS,
    unit="seconds",
    joined=True,
    help="The peer host's clock minus this host's, as far as both are observed.",
    good="Anything steady: joined times are corrected by it.",
)
CLOCK_UNCERTAINTY: Final = Family(
    name="kv_transfer_clock_uncertainty_seconds",
    kind=Kind.GAUGE,
    of=Of.HOSTS,
    unit="seconds",
    joined=True,
    help="By how much kv_transfer_clock_offset_seconds may be wrong; absent while not known.",
    good="Far below the joined times (exposed, flight, wire): no better than this are they known.",
)
ENGINE_UP: Final = Family(
    name="kv_transfer_engine_up",
    kind=Kind.GAUGE,
    of=Of.ENGINE,
    help="1 while all processes of the engine are there, else 0; absent ten minutes after it is gone.",
    good="1.",
)
ENGINE_INFO: Final = Family(
    name="kv_transfer_engine_info",
    kind=Kind.INFO,
    of=Of.ENGINE,
    own=(
        Label("role", "`P`, `D` or `PD`: what its kv_role lets it be."),
        MODE,
        Label("host", "Its host's name."),
        Label("side_channel", "`host:port` that it advertises for handshakes."),
        Label("model", "The model that it serves."),
        Label("tp_size", "Tensor-parallel ranks."),
        Label("pp_size", "Pipeline stages."),
        Label("vllm_version", "As installed."),
        Label("nixl_version", "As installed."),
        Label("pushscope_version", "As installed in the engine."),
    ),
    help="What an engine is. Join on `engine` to have these labels elsewhere.",
    good="Versions alike.",
)

# -- the watching itself ------------------------------------------------------------------------------

RECORDING: Final = Family(
    name="pushscope_recording",
    kind=Kind.GAUGE,
    of=Of.ENGINE,
    help="1 while the engine records, 0 while that is switched off.",
    good="1. 0: every other figure of this engine stands still (`pushscope recording on`).",
)
SEAMS_OFF: Final = Family(
    name="pushscope_seams_off",
    kind=Kind.GAUGE,
    of=Of.ENGINE,
    help="Processes of the engine in which something is not recorded because this vLLM differs.",
    good="0. `pushscope doctor` says what is missing.",
)
EVENTS_READ: Final = Family(
    name="pushscope_events_read_total",
    kind=Kind.COUNTER,
    of=Of.ENGINE,
    help="Events of the engine that were read.",
    good="Some 25 per transfer and a few a second.",
)
EVENTS_LOST: Final = Family(
    name="pushscope_events_lost_total",
    kind=Kind.COUNTER,
    of=Of.ENGINE,
    own=(
        closed(
            "cause",
            "`overwritten` before the agent came to them; `damaged` in the ring; `unknown` to this version; "
            "`unrecorded`: the engine could not write them.",
            "overwritten",
            "damaged",
            "unknown",
            "unrecorded",
        ),
    ),
    help="Events of the engine that were lost.",
    good="Zero: figures miss what these told. overwritten: larger rings (`bytes`), or more CPU for the agent.",
)
FOLLOWED: Final = Family(
    name="pushscope_transfers_followed",
    kind=Kind.GAUGE,
    of=Of.AGENT,
    help="Transfers in the agent's memory that have not been closed.",
    good="As many as are in flight, waiting, or have ended in the last half minute.",
)
EVICTED: Final = Family(
    name="pushscope_transfers_evicted_total",
    kind=Kind.COUNTER,
    of=Of.AGENT,
    help="Transfers that were dropped unfinished, because too many were open; they are in no outcome.",
    good="Zero.",
)
SPANS_EXPORTED: Final = Family(
    name="pushscope_spans_exported_total",
    kind=Kind.COUNTER,
    of=Of.AGENT,
    help="Spans that an OTLP endpoint took.",
    good="Rises with the transfers, if an endpoint is set.",
)
SPANS_DROPPED: Final = Family(
    name="pushscope_spans_dropped_total",
    kind=Kind.COUNTER,
    of=Of.AGENT,
    own=(
        closed(
            "reason",
            "`queue_full`; `refused` by the endpoint; `failed`: not reached in time.",
            "queue_full",
            "refused",
            "failed",
        ),
    ),
    help="Spans that were dropped.",
    good="Zero. The agent's log says what the endpoint answered.",
)
SPANS_QUEUED: Final = Family(
    name="pushscope_spans_queued",
    kind=Kind.GAUGE,
    of=Of.AGENT,
    help="Spans that wait for the endpoint, or are on their way.",
    good="Far below OTEL_BSP_MAX_QUEUE_SIZE.",
)
POLL_SECONDS: Final = Family(
    name="pushscope_poll_seconds",
    kind=Kind.SUMMARY,
    of=Of.AGENT,
    unit="seconds",
    help="How long the polls of this process took: reading, and working out what changed.",
    good="Milliseconds; the rate of the sum is the agent's share of a core.",
)
AGENT_INFO: Final = Family(
    name="pushscope_agent_info",
    kind=Kind.INFO,
    of=Of.AGENT,
    own=(Label("version", "As installed."),),
    help="What answers.",
    good="The engines' version.",
)

FAMILIES: Final = (
    EXPOSED_SECONDS,
    HIDDEN_SECONDS,
    STAGE_SECONDS,
    RANK_STAGE_SECONDS,
    PEER_STAGE_SECONDS,
    RENDEZVOUS_WAIT_SECONDS,
    NIXL_SECONDS,
    NIXL_BYTES,
    NIXL_DESCRIPTORS,
    RANK_BYTES,
    PEER_BYTES,
    TRANSFERS,
    PEER_TRANSFERS,
    PEER_COMPLETIONS,
    FAILED,
    REGISTRATIONS,
    NOTIFICATIONS,
    HANDSHAKES,
    PEER_HANDSHAKES,
    HANDSHAKE_SECONDS,
    HEARTBEAT_IDS,
    LEASES,
    WRITER_EXCEPTIONS,
    EVICTIONS,
    WATCHDOG_FIRED,
    CONNECTOR_SECONDS,
    CONNECTOR_CALLS,
    IN_FLIGHT,
    WAITING,
    OLDEST_IN_FLIGHT,
    OLDEST_WAITING,
    STUCK,
    PINNED_REQUESTS,
    PINNED_BLOCKS,
    PINNED_TOKENS,
    ABANDONED_REQUESTS,
    ABANDONED_BLOCKS,
    TABLE_ENTRIES,
    CLOCK_OFFSET,
    CLOCK_UNCERTAINTY,
    ENGINE_UP,
    ENGINE_INFO,
    RECORDING,
    SEAMS_OFF,
    EVENTS_READ,
    EVENTS_LOST,
    FOLLOWED,
    EVICTED,
    SPANS_EXPORTED,
    SPANS_DROPPED,
    SPANS_QUEUED,
    POLL_SECONDS,
    AGENT_INFO,
)
"""In the order of the page."""
BY_NAME: Final = {family.name: family for family in FAMILIES}
