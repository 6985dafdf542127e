"""Plain words for when there is no table to draw: nothing found, a source that failed, a small terminal."""

from __future__ import annotations

from rich.text import Text

from pushscope.telemetry import units
from pushscope.telemetry.snapshot import Snapshot

MIN_WIDTH, MIN_HEIGHT = 60, 16
"""Cells that the screen needs at least."""


def is_empty(snapshot: Snapshot) -> bool:
    """Nobody records, and nothing was recorded."""
    return not (snapshot.engines or snapshot.in_flight or snapshot.waiting or snapshot.recent)


def starting(source: str) -> Text:
    return Text(f"Reading {units.clean(source, 200) or 'the source'} …")


def no_engines(source: str) -> Text:
    """What to check when no engine was found."""
    where = units.clean(source, 200)
    return Text(
        "No engines found" + (f" in {where}" if where else "") + ".\n\n"
        "An engine shows up here as soon as it records. Please check:\n\n"
        " 1. It was started with the connector of pushscope:\n"
        '      --kv-transfer-config \'{"kv_connector": "NixlPushConnector",\n'
        '        "kv_connector_module_path": "pushscope.connector", ...}\'\n'
        " 2. PUSHSCOPE_DIR, if set, is the same here and there (also in containers:\n"
        "    the folder must be shared).\n"
        " 3. It runs on this host, as the same user as this program.\n\n"
        "'pushscope doctor' looks at all of this."
    )


def source_failed(error: str) -> Text:
    """The source never gave a snapshot."""
    return Text(f"The source can't be read:\n\n  {units.clean(error, 600)}\n\nTrying again …")


def too_small(width: int, height: int) -> Text:
    return Text(
        f"This terminal is {width}x{height}.\n"
        f"pushscope top needs {MIN_WIDTH}x{MIN_HEIGHT}:\nplease enlarge it.\n\nq quits"
    )
