"""What the simulated engines share: time, chance, the mix, and where their rings come together."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec

from pushscope.lab.simulator.mix import Mix
from pushscope.lab.simulator.recorder import Said, VirtualRecorder
from pushscope.lab.simulator.timeline import Timeline
from pushscope.telemetry.clock import this_host
from pushscope.telemetry.events import EngineUp, Origin

SCHEDULER, WORKER = "scheduler", "worker"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What tells one simulated engine from another."""

    name: str
    engine_id: str
    kv_role: str
    tp_size: int
    port: int
    pid: int


class World:
    """One simulation."""

    def __init__(self, mix: Mix, seed: int, start_ns: int, start_unix_ns: int):
        self.mix = mix
        self.random = Random(seed)
        self.timeline = Timeline(start_ns)
        self.said: list[Said] = []
        """What was recorded and not read yet."""
        self.origins: list[Origin] = []
        self.wrongs: Counter[str] = Counter()
        """What has truly gone wrong, by what it is to be called: nothing, in a mix that is well."""
        self._anchor = start_ns, start_unix_ns
        self._host = this_host()

    @property
    def now_ns(self) -> int:
        return self.timeline.now_ns

    def recorder(self, place: Place, role: str, rank: int = 0) -> VirtualRecorder:
        """One more ring: of an engine's scheduler, or of the worker of one rank."""
        origin = Origin(
            host=self._host.name,
            boot_id=self._host.boot_id,
            time_namespace=self._host.time_namespace,
            pid=place.pid + (rank + 1 if role == WORKER and place.tp_size > 1 else 0),
            connector_role=role,
            engine_id=place.engine_id,
            kv_role=place.kv_role,
            mode="push",
            tp_rank=rank,
            tp_size=place.tp_size,
            vllm_version="simulated",
            nixl_agent=f"{place.name}-{rank}-{self.random.getrandbits(64):016x}" if role == WORKER else "",
            side_channel=f"127.0.0.1:{place.port}",
            block_size=self.mix.block_tokens,
            lease_s=self.mix.lease_s,
            anchor_monotonic_ns=self._anchor[0],
            anchor_unix_ns=self._anchor[1],
            instance=f"{place.name}-{role}-{rank}",
        )
        recorder = VirtualRecorder(self.timeline, len(self.origins), origin, self.said)
        self.origins.append(origin)
        recorder.record(EngineUp(self.now_ns))
        return recorder
