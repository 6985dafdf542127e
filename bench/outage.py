"""An OTLP endpoint that is down for a minute while transfers go on: memory, losses, and how it comes back."""

from __future__ import annotations

import time

from bench.agent_process import AgentProcess, Receiver
from bench.estimate import Estimate
from bench.figure import Figure, Progress, Settings
from bench.rings import ring_folder
from bench.writer import SimulatedPair
from pushscope.telemetry.agent.health import Health

PER_S = 200.0
UP_S, DOWN_S = 15.0, 60.0
QUIET_S = 5.0
BUDGET_MIB = 200.0


def run(_settings: Settings, progress: Progress) -> list[Figure]:
    """Up, down, up again."""
    receiver = Receiver()
    port = receiver.port
    with (
        ring_folder() as folder,
        SimulatedPair(folder, PER_S) as pair,
        AgentProcess(folder, f"http://127.0.0.1:{port}") as agent,
    ):
        progress(0.0, "the endpoint is up")
        time.sleep(UP_S)
        before_mib, before = agent.resident_mib(), agent.health()
        receiver.close()
        highest_mib, hung_s = before_mib, 0.0
        for second in range(int(DOWN_S)):
            progress((UP_S + second) / (DOWN_S + 3 * UP_S), "the endpoint is down")
            time.sleep(1.0)
            highest_mib = max(highest_mib, agent.resident_mib())
            hung_s = max(hung_s, agent.health().read_s_ago)
        down = agent.health()
        receiver = Receiver(port)
        began = time.monotonic()
        progress(0.7, "the endpoint is up again")
        agent.wait_until(lambda: _exported(agent.health()) > _exported(down), "exporting again")
        again_s = time.monotonic() - began
        agent.wait_until(lambda: _queued(agent.health()) < 2 * PER_S * 11, "an empty queue")
        caught_up_s = time.monotonic() - began
        time.sleep(UP_S)
        highest_mib = max(highest_mib, agent.resident_mib())
        pair.stop()
        _wait_until_quiet(agent)
        after_mib, after = agent.resident_mib(), agent.health()
    receiver.close()
    told = _exported(after) + _dropped(after)
    delivered = after.counts["transfers.D.delivered"]
    return [
        _figure("memory before the outage", "MiB", before_mib),
        _figure(
            f"memory, the most in {DOWN_S:g} s without an endpoint and after", "MiB", highest_mib
        ).against(f"<= {BUDGET_MIB:g} MiB", held=highest_mib <= BUDGET_MIB),
        _figure("memory after it", "MiB", after_mib),
        _figure("spans dropped and counted", "spans", _dropped(after) - _dropped(before)),
        _figure("of", "spans", told),
        *_accounted_for(told, delivered, pair.num_begun),
        _figure("transfers that began", "transfers", pair.num_begun),
        _figure("of them seen to be delivered", "transfers", delivered),
        _figure("the longest that the rings were not read", "s", hung_s).against(
            "<= 1 s", held=hung_s <= 1.0
        ),
        _figure("until it exports again", "s", again_s),
        _figure("until the queue is empty again", "s", caught_up_s),
    ]


def _accounted_for(told: float, delivered: float, num_begun: int) -> list[Figure]:
    """Whether every span was exported or counted as dropped. Every transfer has the same spans here, if all of it was
    seen; on a machine too busy to read the rings in time that is not so, and nothing can be said."""
    if delivered != num_begun:
        return []
    missing = delivered * round(told / delivered) - told
    what = "spans neither exported nor counted as dropped"
    return [_figure(what, "spans", missing).against("0", held=missing == 0)]


def _wait_until_quiet(agent: AgentProcess) -> None:
    """Until nothing is queued, and no transfer was closed for some seconds."""
    last = -1.0
    while last != (now := agent.health().counts["transfers.D.delivered"]) or _queued(agent.health()):
        last = now
        time.sleep(QUIET_S)


def _exported(health: Health) -> float:
    return health.counts.get("spans.exported", 0.0)


def _dropped(health: Health) -> float:
    return sum(number for name, number in health.counts.items() if name.startswith("spans.dropped."))


def _queued(health: Health) -> int:
    return sum(export.queued for export in health.exports)


def _figure(what: str, unit: str, value: float) -> Figure:
    return Figure(what=what, unit=unit, measured=Estimate(value, value, value, "once"))
