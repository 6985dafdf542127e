"""Small questions over the screen: the label of a mark, the format of an export."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from pushscope.tui.export import FORMATS


class MarkScreen(ModalScreen[str]):
    """Asks for a label; gives it, or nothing."""

    BINDINGS = [Binding("escape", "dismiss('')", "Close")]  # noqa: RUF012

    def compose(self) -> ComposeResult:
        with Vertical(classes="question"):
            yield Static(Text("A mark at this moment (enter makes it, esc doesn't):"))
            yield Input(placeholder="rate 8/s, restarted P2 …", max_length=80, id="label")

    def on_input_submitted(self, submitted: Input.Submitted) -> None:
        self.dismiss(submitted.value.strip())


class ExportScreen(ModalScreen[str]):
    """Asks for a format; gives its name, or nothing."""

    BINDINGS = [  # noqa: RUF012
        Binding("escape,q", "dismiss('')", "Close"),
        *(Binding(name[0], f"dismiss('{name}')", name.upper()) for name in FORMATS),
    ]

    def compose(self) -> ComposeResult:
        with Vertical(classes="question"):
            yield Static(
                Text(
                    "Export what is shown, to a file in this folder:\n\n"
                    "  j  JSON: the rows of all tables of this view, as data\n"
                    "  c  CSV: the table with the cursor, as it is read\n"
                    "  s  SVG: the screen as a picture\n\n"
                    "esc closes this"
                )
            )
