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
from pushscope.tui.bars import LETTERS

KEYS = (
    ("1 to 5", "the views: live, stuck, recent, stages, engines"),
    ("[, ], h, l", "the view before, the next view"),
    ("tab, shift+tab", "next, previous table"),
    ("up, down, j, k", "move the cursor; it stays on its row"),
    ("pgup, pgdn, g, G", "a page up or down, first row, last row"),
    ("enter", "on a transfer: its page; on what is stuck: why, and what to do"),
    ("/", "filter (below; esc clears it)"),
    ("s, S", "sort the focused table by the next order; the other way round"),
    ("n", "go to what is stuck, then to the next"),
    ("o", "in Recent: only those that ended in the next way"),
    ("space", "hold the screen; reading goes on"),
    ("e", "export what is shown: JSON, CSV or SVG"),
    ("r", "record from now on; again: end the recording"),
    ("m", "mark this moment"),
    ("ctrl+p", "all commands, and the themes"),
    ("?", "this page"),
    ("q, ctrl+c", "quit"),
)

ON_A_TRANSFER = (
    ("y, D, P", "copy the request's id, D's, P's"),
    ("u, v", "copy the id of D's engine, of P's"),
    ("t", "copy the trace's id"),
    ("esc", "back"),
)

OF_A_RECORDING = (
    ("space", "play, or hold"),
    ("left, right", "5 s back, on; with shift 60 s"),
    ("b", "from the beginning"),
    ("<, >", "half as fast, twice as fast"),
    (".", "to the next event"),
)

FILTERS = (
    ("7d1c", "in the request id, or what an engine's name or id begins with, or in a diagnosis"),
    ("!7d1c", "not that"),
    ("engine:P1 p:… d:…", "of that engine; of that P; of that D"),
    ("host: rank:tp1 mode:", "where, and how"),
    ("stage:wire", "in that stage"),
    ("outcome:failed error:", "how it ended"),
    ("diagnosis: severity:", "what is wrong with it"),
    ("seen:p", "only P is observed (d, both)"),
    ("age>5s exposed>=200ms", "and bytes>1MiB, tokens<1k, blocks>100"),
)

WORDS = (
    ("P -> D", "prefill engine to decode engine; ? is not known yet"),
    ("P ~> D", "paired by the base id alone: P's worker has not matched them yet"),
    ("#2, #1←2", "second attempt; P's blocks of the second met D's registration of the first"),
    ("age, since", "how long it has been in its present stage"),
    ("ranks", "notifications counted, of those expected"),
    ("error", "stuck: will not come right by itself"),
    ("warning", "may come right by itself, or costs time or memory"),
    ("info", "no fault, but often taken for one"),
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

    def __init__(self, notices: Sequence[str] = (), *, plays: bool = False) -> None:
        super().__init__()
        self._notices = notices
        self._plays = plays

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(help_page(self._notices, plays=self._plays))


def help_page(notices: Sequence[str], *, plays: bool = False) -> Group:
    """The page, as wide as it is given room."""
    parts: list[RenderableType] = []
    if notices:
        parts += [_heading("Notices"), *(Text(f"! {clean(notice)}") for notice in notices), Text()]
    if plays:
        parts += [_heading("Keys of a recording"), _definitions(OF_A_RECORDING), Text()]
    parts += [_heading("Keys"), _definitions(KEYS), Text()]
    parts += [_heading("Keys on a transfer"), _definitions(ON_A_TRANSFER), Text()]
    parts += [_heading("Filters: all terms must fit"), _definitions(FILTERS), Text()]
    parts += [_heading("Words"), _definitions(WORDS), Text()]
    parts += [_heading("Letters of a bar"), Text(_letters()), Text(), Text("esc closes this page", "dim")]
    return Group(*parts)


def _letters() -> str:
    return "  ".join(f"{letter} {stage.value}" for stage, letter in LETTERS.items())


def _heading(words: str) -> Text:
    return Text(words, "bold underline")


def _definitions(pairs: Sequence[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, meaning in pairs:
        table.add_row(Text(name, "bold", no_wrap=True), Text(meaning))
    return table
