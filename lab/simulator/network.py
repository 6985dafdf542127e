"""A network that is hard on connections: a relay to a port of this machine, late, stalling, resetting."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from random import Random
from typing import Final

import msgspec

from pushscope.lab.simulator.chances import Between

_CHUNK: Final = 4096
_UNDER_WAY: Final = 64
"""Chunks that one direction of a connection holds at most: beyond that its sender has to wait."""
_RECEIVE_BYTES: Final = 1 << 14
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: on, no time; closing such a socket resets its connection."""


class Hardships(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to what is sent."""

    delay_s: float = 0.0
    """Of every byte, in each direction."""
    reset_every: int = 0
    """Bytes to the client, on average, after which a connection is reset; 0: none is."""
    calm: Between | None = None
    """Time from one stall to the next; None: there are none."""
    stall: Between = Between(1.0, 3.0)
    """How long nothing comes through, on any connection, in either direction."""


_EASY: Final = Hardships()


class Relay:
    """Passes connections on, from a free port of 127.0.0.1 to another one there. ``close`` it: it has a thread.

    ``resets``, ``stalls`` and ``connections`` count what happened so far. The same seed makes the same choices.
    """

    def __init__(self, port: int, hardships: Hardships = _EASY, *, seed: int = 0):
        self._port, self._hardships, self._random = port, hardships, Random(seed)
        self.connections = self.resets = self.stalls = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._flows, self._ended = asyncio.Event(), asyncio.Event()
        self._flows.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"relay to {port}", daemon=True)
        self._thread.start()

    def stall(self) -> None:
        """Let nothing through until ``flow``."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def flow(self) -> None:
        self._loop.call_soon_threadsafe(self._flows.set)

    def cut(self) -> None:
        """Reset what is open; who comes again is let through."""
        self._loop.call_soon_threadsafe(self._reset_all)

    def _reset_all(self) -> None:
        for writer in self._open:
            _reset(writer)

    def close(self) -> None:
        """Reset what is open, and listen no more."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._relayed, sock=self._listener, limit=_CHUNK)
        stalling = asyncio.create_task(self._stalling())
        await self._ended.wait()
        stalling.cancel()
        server.close()
        self._flows.set()
        while self._open:
            self._reset_all()
            await asyncio.sleep(0.01)

    async def _stalling(self) -> None:
        if self._hardships.calm is None:
            return
        while True:
            await asyncio.sleep(self._hardships.calm.ns(self._random) / 1e9)
            self.stalls += 1
            self._flows.clear()
            await asyncio.sleep(self._hardships.stall.ns(self._random) / 1e9)
            self._flows.set()

    async def _relayed(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.connections += 1
        ends = {client}
        self._open.add(client)
        try:
            answers, agent = await asyncio.open_connection("127.0.0.1", self._port, limit=_CHUNK)
            agent.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
            ends.add(agent)
            self._open.add(agent)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._passed(reader, agent))
                tasks.create_task(self._passed(answers, client, self._hardships.reset_every))
        except* OSError:
            pass  # one end has gone, or was reset
        for writer in ends:
            _reset(writer)
        self._open -= ends

    async def _passed(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, reset_every: int = 0
    ) -> None:
        """Pass one direction on to its end. Raises OSError if either end has gone."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_UNDER_WAY)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._taken(source, under_way))
            tasks.create_task(self._given(under_way, target, reset_every))

    async def _taken(
        self, source: asyncio.StreamReader, under_way: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        data = b"at first"
        while data:
            data = await source.read(_CHUNK)
            await under_way.put((self._loop.time() + self._hardships.delay_s, data))

    async def _given(
        self,
        under_way: asyncio.Queue[tuple[float, bytes]],
        target: asyncio.StreamWriter,
        reset_every: int,
    ) -> None:
        left = self._random.randrange(1, 2 * reset_every) if reset_every else 0
        while True:
            due_s, data = await under_way.get()
            await asyncio.sleep(due_s - self._loop.time())
            await self._flows.wait()
            if not data:
                target.write_eof()
                return
            if reset_every and len(data) >= left:
                target.write(data[:left])  # in the middle of a frame, most likely
                self.resets += 1
                raise ConnectionResetError
            left -= len(data)
            target.write(data)
            await target.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    if not writer.transport.is_closing():
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
