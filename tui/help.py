"""The overlay behind ``?``: the keys, what the words on the screen mean, and every notice in full."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from pushscope.telemetry.units import clean

KEYS = (
    ("tab, shift+tab", "next, previous table"),
    ("up, down, j, k", "move the cursor; it stays on its transfer"),
    ("pgup, pgdn, g, G", "a page up or down, first row, last row"),
    ("/", "filter by request id or engine; enter keeps it, esc clears it"),
    ("s", "sort the focused table by the next order"),
    ("space", "pause the screen; reading goes on"),
    ("?", "this page"),
    ("q, ctrl+c", "quit"),
)

WORDS = (
    ("P -> D", "from the prefill engine to the decode engine; ? is not known yet"),
    ("age, since", "how long it has been in its present stage"),
    ("ranks", "notifications counted, of those expected"),
    ("seen", "P only, D only: the other engine isn't observed here"),
    ("first", "who was first at the rendezvous: D's registration or P's blocks"),
    ("exposed", "blocks staged at P -> decode scheduled at D: what the first token waited"),
    ("regist. ... wake", "the time of each stage, on its slowest rank"),
    ("≤", "an upper bound: only P was observed"),
    ("-", "not observed"),
    ("GONE", "the process has ended"),
)


class HelpScreen(ModalScreen[None]):
    """Keys, words and notices, over the tables."""

    BINDINGS = [Binding("escape,question_mark,q,enter", "dismiss", "Close")]  # noqa: RUF012

    def __init__(self, notices: Sequence[str] = ()) -> None:
        super().__init__()
        self._notices = notices

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(help_text(self._notices))


def help_text(notices: Sequence[str]) -> Text:
    """The page as text."""
    text = Text()
    if notices:
        text.append("Notices\n", "bold underline")
        for notice in notices:
            text.append(f"! {clean(notice)}\n")
        text.append("\n")
    text.append("Keys\n", "bold underline")
    _definitions(text, KEYS)
    text.append("\nWords\n", "bold underline")
    _definitions(text, WORDS)
    text.append("\nesc closes this page", "dim")
    return text


def _definitions(text: Text, pairs: Sequence[tuple[str, str]]) -> None:
    for name, meaning in pairs:
        text.append(f"{name:<18}", "bold")
        text.append(f"{meaning}\n")
