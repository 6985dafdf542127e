"""Agents' HTTP side on real sockets, and engines that record for them."""

from __future__ import annotations

import contextlib
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
