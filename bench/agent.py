"""The agent: CPU per transfer, with spans and without, and memory with 10,000 transfers in flight."""

from __future__ import annotations

import time

from bench.agent_process import AgentProcess, Receiver
from bench.estimate import Estimate
from bench.figure import BenchError, Figure, Progress, Settings
from bench.rings import ring_folder
from bench.writer import SimulatedPair

PER_S = 200.0
SECONDS = 10.0
IN_FLIGHT = 10_000
BUDGET_MIB = 200.0
RING_BYTES = 32 << 20
"""What 10,000 transfers say until they are on the wire has to be in the rings when the agent comes."""


def run(_settings: Settings, progress: Progress) -> list[Figure]:
    """A real agent on rings that are written in real time."""
    progress(0.0, "spans of every transfer")
    every_us, spans_per_transfer, bytes_per_span = _cpu_us(exports=True)
    progress(0.35, "no spans")
    none_us, _, _ = _cpu_us(exports=False)
    progress(0.7, f"{IN_FLIGHT:,} in flight")
    mib = _mib_in_flight()
    return [
        Figure(
            what=f"agent, CPU per transfer at {PER_S:g}/s, {spans_per_transfer:.0f} spans each exported by gRPC",
            unit="us",
            measured=_once(every_us),
            reference=_once(none_us),
            reference_is="the same without exporting",
            ratio=_once(every_us / none_us),
        ),
        Figure(what="of it sent, per span", unit="bytes", measured=_once(bytes_per_span)),
        Figure(what=f"agent, {IN_FLIGHT:,} in flight, scraped", unit="MiB", measured=_once(mib)).against(
            f"<= {BUDGET_MIB:g} MiB", held=mib <= BUDGET_MIB
        ),
    ]


def _cpu_us(*, exports: bool) -> tuple[float, float, float]:
    """CPU per transfer in us; spans per transfer, and bytes per span."""
    receiver = Receiver()
    endpoint = f"http://127.0.0.1:{receiver.port}" if exports else ""
    try:
        with (
            ring_folder() as folder,
            SimulatedPair(folder, PER_S) as pair,
            AgentProcess(folder, endpoint) as agent,
        ):
            time.sleep(3.0)  # what is imported and learned once
            before_s, before = agent.cpu_s(), agent.health()
            time.sleep(SECONDS)
            after_s, after = agent.cpu_s(), agent.health()
            pair.stop()
            transfers, spans = (
                after.counts[name] - before.counts.get(name, 0) if name in after.counts else 0.0
                for name in ("transfers.D.delivered", "spans.exported")
            )
            if not transfers:
                raise BenchError(f"the agent closed no transfer in {SECONDS:g} s: the machine is too busy")
            all_spans = max(1.0, after.counts.get("spans.exported", 0))
            return (after_s - before_s) / transfers * 1e6, spans / transfers, receiver.num_bytes / all_spans
    finally:
        receiver.close()


def _mib_in_flight() -> float:
    receiver = Receiver()
    try:
        with ring_folder() as folder, SimulatedPair(folder, 10, num_bytes=RING_BYTES) as pair:
            pair.leave_open(IN_FLIGHT)
            with AgentProcess(folder, f"http://127.0.0.1:{receiver.port}") as agent:
                agent.wait_until(lambda: agent.health().counts.get("spans.exported", 0) > 0, "exporting")
                agent.wait_until(lambda: agent.health().read_s_ago < 1, "reading")
                agent.scrape()
                return agent.resident_mib()
    finally:
        receiver.close()


def _once(value: float) -> Estimate:
    return Estimate(value, value, value, "once")
