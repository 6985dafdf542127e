"""Prometheus' own checks, where promtool is."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def promtool(*arguments: object, given: str = "") -> subprocess.CompletedProcess[str]:
    """What promtool says of something. Skips the test where there is none."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (Debian: apt install prometheus)")
    return subprocess.run(
        [program, *map(str, arguments)], input=given, capture_output=True, text=True, check=False
    )
