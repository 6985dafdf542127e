"""When is an engine ready, how far has it come, and why did it fail."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx

Stage = Literal["waiting", "importing", "loading", "ready", "stopped"]
"""``waiting`` for something else to be ready, ``importing`` vLLM, ``loading`` the model and setting up."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One part of the deployment (an engine's name, or ``router``) reached a stage, ``seconds`` after its
    start."""

    name: str
    stage: Stage
    seconds: float


OnProgress = Callable[[Progress], None]

_ERROR = re.compile(r"\b(ERROR|error:|fatal|panicked)\b|(Error|Exception|Interrupt)\b")
_NO_NEWS = re.compile(r"\s|Traceback \(most recent|$")
_NO_ERROR = re.compile(r"(\([^)]*\) ?)?(INFO|WARNING|DEBUG) |\S*Warning: |.*\bWARNING\b")
_PREFIX = re.compile(r"^(\([^)]*\) ?)?((INFO|WARNING|ERROR|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?")
_TAIL_BYTES = 64 * 1024


class StartError(RuntimeError):
    """A part of the lab did not become ready. The message names the part, its last errors and its log."""


def is_healthy(client: httpx.Client, url: str) -> bool:
    """Whether ``GET url/health`` answers 200."""
    try:
        return client.get(url + "/health", timeout=2.0).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def engine_stage(log: Path, *, imports_vllm: bool) -> Stage:
    """How far an engine that isn't ready has come, by its log: vLLM writes its first line once it is
    imported."""
    if not imports_vllm or " [" in _tail(log):
        return "loading"
    return "importing"


def error_lines(log: Path, count: int = 5) -> list[str]:
    """What a log says of errors: its last ``count`` such lines and up to three indented ones that explain the
    last; without any, its last lines. vLLM's prefixes are cut.
    """
    lines = [line for line in _tail(log).splitlines() if line.strip()]
    texts = [_PREFIX.sub("", line).rstrip() for line in lines]
    errors = [
        index
        for index, line in enumerate(lines)
        if _ERROR.search(line) and not _NO_ERROR.match(line) and not _NO_NEWS.match(texts[index])
    ]
    if not errors:
        return texts[-count:]
    after = itertools.takewhile(lambda text: text.startswith(" "), texts[errors[-1] + 1 :])
    said = list(dict.fromkeys(texts[index] for index in errors))[-count:]
    return [*said, *itertools.islice(after, 3)]


def start_error(name: str, found: str, log: Path) -> StartError:
    """The error for a part that didn't get ready."""
    lines = "".join(f"\n  | {line[:300]}" for line in error_lines(log))
    return StartError(
        f"Expected {name} to become ready, found that it {found}. Its log is {log}"
        + (f"; the last errors in it:{lines}" if lines else " and is empty.")
    )


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - _TAIL_BYTES))
            return stream.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
