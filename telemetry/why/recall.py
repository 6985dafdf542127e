"""The events of what was followed lately: those of open transfers, and of the last that were forgotten."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from pushscope.telemetry.group import Group
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.transfer import Transfer
from pushscope.telemetry.watch import MAX_SHOWN_RECENT, Watcher
from pushscope.telemetry.why.account import Attempt, Found, attempts_in

MAX_KEPT: Final = 2 * MAX_SHOWN_RECENT
"""Requests whose events are kept when they are over: what a screen can still show, and some more."""


class Recall:
    """Keeps what a watcher forgets: hang ``forgotten`` into its ``on_forgotten``, and give it the watcher."""

    def __init__(self) -> None:
        self.watcher: Watcher | None = None
        self._kept: OrderedDict[str, list[Found]] = OrderedDict()

    def forgotten(self, group: Group) -> None:
        """Take a group that is about to be forgotten."""
        self._kept.setdefault(group.base, []).append(self._found(group))
        self._kept.move_to_end(group.base)
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)

    def attempt(self, transfer: Transfer, snapshot: Snapshot) -> Attempt | None:
        """All that was seen of a transfer, as of the watcher's newest snapshot; None if its events are held no more."""
        watcher = self.watcher
        if watcher is None:
            return None
        followed = [self._found(group) for group in watcher.assembler.groups_of(transfer)]
        found = followed or self._kept.get(transfer.base_id, [])
        told = [attempt for each in reversed(found) for attempt in attempts_in(each, watcher, snapshot)]
        return next((a for a in told if a.transfer is not None and _same(a.transfer, transfer)), None)

    def _found(self, group: Group) -> Found:
        wrong = self.watcher.wrong_with if self.watcher else lambda _: ()
        return Found(group, tuple(map(wrong, group.transfers or ())))


def _same(one: Transfer, other: Transfer) -> bool:
    """Whether they are the same one, which may have become better known in the meantime."""
    by_d = bool(one.d_request) and (one.d_engine, one.d_request) == (other.d_engine, other.d_request)
    by_p = bool(one.p_request) and (one.p_engine, one.p_request) == (other.p_engine, other.p_request)
    return by_d or by_p
