"""Agents' HTTP side on real sockets, and a relay that cuts connections."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import uvicorn

from pushscope.telemetry.agent.access import Access
from pushscope.telemetry.agent.api import make_app
from pushscope.telemetry.events import Event, Origin
from pushscope.telemetry.recorder import Recorder
from pushscope.telemetry.snapshot import Snapshot

from .scenario import Said


class Agent:
    """An agent's API over one ring folder, served until it is stopped; can be started again at the same port."""

    def __init__(self, folder: Path, *, access: Access = Access(), snapshot: Snapshot | None = None):  # noqa: B008
        self.folder, self.access = folder, access
        self.snapshot = snapshot or Snapshot(taken_ns=0, taken_unix_s=0.0)
        self.port = 0
        self._stop: threading.Event | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Agent:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen()
        self.port = listener.getsockname()[1]
        self._stop = threading.Event()
        app = make_app(self.folder, lambda: self.snapshot, access=self.access, ended=self._stop)
        config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=2, lifespan="off")
        self._server, self._listener = uvicorn.Server(config), listener
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()
        until(lambda: self._server.started)
        return self

    def stop(self) -> None:
        if self._stop is None:
            return
        self._stop.set()
        self._server.should_exit = True
        self._thread.join(10)
        assert not self._thread.is_alive()
        self._listener.close()
        self._stop = None


@contextlib.contextmanager
def serving(folder: Path, **more: object) -> Iterator[Agent]:
    agent = Agent(folder, **more).start()  # type: ignore[arg-type]
    try:
        yield agent
    finally:
        agent.stop()


class Relay:
    """Passes bytes on to a port, and resets connections: at random by ``cut_every`` bytes, or on ``cut()``.

    With ``stalled`` set it passes nothing on to the client, and reads nothing from the agent.
    """

    def __init__(self, port: int, *, cut_every: int = 0, seed: int = 0):
        self._to, self._cut_every, self._random = port, cut_every, random.Random(seed)
        self.cuts = self.connections = 0
        self.stalled = threading.Event()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        for s in list(self._open):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        until(lambda: not self._open)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            agent = socket.create_connection(("127.0.0.1", self._to))
        except OSError:
            client.close()
            return
        agent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        self._open |= {client, agent}
        upward = threading.Thread(target=self._pass, args=(client, agent, 0), daemon=True)
        upward.start()
        self._pass(agent, client, self._cut_every)
        for s in (client, agent):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
        upward.join()
        for s in (client, agent):
            s.close()
            self._open.discard(s)

    def _pass(self, source: socket.socket, target: socket.socket, cut_every: int) -> None:
        left = self._random.randrange(1, 2 * cut_every) if cut_every else 0
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                while self.stalled.is_set():
                    time.sleep(0.02)
                if cut_every and len(data) >= left:
                    target.sendall(data[:left])  # in the middle of a frame, most likely
                    self.cuts += 1
                    return
                left -= len(data)
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


class Engines:
    """Recorders of several origins, in one folder or in one each."""

    def __init__(self, folders: dict[Origin, Path], *, num_bytes: int = 1 << 20):
        now = time.monotonic_ns()
        self.recorders = {
            origin: Recorder(
                folder, msgspec.structs.replace(origin, anchor_monotonic_ns=now), num_bytes=num_bytes
            )
            for origin, folder in folders.items()
        }
        self.began_ns = now

    def say(self, said: Said) -> None:
        for origin, event in said:
            self.recorders[origin].record(event)

    def close(self) -> None:
        for recorder in self.recorders.values():
            recorder._ring.close()


def moved(said: Said, to_ns: int, begin_ns: int) -> Said:
    """What was said, as if its ``begin_ns`` were ``to_ns``."""
    return [(o, _moved(e, to_ns - begin_ns)) for o, e in said]


def _moved(event: Event, by_ns: int) -> Event:
    return msgspec.structs.replace(event, t=event.t + by_ns)


def until(true: object, timeout_s: float = 20.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + timeout_s
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)
