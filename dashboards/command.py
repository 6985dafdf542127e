"""The commands ``pushscope dashboards …``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pushscope.dashboards import names
from pushscope.telemetry.cli import sentences

app = typer.Typer(
    help="Grafana dashboards, and what belongs to them: as files, or into a Grafana.", no_args_is_help=True
)
Runbooks = Annotated[
    str,
    typer.Option(
        "--runbooks", metavar="URL", help="Where links to runbooks lead: a copy of docs/runbooks.md."
    ),
]


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder; made if it is not there.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Also files that are there and differ.")
    ] = False,
    runbooks: Runbooks = names.RUNBOOKS,
) -> None:
    """Write the dashboards, and the rules and the stack that belong to them, to a folder."""
    from pushscope.dashboards.export import export as write  # noqa: PLC0415 - boards take time to build

    with sentences():
        written = write(folder, runbooks=runbooks, overwrite=overwrite)
        for path in written:
            typer.echo(folder / path)


@app.command()
def push(
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help="Grafana's, with its sub-path if it has one.")
    ],
    token: Annotated[
        str | None,
        typer.Option(
            "--token", metavar="TOKEN", envvar=names.TOKEN_VARIABLE, help="Of a service account (Editor)."
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            "--user", metavar="NAME:PASSWORD", envvar=names.USER_VARIABLE, help="Instead of a token."
        ),
    ] = None,
    folder: Annotated[
        str, typer.Option("--folder", metavar="TITLE", help="Made if Grafana has none of this title.")
    ] = "pushscope",
    runbooks: Runbooks = names.RUNBOOKS,
) -> None:
    """Put the dashboards into a Grafana, over what has their uids there."""
    with sentences():
        from pushscope.dashboards.export import runbooks_url  # noqa: PLC0415 - boards take time to build
        from pushscope.dashboards.push import Grafana, push_all  # noqa: PLC0415 - HTTP takes time to import

        with Grafana(url, token=token, user=user) as grafana:
            for pushed in push_all(grafana, folder, runbooks_url(runbooks)):
                done = "new" if pushed.version == 1 else f"version {pushed.version}"
                typer.echo(f"{pushed.board.title}: {done}, {pushed.url}")
