"""What a user can set: ``kv_connector_extra_config.pushscope``, overridden by ``PUSHSCOPE_*``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.ring import DEFAULT_BYTES, default_folder

AGENT = ("off", "auto")


class OptionsError(PushscopeError):
    """The configuration cannot be used; the message names the key, what was expected and what was found."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of the instrumented connector."""

    enabled: bool = True
    """False: vLLM's plain connector."""
    dir: str = ""
    """The ring folder; default ``/dev/shm/pushscope-<uid>``."""
    bytes: int = DEFAULT_BYTES
    """Size of one ring; each connector instance (scheduler, and worker of each rank) has one."""
    group: str | None = None
    """A group of the host that may read the rings (folder 0750, files 0640); default: only this user."""
    agent: str = "off"
    """``auto``: the first engine of a host starts the agent of the folder, which ends with the last one."""
    hash_request_ids: bool = False
    """Record digests of request ids instead of the ids."""
    propagate_context: bool = True
    """Send a request's traceparent and transfer_id along in the registration, under the key ``pushscope``."""

    @property
    def folder(self) -> Path:
        return Path(self.dir) if self.dir else default_folder()


def read_options(extra_config: Mapping[str, Any] | None, environ: Mapping[str, str] = os.environ) -> Options:
    """The options in ``kv_connector_extra_config``, with the environment's on top.

    Raises OptionsError for an unknown key or a value of the wrong kind.
    """
    given = (extra_config or {}).get("pushscope", {})
    if not isinstance(given, Mapping):
        raise OptionsError(f'"pushscope" in kv_connector_extra_config must be an object, found {given!r}')
    values = dict(given)
    fields = {f.name: f for f in msgspec.structs.fields(Options)}
    if unknown := sorted(set(values) - set(fields)):
        raise OptionsError(
            f'unknown option {", ".join(map(repr, unknown))} under "pushscope" in kv_connector_extra_config; '
            f"known are {', '.join(fields)}"
        )
    for name in fields:
        variable = f"PUSHSCOPE_{name.upper()}"
        if variable in environ:
            values[name] = environ[variable]
    try:
        # Not strict: the environment has only text. "true"/"false"/"1"/"0" become booleans.
        options = msgspec.convert(values, Options, strict=False)
    except msgspec.ValidationError as e:
        raise OptionsError(f'option under "pushscope" has a wrong value: {e}') from e
    if options.agent not in AGENT:
        raise OptionsError(f'option "agent" is {options.agent!r}; expected {" or ".join(AGENT)}')
    return options
