"""10,000 transfers in flight: every one is counted, and what is drawn is the first of them, in each order."""

from __future__ import annotations

import msgspec
import pytest

from . import samples
from .test_tui_keys import running, table, take


@pytest.mark.parametrize("sorts", [0, 1, 4], ids=["by-age", "by-bytes", "by-request"])
async def test_ten_thousand_in_flight_come_and_go(sorts: int) -> None:
    crowd = samples.crowd(10_000)
    fewer = msgspec.structs.replace(
        crowd, taken_ns=crowd.taken_ns + samples.S, in_flight=crowd.in_flight[98:]
    )
    async with running(lambda: crowd, size=(200, 60)) as (app, pilot):
        for _ in range(sorts):
            await pilot.press("s")
        assert table(app).selection.total == 10_000
        await take(app, pilot, fewer)
        assert table(app).selection.total == 10_000 - 98
