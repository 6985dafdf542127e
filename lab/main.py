"""``pushscope``: every command, composed. The lab lies on top of all other packages, so this is its place.

A command's modules are imported when it is called: a screen is not to wait for what brings up a lab.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

COMMANDS: Final = {
    "top": "pushscope.tui.cli:command",
    "stuck": "pushscope.tui.stuck_cli:stuck",
    "why": "pushscope.tui.why_cli:why",
    "report": "pushscope.tui.report_cli:report",
    "record": "pushscope.telemetry.cli:record",
    "recording": "pushscope.telemetry.cli:recording",
    "mark": "pushscope.telemetry.cli:mark",
    "trace": "pushscope.telemetry.spans.command:app",
    "agent": "pushscope.telemetry.agent.command:agent",
    "doctor": "pushscope.telemetry.doctor.command:doctor",
    "dashboards": "pushscope.dashboards.command:app",
    "lab": "pushscope.lab.cli:app",
    "demo": "pushscope.lab.demo:demo",
}
"""Where each command is: a function, or a typer app with commands of its own."""


class _Commands(TyperGroup):
    """The commands, each imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - as click calls it
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:  # noqa: ARG002
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name].partition(":")
        found = getattr(importlib.import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command(name)(found)
            found = alone
        command = get_command(found)
        command.name = name
        return command


app = typer.Typer(
    name="pushscope",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def pushscope() -> None:
    """See every KV transfer of vLLM's NIXL push connector: live, per rank, and where its time went."""


def main() -> None:
    """The console script."""
    from pushscope.telemetry.watch import rest_the_collector  # noqa: PLC0415 - not for who asks for help only

    rest_the_collector()
    app()
