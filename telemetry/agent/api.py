"""What an agent answers over HTTP."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pushscope.telemetry.agent.health import Health


def make_app(*, health: Callable[[], Health]) -> Starlette:
    """``/healthz``: how the agent stands."""

    async def healthz(_: Request) -> Response:
        return Response(msgspec.json.encode(health()), media_type="application/json")

    return Starlette(routes=[Route("/healthz", healthz)])
