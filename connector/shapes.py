"""What vLLM writes in more than one shape, by release or by place, read in one."""

from __future__ import annotations

from typing import Any

from pushscope.telemetry.events import cut


def num_blocks(block_ids: Any) -> int:
    """Blocks over all cache groups; a single group may come as a flat list."""
    if block_ids and not isinstance(block_ids[0], (list, tuple)):
        return len(block_ids)
    return sum(len(group) for group in block_ids)


def agent_name(agent: Any) -> str:
    """A NIXL agent's name as text: ``add_remote_agent`` gives bytes, ``get_new_notifs`` text."""
    return cut(agent.decode("utf-8", "replace") if isinstance(agent, bytes) else agent, 40)


def pp_and_tp(rank: Any) -> tuple[int, int]:
    """A peer's rank: a pair since 0.26, before that the tensor-parallel rank alone (one pipeline stage)."""
    pp, tp = rank if isinstance(rank, tuple) else (0, rank)
    return int(pp), int(tp)


def receipts(results: Any, failing: set[str]) -> tuple[set[str], set[str]]:
    """The requests whose blocks came or failed to, and which failed, of what a worker's results call gives.

    Before 0.30 that is (done sending, done receiving) and does not tell which failed: ``failing`` does.
    """
    if isinstance(results, tuple):
        return results[1], failing
    return results.finished_recving, results.failed_recving
