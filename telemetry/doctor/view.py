"""The checks as text: a sign, a word, what was found, what to do. Nothing is said by colour alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from pushscope.telemetry.doctor.check import Check, Level
from pushscope.telemetry.units import clean

_SIGNS = {Level.OK: "✓", Level.INFORMATION: "·", Level.WARNING: "!", Level.FAILURE: "✗"}
_ASCII_SIGNS = {Level.OK: "+", Level.INFORMATION: ".", Level.WARNING: "!", Level.FAILURE: "x"}
_STYLES = {
    Level.OK: "green",
    Level.INFORMATION: "dim",
    Level.WARNING: "bold yellow",
    Level.FAILURE: "bold red",
}
_WORD = max(map(len, Level))
_NARROWEST = 20


def render(checks: Sequence[Check], console: Console) -> None:
    """Print the checks by group. On a terminal long lines wrap below their column; in a pipe none does."""
    subject = max(cell_len(clean(check.subject)) for check in checks)
    signs = _ASCII_SIGNS if console.options.ascii_only else _SIGNS
    indent = 2 + 2 + _WORD + 2 + subject + 2
    width = max(_NARROWEST, console.width - indent) if console.is_terminal else None
    group = None
    for check in checks:
        if check.group is not group:
            group = check.group
            console.print(Text(group.value, "bold"))
        head = Text("  ").append(f"{signs[check.level]} {check.level.value:<{_WORD}}", _STYLES[check.level])
        head.append(f"  {clean(check.subject):<{subject}}  ")
        for line in _lines(check, console, width):
            console.print(head + line, soft_wrap=True, highlight=False, emoji=False)
            head = Text(" " * indent)
    console.print(Text(_summary(checks), "bold"), soft_wrap=True)


def _lines(check: Check, console: Console, width: int | None) -> Iterator[Text]:
    for part in (Text(clean(check.finding)), Text(clean(f"-> {check.remedy}"), "italic")):
        if part.plain != "-> ":
            yield from part.wrap(console, width) if width else (part,)


def _summary(checks: Sequence[Check]) -> str:
    numbers = [f"{sum(c.level is level for c in checks)} {level.value}" for level in Level]
    return ", ".join(numbers)
