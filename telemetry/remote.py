"""An agent's events, over HTTP: a source that keeps connected by itself.

A thread follows the agent's stream into a buffer; ``poll`` takes what is there. After a cut it asks again, later each
time, for what comes after the last event that it has: nothing is read twice, and what was overwritten meanwhile is
counted as lost by the agent, which knows. A buffer that is full stops the thread, so the agent stops sending.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import httpx
import msgspec

from pushscope.telemetry.clock import this_host
from pushscope.telemetry.clocks import DRIFT
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.frames import MAGIC, Decoder, FrameError
from pushscope.telemetry.marks import Marks
from pushscope.telemetry.source import UNHEARD_NS, Reading, RingState, Stamp
from pushscope.telemetry.units import clean

MAX_BUFFERED_EVENTS: Final = 200_000
LAG_NS: Final = 500_000_000
"""An agent polls its rings some times a second, and the network takes its time."""
SILENT_S: Final = 10.0
"""An agent says something every second."""
CONNECT_S: Final = 10.0
AGAIN_S: Final = (0.2, 10.0)
"""After a cut: when the next try is, first and at most."""
_LAGGING_S: Final = (UNHEARD_NS // 1_000_000_000 - 1, 5, 10, 30, 60, 300)
_SETTLE_S: Final = 0.3


def agent_url(text: str) -> str:
    """The URL of an agent, ``http://`` added where no scheme is given. Raises PushscopeError if it is none."""
    try:
        url = httpx.URL(text if "://" in text else f"http://{text}")
    except httpx.InvalidURL as e:
        raise PushscopeError(
            f"--connect is {clean(text)!r}, which is no URL ({e}); expected {_EXAMPLE}"
        ) from e
    is_address = bool(url.host) and " " not in text and (url.port or 0) < 1 << 16
    if url.scheme not in ("http", "https") or not is_address or url.query or url.path not in ("", "/"):
        raise PushscopeError(f"--connect is {clean(text)!r}; expected {_EXAMPLE}")
    return str(url).rstrip("/")


_EXAMPLE: Final = "an agent's URL, such as http://10.0.0.7:9479"


class RefusedError(PushscopeError):
    """The agent answered, but gives no events."""


class _Received(NamedTuple):
    """A reading of the agent, with the times (ours) around what its clock said."""

    reading: Reading
    heard_ns: int
    asked_ns: int | None


