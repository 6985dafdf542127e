"""Where the lab keeps its model, state and logs."""

from __future__ import annotations

import os
from pathlib import Path

LAB_DIR = "PUSHSCOPE_LAB_DIR"


def lab_dir() -> Path:
    """``$PUSHSCOPE_LAB_DIR``, else ``pushscope`` in the user's cache folder."""
    if given := os.environ.get(LAB_DIR):
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "pushscope"
