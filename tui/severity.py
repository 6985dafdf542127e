"""How severe a diagnosis is, in a sign, a word and a tone: the word alone says everything."""

from __future__ import annotations

from typing import Final

from pushscope.telemetry.diagnosis.model import Severity
from pushscope.tui.columns import Cell

_TONES: Final = {Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.INFO: "dim"}
WORD: Final = max(map(len, Severity))


def severity_cell(severity: Severity) -> Cell:
    """The word with its tone."""
    return Cell(severity.value, _TONES[severity])
