"""The vocabulary: one frozen struct per kind of event, and its bytes.

Every event has ``t``, CLOCK_MONOTONIC nanoseconds taken where the thing happened, and most have a
``request_id``: the id that *the recording side* gave the request, in its recorded form
(:func:`pushscope.telemetry.ids.recorded_id`). Who recorded it, and on which rank, is in the ring's header
(:class:`Origin`) and not repeated. The numbers (``tag``) are the wire format: never reuse one.

An event has to fit a ring slot (:data:`MAX_EVENT_BYTES`). Where the sum of the longest allowed values would
not, the field named by ``gives_way`` is shortened (text) or left empty (ids): :func:`encode` sees to that.

An event is *said again* while what it began is still open, with its first ``t``; every reader must
therefore treat an event that it has already seen as no news.
"""

from __future__ import annotations

from typing import ClassVar, Final, cast, get_args

import msgspec

VOCABULARY_VERSION: Final = 1
MAX_EVENT_BYTES: Final = 234
MAX_TEXT_BYTES: Final = 120
"""Error texts are cut at this many bytes."""


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Common to all: ``t``, CLOCK_MONOTONIC nanoseconds."""

    gives_way: ClassVar[str] = ""
    t: int


class RequestEvent(Event, frozen=True, array_like=True, gc=False):
    request_id: str


# -- both schedulers ----------------------------------------------------------------------------------


class RequestArrived(RequestEvent, frozen=True, array_like=True, gc=False, tag=1):
    """``on_new_request``: the engine has a request with KV transfer parameters."""

    leg: str = ""
    """``prefill`` (do_remote_decode) or ``decode`` (do_remote_prefill)."""
    peer_engine: str = ""
    peer_request_id: str = ""
    """D: the ``remote_request_id`` that the router gave it; heartbeats carry this id."""
    gives_way: ClassVar[str] = "peer_engine"


class TraceContext(RequestEvent, frozen=True, array_like=True, gc=False, tag=2):
    """The caller's W3C ``traceparent`` and the router's ``transfer_id``, where the request has them.

    On a P worker: what an instrumented D sent along in its registration; ``request_id`` is then D's, and
    ``peer_engine`` D's engine (recordings of older releases don't name it).
    """

    traceparent: str = ""
    transfer_id: str = ""
    peer_engine: str = ""
    gives_way: ClassVar[str] = "transfer_id"


class RequestPreempted(RequestEvent, frozen=True, array_like=True, gc=False, tag=3):
    """The scheduler took the request's blocks away; it is scheduled again later."""


class RequestEnded(RequestEvent, frozen=True, array_like=True, gc=False, tag=4):
    """``request_finished``: the request left the engine."""

    status: str = ""
    """vLLM's RequestStatus, in lower case (``finished_length_capped``, ``finished_aborted`` ...)."""


# -- D's scheduler ------------------------------------------------------------------------------------


class RegistrationStaged(RequestEvent, frozen=True, array_like=True, gc=False, tag=10):
    """``update_state_after_alloc``: D has blocks for the prompt and will register them with P."""

    peer_engine: str = ""
    peer_host: str = ""
    peer_port: int = 0
    peer_tp: int = 1
    peer_pp: int = 1
    num_tokens: int = 0
    num_blocks: int = 0
    gives_way: ClassVar[str] = "peer_host"


class NothingToReceive(RequestEvent, frozen=True, array_like=True, gc=False, tag=11):
    """D allocated for a remote prefill but needs none of it."""

    reason: str = ""
    """``no_external_tokens``: the prompt is cached, or another connector was chosen; ``not_scheduled``: D
    ended the request before it was ever scheduled."""


class WatchdogFired(RequestEvent, frozen=True, array_like=True, gc=False, tag=12):
    """``push_registration_timeout`` passed. vLLM only logs it: the request stays where it is."""


class ReceiveFinished(RequestEvent, frozen=True, array_like=True, gc=False, tag=13):
    """D's scheduler heard from all its workers that the blocks are there (or failed)."""


class DecodeScheduled(RequestEvent, frozen=True, array_like=True, gc=False, tag=14):
    """First step of the request after its blocks arrived."""


class ReadStaged(RequestEvent, frozen=True, array_like=True, gc=False, tag=15):
    """Pull: D has blocks for the prompt and will read P's. P's request id is in :class:`RequestArrived`."""

    peer_engine: str = ""
    peer_tp: int = 1
    peer_pp: int = 1
    num_tokens: int = 0
    num_blocks: int = 0


