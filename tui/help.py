"""The overlay behind ``?``: the keys, what the words on the screen mean, and every notice in full."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
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
    ("/", "filter by request id or engine (esc clears it)"),
    ("s", "sort the focused table by the next order"),
    ("space", "pause the screen; reading goes on"),
    ("?", "this page"),
    ("q, ctrl+c", "quit"),
)

WORDS = (
    ("P -> D", "prefill engine to decode engine; ? is not known yet"),
    ("P ~> D", "paired by the base id alone: P's worker has not matched them yet"),
    ("#2, #1←2", "second attempt; P's blocks of the second met D's registration of the first"),
    ("age, since", "how long it has been in its present stage"),
    ("ranks", "notifications counted, of those expected"),
    ("seen", "P only, D only: the other engine isn't observed here"),
    ("first", "at the rendezvous: D's registration, or P's blocks"),
    ("exposed", "what the first token waited: blocks staged at P -> decode scheduled at D"),
    ("regist. ... wake", "the time of each stage, on its slowest rank"),
    ("≤", "an upper bound: only P was observed"),
    ("-", "not observed"),
    ("GONE", "the process has ended"),
    ("silent", "no event of the engine for so long: it has nothing to do, is stopped, or hangs"),
)


class HelpScreen(ModalScreen[None]):
    """Keys, words and notices, over the tables."""

    BINDINGS = [Binding("escape,question_mark,q,enter", "dismiss", "Close")]  # noqa: RUF012

    def __init__(self, notices: Sequence[str] = ()) -> None:
        super().__init__()
        self._notices = notices

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(help_page(self._notices))


def help_page(notices: Sequence[str]) -> Group:
    """The page, as wide as it is given room."""
    parts: list[RenderableType] = []
    if notices:
        parts += [_heading("Notices"), *(Text(f"! {clean(notice)}") for notice in notices), Text()]
    parts += [_heading("Keys"), _definitions(KEYS), Text()]
    parts += [_heading("Words"), _definitions(WORDS), Text(), Text("esc closes this page", "dim")]
    return Group(*parts)


def _heading(words: str) -> Text:
    return Text(words, "bold underline")


def _definitions(pairs: Sequence[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, meaning in pairs:
        table.add_row(Text(name, "bold", no_wrap=True), Text(meaning))
    return table
