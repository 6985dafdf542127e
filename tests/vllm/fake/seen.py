"""What the rings of a world tell, assembled: the transfers, in the form in which expectations are written."""

from __future__ import annotations

from contextlib import closing

import msgspec

from pushscope.telemetry import events as ev
from pushscope.telemetry.assembler import Assembler
from pushscope.telemetry.source import Reading, RingsSource
from pushscope.telemetry.transfer import Stage, Transfer
from tests.vllm.fake.scenarios import Seen
from tests.vllm.fake.world import Clock, World


def at_world_time(reading: Reading) -> Reading:
    """The rings as if they had been made when the world's time began: they were made at this machine's."""
    return msgspec.structs.replace(
        reading,
        rings=tuple(
            msgspec.structs.replace(
                state, origin=msgspec.structs.replace(state.origin, anchor_monotonic_ns=Clock.START_NS)
            )
            for state in reading.rings
        ),
    )


def transfers_in(world: World) -> list[Transfer]:
    """Every transfer of the world, the oldest first."""
    assembler = Assembler()
    with closing(RingsSource(world.folder)) as source:
        reading = at_world_time(source.poll())
        assembler.rings(reading.rings)
        for index, payload in reading.events:
            event = ev.decode(payload)
            assert not isinstance(event, ev.EventsDropped), event
            assembler.feed(reading.rings[index].origin, event)
        assert not any(state.lost or state.torn for state in reading.rings)
    return sorted(assembler.open_transfers(), key=lambda t: (t.opened_ns, t.attempt))


def as_seen(t: Transfer, like: Seen) -> Seen:
    """A transfer as an expectation; what ``like`` leaves open is left open here too."""
    posted = frozenset(
        (s.rank[1], s.peer_rank[1])
        for s in t.stages
        if s.stage is Stage.SUBMIT and s.rank is not None and s.peer_rank is not None
    )
    return Seen(
        outcome=t.outcome.value,
        attempt=t.attempt,
        ranks=(t.ranks_done, t.ranks),
        blocks=t.num_blocks,
        bytes=t.num_bytes,
        descriptors=t.descriptors,
        merged=t.descriptors_merged,
        writes=posted or None,
        base=t.base_id,
        mode=t.mode,
        error=like.error if like.error and like.error in t.error else t.error,
        waits=like.waits if like.waits and like.waits in t.waits else t.waits,
        pairing=like.pairing if like.pairing and like.pairing in t.pairing else t.pairing,
        order=like.order if like.order is None else t.order,
    )
