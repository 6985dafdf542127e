"""The catalogue: every cause that can be named, what it is about, how bad it is, and what to do.

``rows`` are the letters and numbers of the failure modes in the runbooks, in their groups: A, the request hangs
and nobody says so; B, memory stays pinned; C, wrong data with HTTP 200; D, crashes; E, start-up and
configuration; F, slow. A row that events can't reveal is in :data:`NOT_FROM_EVENTS`, with the reason.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from pushscope.telemetry.diagnosis.model import Severity


class About(StrEnum):
    """What a diagnosis is about."""

    TRANSFER = "transfer"
    ENGINE = "engine"
    """An engine, or a pair of them: said once, not for each of its victims."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One cause."""

    code: str
    rows: tuple[str, ...]
    about: About
    severity: Severity
    """At its worst: a diagnosis may be milder."""
    title: str
    """A few words, for a table."""
    remedy: str
    """What to do now, and what to change for good: for an operator at night."""


_T, _E = About.TRANSFER, About.ENGINE
_INFO, _WARNING, _ERROR = Severity.INFO, Severity.WARNING, Severity.ERROR


def _entry(code: str, row: str, about: About, severity: Severity, title: str, remedy: str) -> Entry:
    return Entry(
        code=code, rows=tuple(row.split()), about=about, severity=severity, title=title, remedy=remedy
    )


_ABORT_D: Final = (
    "Abort the decode leg: end the client's connection. vLLM never gives such a request up by itself."
)

