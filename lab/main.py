"""``pushscope``: every command, composed. The lab lies on top of all other packages, so this is its place."""

from __future__ import annotations

import typer

from pushscope.dashboards import command as dashboards_command
from pushscope.lab import cli as lab_cli
from pushscope.lab.demo import demo
from pushscope.telemetry import cli as telemetry_cli
from pushscope.telemetry.agent.command import agent
from pushscope.telemetry.doctor.command import doctor
from pushscope.telemetry.live import watched
from pushscope.telemetry.spans import command as trace_command
from pushscope.telemetry.watch import rest_the_collector
from pushscope.tui.cli import top_command
from pushscope.tui.report_cli import report
from pushscope.tui.stuck_cli import stuck
from pushscope.tui.why_cli import why

app = typer.Typer(
    name="pushscope",
    help="See every KV transfer of vLLM's NIXL push connector: live, per rank, and where its time went.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("top")(top_command(watched))
app.command()(stuck)
app.command()(why)
app.command()(report)
app.command()(telemetry_cli.record)
app.command()(telemetry_cli.recording)
app.command()(telemetry_cli.mark)
app.add_typer(trace_command.app, name="trace")
app.command()(agent)
app.command()(doctor)
app.add_typer(dashboards_command.app, name="dashboards")
app.add_typer(lab_cli.app, name="lab")
app.command()(demo)


def main() -> None:
    """The console script."""
    rest_the_collector()
    app()