# -- D's worker ---------------------------------------------------------------------------------------


class RegistrationHandedOff(RequestEvent, frozen=True, array_like=True, gc=False, tag=20):
    """``start_load_kv``: queued for the writer thread."""


class RegistrationSent(RequestEvent, frozen=True, array_like=True, gc=False, tag=21):
    """PUSH_REG sent to one P rank."""

    peer_pp: int = 0
    peer_tp: int = 0
    agent: str = ""
    gives_way: ClassVar[str] = "agent"


class RegistrationFailed(RequestEvent, frozen=True, array_like=True, gc=False, tag=22):
    """PUSH_REG could not be sent: to one P rank, or (``to_rank`` False) to any."""

    peer_pp: int = 0
    peer_tp: int = 0
    to_rank: bool = True
    error_type: str = ""
    error: str = ""
    gives_way: ClassVar[str] = "error"


class NotificationDrained(RequestEvent, frozen=True, array_like=True, gc=False, tag=23):
    """A completion notification came out of NIXL: in push mode at D on the writer thread, in pull mode at P."""

    agent: str = ""
    """The NIXL agent that it came from: one rank of the other side."""
    peer_tp_size: int = 1
    """The number in the message: push, P's tensor-parallel size; pull, how many D ranks will notify."""
    gives_way: ClassVar[str] = "agent"


class NotificationCounted(RequestEvent, frozen=True, array_like=True, gc=False, tag=24):
    """The main thread counted a notification: the ``n``-th for this request on this rank."""

    n: int = 1
    peer_tp_size: int = 1
    """The number in the message, as in :class:`NotificationDrained`."""
    peer_pp_size: int = 1


class NotificationUnrecognised(RequestEvent, frozen=True, array_like=True, gc=False, tag=25):
    """The main thread knows no such request and dropped the notification."""


class NotificationSent(RequestEvent, frozen=True, array_like=True, gc=False, tag=16):
    """Pull: D told a P rank by itself that it is done, with nothing to read (full prefix hit, or aborted)."""

    agent: str = ""
    error: str = ""
    gives_way: ClassVar[str] = "error"


class ReceiveDone(RequestEvent, frozen=True, array_like=True, gc=False, tag=26):
    """This rank reported the blocks as received."""


class ReceiveFailed(RequestEvent, frozen=True, array_like=True, gc=False, tag=27):
    """This rank reported the receive as failed."""


class ReadHandedOff(RequestEvent, frozen=True, array_like=True, gc=False, tag=29):
    """Pull: ``start_load_kv`` has the request; with an empty block list it only notifies P."""


class HeartbeatSent(Event, frozen=True, array_like=True, gc=False, tag=28):
    """One heartbeat to one P rank, for ``num_ids`` requests."""

    agent: str = ""
    num_ids: int = 0
    first_id: str = ""
    error: str = ""
    gives_way: ClassVar[str] = "error"


# -- P's scheduler ------------------------------------------------------------------------------------


class PrefillScheduled(RequestEvent, frozen=True, array_like=True, gc=False, tag=30):
    """First step of the prefill."""

    num_tokens: int = 0
    """Tokens scheduled in this first step (with chunked prefill fewer than the prompt)."""


class BlocksStaged(RequestEvent, frozen=True, array_like=True, gc=False, tag=31):
    """``request_finished``: the prefill is done, its blocks are held for D under a lease."""

    num_blocks: int = 0
    num_tokens: int = 0
    lease_s: float = 0.0


class PrefillNotProcessed(RequestEvent, frozen=True, array_like=True, gc=False, tag=32):
    """The prefill leg ended without blocks for D: aborted, rejected or failed."""

    status: str = ""


class SendFinished(RequestEvent, frozen=True, array_like=True, gc=False, tag=33):
    """P's scheduler heard from all its workers that the blocks may be freed."""


# -- P's worker ---------------------------------------------------------------------------------------


class BlocksHandedOff(RequestEvent, frozen=True, array_like=True, gc=False, tag=40):
    """``start_load_kv``: queued for the writer thread."""

    num_blocks: int = 0


class BlocksPickedUp(RequestEvent, frozen=True, array_like=True, gc=False, tag=41):
    """The writer thread has the finished blocks and looks for a registration."""