class RemoteSource:
    """The rings of an agent's host. ``close`` it: it has a thread."""

    ends = False

    def __init__(self, url: str, token: str = "", *, max_buffered: int = MAX_BUFFERED_EVENTS):
        """``url`` as ``agent_url`` gives it. Raises PushscopeError for a token that no header can carry."""
        if not (token.isascii() and (token.isprintable() or not token)):
            raise PushscopeError(
                "expected a token of plain ASCII characters, found others; agents have no such token"
            )
        self.label = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._max_buffered = max_buffered
        self._host = this_host()
        self._changed = threading.Condition()
        self._parts: list[_Received] = []
        """What has come of a reading that is sent in parts: in them rings are not read equally far. Only what is too
        much to hold is given before all of it is there."""
        self._buffer: deque[_Received] = deque()
        self._buffered = 0
        """Events in both."""
        self._known: dict[str, RingState] = {}
        """By ring, as it stood at the last reading that was received; counts are over all connections."""
        self._rings: tuple[RingState, ...] = ()
        self._agents_notices: tuple[str, ...] = ()
        self._asides: tuple[str, ...] = ()
        self._marks = Marks()
        """Of all connections: an agent tells its marks anew on each."""
        self._least_delay_ns: float = float("inf")
        """The least difference between our clock when a reading came and the agent's in it."""
        self._delay_ns: float = 0.0
        self._delay_at_ns = 0
        self._connected = False
        self._whole_at_ns = 0
        """When all that an agent's rings held by then had come, last; 0: never yet."""
        self._cut = ""
        """Since when, and why, there is no connection."""
        self._tried = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"agent {url}", daemon=True)
        self._began_s = 0.0

    # -- what is asked -----------------------------------------------------------------------------

    def poll(self) -> Reading:
        self._start()
        t_ns, unix_ns = time.monotonic_ns(), time.time_ns()
        with self._changed:
            received = tuple(self._buffer)
            self._buffer.clear()
            self._buffered = sum(len(part.reading.events) for part in self._parts)
            self._changed.notify_all()
            if received:
                last = received[-1].reading
                self._rings = last.rings
                self._agents_notices = tuple(f"{self.label}: {notice}" for notice in last.notices)
                self._asides = tuple(f"{self.label}: {aside}" for aside in last.asides)
            out_of_touch = self._connection()
            notices = (*out_of_touch, *self._agents_notices)
        rings, events = _merged(received, self._rings)
        if out_of_touch:
            rings = tuple(msgspec.structs.replace(state, unheard=True) for state in rings)
        stamps = _stamps(received)
        marks = self._marks.add(mark for part in received for mark in part.reading.marks)
        return Reading(
            t_ns,
            unix_ns,
            rings,
            events,
            notices,
            self._host,
            LAG_NS,
            stamps,
            marks=marks,
            asides=self._asides,
        )

    def settle(self) -> None:
        self._start()
        with self._changed:
            while not self._changed.wait_for(self._has_answered, self._patience_s()):
                if self._patience_s() <= 0:
                    break
            if not self._known and not self._connected:
                raise PushscopeError(
                    self._cut or f"{self.label}: no answer in {CONNECT_S:.0f} s; {_IS_IT_THERE}"
                )
        time.sleep(_SETTLE_S)

    def close(self) -> None:
        self._ended.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(2.0)  # it hears something every second

    def _start(self) -> None:
        if not self._began_s:
            self._began_s = time.monotonic()
            self._thread.start()

    def _patience_s(self) -> float:
        """How much longer to wait: as long as something comes."""
        heard_s = max(self._began_s, self._delay_at_ns / 1e9)
        return max(0.0, heard_s + CONNECT_S - time.monotonic())

    def _has_answered(self) -> bool:
        return self._whole_at_ns > 0 or (self._tried > 0 and not self._connected)

    def _connection(self) -> Sequence[str]:
        """What must be known of the connection; nothing if all is well."""
        if not self._connected:
            return (self._cut or f"{self.label}: connecting",)
        now_ns = time.monotonic_ns()
        behind_s = (self._delay_ns - self._least_delay_ns + now_ns - (self._whole_at_ns or now_ns)) / 1e9
        if over := [s for s in _LAGGING_S if behind_s > s + 1]:
            return (f"{self.label}: lagging, what is shown of its engines is more than {over[-1]} s old",)
        return ()

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        wait_s = AGAIN_S[0]
        while not self._ended.is_set():
            before = len(self._known), self._delay_at_ns
            why = self._followed()
            if (len(self._known), self._delay_at_ns) != before:
                wait_s = AGAIN_S[0]
            with self._changed:
                if self._connected or not self._cut:
                    since = time.strftime("%H:%M:%S")
                    self._cut = (
                        f"{self.label}: disconnected since {since}, what its engines do is not known: {why}"
                    )
                self._connected = False
                self._tried += 1
                self._changed.notify_all()
            self._ended.wait(wait_s * random.uniform(0.75, 1.25))
            wait_s = min(2 * wait_s, AGAIN_S[1])

    def _followed(self) -> str:
        """Follow the stream as long as it lasts; why it ended."""
        try:
            self._follow()
        except (PushscopeError, OSError, msgspec.MsgspecError) as e:
            return str(e)
        except httpx.HTTPError as e:
            said = (
                "no answer in time" if isinstance(e, httpx.TimeoutException) else str(e) or type(e).__name__
            )
            return f"{said}; {_IS_IT_THERE}"
        return "the agent has ended the stream"

    def _follow(self) -> None:
        limits = httpx.Timeout(SILENT_S, connect=CONNECT_S)
        after = {ring: state.position for ring, state in self._known.items()}
        # A transport of our own: proxies are for the world outside.
        with httpx.Client(transport=httpx.HTTPTransport(), timeout=limits, headers=self._headers) as client:
            asked_ns: int | None = time.monotonic_ns()
            body = msgspec.json.encode({"after": after})
            kind = {"Content-Type": "application/json"}
            with client.stream("POST", f"{self.label}/v1/events", content=body, headers=kind) as response:
                if response.status_code != 200:
                    raise RefusedError(_refusal(response))
                decoder, rest, before = Decoder(), MAGIC, dict(self._known)
                for chunk in response.iter_raw():
                    data, heard_ns = chunk, time.monotonic_ns()
                    if rest:
                        rest, data = _after_magic(rest, data)
                    decoder.feed(data)
                    while (reading := decoder.next()) is not None:
                        self._receive(_Received(_counted_on(reading, before), heard_ns, asked_ns))
                        asked_ns = None
                    if self._ended.is_set():
                        return

    def _receive(self, received: _Received) -> None:
        reading = received.reading
        with self._changed:
            while self._buffer and self._buffered > self._max_buffered and not self._ended.is_set():
                self._changed.wait(1.0)
            self._parts.append(received)
            self._buffered += len(reading.events)
            if not reading.more or self._buffered > self._max_buffered:
                self._buffer.extend(self._parts)
                self._parts.clear()
            self._known.update((state.origin.instance, state) for state in reading.rings)
            aged = self._least_delay_ns + DRIFT * (received.heard_ns - self._delay_at_ns)
            self._delay_ns = received.heard_ns - reading.t_ns
            self._least_delay_ns = min(aged, self._delay_ns)
            self._delay_at_ns = received.heard_ns
            if not reading.more:
                self._whole_at_ns = received.heard_ns
            self._connected, self._cut = True, ""
            self._changed.notify_all()


