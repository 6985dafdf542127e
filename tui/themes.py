"""The themes: Textual's own, and one whose three states every eye can tell apart."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from textual.app import App
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

from pushscope.tui.tones import PLAIN, Tones, coloured

DEFAULT: Final = "textual-dark"
COLOUR_BLIND: Final = Theme(
    name="colour-blind",
    primary="#56b4e9",
    secondary="#009e73",
    success="#56b4e9",
    warning="#f0e442",
    error="#e66100",
    accent="#cc79a7",
    background="#121212",
    surface="#1e1e1e",
    panel="#262626",
    dark=True,
)
"""Blue, yellow and orange instead of green, yellow and red: no two of them look alike to anybody."""
OWN: Final = (COLOUR_BLIND,)


def known() -> list[str]:
    """The names of all themes, ours first."""
    return [*(theme.name for theme in OWN), *BUILTIN_THEMES]


def tones_of(app: App[Any]) -> Tones:
    """What tones look like in the app's theme; plain under ``NO_COLOR``."""
    if app.no_color:
        return PLAIN
    theme = app.theme_variables
    return _tones(theme["success"], theme["warning"], theme["error"])


@lru_cache(maxsize=64)
def _tones(success: str, warning: str, error: str) -> Tones:
    return coloured(*(Color.parse(each).rich_color.name for each in (success, warning, error)))
