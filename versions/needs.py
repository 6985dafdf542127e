"""What pushscope needs of vLLM: the seams, by the class they are woven into, and what observers read besides."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from types import MappingProxyType

import msgspec

from pushscope.connector.pull_seams import PULL
from pushscope.connector.push_seams import PUSH
from pushscope.connector.scheduler_seams import SCHEDULER
from pushscope.connector.weave import Seam, SeamTable
from pushscope.connector.worker_seams import WORKER

PUSH_SCHEDULER, PULL_SCHEDULER = "NixlPushConnectorScheduler", "NixlPullConnectorScheduler"
PUSH_WORKER, PULL_WORKER = "NixlPushConnectorWorker", "NixlPullConnectorWorker"

SEAMS: Mapping[str, SeamTable] = MappingProxyType(
    {
        PUSH_SCHEDULER: SCHEDULER,
        PULL_SCHEDULER: SCHEDULER,
        PUSH_WORKER: WORKER + PUSH,
        PULL_WORKER: WORKER + PULL,
    }
)
"""As ``facade`` chooses them; it cannot be asked, for it imports vLLM."""

LISTENER = "_nixl_handshake_listener"
LISTENER_PARAMETERS = ("encoded_data", "ready_event", "stop_event")
"""The first three that ``facade.listener_fits`` wants, or leaves the side channel unwatched."""

_EITHER_SCHEDULER = (
    "engine_id",  # facade: a ring's origin
    "side_channel_host",  # facade: a ring's origin
    "side_channel_port",  # facade: a ring's origin
    "_reqs_need_recv",  # scheduler_seams: update_state_after_alloc
    "_kv_lease_duration",  # scheduler_seams: request_finished
)
_EITHER_WORKER = (
    "engine_id",  # facade: a ring's origin
    "tp_rank",  # facade: a ring's origin
    "nixl_wrapper",  # facade: the proxy takes its place
    "_remote_agents",  # worker_seams: _cleanup_remote_engine; pull_seams: _read_blocks_for_req; rank_of
    "_reqs_to_send",  # worker_seams: _reap_expired_send_leases; worker_probe: leases, counting, Tables
    "_reqs_to_process",  # worker_probe: counting
    "_recving_metadata",  # worker_probe: counting, Tables
    "consumer_notification_counts_by_req",  # worker_probe: counting
)
ATTRIBUTES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        PUSH_SCHEDULER: (
            *_EITHER_SCHEDULER,
            "_push_pending_registrations",  # scheduler_seams: update_state_after_alloc
            "_push_registration_deadlines",  # scheduler_seams: the watchdog, Tables
            "_finished_request_blocks",  # scheduler_seams: Tables
        ),
        PULL_SCHEDULER: _EITHER_SCHEDULER,
        PUSH_WORKER: (
            *_EITHER_WORKER,
            "_evict_finished_inbox",  # facade: a watched queue takes its place
            "_pending_completion_notifs",  # facade: a watched queue takes its place
            "_push_finished_blocks",  # push_seams: the rendezvous; worker_probe: evicting, Tables
            "_pending_d_registrations",  # push_seams: the rendezvous; worker_probe: evicting, Tables
            "_sending_transfers",  # worker_probe: Tables
        ),
        PULL_WORKER: _EITHER_WORKER,
        # worker_seams: start_load_kv
        "NixlConnectorMetadata": (
            "push_registrations",
            "push_finished_blocks",
            "reqs_to_recv",
            "reqs_to_send",
        ),
        # worker_seams: start_load_kv; pull_seams: _read_blocks_for_req; worker_probe: counting (or one stage)
        "ReqMeta": ("local_block_ids", "remote", "pp_size"),
        "RemoteMeta": ("engine_id",),  # pull_seams: _read_blocks_for_req
        "ReadSpec": ("remote_rank", "local_block_ids"),  # push_seams: _xfer_blocks; pull_seams: _read_blocks
        "KVConnectorTransferResults": (
            "finished_recving",
            "failed_recving",
        ),  # worker_seams: get_transfer_results
    }
)
"""Private names of vLLM that are read past the seams, by the class that must have them."""

CONSTANTS = ("PUSH_REG_NOTIF_PREFIX",)  # facade imports it: without it nothing is instrumented


def form_of(seam: Seam) -> str:
    """A seam as the result names it: its method, the parameters that are bound (in brackets those that may be
    missing), and the newer method whose part it had."""
    names = [name if name in seam.required else f"[{name}]" for name in seam.parameters]
    stands_in = f" instead of {seam.instead_of}" if seam.instead_of else ""
    return f"{seam.method}({', '.join(names)}){stands_in}"


def seams_now() -> dict[str, list[str]]:
    """The seams that the code has, by the class they are woven into."""
    return {name: [form_of(seam) for seam in table.seams] for name, table in SEAMS.items()}


def seams_digest() -> str:
    """Stands for :func:`seams_now`, to tell whether something was run with the seams of now."""
    return blake2b(msgspec.json.encode(seams_now()), digest_size=6).hexdigest()


def attributes_now() -> dict[str, list[str]]:
    """The attributes that the code reads, by class."""
    return {name: list(names) for name, names in ATTRIBUTES.items()}
