"""Where faults keep what they have to remember, and where engines look whether to fail."""

from __future__ import annotations

from pathlib import Path


def faults_dir(directory: Path) -> Path:
    """In the folder of a lab."""
    return directory / "faults"
