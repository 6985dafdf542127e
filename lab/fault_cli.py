"""``pushscope lab fault``: make a fault in the running lab, say when it is named, and undo it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import httpx
import msgspec
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from pushscope.lab.completion import RequestError, describe
from pushscope.lab.control import OrderError
from pushscope.lab.faults.fault import Fault
from pushscope.lab.faults.folder import faults_dir
from pushscope.lab.faults.ground import ground
from pushscope.lab.faults.naming import named, told
from pushscope.lab.faults.sight import Sight
from pushscope.lab.faults.table import FAULTS
from pushscope.lab.folders import lab_dir
from pushscope.lab.processes import is_running, process_info
from pushscope.lab.state import LabState, find_lab
from pushscope.telemetry.diagnosis.catalogue import CATALOGUE
from pushscope.telemetry.ring import default_folder
from pushscope.telemetry.units import clean

NAMED_WITHIN_S = 10.0
_UNDO_S = 120.0


class _Held(msgspec.Struct, frozen=True):
    """Who holds a fault."""

    pid: int
    start_ticks: int


def fault(
    name: Annotated[str | None, typer.Argument(help="Which; see --list.")] = None,
    for_s: Annotated[
        float | None,
        typer.Option("--for", min=0.0, help="Seconds until it is undone (default: until Ctrl-C)."),
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Undo it in the terminal that holds it.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Every fault, and what it must be named.")] = False,
    directory: Annotated[Path | None, typer.Option("--dir", help="Folder of the running lab.")] = None,
) -> None:
    """Make a fault in the running lab, and undo it after --for seconds or at Ctrl-C.

    Exit status 1 if it is not named as it must be while it lasts.
    """
    console = Console()
    if list_ or name is None:
        console.print(_table())
        return
    chosen = FAULTS.get(name)
    if chosen is None:
        raise ValueError(f"Expected one of {', '.join(FAULTS)}, found {name!r}.")
    directory = directory or lab_dir()
    lab = find_lab(directory)
    if undo:
        _undo(directory, name)
        console.print(f"{name} is undone.", highlight=False)
        return
    _check(chosen, lab)
    with _held(directory, name):
        try:
            was_named = asyncio.run(_make(chosen, directory, lab, for_s, console))
        except (RequestError, httpx.HTTPError) as error:
            raise OrderError(f"Expected the engines to answer, found: {describe(error)}.") from error
    raise typer.Exit(0 if was_named else 1)


async def _make(chosen: Fault, directory: Path, lab: LabState, for_s: float | None, console: Console) -> bool:
    def say(what: str, text: str) -> None:
        console.print(f"{what:9} {text}", markup=False, highlight=False, soft_wrap=True)

    enough = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, enough.set)
    say("fault", f"{chosen.name}: {chosen.what}")
    with Sight(Path(lab.ring_dir) if lab.ring_dir else default_folder()) as sight:
        before = told(sight.look())
        async with ground(directory, sight) as at, chosen.make(at) as made:
            part = "half of a" if chosen.lease == "half" else "a"
            lease_s = made.nameable_from - time.monotonic()
            later = f", in {lease_s:.0f} s, when {part} lease has run out" if lease_s > 1 else ""
            say("in effect", f"on {made.about}; it must be named {chosen.code}{later}")
            end = None if for_s is None else time.monotonic() + for_s
            found = await named(
                sight,
                chosen,
                made,
                for_s or 86_400.0,
                before,
                lambda: enough.is_set() or (end is not None and time.monotonic() > end),
            )
            if found.diagnosis is None:
                instead = f", but {', '.join(found.besides)}" if found.besides else ""
                say("not named", f"as it must be{instead}")
            else:
                say(
                    "named", f"after {max(0.0, found.after_s):.1f} s: {clean(found.diagnosis.sentence, 1000)}"
                )
                say("held", "until Ctrl-C" if end is None else f"for {for_s:g} s")
                left_s = None if end is None else max(0.0, end - time.monotonic())
                with suppress(TimeoutError):
                    await asyncio.wait_for(enough.wait(), left_s)
            say("undo", chosen.undone)
        say("undone", "the diagnosis clears by itself: see `pushscope stuck`")
    return found.diagnosis is not None


def _check(chosen: Fault, lab: LabState) -> None:
    """Raises ValueError if the lab is not one that this fault can be made in."""
    ranks = lab.first("prefill").tensor_parallel_size
    lab.first("decode")
    if ranks < chosen.prefill_tp:
        raise ValueError(
            f"Expected a prefill engine of {chosen.prefill_tp} ranks, found {ranks}: start the lab with "
            f"`pushscope lab up --prefill-tp {chosen.prefill_tp}`."
        )


@contextmanager
def _held(directory: Path, name: str) -> Iterator[None]:
    """Let another terminal know that this process holds the fault."""
    path = _path(directory, name)
    if _holder(path) is not None:
        raise ValueError(
            f"Expected {name} not to be in effect, found that it is: undo it first, with --undo."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    info = process_info(os.getpid())
    path.write_bytes(msgspec.json.encode(_Held(os.getpid(), info.start_ticks if info else 0)))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _undo(directory: Path, name: str) -> None:
    held = _holder(_path(directory, name))
    if held is None:
        raise ValueError(f"Expected {name} to be in effect, found that no terminal holds it.")
    os.kill(held.pid, signal.SIGTERM)
    deadline = time.monotonic() + _UNDO_S
    while is_running(held.pid, held.start_ticks):
        if time.monotonic() > deadline:
            raise ValueError(
                f"Expected process {held.pid} to undo {name} within {_UNDO_S:g} s; it still runs."
            )
        time.sleep(0.1)


def _path(directory: Path, name: str) -> Path:
    return faults_dir(directory) / f"{name}.json"


def _holder(path: Path) -> _Held | None:
    """The live process that holds a fault."""
    try:
        held = msgspec.json.decode(path.read_bytes(), type=_Held)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return held if is_running(held.pid, held.start_ticks) else None


def _table() -> Table:
    table = Table("fault", "what is done, and what it must be named", box=box.SIMPLE_HEAD, pad_edge=False)
    table.columns[0].no_wrap = True
    for each in FAULTS.values():
        rows = " ".join(CATALOGUE[each.code].rows)
        table.add_row(each.name, f"{each.what}\n[dim]→ {each.code}{rows and f' ({rows})'}[/]")
    return table
