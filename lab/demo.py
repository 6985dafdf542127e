"""``pushscope demo``: one P, one D, a router and a load, watched. The main job in one command."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from pushscope.lab.display import LoadDisplay, StartDisplay
from pushscope.lab.folders import lab_dir
from pushscope.lab.load import LoadPlan, ServerTarget, Target, run_load
from pushscope.lab.marks import LoadMarks, start_label, stop_label
from pushscope.lab.otlp import otlp_in
from pushscope.lab.prompts import parse_token_count
from pushscope.lab.readiness import StartError
from pushscope.lab.results import RequestResult, summarise, summary_text
from pushscope.lab.signals import exit_on_sigterm, interrupted_status
from pushscope.lab.spec import prefill_decode
from pushscope.lab.tracing import roots_to
from pushscope.lab.up import LabError, LabPlan, lab
from pushscope.telemetry.cli import POLL_S, sentences
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.ids import recorded_id
from pushscope.telemetry.live import watched
from pushscope.telemetry.report import summarize
from pushscope.telemetry.ring import default_folder
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.source import RingsSource
from pushscope.telemetry.transfer import PUSH_STAGES, Outcome, Stage, Transfer
from pushscope.telemetry.watch import Watcher
from pushscope.telemetry.where import Where
from pushscope.tui.report_view import render_report

NEEDED: Final = ("vllm", "nixl", "vllm_router")
ALWAYS_SEEN: Final = frozenset(PUSH_STAGES) - {Stage.HANDSHAKE}
"""Stages that every pushed transfer has on one host; a handshake only the first of a pair."""

_SETTLE_S = 5.0
_WATCHED_S = 3600.0


def demo(
    requests: Annotated[int, typer.Option(min=1, help="Without a terminal: how many requests.")] = 24,
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="Requests in flight, at most.")] = 6,
    prompt_tokens: Annotated[str, typer.Option(help="As 200 or 200-2000.")] = "200-2000",
    output_tokens: Annotated[str, typer.Option(help="As 16 or 8-32.")] = "8-32",
    seed: Annotated[int, typer.Option(help="Same seed, same prompts.")] = 0,
    screen: Annotated[
        bool | None, typer.Option("--screen/--no-screen", help="The live screen (default: on a terminal).")
    ] = None,
) -> None:
    """Serve with two real engines and a router on this machine, load them, and watch the KV move.

    On a terminal the live screen opens; quit it with q. Without one, a fixed number of requests is sent and
    the report printed; exit status 1 if a request failed or its transfer was not seen whole.
    """
    on_screen = (sys.stdin.isatty() and sys.stdout.isatty()) if screen is None else screen
    console = Console()
    with sentences():
        _check_environment()
        try:
            load = LoadPlan(
                num_requests=None if on_screen else requests,
                duration_s=_WATCHED_S if on_screen else None,
                concurrency=concurrency,
                prompt_tokens=parse_token_count(prompt_tokens),
                output_tokens=parse_token_count(output_tokens),
                seed=seed,
            )
            complaints = _demo(load, console, on_screen=on_screen)
        except (StartError, LabError, ValueError, OSError) as e:
            raise PushscopeError(str(e)) from e
        except (KeyboardInterrupt, SystemExit) as e:
            console.print("Interrupted; nothing is left running.")
            raise typer.Exit(interrupted_status(e)) from None
    for complaint in complaints:
        Console(stderr=True).print(Text(f"pushscope: {complaint}"), soft_wrap=True)
    raise typer.Exit(1 if complaints else 0)


def _check_environment() -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise PushscopeError(
            f"the demo serves with vLLM's CPU build, NIXL and vllm-router; not installed here: "
            f"{', '.join(missing)}. `make demo` installs them, or pip install 'pushscope[cpu]'"
        )


def _demo(load: LoadPlan, console: Console, *, on_screen: bool) -> list[str]:
    rings = default_folder().with_name(default_folder().name + "-demo")
    shutil.rmtree(rings, ignore_errors=True)  # of an earlier demo; a running one has the lab's folder
    otlp = otlp_in(os.environ)
    plan = LabPlan(directory=lab_dir(), specs=prefill_decode(agent=True, otlp=otlp), ring_dir=rings)
    with (
        exit_on_sigterm(),
        StartDisplay(console) as display,
        lab(plan, on_progress=display) as deployment,
        roots_to(otlp) as tracing,
    ):
        display.finish()
        console.print(f"watch from elsewhere: pushscope top --rings {rings}", highlight=False, soft_wrap=True)
        target = ServerTarget(deployment.router_url, tracing=tracing)
        mark = LoadMarks(rings, "demo", say=lambda sentence: console.print(Text(sentence), soft_wrap=True))
        mark(start_label(load))
        with _followed(rings) as seen:
            results = (
                _load_behind_the_screen(load, target, rings) if on_screen else _load(load, target, console)
            )
            mark(stop_label(results))
            transfers, snapshot = seen.settled()
    console.print()
    render_report(summarize(transfers), console, {e.engine_id: e.name for e in snapshot.engines})
    console.print()
    console.print(summary_text(summarise(results, seed=load.seed)), highlight=False)
    return complaints_of(results, transfers, snapshot)


def _load(plan: LoadPlan, target: Target, console: Console) -> list[RequestResult]:
    with LoadDisplay(console, plan) as display:
        return asyncio.run(run_load(plan, target, on_result=display))


def _load_behind_the_screen(plan: LoadPlan, target: Target, rings: Path) -> list[RequestResult]:
    """Load until the user has seen enough; the requests that were answered by then."""
    from pushscope.tui.app import TopApp, run_screen  # noqa: PLC0415 - Textual takes time that others needn't spend

    results: list[RequestResult] = []
    loop = asyncio.new_event_loop()
    task = loop.create_task(run_load(plan, target, on_result=results.append))

    def load() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()

    thread = threading.Thread(target=load, name="load", daemon=True)
    thread.start()
    with watched(Where(rings=rings)) as (source, session):
        status = run_screen(TopApp(source, 0.5, "the demo's engines", controls=session))
    answered = list(results)
    with contextlib.suppress(RuntimeError):  # it has come to its end by itself
        loop.call_soon_threadsafe(task.cancel)
    thread.join(_SETTLE_S)
    if status:
        raise SystemExit(status)
    return answered


class _Follower:
    """Follows the rings in a thread of its own, so that nothing is overwritten before it is read."""

    def __init__(self, source: RingsSource):
        self._ended: list[Transfer] = []
        self._watcher = Watcher(source, on_closed=self._ended.append)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                self._watcher.poll()
            self._stop.wait(POLL_S)

    def settled(self) -> tuple[list[Transfer], Snapshot]:
        """Every transfer so far, once none is on its way any more (or five seconds have passed)."""
        end = time.monotonic() + _SETTLE_S
        while True:
            with self._lock:
                transfers = [*self._ended, *self._watcher.assembler.open_transfers()]
                snapshot = self._watcher.snapshot()
            if time.monotonic() > end or not any(t.is_open for t in transfers):
                return transfers, snapshot
            time.sleep(POLL_S)

    def __enter__(self) -> _Follower:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def _followed(rings: Path) -> Iterator[_Follower]:
    with closing(RingsSource(rings)) as source, _Follower(source) as follower:
        yield follower


def complaints_of(
    results: Sequence[RequestResult], transfers: Sequence[Transfer], snapshot: Snapshot
) -> list[str]:
    """What went wrong, a sentence each: failed requests, and transfers that were not seen whole."""
    # A request that was never answered may have got no id.
    found = [
        f"request {r.request_id or f'number {r.index + 1}'} failed: {r.error}" for r in results if not r.ok
    ]
    by_base: dict[str, list[Transfer]] = {}
    for transfer in transfers:
        by_base.setdefault(transfer.base_id, []).append(transfer)
    for result in results:
        if not result.ok:
            continue
        of_request = by_base.get(recorded_id(f"cmpl-{result.request_id}-0"), [])
        if not of_request:
            found.append(f"request {result.request_id} was answered, but its transfer was not observed")
        found.extend(
            f"request {result.request_id} was answered, but its transfer {problem}"
            for transfer in of_request
            if (problem := _not_whole(transfer))
        )
    if snapshot.totals.events_lost:
        found.append(f"{snapshot.totals.events_lost} events were lost")
    return found


def _not_whole(transfer: Transfer) -> str:
    if transfer.outcome is not Outcome.DELIVERED:
        return f"ended as {transfer.outcome.value}" + (f" ({transfer.error})" if transfer.error else "")
    missing = ALWAYS_SEEN - {s.stage for s in transfer.stages if s.end_ns is not None}
    if missing:
        return f"was not seen in {', '.join(stage.value for stage in Stage if stage in missing)}"
    return ""
