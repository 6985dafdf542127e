"""Who may ask an agent: on loopback who names it as that, elsewhere who has the token.

A web page can make a browser ask ``127.0.0.1`` under a name of its own (DNS rebinding). The browser then says that
name in the Host header, so on loopback only the names of loopback are answered.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterable
from hmac import compare_digest
from typing import Final, NamedTuple

from pushscope.telemetry.errors import PushscopeError

HEALTH_PATH: Final = "/healthz"
"""Needs no token: a probe has none, and it tells nothing of requests."""
METRICS_PATH: Final = "/metrics"
"""Needs a token unless it is opened: it tells nothing of requests, but which engines and models there are."""


class Refusal(NamedTuple):
    """Why a request is not answered."""

    status: int
    sentence: str


class Access(NamedTuple):
    """Where an agent listens, and the token that it wants; empty: none."""

    bind_host: str = "127.0.0.1"
    token: str = ""
    open_metrics: bool = False
    """Metrics need no token."""

    def check(self) -> None:
        """Raises PushscopeError if others could read without a token."""
        if not is_loopback(self.bind_host) and not self.token:
            raise PushscopeError(
                f"the agent is to listen at {self.bind_host}, where others can reach it, and has no token; set one "
                f"with --token or PUSHSCOPE_TOKEN, or listen at 127.0.0.1"
            )

    def refusal(self, path: str, headers: Iterable[tuple[bytes, bytes]]) -> Refusal | None:
        """Why a request is refused; None if it is not. Names of headers are in lower case, as ASGI has them."""
        pairs = list(headers)
        if is_loopback(self.bind_host):
            names = [value.decode("latin-1") for name, value in pairs if name == b"host"]
            if len(names) != 1 or not is_loopback(_without_port(names[0])):
                asked = ascii(names[0][:80]) if names else "no host"
                return Refusal(
                    403,
                    f"this agent is asked as localhost or 127.0.0.1, the request named {asked} in its Host header; "
                    f"ask it by one of those names, through a tunnel too",
                )
        if not self.token or path == HEALTH_PATH or (self.open_metrics and path == METRICS_PATH):
            return None
        given = [value for name, value in pairs if name == b"authorization"]
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        if scheme.lower() == b"bearer" and compare_digest(token.strip(), self.token.encode()):
            return None
        found = "another one" if given else "none"
        return Refusal(
            401,
            f"expected the agent's token as 'Authorization: Bearer TOKEN', found {found}; give it with --token or "
            f"PUSHSCOPE_TOKEN",
        )


def is_loopback(host: str) -> bool:
    """Whether only this host (in a pod: only this pod) can reach an address."""
    if host.lower() == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return False


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.rpartition(":")[0] if host.count(":") == 1 else host
