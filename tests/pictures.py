"""The pictures of boards in the docs, and how a test knows that a board looks otherwise by now."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
RECORD: Final = IMAGES / "boards.json"
"""Which pictures there are of each board, and how it looked then."""
_SEEN: Final = (
    "type",
    "title",
    "gridPos",
    "targets",
    "transformations",
    "fieldConfig",
    "options",
    "maxDataPoints",
)
_NOT_SEEN: Final = ("links", "datasource")


def looks(board: dict[str, Any]) -> str:
    """A digest of all in a dashboard's JSON that shows in a picture: not its descriptions and links."""
    seen = [board["title"], [{key: panel.get(key) for key in _SEEN} for panel in board["panels"]]]
    return hashlib.sha256(json.dumps(_without_links(seen), sort_keys=True).encode()).hexdigest()


def _without_links(value: Any) -> Any:
    match value:
        case {"id": "links"}:
            return None
        case dict():
            return {key: _without_links(each) for key, each in value.items() if key not in _NOT_SEEN}
        case list():
            return [_without_links(each) for each in value]
    return value
