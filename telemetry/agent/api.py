"""What an agent answers over HTTP: how it is, what is so now, metrics, and its events as a stream.

``/v1/events`` is a recording in the making (:mod:`pushscope.telemetry.frames`), at least a frame a second. Every
stream reads the rings for itself: a slow client loses only its own events, and its ring states say how many. GET
begins with the oldest event; POST with ``{"after": {"RING": POSITION, ...}}``, positions as a stream before gave
them in its ring states, goes on after those.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pushscope.telemetry.agent.access import HEALTH_PATH, METRICS_PATH, Access
from pushscope.telemetry.agent.squeeze import squeezed
from pushscope.telemetry.frames import MAGIC, Encoder
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.source import FROM_THE_OLDEST, Reading, RingsSource

POLL_S: Final = 0.1
AT_MOST: Final = 1_000
"""Events in a frame, about 80 kB: only whole ones count, and a connection that is cut soon still comes forward."""
MAX_STREAMS: Final = 64
MAX_BODY_BYTES: Final = 1 << 20
EVENTS_TYPE: Final = "application/vnd.pushscope.recording"
_PATHS: Final = f"{HEALTH_PATH}, {METRICS_PATH}, /v1/snapshot, /v1/events"


class _Positions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: dict[str, int] = {}


def make_app(
    folder: Path,
    snapshot: Callable[[], Snapshot],
    *,
    access: Access,
    health: Callable[[], Any] = lambda: {"status": "ok"},
    metrics: Callable[[str], tuple[bytes, str]] = lambda _: (b"", "text/plain"),
    ended: threading.Event | None = None,
) -> ASGIApp:
    """The agent's HTTP side.

    ``snapshot``, ``health`` and ``metrics`` are called in threads of the server; ``health`` gives what msgspec can
    encode, ``metrics`` a page and its content type for an ``Accept`` header.
    ``ended`` is set to end all streams. Raises PushscopeError if ``access`` would let everybody in.
    """
    access.check()
    over = ended or threading.Event()
    streams = _Streams()

    async def healthz(_: Request) -> Response:
        return _json(await run_sync(health))

    async def scrape(request: Request) -> Response:
        accept, encoding = (
            ", ".join(request.headers.getlist(name)) for name in ("accept", "accept-encoding")
        )
        page, content_type = await run_sync(metrics, accept)
        body, headers = await run_sync(squeezed, page, encoding)
        return Response(body, headers={"Content-Type": content_type, **headers})

    async def now(_: Request) -> Response:
        return _json(await run_sync(snapshot))

    async def events(request: Request) -> Response:
        after = await _positions(request)
        if streams.open >= MAX_STREAMS:
            raise HTTPException(
                503, f"{MAX_STREAMS} clients are streaming already, which is the most; try later"
            )
        source = RingsSource(folder, after, at_most=AT_MOST)
        try:
            first = await run_sync(source.poll)
            _check_positions(after, first)
        except BaseException:
            source.close()
            raise
        return _EventStream(source, first, over, streams)

    app = Starlette(
        routes=[
            Route(HEALTH_PATH, healthz),
            Route(METRICS_PATH, scrape),
            Route("/v1/snapshot", now),
            Route("/v1/events", events, methods=["GET", "POST"]),
        ],
        exception_handlers={HTTPException: _as_sentence},
    )
    return _guarded(app, access)


def _guarded(app: ASGIApp, access: Access) -> ASGIApp:
    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        refusal = access.refusal(scope["path"], scope["headers"]) if scope["type"] == "http" else None
        if refusal is None:
            await app(scope, receive, send)
            return
        headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else None
        await PlainTextResponse(refusal.sentence + "\n", refusal.status, headers)(scope, receive, send)

    return guarded


async def _as_sentence(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = {
        404: f"there is no {request.url.path[:80]!a} here, only {_PATHS}",
        405: f"{request.url.path} does not know {request.method}",
    }.get(error.status_code, error.detail)
    return PlainTextResponse(sentence + "\n", error.status_code, error.headers)


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value, order="deterministic"), media_type="application/json")


# -- the stream --------------------------------------------------------------------------------------


async def _positions(request: Request) -> Mapping[str, int]:
    if request.method != "POST":
        return FROM_THE_OLDEST
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(
                413, f"expected positions of rings in at most {MAX_BODY_BYTES} bytes, found more"
            )
    try:
        after = msgspec.json.decode(body, type=_Positions).after
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise HTTPException(400, f'expected {{"after": {{"RING": POSITION}}}}, found otherwise: {e}') from e
    for ring, position in after.items():
        if position < 0:
            raise HTTPException(400, f"expected a position of ring {ring[:80]!a}, found {position}")
    return after


def _check_positions(after: Mapping[str, int], reading: Reading) -> None:
    for state in reading.rings:
        ring = state.origin.instance
        if state.position < after.get(ring, 0):
            raise HTTPException(
                400,
                f"ring {ring} has {state.position} events, none after {after[ring]}; begin anew, without positions",
            )


class _Streams:
    """How many there are."""

    open = 0


class _EventStream(Response):
    """Frames, until the client goes or the agent ends; the next is read only when the last was taken."""

    def __init__(self, source: RingsSource, first: Reading, ended: threading.Event, streams: _Streams):
        super().__init__(media_type=EVENTS_TYPE, headers={"Cache-Control": "no-store"})
        del self.headers["content-length"]
        self._source, self._first, self._ended, self._streams = source, first, ended, streams
        self._encoder = Encoder()

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        self._streams.open += 1
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_until_gone, receive, tasks.cancel_scope)
                await self._send_all(send)
                tasks.cancel_scope.cancel()
        finally:
            self._streams.open -= 1
            self._source.close()

    async def _send_all(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        reading, magic = self._first, MAGIC
        while not self._ended.is_set():
            if data := magic + await run_sync(self._encoder.encode, reading):
                await send({"type": "http.response.body", "body": data, "more_body": True})
            if not reading.more:
                await anyio.sleep(POLL_S)
            reading, magic = await run_sync(self._source.poll), b""
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