class RegistrationDrained(RequestEvent, frozen=True, array_like=True, gc=False, tag=42):
    """A PUSH_REG came out of NIXL on the writer thread. ``request_id`` is D's."""

    peer_engine: str = ""
    peer_host: str = ""
    peer_port: int = 0
    peer_tp: int = 1
    num_blocks: int = 0
    agent: str = ""
    surplus: bool = False
    """D's request is matched on this P rank already. With more D ranks than P ranks every further D rank sends
    one, and vLLM keeps it for ever."""
    gives_way: ClassVar[str] = "agent"


class Matched(RequestEvent, frozen=True, array_like=True, gc=False, tag=43):
    """Blocks and registration met on this P rank. ``request_id`` is P's, ``peer_request_id`` D's."""

    peer_request_id: str = ""
    blocks_first: bool = False
    """True: the blocks waited for the registration; False: the registration waited."""
    key: str = ""
    """What matched: ``exact``, ``base_id`` or ``transfer_id``."""
    peer_engine: str = ""
    gives_way: ClassVar[str] = "peer_engine"


class TransferDeferred(RequestEvent, frozen=True, array_like=True, gc=False, tag=44):
    """Ready to go, but the other engine is not known yet: waits for a handshake."""

    peer_engine: str = ""


class TransferResumed(RequestEvent, frozen=True, array_like=True, gc=False, tag=45):
    """The handshake is done, the transfer goes on."""


class TransferEvent(RequestEvent, frozen=True, array_like=True, gc=False):
    """One NIXL transfer between two ranks: a WRITE by P in push mode, a READ by D in pull mode.

    ``number`` counts the transfers of one connector instance; a request has one per rank on the other side.
    """

    number: int = 0


class DescriptorsStarted(TransferEvent, frozen=True, array_like=True, gc=False, tag=46):
    """Mapping of blocks to descriptors begins, for one rank on the other side."""

    peer_tp: int = 0
    peer_engine: str = ""
    peer_request_id: str = ""
    gives_way: ClassVar[str] = "peer_request_id"


class DescriptorsBuilt(TransferEvent, frozen=True, array_like=True, gc=False, tag=47):
    """The NIXL transfer is prepared."""

    num_descriptors: int = 0


class SubmitStarted(TransferEvent, frozen=True, array_like=True, gc=False, tag=48):
    """Right before NIXL's ``transfer()``: a hang in it shows."""


class Submitted(TransferEvent, frozen=True, array_like=True, gc=False, tag=49):
    """``transfer()`` returned."""

    state: str = ""
    """NIXL's answer: ``DONE``, ``PROC`` or ``ERR``."""


class TransferDone(TransferEvent, frozen=True, array_like=True, gc=False, tag=50):
    """The poll of the side that posted it saw it done: at the next engine step, so later than it was."""

    num_bytes: int = 0
    num_descriptors: int = 0
    """After NIXL merged neighbours."""
    post_us: int = 0
    xfer_us: int = 0
    """NIXL's own figures, -1 where NIXL gives none; ``xfer_us`` ends at the poll too."""


class TransferFailed(TransferEvent, frozen=True, array_like=True, gc=False, tag=51):
    """A transfer failed; ``number`` is 0 if it never got one."""

    error_type: str = ""
    error: str = ""
    gives_way: ClassVar[str] = "error"


class NothingToPush(RequestEvent, frozen=True, array_like=True, gc=False, tag=52):
    """Matched, but no blocks are left to write: D waits for a notification that won't come."""


class HeartbeatDrained(Event, frozen=True, array_like=True, gc=False, tag=53):
    """A heartbeat was applied to the leases that it names; unknown ids are ignored by vLLM."""

    applied: int = 0
    ignored: int = 0
    first_ignored: str = ""


class LeaseSet(RequestEvent, frozen=True, array_like=True, gc=False, tag=54):
    """The worker holds the blocks for ``lease_s`` more seconds."""

    lease_s: float = 0.0


class LeaseExtended(RequestEvent, frozen=True, array_like=True, gc=False, tag=55):
    """A heartbeat extended the lease: ``lease_s`` seconds are left from ``t``."""

    lease_s: float = 0.0


class LeaseExpired(RequestEvent, frozen=True, array_like=True, gc=False, tag=56):
    """The lease ran out; the blocks are freed though nobody took them."""


