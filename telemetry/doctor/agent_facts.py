"""Looks at the agent of the ring folder, at what it talks to, and judges nothing."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from pushscope.telemetry.agent.health import Health
from pushscope.telemetry.agent.otlp import Answer, OtlpError, OtlpSender, otlp_settings
from pushscope.telemetry.doctor.facts import Agent, Endpoint, Engine, Peer
from pushscope.telemetry.events import cut
from pushscope.telemetry.presence import present_agent
from pushscope.telemetry.ring import RingError

TIMEOUT_S = 3.0
_PORTS = {"http": 80, "https": 443}


def agent_of(folder: Path, on_progress: Callable[[str], None]) -> Agent | None:
    """The agent that reads the folder, as it says itself how it stands; None if none runs."""
    try:
        note = present_agent(folder)
    except RingError:
        return None
    if note is None:
        return None
    found = Agent(pid=note.pid, host=note.host, url=note.url, version=note.version)
    if not note.url:
        return found
    on_progress(f"asking the agent at {note.url}")
    health, error = _health(note.url)
    if health is None:
        return msgspec.structs.replace(found, error=error)
    return msgspec.structs.replace(found, health=health, peers=tuple(map(_peer, health.peers)))


def _peer(url: str) -> Peer:
    health, error = _health(url)
    return Peer(url=url, error=error, version=health.version if health else "")


def _health(url: str) -> tuple[Health | None, str]:
    """What an agent says of itself, or why it does not."""
    import httpx  # noqa: PLC0415 - only where an agent is asked

    token = os.environ.get("PUSHSCOPE_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(f"{url.rstrip('/')}/healthz", timeout=TIMEOUT_S, headers=headers, trust_env=False)
        answer.raise_for_status()
        return msgspec.json.decode(answer.content, type=Health), ""
    except httpx.HTTPStatusError as e:
        return None, f"it answers {e.response.status_code}"
    except (httpx.HTTPError, httpx.InvalidURL) as e:
        return None, cut(e) or type(e).__name__
    except msgspec.MsgspecError as e:
        return None, f"what answers there is no agent of this release: {cut(e)}"


def endpoints_of(
    engines: Iterable[Engine], environ: Mapping[str, str], on_progress: Callable[[str], None]
) -> tuple[Endpoint, ...]:
    """The OTLP endpoints that an agent started from here would export to, each tried with an empty export."""
    try:
        settings = otlp_settings(environ)
    except OtlpError as e:
        return (Endpoint(url="", error=str(e)),)
    if settings.off:
        return (Endpoint(url="", off=settings.off),)
    urls = {settings.endpoint} if settings.endpoint else {engine.otlp_endpoint for engine in engines}
    found = []
    for url in sorted(filter(None, urls)):
        on_progress(f"trying the OTLP endpoint {url}")
        error = _unreachable(url) or _not_taken(settings.protocol, "" if settings.endpoint else url)
        found.append(Endpoint(url=url, protocol=settings.protocol, error=error))
    return tuple(found)


def _unreachable(url: str) -> str:
    """Why no connection can be made; empty if one can."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    try:
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 4317)
        socket.create_connection((host, port), TIMEOUT_S).close()
    except ValueError as e:
        return f"that is no address: {e}"
    except OSError as e:
        return f"no connection: {e.strerror or e}"
    return ""


def _not_taken(protocol: str, endpoint: str) -> str:
    """Why an export of no span at all is not taken; empty if it is."""
    try:
        sender = OtlpSender(protocol, endpoint, timeout_s=TIMEOUT_S)
    except OtlpError as e:
        return str(e)
    try:
        answer, why = sender.send([])
    finally:
        sender.close()
    return "" if answer is Answer.TAKEN else f"an empty export is {answer.value}: {why}"
