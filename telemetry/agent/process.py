"""The life of an agent: one for a folder, reading until it is told to end, or until its engines are gone."""

from __future__ import annotations

import importlib.metadata
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from pushscope.telemetry.agent.access import Access
from pushscope.telemetry.agent.endpoints import Endpoints
from pushscope.telemetry.agent.export import DROP_REASONS, Done
from pushscope.telemetry.agent.exposition import Exposition
from pushscope.telemetry.agent.follow import Follower
from pushscope.telemetry.agent.health import Health
from pushscope.telemetry.agent.journal import Journal
from pushscope.telemetry.agent.noting import Noting
from pushscope.telemetry.agent.otlp import OtlpSettings, otlp_settings
from pushscope.telemetry.agent.server import DEFAULT_ADDRESS, Address, Server, listen, url_of
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.metrics.page import Own
from pushscope.telemetry.presence import Note, Occupied, Presence
from pushscope.telemetry.source import RingsSource

POLL_S: Final = 0.1
FLUSH_S: Final = 5.0
"""What waits for the endpoint when the agent ends is sent within this time, or left to the next agent."""
GRACE_S: Final = 30.0
"""Engines that are gone for so long do not come back: time for a restart."""

_EXPORTED: Final = "spans.exported"
_DROPPED: Final = "spans.dropped."
"""Counters of the journal."""
Say = Callable[[str], None]