class Evicted(RequestEvent, frozen=True, array_like=True, gc=False, tag=57):
    """The writer thread dropped unmatched blocks or a registration of this id."""

    had_blocks: bool = False
    had_registration: bool = False


class WriterException(Event, frozen=True, array_like=True, gc=False, tag=58):
    """An exception reached the writer loop, which logs it without a request id and goes on."""

    where: str = ""
    request_id: str = ""
    notifications_lost: int = 0
    """Notifications of the same batch that were drained and never handled."""
    error: str = ""
    gives_way: ClassVar[str] = "error"


# -- both workers -------------------------------------------------------------------------------------


class HandshakeQueued(Event, frozen=True, array_like=True, gc=False, tag=60):
    """A handshake with an unknown engine was queued (one thread does them all, one after the other)."""

    peer_engine: str = ""
    peer_host: str = ""
    peer_port: int = 0
    gives_way: ClassVar[str] = "peer_host"


class HandshakeStarted(Event, frozen=True, array_like=True, gc=False, tag=61):
    peer_engine: str = ""


class HandshakeEnded(Event, frozen=True, array_like=True, gc=False, tag=62):
    """``error`` is empty if it went well; ``offset_s`` is the peer's perf_counter minus ours."""

    peer_engine: str = ""
    started_t: int = 0
    num_ranks: int = 0
    offset_s: float = 0.0
    error_type: str = ""
    error: str = ""
    gives_way: ClassVar[str] = "error"


class PeerRank(Event, frozen=True, array_like=True, gc=False, tag=63):
    """One rank of a peer engine, and the NIXL agent that speaks for it."""

    peer_engine: str = ""
    peer_pp: int = 0
    peer_tp: int = 0
    agent: str = ""


class SideChannelServed(Event, frozen=True, array_like=True, gc=False, tag=64):
    """This engine's handshake listener answered a peer."""

    pp: int = 0
    tp: int = 0


class ListenerDead(Event, frozen=True, array_like=True, gc=False, tag=65):
    """The handshake listener thread ended though the engine runs on: no new peer can connect."""

    error: str = ""
    gives_way: ClassVar[str] = "error"


# -- any ----------------------------------------------------------------------------------------------


class EngineUp(Event, frozen=True, array_like=True, gc=False, tag=70):
    """This connector instance records. ``seams_off`` names what the installed vLLM lacks."""

    seams_off: str = ""
    gives_way: ClassVar[str] = "seams_off"


class EngineDown(Event, frozen=True, array_like=True, gc=False, tag=71):
    """``shutdown`` was called: a clean end."""


class EventsDropped(Event, frozen=True, array_like=True, gc=False, tag=72):
    """``total`` events since the start could not be recorded; ``error`` is the first cause."""

    total: int = 0
    error: str = ""
    gives_way: ClassVar[str] = "error"


class Loop(Event, frozen=True, array_like=True, gc=False, tag=73):
    """Once a second: what the connector took from the engine's main thread since the last one."""

    calls: int = 0
    total_ns: int = 0
    max_ns: int = 0
    has_work: bool = False
    """Whether requests are still on their way through this connector instance."""


class Tables(Event, frozen=True, array_like=True, gc=False, tag=74):
    """Once a second: sizes of the tables that leak when something goes wrong."""

    staged: int = 0
    """P scheduler: finished requests whose blocks are held. D scheduler: registrations not yet fulfilled."""
    unmatched_blocks: int = 0
    unmatched_registrations: int = 0
    writes: int = 0
    """Requests with WRITEs in flight."""
    leases: int = 0
    receiving: int = 0


class RecordingSwitched(Event, frozen=True, array_like=True, gc=False, tag=75):
    """The flag file switched recording off or on; in between nothing was seen."""

    on: bool = True


class ConnectorRaised(Event, frozen=True, array_like=True, gc=False, tag=76):
    """An exception left the connector on the engine's main thread: vLLM's engine core ends of it."""

    where: str = ""
    error: str = ""
    gives_way: ClassVar[str] = "error"


