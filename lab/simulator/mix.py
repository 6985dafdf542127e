"""What is simulated: which engines, how many requests, how long things take, what happens to them.

Nothing in a mix goes wrong for good. What would is left out, since to diagnose it is right:

* P's leg never comes, or is ended while D waits (D hangs; its blocks stay pinned). A client that goes away ends P's
  leg only as long as D has not registered.
* D admits a request only when the lease of P's blocks is over, or a write is still under way then. Queues and writes
  are bounded so that both together stay below the lease.
* One D rank has the request so much later than another one that P's completion comes first, and is dropped.
* D, which had the whole prompt cached, is preempted and registers after all.
* Retries under one id: P may pair them with the wrong attempt.
"""

from __future__ import annotations

from typing import Final

import msgspec

from pushscope.lab.simulator.chances import Between, Chance, Lognormal, Pareto


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """How long each part takes."""

    frontend: Chance = Pareto(0.002, 1.3, 10.0)
    """From the router to an engine's scheduler: an API server that is behind takes seconds."""
    step: Chance = Lognormal(0.008, 0.6, 0.6)
    """One step of an engine; what has to wait for the next one waits for a part of it."""
    prefill_per_token: Chance = Lognormal(0.00006, 0.5, 0.001)
    writer: Chance = Lognormal(0.0001, 1.5, 1.0)
    """What the writer thread needs for one thing, and to wake up."""
    handshake: Chance = Lognormal(0.3, 0.8, 6.0)
    network: Chance = Lognormal(0.0003, 1.0, 1.0)
    """A registration or a heartbeat to the other engine."""
    descriptors: Chance = Lognormal(0.0008, 1.0, 0.5)
    submit: Chance = Lognormal(0.0006, 1.2, 0.5)
    wire: Pareto = Pareto(0.004, 1.3, 12.0)
    """What a write takes beside its bytes: mostly little; a link that stalls takes seconds."""
    wake: Chance = Lognormal(0.004, 1.6, 6.0)
    """Until D's scheduler runs a request whose blocks are there."""
    decode: Chance = Lognormal(1.2, 1.0, 90.0)
    answer: Chance = Lognormal(0.003, 1.0, 1.0)
    """Serial order: from P's answer to the decode leg."""
    ranks_apart: Chance = Between(0.0, 0.0015)
    """How much later one rank begins its part of a step than the first."""


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """Of all requests, how many something happens to."""

    full_hit: float = 0.015
    client_leaves: float = 0.02
    preempted: float = 0.01
    """At P amid the prefill, and likewise at D amid the decode."""
    same_length: float = 0.3
    """Prompts of one length, as benchmarks have them."""


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """How unevenly requests come, and ranks work."""

    steady: Chance = Between(10.0, 60.0)
    burst: Chance = Between(0.5, 3.0)
    burst_times: float = 4.0
    idle: Chance = Between(5.0, 40.0)
    idle_share: float = 0.1
    """How often an idle gap follows instead of a burst."""
    slow_rank_after: Chance = Between(20.0, 90.0)
    slow_rank_for: Chance = Between(5.0, 30.0)
    slow_rank_times: float = 8.0


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Engines of one deployment; its router sends any P's prefills to any D."""

    name: str
    num_p: int = 1
    num_d: int = 1
    p_tp: int = 1
    d_tp: int = 1
    serial: bool = False
    """The decode leg is sent when P has answered. Otherwise both at once: then heartbeats name an id that P never
    gave."""
    per_s: float = 25.0
    """Requests a second while it is neither burst nor gap."""
    slots_p: int = 8
    """Prefills that one P computes at once."""
    slots_d: int = 160
    """Requests for which one D has blocks."""


class Mix(msgspec.Struct, frozen=True, kw_only=True):
    pools: tuple[Pool, ...]
    times: Times = Times()
    shares: Shares = Shares()
    weather: Weather = Weather()
    lease_s: float = 30.0
    link_bytes_per_s: float = 20e9
    token_bytes: int = 131_072
    block_tokens: int = 32
    layers: int = 32


SOAK: Final = Mix(
    pools=(
        Pool(name="even", num_p=3, num_d=4, per_s=130),
        Pool(name="serial", num_p=2, num_d=2, per_s=70, serial=True, slots_d=90),
        Pool(name="wide-d", num_p=2, num_d=1, d_tp=2, per_s=40),
        Pool(name="wide-p", num_p=1, num_d=2, p_tp=2, per_s=30),
        Pool(name="serial-wide-d", num_p=1, num_d=1, d_tp=4, per_s=5, serial=True),
        Pool(name="wide", num_p=1, num_d=1, p_tp=4, d_tp=2, per_s=5),
    )
)
"""Everything that may happen on engines that are well."""


def plain(per_s: float, *, p_tp: int = 1, d_tp: int = 1, pairs: int = 1) -> Mix:
    """So many transfers a second, evenly, between ``pairs`` of engines: nothing happens to any of them.

    With enough slots for the rate; no bursts, no gaps, no slow ranks to speak of.
    """
    pool = Pool(
        name="plain",
        num_p=pairs,
        num_d=pairs,
        p_tp=p_tp,
        d_tp=d_tp,
        per_s=per_s,
        slots_p=max(8, int(per_s)),
        slots_d=max(160, int(8 * per_s)),
    )
    nothing = Shares(full_hit=0.0, client_leaves=0.0, preempted=0.0)
    even = Weather(burst_times=1.0, idle_share=0.0, slow_rank_times=1.0)
    return Mix(pools=(pool,), shares=nothing, weather=even)
