"""What the facts mean for the agent, its peers and the OTLP endpoints. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pushscope.telemetry.agent.health import Health
from pushscope.telemetry.doctor.check import Check, Group, Level
from pushscope.telemetry.doctor.facts import Agent, Endpoint, Facts, Peer
from pushscope.telemetry.units import age, count

OK, INFORMATION, WARNING, _ = Level
HANGS_S = 10.0
"""An agent that has not read for so long hangs, or has no CPU."""
_about = partial(Check, Group.AGENT)
_REMEDIES = {
    "queue_full": "see why the endpoint is slow, export a part (--sample, OTEL_TRACES_SAMPLER), or let more wait "
    "(OTEL_BSP_MAX_QUEUE_SIZE)",
    "refused": "see the agent's log for what the endpoint said; credentials go into OTEL_EXPORTER_OTLP_HEADERS",
    "failed": "see the agent's log for why it could not be reached",
}


def agent_checks(facts: Facts) -> Iterator[Check]:
    """Every check of the agent, in the order in which they are shown."""
    if facts.agent is None:
        yield _about(
            "agent",
            INFORMATION,
            "none reads this folder: no spans are exported, and other hosts can't watch this one",
            'start `pushscope agent`, or set the option "agent" of the connector to "auto"',
        )
    else:
        yield from _agent(facts.agent)
        yield from _version(facts.agent, facts)
        for peer in facts.agent.peers:
            yield _peer(peer, facts.agent)
    yield from _endpoints(facts)


def _agent(agent: Agent) -> Iterator[Check]:
    who = f"pid {agent.pid} on {agent.host}" if agent.pid else "one that could not leave a note in the folder"
    if not agent.url:
        yield _about("agent", INFORMATION, f"{who}; where it answers is not known")
    elif agent.health is None:
        yield _about(
            "agent",
            WARNING,
            f"{who} does not answer at {agent.url}: {agent.error}",
            "see its log; in another container it can't be asked from here",
        )
    else:
        yield from _health(who, agent.url, agent.health)


def _health(who: str, url: str, health: Health) -> Iterator[Check]:
    exported = int(health.counts.get("spans.exported", 0))
    yield _about(
        "agent",
        OK,
        f"{who}, up for {age(health.uptime_s)}, answers at {url}, reads {health.num_engines} engines, "
        f"{count(exported)} spans exported",
    )
    if health.read_s_ago > HANGS_S:
        yield _about(
            "agent",
            WARNING,
            f"has not read the rings for {age(health.read_s_ago)}",
            "see whether it has CPU; restart it, it knows what it has exported",
        )
    for trouble in health.troubles:
        yield _about("agent", WARNING, trouble, "see its log")
    for reason, remedy in _REMEDIES.items():
        if dropped := int(health.counts.get(f"spans.dropped.{reason}", 0)):
            words = reason.replace("_", " ")
            yield _about("agent", WARNING, f"{count(dropped)} spans were dropped: {words}", remedy)


def _version(agent: Agent, facts: Facts) -> Iterator[Check]:
    here = facts.installed.pushscope
    if agent.version and here and agent.version != here:
        yield _about(
            "agent",
            WARNING,
            f"is pushscope {agent.version}, this is {here}",
            "use one release, and restart what is older",
        )


def _peer(peer: Peer, agent: Agent) -> Check:
    if peer.error:
        return _about(
            "peer",
            WARNING,
            f"{peer.url} can't be asked from here: {peer.error}; what its host saw is then missing",
            "see whether an agent runs there, and whether its port can be reached (--bind, PUSHSCOPE_TOKEN)",
        )
    if agent.version and peer.version and peer.version != agent.version:
        return _about(
            "peer",
            WARNING,
            f"{peer.url} is pushscope {peer.version}, the agent here {agent.version}",
            "use one release on all hosts",
        )
    return _about("peer", OK, f"{peer.url} answers")


def _endpoints(facts: Facts) -> Iterator[Check]:
    for endpoint in facts.endpoints:
        yield _endpoint(endpoint)
    if not facts.endpoints:
        yield _about(
            "OTLP",
            INFORMATION,
            "no endpoint is set, by the environment of doctor or by an engine",
            "to export spans set OTEL_EXPORTER_OTLP_ENDPOINT for the agent, or --otlp-traces-endpoint for engines",
        )


def _endpoint(endpoint: Endpoint) -> Check:
    if endpoint.off:
        return _about("OTLP", INFORMATION, f"nothing is exported: {endpoint.off}")
    if not endpoint.error:
        return _about("OTLP", OK, f"{endpoint.url} takes exports ({endpoint.protocol})")
    remedy = "see whether a receiver listens there, and what OTEL_EXPORTER_OTLP_* of the agent say"
    if endpoint.protocol == "grpc" and (":4318" in endpoint.url or endpoint.url.endswith("/v1/traces")):
        remedy = "that looks like OTLP over HTTP: set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
    return _about("OTLP", WARNING, f"{endpoint.url}: {endpoint.error}".removeprefix(": "), remedy)