_ENTRIES: Final = (
    # -- A: the request hangs and nobody says so ---------------------------------------------------------
    _entry(
        "registration_without_prefill",
        "A1",
        _T,
        _ERROR,
        "D registered, P has no prefill for it",
        "Look at what P answered the router for this request. "
        f"{_ABORT_D} For good: let the router cancel the decode leg whenever the prefill leg fails.",
    ),
    _entry(
        "write_not_posted",
        "A2",
        _T,
        _ERROR,
        "A NIXL transfer could not be posted",
        f"{_ABORT_D} Look for the NIXL or UCX error in P's log; if it comes again, restart that P.",
    ),
    _entry(
        "reverse_handshake_failed",
        "A3",
        _T,
        _ERROR,
        "P cannot shake hands with D",
        "Push needs the side channel in both directions. Set VLLM_NIXL_SIDE_CHANNEL_HOST on D to an address that "
        f"P reaches, and open D's side-channel port to P. {_ABORT_D}",
    ),
    _entry(
        "handshake_failed",
        "",
        _T,
        _ERROR,
        "D cannot shake hands with P",
        "D fails the request by itself. Check the remote_host and remote_port that the router sends, that P is there, "
        "and its side-channel port; other transfers tell whether P answers anybody.",
    ),
    _entry(
        "write_never_finished",
        "A4",
        _T,
        _ERROR,
        "A NIXL transfer neither ends nor fails",
        "NIXL has no deadline of its own. Look for 'Endpoint timeout' or 'Remote I/O error' in both logs, and at the "
        f"network between the two. {_ABORT_D} If others hang too, restart the pair.",
    ),
    _entry(
        "write_failed",
        "A2",
        _T,
        _ERROR,
        "A NIXL transfer failed on its way",
        f"In push mode P knows of it and does not tell D. {_ABORT_D} Look for the NIXL or UCX error in P's log.",
    ),
    _entry(
        "notifications_missing",
        "A5",
        _T,
        _ERROR,
        "Some P ranks never notified D",
        f"Look at the logs of the P ranks that are named. {_ABORT_D}",
    ),
    _entry(
        "early_notification_dropped",
        "A6",
        _T,
        _ERROR,
        "A D rank dropped a completion that came early",
        f"{_ABORT_D} No setting cures it; with as many D ranks as P ranks it cannot happen.",
    ),
    _entry(
        "registration_lost_to_rank",
        "A7",
        _T,
        _ERROR,
        "The registration did not reach every P rank",
        f"{_ABORT_D} If it comes again for the same P rank, D's NIXL agent for it is broken: restart D.",
    ),
    _entry(
        "registration_lost",
        "A7",
        _T,
        _ERROR,
        "The registration reached no P rank",
        f"{_ABORT_D} If every request to this P ends so, P was restarted under its old engine id: restart D.",
    ),
    _entry(
        "writer_exception",
        "A8",
        _E,
        _ERROR,
        "P's push writer failed on a message",
        "What came in the same batch is lost: abort the decode legs that registered with this P and got no answer. "
        "Look for 'nixl-push-writer error' in P's log.",
    ),
    _entry(
        "heartbeat_id_mismatch",
        "A9",
        _T,
        _ERROR,
        "P's lease ran out while D was queued",
        f"{_ABORT_D} For good: raise kv_lease_duration above D's longest queueing, admit fewer requests, or let the "
        "router pass P's real request id (serial dispatch), so that heartbeats renew the lease.",
    ),
    _entry(
        "lease_over_before_decode",
        "A9",
        _T,
        _ERROR,
        "D came when P's lease was over",
        f"{_ABORT_D} For good: raise kv_lease_duration above the time between the two legs, or send them at once.",
    ),
    _entry(
        "request_ids_differ",
        "A10",
        _T,
        _ERROR,
        "The two legs have different ids",
        "Send the same X-Request-Id on both legs, to the same kind of endpoint. "
        f"{_ABORT_D} P frees its blocks when the lease ends.",
    ),
    _entry(
        "registered_again_after_preemption",
        "A11",
        _T,
        _ERROR,
        "D registered again after it was preempted",
        f"P has released these blocks. {_ABORT_D} For good: give D more KV cache, so that it preempts less.",
    ),
    _entry(
        "nothing_to_push",
        "A12",
        _T,
        _ERROR,
        "P had nothing to write, and D is not told",
        _ABORT_D,
    ),
    _entry(
        "watchdog_fired",
        "A13",
        _T,
        _ERROR,
        "D's watchdog fired, which changes nothing",
        f"vLLM only logs it. {_ABORT_D} For good: a time limit in the router; push_registration_timeout is no more "
        "than an alarm.",
    ),
    _entry(
        "handshake_listener_dead",
        "A14",
        _E,
        _ERROR,
        "The handshake listener has died",
        "No new peer can connect: restart this engine. Check the tp_size and pp_size that the router sends: a rank "
        "that does not exist ends the listener.",
    ),
    _entry(
        "unsupported_tp_pair",
        "A15",
        _T,
        _ERROR,
        "This pair of tensor-parallel sizes cannot push",
        "Push refuses more D ranks than P ranks when there are fewer KV heads than ranks. Use the same "
        f"tensor-parallel size on both sides, or pull. {_ABORT_D}",
    ),
    _entry(
        "handshake_queue_blocked",
        "A16",
        _E,
        _ERROR,
        "Handshakes queue behind an unreachable peer",
        "One thread does all handshakes. Take the peer that is named out of routing.",
    ),
    _entry(
        "stale_agent_after_restart",
        "A17",
        _E,
        _ERROR,
        "A peer was restarted, its old NIXL agent is still used",
        "Restart this engine. For good: never set engine_id by hand, so that a restarted peer is a new one.",
    ),
    _entry(
        "push_abandoned",
        "A8",
        _T,
        _ERROR,
        "P's push writer failed on this push",
        f"{_ABORT_D} The error is in P's log, under 'nixl-push-writer error' and without the request's id.",
    ),
    # -- B: memory stays pinned or leaks -----------------------------------------------------------------
    _entry(
        "aborted_requests_pin_blocks",
        "B1",
        _E,
        _ERROR,
        "Aborted requests hold D's blocks",
        "Only a push for them, or a restart, frees these blocks. Restart D when its cache runs short. For good: a "
        "router that does not start a decode leg whose prefill failed.",
    ),
    _entry(
        "prefill_unclaimed",
        "B2",
        _T,
        _WARNING,
        "No decode has claimed this prefill",
        "P holds the blocks until the lease ends. Look at the router: the decode leg was lost, or D is gone.",
    ),
    _entry(
        "heartbeats_keep_failed_push",
        "B3",
        _T,
        _WARNING,
        "Heartbeats keep the blocks of a failed push",
        f"{_ABORT_D} P frees the blocks a lease later.",
    ),
    _entry(
        "full_hit_held_until_lease",
        "B4",
        _T,
        _INFO,
        "D needed nothing; P holds the blocks for its lease",
        "Not a fault. Leave these out of an alarm on expired leases; a shorter kv_lease_duration frees P earlier.",
    ),
    _entry(
        "notify_only_entries_leak",
        "B5",
        _E,
        _WARNING,
        "Entries without blocks pile up in D's worker",
        "Small, and freed by a restart only. Restart D at the next occasion.",
    ),
    _entry(
        "stale_registrations_pile_up",
        "B6",
        _E,
        _WARNING,
        "Registrations pile up at P",
        "Nothing expires them, and one can meet a later request of the same id. Never use a request id twice; "
        "restart P at the next occasion.",
    ),
    _entry(
        "siblings_unclaimed",
        "B7",
        _T,
        _WARNING,
        "A choice of a request with n > 1 is not claimed",
        "One handoff carries one choice. Let the router send n=1 to P.",
    ),
    _entry(
        "expired_lease_not_reaped",
        "B8",
        _T,
        _WARNING,
        "A lease has run out and P still holds the blocks",
        "vLLM before 0.32 stops at the first lease that is still good: upgrade. If P makes no steps, see why.",
    ),
    _entry(
        "finished_write_held_until_lease",
        "B9",
        _T,
        _WARNING,
        "The push is done, P holds the blocks all the same",
        "A known bug of the vLLM releases before 0.32: upgrade. P frees the blocks when the lease ends.",
    ),
    _entry(
        "partial_post_untracked",
        "B10",
        _T,
        _ERROR,
        "A part of the push was posted and is tracked by nobody",
        f"{_ABORT_D} The WRITEs that were posted still land in D's blocks. Look at the error in P's log.",
    ),
    _entry(
        "polling_for_unmatched",
        "B13",
        _E,
        _INFO,
        "P polls for pushes without a match",
        "Costs CPU only. It ends when the unmatched blocks are claimed or their leases end.",
    ),
    # -- C: wrong data with HTTP 200 ---------------------------------------------------------------------
    _entry(
        "write_to_untracked_request",
        "C1",
        _T,
        _ERROR,
        "A WRITE landed on D for a request that D does not track",
        "Its blocks may have another owner by now: take the answers of this D since then as wrong, and restart it.",
    ),
    _entry(
        "lease_ended_during_write",
        "C2",
        _T,
        _ERROR,
        "The lease ended while a WRITE was under way",
        "The answer may rest on another prompt's KV: take it as wrong. Raise kv_lease_duration above the slowest "
        "WRITE.",
    ),
    _entry(
        "write_after_lease",
        "C3",
        _T,
        _ERROR,
        "A WRITE was posted after P had released the blocks",
        "The answer may rest on another prompt's KV: take it as wrong. Raise kv_lease_duration above the slowest "
        "handshake.",
    ),
    _entry(
        "retry_met_older_registration",
        "C5",
        _T,
        _ERROR,
        "A retry's blocks went to an older attempt",
        f"{_ABORT_D} For good: a new X-Request-Id for every attempt.",
    ),
    _entry(
        "concurrent_requests_share_id",
        "C6",
        _T,
        _ERROR,
        "Two requests at once have one id",
        "P cannot tell them apart and may swap their KV: take the answers as wrong if the prompts differ. Use each "
        "X-Request-Id once; leave VLLM_DISABLE_REQUEST_ID_RANDOMIZATION unset.",
    ),
    _entry(
        "read_after_lease",
        "C7",
        _T,
        _ERROR,
        "D read blocks that P had released",
        "The answer may rest on another prompt's KV: take it as wrong. Raise kv_lease_duration above D's longest "
        "queueing.",
    ),
    _entry(
        "failed_receive_served",
        "C8",
        _T,
        _ERROR,
        "A failed receive was served as a good one",
        "Take the answer as wrong. A known bug of older vLLM releases with several cache groups: upgrade.",
    ),
    _entry(
        "lease_lost_on_arrival",
        "C12",
        _T,
        _ERROR,
        "A P rank holds the blocks for less than the lease",
        "vLLM before 0.32 compares clocks of two nodes: upgrade.",
    ),
    _entry(
        "computed_by_d",
        "C14",
        _T,
        _WARNING,
        "D computed the prompt itself",
        "The answer is right, P's work was for nothing. See why the receive failed; kv_load_failure_policy "
        "'recompute' hides such failures.",
    ),
    _entry(
        "ranks_paired_differently",
        "C15",
        _T,
        _ERROR,
        "P's ranks pushed one prefill to different requests",
        f"Each of them gets a part. {_ABORT_D} For good: a new X-Request-Id for every attempt.",
    ),
    # -- D: crashes --------------------------------------------------------------------------------------
    _entry(
        "incomplete_transfer_params",
        "D1",
        _E,
        _ERROR,
        "Incomplete kv_transfer_params ended the engine",
        "Restart the engine. Let the router check that kv_transfer_params has remote_engine_id, remote_request_id, "
        "remote_host, remote_port and tp_size.",
    ),
    _entry(
        "engine_main_thread_exception",
        "D2 D3",
        _E,
        _ERROR,
        "An exception in the connector ended the engine",
        "Restart the engine. An assertion on block counts: several prompts over one handoff, which is not supported. "
        "A ValueError in get_transfer_results: a peer of another vLLM release.",
    ),
    # -- E: start-up and configuration -------------------------------------------------------------------
    _entry(
        "loopback_side_channel",
        "E1",
        _T,
        _ERROR,
        "A side channel is advertised as a loopback address",
        "Set VLLM_NIXL_SIDE_CHANNEL_HOST on that engine to the address of its host or pod, and restart it.",
    ),
    _entry(
        "incompatible_engines",
        "E2",
        _T,
        _ERROR,
        "P and D are not compatible",
        "Compare vLLM release, model, dtype, KV-cache dtype, attention backend and connector mode of the two: they "
        "must be the same. 'pushscope doctor' compares what it knows.",
    ),
    _entry(
        "engine_id_mismatch",
        "E3",
        _T,
        _ERROR,
        "Another engine answered than the router named",
        "The router still has the id of an engine that is gone, or two engines share an address. Refresh what the "
        "router knows of its engines.",
    ),
    _entry(
        "block_sizes_differ",
        "E4",
        _T,
        _ERROR,
        "P and D have different block sizes",
        f"Start both with the same --block-size: push needs equal ones. {_ABORT_D}",
    ),
    _entry(
        "telemetry_missing",
        "E8",
        _T,
        _WARNING,
        "NIXL has no telemetry: good transfers count as failed",
        "The data is right. Unset NIXL_TELEMETRY_ENABLE=n, or use a NIXL build that has telemetry; until then ignore "
        "vllm:nixl_num_failed_transfers.",
    ),
    # -- F: slow -----------------------------------------------------------------------------------------
    _entry(
        "serial_router",
        "F1",
        _E,
        _WARNING,
        "The router dispatches P, then D",
        "Push then overlaps nothing. Let the router send both legs at once.",
    ),
    _entry(
        "many_descriptors",
        "F2",
        _T,
        _WARNING,
        "Posting takes long: many descriptors",
        "Raise --block-size on both sides: fewer, larger descriptors.",
    ),
    _entry(
        "cold_handshake",
        "F3",
        _T,
        _INFO,
        "First transfer between two engines",
        "Once for each pair. Send one request through each pair before the traffic, if it matters.",
    ),
    _entry(
        "handover_slow",
        "F4",
        _T,
        _WARNING,
        "The handover takes far longer than the transfer",
        "The time is not in the network: look at the stages that are named, mostly engine steps and the router.",
    ),
    _entry(
        "writer_busy",
        "F5",
        _E,
        _WARNING,
        "P's push writer is busy all the time",
        "One thread registers, matches and posts for all requests. Spread the load over more P engines, or raise "
        "--block-size.",
    ),
    _entry(
        "slow_link",
        "F6",
        _T,
        _WARNING,
        "The transfer is far slower than usual",
        "Look at UCX_TLS and UCX_NET_DEVICES, and at what else uses the link: TCP was chosen, or it is shared.",
    ),
    # -- what fits no row --------------------------------------------------------------------------------
    _entry(
        "engine_gone",
        "",
        _T,
        _ERROR,
        "An engine of this transfer is gone",
        f"{_ABORT_D} Restart the engine that is gone, with a fresh engine id.",
    ),
    _entry(
        "engine_stopped",
        "",
        _E,
        _ERROR,
        "An engine is stopped (SIGSTOP, a debugger)",
        "Find out who stopped it (job control, a debugger, an operator) and let it go on: kill -CONT with the pid that "
        "is named. Leases run on meanwhile: what it was to write may be too late then.",
    ),
    _entry(
        "engine_silent",
        "",
        _E,
        _ERROR,
        "D makes no step, with requests in it",
        "Look what its engine core does (py-spy dump --pid PID, its log, top): it compiles, is short of CPU, waits for "
        "another rank, or hangs. It answers nobody meanwhile, and renews no lease.",
    ),
    _entry(
        "peer_unreachable",
        "",
        _E,
        _ERROR,
        "D gets no answer from P's side channel",
        "Compare the host and port that the router sends with what P advertises (VLLM_NIXL_SIDE_CHANNEL_HOST and "
        "_PORT), and try it from D's host. Each request is failed after five seconds a rank.",
    ),
    _entry(
        "waiting",
        "",
        _T,
        _WARNING,
        "It waits longer than usual",
        "Look at the log of the side that is waited for, from the time of the last thing seen.",
    ),
)

CATALOGUE: Final = MappingProxyType({entry.code: entry for entry in _ENTRIES})
"""By code, in the groups' order."""

NOT_FROM_EVENTS: Final = MappingProxyType(
    {
        "C4": "which of P's blocks were written is in no event; mended in vLLM 0.32",
        "C10": "the model's revision is in no event",
        "C11": "that blocks are freed while another rank writes is in no event; mended in vLLM 0.32",
        "C13": "the bytes are not looked at: no checksum",
        "D4": "a segmentation fault says nothing; what is seen of it is engine_gone",
        "D5": "raised in vLLM's scheduler, outside the connector; what is seen of it is engine_gone",
        "E5": "the engine refuses to start, before anything is recorded, and its own message is clear",
        "E6": "the router refuses the connector's name, before an engine has the request",
        "E7": "it hits other programs of the host, which record nothing",
        "E9": "the backend is in no event; 'pushscope doctor' says which ones NIXL has",
    }
)
"""The rows that events can't reveal, with the reason."""
