"""What rows of one snapshot are looked up in: made once for a table, not once for each of its rows."""

from __future__ import annotations

from functools import cached_property

from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.transfer import Transfer


class Lookup:
    """One snapshot's engines by id, and its diagnoses by transfer."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    @cached_property
    def engines(self) -> dict[str, str]:
        """Short names by engine id."""
        return {engine.engine_id: engine.name for engine in self.snapshot.engines}

    @cached_property
    def hosts(self) -> dict[str, str]:
        """Hosts by engine id."""
        return {engine.engine_id: engine.host for engine in self.snapshot.engines}

    @cached_property
    def _codes(self) -> dict[tuple[str, int], tuple[str, ...]]:
        codes: dict[tuple[str, int], tuple[str, ...]] = {}
        for d in self.snapshot.diagnoses:
            for subject in ((d.subject, d.attempt), *d.costs):
                codes[subject] = (*codes.get(subject, ()), d.code)
        return codes

    def codes(self, transfer: Transfer) -> tuple[str, ...]:
        """What is diagnosed of a transfer, and of an engine at its cost."""
        return self._codes.get((transfer.base_id, transfer.attempt), ())

    def codes_of_engine(self, engine_id: str) -> tuple[str, ...]:
        """What is diagnosed of an engine."""
        return self._codes.get((engine_id, 0), ())

    def names(self, *engine_ids: str | None) -> tuple[str, ...]:
        """Short names and ids of engines, in lower case."""
        known = [i for i in engine_ids if i]
        return tuple(name.lower() for i in known for name in (self.engines.get(i, ""), i) if name)