AnyEvent = (
    RequestArrived
    | TraceContext
    | RequestPreempted
    | RequestEnded
    | RegistrationStaged
    | NothingToReceive
    | WatchdogFired
    | ReceiveFinished
    | DecodeScheduled
    | ReadStaged
    | NotificationSent
    | ReadHandedOff
    | RegistrationHandedOff
    | RegistrationSent
    | RegistrationFailed
    | NotificationDrained
    | NotificationCounted
    | NotificationUnrecognised
    | ReceiveDone
    | ReceiveFailed
    | HeartbeatSent
    | PrefillScheduled
    | BlocksStaged
    | PrefillNotProcessed
    | SendFinished
    | BlocksHandedOff
    | BlocksPickedUp
    | RegistrationDrained
    | Matched
    | TransferDeferred
    | TransferResumed
    | DescriptorsStarted
    | DescriptorsBuilt
    | SubmitStarted
    | Submitted
    | TransferDone
    | TransferFailed
    | NothingToPush
    | HeartbeatDrained
    | LeaseSet
    | LeaseExtended
    | LeaseExpired
    | Evicted
    | WriterException
    | HandshakeQueued
    | HandshakeStarted
    | HandshakeEnded
    | PeerRank
    | SideChannelServed
    | ListenerDead
    | EngineUp
    | EngineDown
    | EventsDropped
    | Loop
    | Tables
    | RecordingSwitched
    | ConnectorRaised
)

KINDS: Final[tuple[type[Event], ...]] = get_args(AnyEvent)


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Who records into a ring: one connector instance (a scheduler, or the worker of one rank)."""

    host: str
    boot_id: str
    time_namespace: str
    pid: int
    connector_role: str
    """``scheduler`` or ``worker``."""
    engine_id: str
    kv_role: str
    """``kv_producer``, ``kv_consumer`` or ``kv_both``."""
    mode: str
    """``push`` or ``pull``."""
    pp_rank: int = 0
    tp_rank: int = 0
    dp_rank: int = 0
    pp_size: int = 1
    tp_size: int = 1
    dp_size: int = 1
    vllm_version: str = ""
    nixl_version: str = ""
    pushscope_version: str = ""
    nixl_agent: str = ""
    side_channel: str = ""
    """``host:port`` that this engine advertises for handshakes."""
    model: str = ""
    block_size: int = 0
    """Tokens per KV block; 0 if not known."""
    connector_version: int = 0
    """vLLM's ``NIXL_CONNECTOR_VERSION``; 0 if not known."""
    lease_s: float = 30.0
    otlp_traces_endpoint: str = ""
    anchor_monotonic_ns: int = 0
    anchor_unix_ns: int = 0
    """The two clocks read at one moment: monotonic + (unix - monotonic) is wall time."""
    instance: str = ""
    """Unique per ring; names it in recordings."""


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(AnyEvent)


def encode(event: Event) -> bytes:
    """The event's bytes, at most :data:`MAX_EVENT_BYTES`; what gives way is shortened if it must be."""
    data = _encoder.encode(event)
    return data if len(data) <= MAX_EVENT_BYTES else _encode_shortened(event, len(data))


def decode(data: bytes) -> AnyEvent:
    """The event in ``data``; raises ``msgspec.ValidationError`` or ``msgspec.DecodeError`` if it is none."""
    return _decoder.decode(data)


def cut(text: object, num_bytes: int = MAX_TEXT_BYTES) -> str:
    """``str(text)`` cut to ``num_bytes`` of UTF-8."""
    return str(text).encode("utf-8", "replace")[:num_bytes].decode("utf-8", "ignore")


def error_text(error: BaseException) -> str:
    """An exception as a recorded text; never raises itself."""
    try:
        return cut(repr(error))
    except Exception:  # noqa: BLE001 - whatever its repr does
        return type(error).__name__


def _encode_shortened(event: Event, num_bytes: int) -> bytes:
    field = event.gives_way
    if not field:
        raise ValueError(f"{type(event).__name__} takes {num_bytes} bytes, a slot holds {MAX_EVENT_BYTES}")
    value = cast(str, getattr(event, field))
    room = len(value.encode()) - (num_bytes - MAX_EVENT_BYTES)
    shorter = cut(value, max(0, room)) if field == "error" else ""
    data = _encoder.encode(msgspec.structs.replace(event, **{field: shorter}))
    if len(data) > MAX_EVENT_BYTES:
        raise ValueError(f"{type(event).__name__} takes {len(data)} bytes, a slot holds {MAX_EVENT_BYTES}")
    return data
