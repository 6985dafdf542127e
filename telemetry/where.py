"""Where to read: what a command was told, and the source that it means."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.recording import RecordingSource
from pushscope.telemetry.ring import default_folder, opened_folder
from pushscope.telemetry.source import RingsSource, Source

TOKEN_VARIABLE = "PUSHSCOPE_TOKEN"


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing: this host's rings in the usual folder."""

    replay: Path | None = None
    """A recording, and nothing else."""
    rings: Path | None = None
    """A folder of rings of this host."""
    connect: tuple[str, ...] = ()
    """Agents, by URL; with ``rings`` too, both."""
    token: str | None = None
    """For all agents; None: as the environment has it."""

    @property
    def is_live(self) -> bool:
        return self.replay is None

    @property
    def folder(self) -> Path | None:
        """The folder of rings that is read; None if none is."""
        if self.replay is not None or (self.connect and self.rings is None):
            return None
        return self.rings or default_folder()

    def check(self) -> None:
        """Raises PushscopeError if the folder can't be read: it may hold transfers or none, nobody can tell."""
        if (folder := self.folder) is not None:
            with opened_folder(folder):
                pass

    @property
    def recording(self) -> Path | None:
        """The recording that is read; None if engines are watched. Raises PushscopeError if both are asked for."""
        if self.replay is not None and (self.connect or self.rings is not None):
            raise PushscopeError(
                "--replay reads a recording and nothing else; leave out --connect and --rings"
            )
        return self.replay

    def open(self) -> Source:
        """The source. Raises PushscopeError for a recording that is none, or a URL that is none."""
        if (recording := self.recording) is not None:
            return RecordingSource(recording)
        sources: list[Source] = [] if self.folder is None else [RingsSource(self.folder)]
        if self.connect:
            from pushscope.telemetry.remote import RemoteSource, agent_url  # noqa: PLC0415 - HTTP takes time to import

            token = os.environ.get(TOKEN_VARIABLE, "") if self.token is None else self.token
            sources += [RemoteSource(url, token) for url in dict.fromkeys(map(agent_url, self.connect))]
        if len(sources) == 1:
            return sources[0]
        from pushscope.telemetry.joined import JoinedSource  # noqa: PLC0415 - only for several

        return JoinedSource(sources)
