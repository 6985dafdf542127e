"""The stages of one transfer as bars on one time axis, each with its ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from pushscope.telemetry import units
from pushscope.telemetry.report import Window
from pushscope.telemetry.transfer import Rank, Stage, StageTime, rank_name
from pushscope.tui.columns import put

MIN_BAR: Final = 12
_GAP: Final = "  "
_TICK_CELLS: Final = 14
_NAME_CELLS: Final = (12, 8, 4, 0)
"""The most for an engine's name, the first with which a bar has room; without any, whose stage it was is not said."""
_ORDER: Final = tuple(Stage)

Paint = Callable[[Stage], tuple[str, Style]]
"""The character that a stage's bar is made of, and its style."""


@dataclass(frozen=True)
class Axis:
    """From when to when is drawn. ``now_ns`` is where open stages end; None: the transfer is over."""

    begin_ns: int
    end_ns: int
    now_ns: int | None = None


def axis_of(stages: Sequence[StageTime], begin_ns: int, now_ns: int | None) -> Axis:
    """All of them, from ``begin_ns`` or earlier, to the last end or to now."""
    begin = min((begin_ns, *(s.start_ns for s in stages)))
    end = max((begin, now_ns or 0, *(s.end_ns or s.start_ns for s in stages)))
    return Axis(begin, end, now_ns)


def waterfall(
    stages: Sequence[StageTime],
    axis: Axis,
    names: tuple[str, str],
    width: int,
    paint: Paint,
    *,
    window: Window | None = None,
    most: int | None = None,
) -> Iterator[Text]:
    """One line for each stage and rank, in the order of time, below a ruler, ``width`` cells wide at most (40 or more).

    ``names`` are the engines', P's first. ``window`` is the exposed time, drawn below the ruler; ``most`` the most
    cells that a bar may have.
    """
    for most_of_name in _NAME_CELLS:
        rows = [(s.stage.value, _between(s, names, most_of_name), _took(s, axis)) for s in stages]
        widths = [max(cell_len(row[column]) for row in rows) for column in range(3)]
        head = sum(widths) + len(_GAP) * len(widths)
        if head + MIN_BAR < width:
            break
    bar = max(MIN_BAR, min(width - head - 1, most or width))
    yield Text(" " * head + _ruler(axis, bar), "dim")
    if window is not None:
        yield _exposed(window, axis, head, bar)
    ordered = sorted(
        zip(stages, rows, strict=True), key=lambda pair: (pair[0].start_ns, _ORDER.index(pair[0].stage))
    )
    for stage, row in ordered:
        words = _GAP.join(
            put(cell, w, right=c == 2) for c, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        is_open = stage.end_ns is None and axis.now_ns is not None
        first, last = _cells(stage.start_ns, stage.end_ns or axis.end_ns, axis, bar)
        char, style = paint(stage.stage)
        line = Text(f"{words}{_GAP}{' ' * first}")
        line.append(char * (last - first), style)
        line.append(">" if is_open else "")
        yield line


def _ruler(axis: Axis, bar: int) -> str:
    """``0        10.0 ms       20.0 ms``: as many ticks as have room, the last at the end."""
    whole = (axis.end_ns - axis.begin_ns) / 1e9
    ticks = max(1, bar // _TICK_CELLS)
    ruler = "0"
    for n in range(1, ticks + 1):
        ruler += f"{units.duration(whole * n / ticks):>{round(bar * n / ticks) - len(ruler)}}"
    return ruler


def _exposed(window: Window, axis: Axis, head: int, bar: int) -> Text:
    """The time that the first token waited for, under the ruler: ``|-- exposed 12.0 ms --|``."""
    first, last = _cells(*window, axis, bar)
    label = f"exposed {units.duration((window[1] - window[0]) / 1e9)}"
    if last - first >= len(label) + 4:
        return Text(" " * (head + first) + f"|{f' {label} ':-^{last - first - 2}}|", "bold")
    span = "|" if last - first < 2 else f"|{'-' * (last - first - 2)}|"
    if last + 1 + len(label) <= bar:
        return Text(" " * (head + first) + f"{span} {label}", "bold")
    return Text(" " * max(0, head + first - len(label) - 1) + f"{label} {span}", "bold")


def _cells(start_ns: int, stop_ns: int, axis: Axis, width: int) -> tuple[int, int]:
    """The first cell, and the one after the last: one at least."""
    whole = max(axis.end_ns - axis.begin_ns, 1)
    start, stop = start_ns - axis.begin_ns, stop_ns - axis.begin_ns
    first = max(0, min(width - 1, start * width // whole))
    return first, max(first + 1, min(width, -(-stop * width // whole)))


def _took(stage: StageTime, axis: Axis) -> str:
    if stage.end_ns is None:
        if axis.now_ns is None:
            return "no end"
        return f"{units.age((axis.now_ns - stage.start_ns) / 1e9)} …"
    return ("≤" if stage.upper_bound else "") + units.duration(stage.seconds)


def _between(stage: StageTime, names: tuple[str, str], most: int) -> str:
    ends: tuple[tuple[str, Rank | None], ...] = ((names[0], stage.rank), (names[1], stage.peer_rank))
    told = (f"{units.clean(name, most)}/{rank_name(rank)}" for name, rank in ends if rank is not None)
    return " - ".join(told) if most else ""
