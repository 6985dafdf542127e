"""What the tones look like. Without colour they are bold at most: the words beside them say everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.style import Style

from pushscope.telemetry.transfer import Stage

Tones = Mapping[str, Style]
"""A style for each tone: ``good``, ``warn``, ``bad``, ``dim``, none, and one for each stage by its name."""

STAGE_COLOURS: Final = {
    Stage.RELAY: "#999999",
    Stage.ALLOCATION: "#bbbbbb",
    Stage.REGISTRATION: "#56b4e9",
    Stage.FLIGHT: "#88ccee",
    Stage.HANDOFF: "#bbbbbb",
    Stage.RENDEZVOUS: "#e69f00",
    Stage.HANDSHAKE: "#f0e442",
    Stage.DESCRIPTORS: "#cc79a7",
    Stage.SUBMIT: "#ddaacc",
    Stage.WIRE: "#009e73",
    Stage.NOTIFICATION: "#44aa99",
    Stage.WAKE: "#d0a080",
}
"""After Okabe and Ito, whom every eye can follow; a stage's letter stands beside its colour all the same."""

_STAGES_PLAIN: Final[Tones] = {stage.value: Style() for stage in Stage}
_STAGES: Final[Tones] = {
    stage.value: Style(color="#000000", bgcolor=colour) for stage, colour in STAGE_COLOURS.items()
}


def coloured(good: str, warn: str, bad: str) -> Tones:
    """Tones in three colours."""
    return {
        "": Style(),
        "dim": Style(dim=True),
        "good": Style(color=good),
        "warn": Style(color=warn, bold=True),
        "bad": Style(color=bad, bold=True),
        **_STAGES,
    }


COLOURED: Final = coloured("green", "yellow", "red")
PLAIN: Final[Tones] = {
    "": Style(),
    "dim": Style(dim=True),
    "good": Style(),
    "warn": Style(bold=True),
    "bad": Style(bold=True),
    **_STAGES_PLAIN,
}
"""Under ``NO_COLOR``. Textual would turn colours into grey then, and a dark red into a grey that can't be read, so none
must be used in the first place."""