class AgentError(PushscopeError):
    """The agent can't run; the message says why, and what to do."""


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line, or the connector, asks for."""

    folder: Path
    address: Address = DEFAULT_ADDRESS
    any_port: bool = False
    """Where the port is taken: a free one."""
    token: str = ""
    open_metrics: bool = False
    """Metrics are shown to who has no token, too."""
    peers: tuple[str, ...] = ()
    sample: float | None = None
    """None: as OTEL_TRACES_SAMPLER says."""
    state: Path | None = None
    """Where what must outlive the agent is; None: in the folder of rings."""
    exit_with_engines: bool = False
    grace_s: float = GRACE_S
    flush_s: float = FLUSH_S

    @property
    def access(self) -> Access:
        """Who may ask."""
        return Access(self.address.host, self.token, open_metrics=self.open_metrics)


def run_agent(options: AgentOptions, environ: Mapping[str, str], stop: threading.Event, say: Say) -> None:
    """Read, export and answer until ``stop`` is set, or the engines are gone; then send what waits.

    Raises PushscopeError for what stands in the way: a variable that can't be followed, an address that is not to be
    had, a folder that is not safe, another agent that reads it.
    """
    settings = otlp_settings(environ)
    options.access.check()
    for notice in settings.notices:
        say(notice)
    presence = _occupied(options.folder)
    with closing(listen(options.address, any_port=options.any_port)) as listener:
        Agent(options, settings, listener, say).run(stop, presence)


def _occupied(folder: Path) -> Presence | None:
    """The folder, for us alone; None if no engine has made it yet."""
    if not os.path.lexists(folder):
        return None
    try:
        return Presence(folder)
    except Occupied as e:
        raise AgentError(
            f"{folder} is read by {e.note.who} already, and two would export everything twice; end it first, or "
            f"give another folder with --rings"
        ) from e


class Agent:
    """What an agent consists of, and its loop."""

    def __init__(self, options: AgentOptions, settings: OtlpSettings, listener: socket.socket, say: Say):
        self._options, self._settings, self._say = options, settings, say
        self._listener = listener
        self._began_s = self._read_s = self._engines_s = time.monotonic()
        self._here = Noting(RingsSource(options.folder))
        self._everywhere = _joined(self._here, options)
        self._journal = Journal()
        self._endpoints = Endpoints(settings, self._here.origins, on_done=self._done, say=say)
        ratio = settings.ratio if options.sample is None else options.sample
        self._follower = Follower(
            self._everywhere, self._here, self._journal, self._endpoints, ratio=ratio, say=say
        )
        self._exposition = Exposition(self._follower, self._own)
        self._engines: frozenset[str] = frozenset()
        self._nowhere_said = False

    def run(self, stop: threading.Event, presence: Presence | None) -> None:
        """Until ``stop`` is set, or the engines are gone. ``presence`` None: once the folder is there."""
        from pushscope.telemetry.agent.api import make_app  # noqa: PLC0415 - HTTP only where an agent runs

        ended = threading.Event()
        options = self._options
        app = make_app(
            options.folder,
            self._follower.snapshot,
            access=options.access,
            health=self.health,
            metrics=self._exposition.page,
            ended=ended,
        )
        server = Server(app, self._listener)
        server.start()
        url = url_of(self._listener)
        self._say(f"reading the engines of {self._options.folder}, answering at {url}")
        try:
            presence = presence or self._wait_for_the_folder(stop)
            if presence is not None:
                with closing(presence):
                    self._follow(stop, presence, url)
        finally:
            ended.set()
            server.close()
            self._everywhere.close()

    def _wait_for_the_folder(self, stop: threading.Event) -> Presence | None:
        """The folder, once an engine has made it; None if ``stop`` comes first."""
        self._say(f"waiting for {self._options.folder}, which the first engine makes")
        while not stop.wait(POLL_S):
            self._read_s = time.monotonic()
            if (presence := _occupied(self._options.folder)) is not None:
                return presence
        return None

    def _follow(self, stop: threading.Event, presence: Presence, url: str) -> None:
        note = Note(pid=os.getpid(), host=socket.gethostname(), url=url, version=version())
        if not presence.tell(note):
            self._say(
                f"{self._options.folder} can't be written by this user: no note there tells of this agent"
            )
        state = self._options.state or self._options.folder
        self._journal.open(state)
        self._exposition.open(state)
        for trouble in filter(None, (self._journal.trouble, self._exposition.trouble)):
            self._say(trouble)
        try:
            while not (self._step() or stop.wait(POLL_S)):
                pass
            self._follower.poll()  # what was said since
        finally:
            self._end()

    def _step(self) -> bool:
        """Read once; whether it is time to end."""
        self._follower.poll()
        self._read_s = time.monotonic()
        self._exposition.keep()
        self._tell_of_engines()
        if self._here.alive:
            self._engines_s = self._read_s
        gone_s = self._read_s - self._engines_s
        if self._options.exit_with_engines and gone_s >= self._options.grace_s:
            self._say(f"no engine records any more since {gone_s:.0f} s: ending")
            return True
        return False

    def _tell_of_engines(self) -> None:
        alive = self._here.alive
        for engine_id in sorted(alive - self._engines):
            origin = self._here.origins[engine_id]
            self._say(
                f"engine {engine_id} records ({origin.kv_role}, {origin.mode}, {origin.model or 'no model'})"
            )
        for engine_id in sorted(self._engines - alive):
            self._say(f"engine {engine_id} is gone")
        self._engines = alive
        if alive and not self._nowhere_said and not any(map(self._endpoints.of, alive)):
            self._nowhere_said = True
            why = (
                self._settings.off
                or "neither OTEL_EXPORTER_OTLP_ENDPOINT nor --otlp-traces-endpoint of an engine is set"
            )
            self._say(f"spans are not exported: {why}")

    def _end(self) -> None:
        left = self._endpoints.close(self._options.flush_s)
        counts = self._journal.counts()
        self._journal.close()
        self._exposition.close()
        exported = sum(status.exported for status in self._endpoints.status())
        later = f"; {left} are left in the rings for the next agent" if left else ""
        self._say(f"ended: {exported} spans exported, {_dropped(counts)} dropped{later}")

    def _done(self, done: Done) -> None:
        added: dict[str, float] = {_EXPORTED: done.exported} if done.exported else {}
        if done.dropped is not None:
            reason, num_spans = done.dropped
            added[_DROPPED + reason] = num_spans
        self._journal.exported(done.keys, added)

    def _own(self) -> Own:
        counts = self._journal.counts()
        return Own(
            spans_exported=int(counts.get(_EXPORTED, 0)),
            spans_dropped={reason: int(counts.get(_DROPPED + reason, 0)) for reason in DROP_REASONS},
            spans_queued=sum(export.queued for export in self._endpoints.status()),
            polls=self._follower.polls,
            poll_s=self._follower.poll_s,
        )

    def health(self) -> Health:
        """How it stands; from any thread."""
        now_s = time.monotonic()
        exports = self._endpoints.status()
        failed = self._follower.failed
        troubles = [
            *self._everywhere.notices,
            *self._follower.clock_notices(),
            self._journal.trouble,
            self._exposition.trouble,
            f"the spans of {failed} transfers could not be made" if failed else "",
            *(f"spans can't be exported to {e.endpoint}: {e.trouble}" for e in exports if e.trouble),
        ]
        return Health(
            version=version(),
            pid=os.getpid(),
            host=socket.gethostname(),
            rings=str(self._options.folder),
            uptime_s=now_s - self._began_s,
            read_s_ago=now_s - self._read_s,
            num_rings=self._here.num_rings,
            num_alive=self._here.num_alive,
            num_engines=len(self._here.alive),
            peers=self._options.peers,
            export_off=self._settings.off,
            exports=exports,
            counts={**self._follower.counts, **self._journal.counts()},
            troubles=tuple(filter(None, troubles)),
        )


def _joined(here: Noting, options: AgentOptions) -> Noting:
    """This host's rings, with what the agents of other hosts stream."""
    if not options.peers:
        return here
    from pushscope.telemetry.joined import JoinedSource  # noqa: PLC0415 - only for several
    from pushscope.telemetry.remote import RemoteSource, agent_url  # noqa: PLC0415

    peers = [RemoteSource(url, options.token) for url in dict.fromkeys(map(agent_url, options.peers))]
    return Noting(JoinedSource([here, *peers]))


def _dropped(counts: Mapping[str, float]) -> int:
    return int(sum(value for name, value in counts.items() if name.startswith(_DROPPED)))


def version() -> str:
    """Of the pushscope that is installed; empty if it runs from source."""
    try:
        return importlib.metadata.version("pushscope")
    except importlib.metadata.PackageNotFoundError:
        return ""
