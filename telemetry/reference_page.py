"""Pages of docs/reference that are made from code: ``make references`` writes them anew."""

from __future__ import annotations

import sys
from pathlib import Path


def write_page(path: Path, text: str) -> None:
    """Write a page into the repository that is the current folder; ends the process with a sentence if it is none."""
    if not path.parent.is_dir():
        sys.exit(f"expected {path.parent} in the current folder; run this from the root of the repository")
    path.write_text(text, encoding="utf-8")
    print(path)
