"""HTTP beside the watching thread: an address that is ours before anything is promised, and uvicorn in a thread."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import threading
import time
from typing import Any, Final, NamedTuple

from pushscope.telemetry.errors import PushscopeError

PORT: Final = 9479
_END_S: Final = 3
"""Streams that are open when the agent ends get so long."""


class AddressError(PushscopeError):
    """The agent can't listen there; the message says why, and what to do."""


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


DEFAULT_ADDRESS: Final = Address("127.0.0.1", PORT)


def parse_address(text: str) -> Address:
    """``HOST:PORT``, ``[IPv6]:PORT``, ``:PORT`` (every address of the host) or ``HOST`` (port 9479).

    Raises AddressError for anything else.
    """
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(PORT)
    host = host.removeprefix("[").removesuffix("]") or "0.0.0.0"
    if not port.isdecimal() or int(port) > 65535 or (":" in host and not _is_ipv6(host)):
        raise AddressError(f"--bind is {text!r}; expected HOST:PORT, such as 127.0.0.1:{PORT}")
    return Address(host, int(port))


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


def listen(address: Address, *, any_port: bool = False) -> socket.socket:
    """A socket that listens there; with ``any_port``, where the port is taken, at a free one.

    Raises AddressError.
    """
    try:
        return _bound(address)
    except OSError as e:
        if e.errno == errno.EADDRINUSE and any_port:
            return listen(address._replace(port=0))
        if e.errno == errno.EADDRINUSE:
            raise AddressError(
                f"port {address.port} of {address.host} is in use by another process; give another with --bind "
                f"(PUSHSCOPE_BIND), or let the agent take a free one with --any-port"
            ) from e
        raise AddressError(
            f"can't listen at {address}: {e.strerror or e}; --bind wants an address of this host"
        ) from e


def _bound(address: Address) -> socket.socket:
    family, kind, protocol, _, at = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(at)
        listener.listen(128)
    except BaseException:
        listener.close()
        raise
    return listener


def url_of(listener: socket.socket) -> str:
    """Where a client of this host finds it."""
    host, port = listener.getsockname()[:2]
    any_host = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    return f"http://{Address(any_host.get(host, host), port)}"


class Server:
    """An ASGI app, served in a thread of its own."""

    def __init__(self, app: Any, listener: socket.socket):
        import uvicorn  # noqa: PLC0415 - only an agent serves

        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=_END_S, log_config=None
        )
        self._server = uvicorn.Server(config)
        self._listener = listener
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Answer from now on. Raises AddressError if the server does not come up."""
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise AddressError("the HTTP server did not come up; its reason is above")
            time.sleep(0.01)

    def close(self) -> None:
        """Answer what was asked, for some seconds, and end."""
        self._server.should_exit = True
        self._thread.join(_END_S + 1)
        self._listener.close()

    def _run(self) -> None:
        with contextlib.suppress(SystemExit):
            self._server.run(sockets=[self._listener])
