"""The last seconds as lines of blocks, and what the letters of a stage bar mean."""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len
from rich.text import Text

from pushscope.telemetry import units
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.transfer import PULL_STAGES, PUSH_STAGES, Stage
from pushscope.tui.bars import LETTERS, spark
from pushscope.tui.tones import Tones

_LEAST, _MOST = 8, 60
_GAP: Final = "   "
_STAGES: Final = {"push": PUSH_STAGES, "pull": PULL_STAGES}


def spark_line(snapshot: Snapshot, width: int, tones: Tones) -> Text:
    """Deliveries and bytes each second, and how many were in flight, waited and were stuck at its end, as far back as
    there is room; the newest at the right."""
    seconds = snapshot.history
    if not seconds:
        return Text()
    whole = seconds[:-1] or seconds  # the last one is not over yet
    lines = [
        ("delivered/s", [s.delivered for s in whole], units.count(whole[-1].delivered), ""),
        ("bytes/s", [s.num_bytes for s in whole], units.size(whole[-1].num_bytes), ""),
        ("in flight", [s.in_flight for s in seconds], units.count(seconds[-1].in_flight), ""),
        ("waiting", [s.waiting for s in seconds], units.count(seconds[-1].waiting), ""),
        ("stuck", [s.stuck for s in seconds], units.count(seconds[-1].stuck), "warn"),
    ]
    if not any(s.stuck for s in seconds):
        lines.pop()
    while len(lines) > 1 and _room(lines, width) < _LEAST:
        lines.pop()
    cells = max(1, min(_MOST, _room(lines, width)))
    text = Text()
    for name, values, now, tone in lines:
        text.append(_GAP if text else "")
        text.append(f"{name} ", "dim")
        text.append(spark(values, cells), tones[tone])
        text.append(f" {now}")
    return text


def _room(lines: list[tuple[str, list[int], str, str]], width: int) -> int:
    """Cells for each line's blocks."""
    words = sum(len(name) + cell_len(now) + 2 for name, _, now, _ in lines)
    return (width - words - len(_GAP) * (len(lines) - 1)) // len(lines)


def legend(snapshot: Snapshot, width: int, tones: Tones) -> Text:
    """``g registration f flight …``: the stages of the modes that the engines are in, as many as have room."""
    modes = {engine.mode for engine in snapshot.engines}
    stages = _STAGES.get(next(iter(modes)), tuple(Stage)) if len(modes) == 1 else tuple(Stage)
    text = Text(" ")
    for stage in stages:
        words = f" {stage.value}"
        if cell_len(text.plain) + 2 + len(words) > width:
            break
        text.append(" ")
        text.append(LETTERS[stage], tones[stage.value])
        text.append(words, "dim")
    return text
