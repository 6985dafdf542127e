"""What the tones look like. Without colour they are bold at most: the words beside them say everything."""

from __future__ import annotations

from rich.style import Style

_COLOURED = {
    "": Style(),
    "dim": Style(dim=True),
    "good": Style(color="green"),
    "warn": Style(color="yellow", bold=True),
    "bad": Style(color="red", bold=True),
}
_PLAIN = {
    "": Style(),
    "dim": Style(dim=True),
    "good": Style(),
    "warn": Style(bold=True),
    "bad": Style(bold=True),
}


def tone_style(tone: str, *, colour: bool = True) -> Style:
    """The style of a tone (``good``, ``warn``, ``bad``, ``dim``, or none).

    ``colour`` is False under ``NO_COLOR``. Textual would turn colours into grey then, and a dark red into a
    grey that can't be read, so none must be used in the first place.
    """
    return (_COLOURED if colour else _PLAIN)[tone]
