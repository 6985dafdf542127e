"""The commands ``pushscope trace …``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from pushscope.telemetry import events as ev
from pushscope.telemetry.cli import Replay, RingFolder, print_out, sentences
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.source import Source
from pushscope.telemetry.spans.export import Format, write_spans
from pushscope.telemetry.spans.identity import identity_of
from pushscope.telemetry.spans.model import Span
from pushscope.telemetry.spans.reading import Made, SpanReader
from pushscope.telemetry.spans.tree import tree_lines
from pushscope.telemetry.units import clean, count, size
from pushscope.telemetry.where import Where
from pushscope.telemetry.why.held import Closeness, Held, closest

app = typer.Typer(help="Transfers as spans: into a file, or as a tree to read.", no_args_is_help=True)
Everything = Annotated[
    bool,
    typer.Option("--all", help="Also what is still open, and what its caller chose not to sample."),
]
_SIDES = {"kv_producer": "P", "kv_consumer": "D"}


@app.command()
def export(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="A new file; never overwritten.")
    ],
    form: Annotated[
        Format,
        typer.Option(
            "--format", help="otlp: OTLP/JSON, for a collector. chrome: open it in https://ui.perfetto.dev."
        ),
    ] = Format.CHROME,
    everything: Everything = False,
    replay: Replay = None,
    rings: RingFolder = None,
) -> None:
    """Write the spans of all transfers that a recording, or this host's rings, hold to a file.

    Exit status 2 if they can't be read; of a damaged recording what lies before is written.
    """
    with sentences(), _opened(replay, rings) as source:
        reader = SpanReader(source, everything=everything)
        counted = _Counted(reader)
        with _waiting(f"reading {source.label}"):
            num_bytes = write_spans(output, counted.spans(), reader.origins, form)
        typer.echo(
            f"{output}: {count(counted.spans_made)} spans of {count(counted.transfers)} transfers, {size(num_bytes)}"
        )
        if reader.damage:
            raise PushscopeError(reader.damage)


@app.command()
def show(
    request_id: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="Any id that a request is known by, as for `pushscope why`, or a trace id."
        ),
    ],
    replay: Replay = None,
    rings: RingFolder = None,
) -> None:
    """Print the spans of one request as a tree, each with its beginning and its duration.

    Exit status 2 if there is no such request.
    """
    with sentences(), _opened(replay, rings) as source:
        reader = SpanReader(source, everything=True)
        with _waiting(f"reading {source.label}"):
            spans = _held(reader, request_id)
        if spans:
            lines = list(tree_lines(spans, engine_names(reader.origins)))
            print_out(lambda console: _print(lines, console))
        if reader.damage:
            raise PushscopeError(reader.damage)
        if not spans:
            raise PushscopeError(
                f"no transfer of '{clean(request_id, 120)}' in {source.label}, as far as it reaches back: "
                f"give an id as `pushscope why` takes it, or a trace id"
            )


class _Counted:
    """The spans that a reader makes, and how many there were."""

    def __init__(self, reader: SpanReader):
        self._reader = reader
        self.transfers = self.spans_made = 0

    def spans(self) -> Iterator[tuple[Span, ...]]:
        for made in self._reader.read():
            if made.spans:
                self.transfers += 1
                self.spans_made += len(made.spans)
                yield made.spans


def engine_names(origins: dict[str, ev.Origin]) -> dict[str, str]:
    """Short names: ``P1``, ``D1`` … in the order of their beginning."""
    names: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for engine, origin in sorted(origins.items(), key=lambda item: (item[1].anchor_monotonic_ns, item[0])):
        side = _SIDES.get(origin.kv_role, "PD")
        numbers[side] = numbers.get(side, 0) + 1
        names[engine] = f"{side}{numbers[side]}"
    return names


def _held(reader: SpanReader, text: str) -> list[Span]:
    """The spans of the transfers that a text fits best."""
    held, best, spans = Held(text), Closeness.NONE, list[Span]()
    for made in reader.read():
        closeness = _closeness(held, text.strip().lower(), made)
        if closeness > best:
            best, spans = closeness, []
        if closeness is best and best:
            spans += made.spans
    return spans


def _closeness(held: Held, text: str, made: Made) -> Closeness:
    t, identity = made.transfer, identity_of(made.transfer, made.sides.p, made.sides.d)
    if text in {f"{trace_id:032x}" for trace_id in (identity.d_trace, identity.p_trace)}:
        return Closeness.EXACT
    contexts = [e for side in (made.sides.p, made.sides.d) for _, e in side.all(ev.TraceContext)]
    ids = (t.base_id, t.p_request or "", t.d_request or "")
    return closest(held, ids, ((e.traceparent, e.transfer_id) for e in contexts))


def _print(lines: list[str], console: Console) -> None:
    for line in lines:
        console.print(Text(line), soft_wrap=True)


@contextmanager
def _opened(replay: Path | None, rings: Path | None) -> Iterator[Source]:
    told = Where(replay=replay, rings=rings)
    told.check()
    with closing(told.open()) as source:
        yield source


@contextmanager
def _waiting(what: str) -> Iterator[None]:
    """Says on a terminal what goes on; elsewhere nothing."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(Text(clean(what))):
        yield
