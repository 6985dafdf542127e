"""Who sends requests, by which router, and who gives up waiting."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from random import Random
from typing import Final

from pushscope.lab.simulator.chances import Lognormal, Poisson
from pushscope.lab.simulator.decode import DecodeEngine
from pushscope.lab.simulator.mix import Pool
from pushscope.lab.simulator.prefill import PrefillEngine
from pushscope.lab.simulator.request import Phase, Request
from pushscope.lab.simulator.timeline import Story
from pushscope.lab.simulator.world import World

_TYPICAL_TOKENS: Final = 1_024
_MOST_TOKENS: Final = 60_000
_PATIENCE: Final = Lognormal(0.2, 1.5, 60.0)
"""Of a client that leaves: at any stage."""


class Clients:
    """The clients of one pool, and its router."""

    def __init__(self, world: World, pool: Pool, p: Sequence[PrefillEngine], d: Sequence[DecodeEngine]):
        self.world, self.pool, self.timeline = world, pool, world.timeline
        self.p, self.d = p, d
        self.random = Random(world.random.getrandbits(64))
        self.stopped = False
        self.sent = 0

    def come(self) -> Story:
        """Requests, at a rate that changes: steady, then a burst, or none for a while."""
        weather, per_s = self.world.mix.weather, self.pool.per_s
        while not self.stopped:
            yield from self._for_a_while(weather.steady.ns(self.random), per_s)
            if self.random.random() < weather.idle_share:
                yield weather.idle.ns(self.random)
            else:
                yield from self._for_a_while(weather.burst.ns(self.random), per_s * weather.burst_times)

    def _for_a_while(self, length_ns: int, per_s: float) -> Story:
        end_ns, gap = self.timeline.now_ns + length_ns, Poisson(per_s)
        while self.timeline.now_ns < end_ns:
            yield gap.ns(self.random)
            if self.stopped:
                return
            self.send(self._request())

    def _request(self) -> Request:
        random, shares = self.random, self.world.mix.shares
        tokens = _TYPICAL_TOKENS
        if random.random() >= shares.same_length:
            tokens = min(_MOST_TOKENS, 1 + int(random.lognormvariate(6.9, 1.1)))
        return Request(
            self.p[int(random.random() * len(self.p))],
            self.d[int(random.random() * len(self.d))],
            str(uuid.UUID(int=random.getrandbits(128))),
            (f"{random.getrandbits(32):08x}", f"{random.getrandbits(32):08x}"),
            tokens=tokens,
            blocks=-(-tokens // self.world.mix.block_tokens),
            full_hit=random.random() < shares.full_hit,
        )

    def send(self, r: Request) -> None:
        """Send a request as this router does."""
        self.sent += 1
        self.timeline.start(self._prefill_leg(r))
        if self.pool.serial:
            r.told_id, r.after_prefill = r.p_id, self._answered
        else:
            self.timeline.start(self._decode_leg(r))
        if self.random.random() < self.world.mix.shares.client_leaves:
            self.timeline.start(self._leave(r))

    def _prefill_leg(self, r: Request) -> Story:
        yield self.world.mix.times.frontend.ns(self.random)
        if not r.left or r.d_phase is not Phase.AWAY:
            r.p.arrive(r)

    def _decode_leg(self, r: Request) -> Story:
        yield self.world.mix.times.frontend.ns(self.random)
        if not r.left:
            r.d.arrive(r)

    def _answered(self, r: Request) -> None:
        self.timeline.start(self._after_answer(r))

    def _after_answer(self, r: Request) -> Story:
        yield self.world.mix.times.answer.ns(self.random)
        yield from self._decode_leg(r)

    def _leave(self, r: Request) -> Story:
        """The client gives up. P's leg is ended too, unless D counts on it."""
        yield _PATIENCE.ns(self.random)
        r.left = True
        if r.d_phase in (Phase.AWAY, Phase.QUEUED):
            r.p.abort(r)
        r.d.abort(r)