_IS_IT_THERE: Final = "is `pushscope agent` running there?"


def _refusal(response: httpx.Response) -> str:
    text = clean(response.read()[:500].decode("utf-8", "replace").strip(), 300)
    return f"it answers {response.status_code}: {text}" if text else f"it answers {response.status_code}"


def _after_magic(expected: bytes, data: bytes) -> tuple[bytes, bytes]:
    """What is still expected of the magic line, and what of ``data`` comes after it."""
    if not data.startswith(expected[: len(data)]):
        raise FrameError("it sends something else than events: is it a pushscope agent?")
    return expected[len(data) :], data[len(expected) :]


def _counted_on(reading: Reading, before: dict[str, RingState]) -> Reading:
    """A reading with the counts of former connections added to those of this one."""
    return msgspec.structs.replace(
        reading, rings=tuple(_added(state, before.get(state.origin.instance)) for state in reading.rings)
    )


def _added(state: RingState, before: RingState | None) -> RingState:
    if before is None:
        return state
    return msgspec.structs.replace(
        state,
        lost=state.lost + before.lost,
        torn=state.torn + before.torn,
        forgotten=state.forgotten + before.forgotten,
    )


def _merged(
    received: Sequence[_Received], last: Sequence[RingState]
) -> tuple[tuple[RingState, ...], list[tuple[int, bytes]]]:
    """All readings as one: the rings as they stood last, and those that went away in between."""
    states = {state.origin.instance: state for r in received for state in r.reading.rings}
    states.update((state.origin.instance, state) for state in last)
    place = {ring: n for n, ring in enumerate(states)}
    events: list[tuple[int, bytes]] = []
    for r in received:
        index = [place[state.origin.instance] for state in r.reading.rings]
        events.extend((index[n], payload) for n, payload in r.reading.events)
    return tuple(states.values()), events


def _stamps(received: Sequence[_Received]) -> tuple[Stamp, ...]:
    """What the agent's clock said, of readings alike the one that came fastest."""
    stamps = [
        Stamp(r.reading.host, r.reading.t_ns, r.heard_ns, r.asked_ns) for r in received if r.reading.host
    ]
    asked = [stamp for stamp in stamps if stamp.asked_ns is not None]
    fastest = min(stamps, key=lambda stamp: stamp.heard_ns - stamp.t_ns, default=None)
    return (*asked, *((fastest,) if fastest and fastest not in asked else ()))
