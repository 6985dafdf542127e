"""All that one imports, written into a folder of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pushscope.dashboards import names
from pushscope.dashboards.files import FOLDER
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.units import clean

EXPORTED: Final = ("grafana", "grafana-import", "prometheus", "stack")
"""Folders that are exported, each as far as this installation has it."""


def export(target: Path, *, runbooks: str = names.RUNBOOKS, overwrite: bool = False) -> list[Path]:
    """Write every file below ``target``, which is made if need be; what was written, relative to it.

    A file that is there already and differs is left alone, and nothing at all is written, unless ``overwrite``.
    Raises PushscopeError.
    """
    contents = dict(exported(runbooks))
    if not overwrite:
        differing = [path for path, content in contents.items() if _differs(target / path, content)]
        if differing:
            raise PushscopeError(
                f"{target / differing[0]} is there already and differs"
                + (f" (as do {len(differing) - 1} more)" if len(differing) > 1 else "")
                + "; nothing was written. Take another folder, or --overwrite"
            )
    try:
        for path, content in contents.items():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_bytes(content)
    except OSError as e:
        raise PushscopeError(
            f"cannot write {e.filename or target}: {e.strerror}; choose a folder that you may write"
        ) from e
    return list(contents)


def exported(runbooks: str = names.RUNBOOKS) -> Iterator[tuple[Path, bytes]]:
    """Each file's place and content, with links to runbooks leading to ``runbooks``."""
    url = runbooks_url(runbooks)
    found = False
    for folder in EXPORTED:
        for path in sorted((FOLDER / folder).rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                found = True
                yield (
                    path.relative_to(FOLDER),
                    path.read_bytes().replace(names.RUNBOOKS.encode(), url.encode()),
                )
    if not found:
        raise PushscopeError(f"expected the dashboards in {FOLDER}, found none; install pushscope anew")


def runbooks_url(given: str) -> str:
    """A place for links to lead to. Raises PushscopeError if it is none, or already names a section."""
    parts = urlsplit(given)
    odd = set(given) & set(" \"'<>\\{}$`") or not given.isprintable()
    if parts.scheme not in ("http", "https") or not parts.netloc or odd or "#" in given:
        raise PushscopeError(
            f"--runbooks is {clean(given)!r}; expected the URL of a copy of docs/runbooks.md, such as {names.RUNBOOKS}"
        )
    return given


def _differs(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() != content
    except FileNotFoundError:
        return False
    except OSError as e:
        raise PushscopeError(f"cannot read {path}: {e.strerror}; choose another folder") from e
