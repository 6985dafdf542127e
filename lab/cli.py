"""``pushscope lab``: model, up, load."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import typer
from rich.console import Console

from pushscope.lab.control import Control, OrderError
from pushscope.lab.deployment import Deployment
from pushscope.lab.display import StartDisplay
from pushscope.lab.engine.broken_nixl import FAULTS
from pushscope.lab.fault_cli import fault
from pushscope.lab.faults.folder import faults_dir
from pushscope.lab.faults.sight import NotSeenError
from pushscope.lab.folders import LAB_DIR, lab_dir
from pushscope.lab.legs import ORDERS, DirectTarget, Order
from pushscope.lab.load import LoadPlan, ServerTarget, Target
from pushscope.lab.marks import LoadMarks, marks_folder
from pushscope.lab.model import make_model
from pushscope.lab.otlp import otlp_at, otlp_in
from pushscope.lab.prompts import ARRIVALS, parse_token_count
from pushscope.lab.readiness import StartError
from pushscope.lab.results import summarise, summary_text
from pushscope.lab.router import RouterSpec
from pushscope.lab.signals import exit_on_sigterm, interrupted_status
from pushscope.lab.spec import check_block_size, check_connector, prefill_decode
from pushscope.lab.state import NoLabError, find_lab, running_lab
from pushscope.lab.steps import parse_rates, results_of, run_steps, step_summaries, steps_text
from pushscope.lab.tracing import Tracing, roots_to, untraced
from pushscope.lab.up import LabError, LabPlan, lab, watch_until_interrupted
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.presence import present_agent
from pushscope.telemetry.ring import default_folder

app = typer.Typer(
    name="lab",
    help="A real P/D deployment on this machine: tiny model, vLLM engines, router, load.",
    no_args_is_help=True,
)

_errors = Console(stderr=True)
_AGENT_START_S = 10.0
"""It is there before the engines are, unless the machine is busy."""

Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir", help=f"Folder of state, model and logs (default: ${LAB_DIR}, else ~/.cache/pushscope)."
    ),
]


@app.command()
def model(
    directory: Annotated[Path, typer.Argument(help="Where to write it.")],
    layers: Annotated[int, typer.Option(min=1)] = 2,
    hidden: Annotated[int, typer.Option(min=8)] = 128,
    heads: Annotated[int, typer.Option(min=1)] = 4,
    kv_heads: Annotated[int, typer.Option(min=1, help="At least as many as ranks.")] = 2,
    head_dim: Annotated[int, typer.Option(min=8)] = 32,
    seed: int = 0,
) -> None:
    """Make a tiny Qwen3 with random weights, offline."""
    with _clear_errors():
        make_model(
            directory,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            seed=seed,
        )
    typer.echo(f"{directory}: {layers} layers, {kv_heads} KV heads of {head_dim}, seed {seed}")


@app.command()
def up(
    prefill: Annotated[int, typer.Option(min=1, help="Prefill engines.")] = 1,
    decode: Annotated[int, typer.Option(min=1, help="Decode engines.")] = 1,
    tensor_parallel: Annotated[int, typer.Option(min=1, help="Ranks of each engine.")] = 1,
    prefill_tp: Annotated[
        int | None, typer.Option(min=1, help="Ranks of each prefill engine (default: --tensor-parallel).")
    ] = None,
    decode_tp: Annotated[
        int | None, typer.Option(min=1, help="Ranks of each decode engine (default: --tensor-parallel).")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Model to serve (default: a tiny one, made now).")
    ] = None,
    directory: Directory = None,
    port: Annotated[int, typer.Option(help="Router's port (default: a free one).")] = 0,
    block_size: Annotated[int, typer.Option(help="Tokens per KV block, a multiple of 32.")] = 32,
    connector: Annotated[str, typer.Option(help="KV connector.")] = "NixlPushConnector",
    instrument: Annotated[bool, typer.Option(help="Record transfers with pushscope.")] = True,
    rings: Annotated[
        Path | None, typer.Option(help="Folder of the recordings (default: pushscope's).")
    ] = None,
    multiprocessing: Annotated[
        bool,
        typer.Option(
            "--multiprocessing", help="Worker processes apart from the engine core, vLLM's default."
        ),
    ] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Start each engine as a user would; slower, nothing shared.")
    ] = False,
    keep_going: Annotated[
        bool,
        typer.Option("--keep-going", help="When an engine ends by itself, say so and keep the others up."),
    ] = False,
    agent: Annotated[
        bool, typer.Option("--agent/--no-agent", help="An agent beside the engines; it ends with the lab.")
    ] = True,
    otlp: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where vLLM, the agent and `lab load` send spans (default: as OTEL_EXPORTER_OTLP_* say).",
        ),
    ] = None,
    otlp_protocol: Annotated[
        str, typer.Option(metavar="PROTOCOL", help="With --otlp: grpc or http/protobuf.")
    ] = "grpc",
    lease: Annotated[
        float | None, typer.Option(min=1.0, help="Seconds that P keeps blocks for D (default: vLLM's 30).")
    ] = None,
    engine_arg: Annotated[
        list[str] | None, typer.Option(help="Argument for every engine, as --engine-arg=--max-num-seqs=8.")
    ] = None,
) -> None:
    """Start engines and router, and run until Ctrl-C or SIGTERM, or until an engine ends by itself."""
    with _clear_errors():
        check_block_size(block_size)
        if instrument:
            check_connector(connector)
        receiver = otlp_at(otlp, otlp_protocol) if otlp else otlp_in(os.environ)
    directory = directory or lab_dir()
    specs = prefill_decode(
        prefill,
        decode,
        block_size=block_size,
        kv_connector=connector,
        instrumented=instrument,
        agent=agent and instrument,
        otlp=receiver,
        multiprocessing=True if multiprocessing else None,
        args=tuple(engine_arg or ()),
        extra_config={} if lease is None else {"kv_lease_duration": lease},
        env={FAULTS: str(faults_dir(directory))},
    )
    ranks = {"prefill": prefill_tp or tensor_parallel, "decode": decode_tp or tensor_parallel}
    specs = [replace(spec, tensor_parallel_size=ranks[str(spec.role)]) for spec in specs]
    plan = LabPlan(
        directory=directory,
        specs=specs,
        model=model,
        launch="plain" if plain else "forked",
        router=RouterSpec(port=port),
        ring_dir=rings,
    )
    console = Console()
    started = False

    def say(sentence: str) -> None:
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    try:
        with (
            _clear_errors(),
            exit_on_sigterm(),
            StartDisplay(console) as display,
            lab(plan, on_progress=display) as deployment,
            Control(deployment, directory) as control,
        ):
            display.finish()
            started = True
            _say_ready(console, deployment)
            if agent and instrument:
                say(f"agent    {_agent_answers(rings or default_folder())}")
            say("Send requests with `pushscope lab load`; Ctrl-C takes everything down.")
            watch_until_interrupted(deployment, on_ended=say if keep_going else None, control=control)
    except (KeyboardInterrupt, SystemExit) as end:
        console.print("The lab is down." if started else "The lab was not started; nothing is left running.")
        raise typer.Exit(0 if started else interrupted_status(end)) from None


def _say_ready(console: Console, deployment: Deployment) -> None:
    urls = [f"{name} {spec.url}" for name, spec in deployment.specs.items()]
    console.print(f"router   {deployment.router_url}", highlight=False)
    console.print(f"engines  {', '.join(urls)}", highlight=False, soft_wrap=True)
    console.print(f"logs     {deployment.log_dir}", highlight=False, soft_wrap=True)


def _agent_answers(rings: Path) -> str:
    """Where the agent of a ring folder answers; where its log is, if it does not within some seconds."""
    end = time.monotonic() + _AGENT_START_S
    while time.monotonic() < end:
        with suppress(PushscopeError):
            if (note := present_agent(rings)) is not None and note.url:
                return note.url
        time.sleep(0.1)
    return f"does not answer yet; its log: {rings / 'agent.log'}"


@app.command()
def load(
    requests: Annotated[int | None, typer.Option(help="Number of requests (default: 20).")] = None,
    duration: Annotated[float | None, typer.Option(help="Seconds in which requests start.")] = None,
    rate: Annotated[
        float | None, typer.Option(help="Requests per second, whether or not others are done.")
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            metavar="RATES", help="Rates one after another, as 2,4,8 per second, each for --duration seconds."
        ),
    ] = None,
    arrivals: Annotated[str, typer.Option(help="With --rate or --steps: poisson or fixed.")] = "poisson",
    concurrency: Annotated[int | None, typer.Option(help="Requests in flight, at most (default: 1).")] = None,
    prompt_tokens: Annotated[str, typer.Option(help="As 200 or 100-400.")] = "200",
    output_tokens: Annotated[str, typer.Option(help="As 16 or 8-32.")] = "16",
    seed: Annotated[int | None, typer.Option(help="Same seed, same prompts (default: a new one).")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for one request.")] = 60.0,
    stream: Annotated[bool, typer.Option(help="Stream the answers; without, TTFT isn't known.")] = True,
    direct: Annotated[
        str | None,
        typer.Option(
            metavar="ORDER",
            help=f"Send both legs without the router: {', '.join(ORDERS)}. All but p-first and only-p send "
            "1 request more for each P, through both engines, to learn its engine id.",
        ),
    ] = None,
    trace: Annotated[bool, typer.Option(help="Send a traceparent of its own with each request.")] = True,
    delay: Annotated[float, typer.Option(help="With --direct: seconds before the second leg.")] = 0.0,
    different_ids: Annotated[
        bool, typer.Option("--different-ids", help="With --direct: ids of P and D that never match.")
    ] = False,
    transfer_id: Annotated[
        bool, typer.Option("--transfer-id", help="With --direct: give both legs a transfer_id.")
    ] = False,
    url: Annotated[
        str | None, typer.Option(help="Router, or a single engine (default: the running lab's).")
    ] = None,
    prefill: Annotated[list[str] | None, typer.Option(help="With --direct: URL of a prefill engine.")] = None,
    decode: Annotated[list[str] | None, typer.Option(help="With --direct: URL of a decode engine.")] = None,
    directory: Directory = None,
    json: Annotated[bool, typer.Option("--json", help="Summary and every result as JSON.")] = False,
) -> None:
    """Send requests to the running lab, or to --url, and sum up. Exit status 1 if any failed.

    Marks for those who watch tell when it starts, rises and stops; see `pushscope mark`.

    The span that each traceparent names is exported to where OTEL_EXPORTER_OTLP_* say, else to where the lab's
    own spans go.
    """
    with _clear_errors(), _tracing(directory or lab_dir(), trace=trace) as tracing:
        rates = parse_rates(steps) if steps is not None else ()
        if rates and (requests is not None or rate is not None or duration is None):
            raise ValueError(
                "Expected --duration with --steps, for each of them, and neither --requests nor --rate."
            )
        plan = LoadPlan(
            num_requests=20 if requests is None and duration is None else requests,
            duration_s=duration,
            rate=rate,
            arrivals=_one_of(arrivals, ARRIVALS, "--arrivals"),
            concurrency=concurrency,
            prompt_tokens=parse_token_count(prompt_tokens),
            output_tokens=parse_token_count(output_tokens),
            seed=secrets.randbelow(1_000_000) if seed is None else seed,
            stream=stream,
            timeout_s=timeout,
        )
        target: Target
        if direct is None:
            if prefill or decode or different_ids or transfer_id or delay:
                raise ValueError(
                    "Expected --direct ORDER with --prefill, --decode, --delay, --different-ids and "
                    "--transfer-id, found none: the router sends the legs in its own way."
                )
            target = ServerTarget(url or _router_url(directory or lab_dir()), tracing=tracing)
        else:
            if url is not None:
                raise ValueError("Expected --prefill and --decode with --direct, found --url.")
            order: Order = _one_of(direct, ORDERS, "--direct")
            prefill_urls, decode_urls = _engine_urls(prefill, decode, directory or lab_dir())
            target = DirectTarget(
                prefill_urls,
                decode_urls,
                order=order,
                delay_s=delay,
                same_id=not different_ids,
                transfer_id=transfer_id,
                tracing=tracing,
            )
        elsewhere = url is not None or prefill is not None
        folder = marks_folder(None if elsewhere else running_lab(directory or lab_dir()))
        mark = LoadMarks(folder, "lab load", _say_error)
        done = run_steps(plan, rates, target, console=_errors, mark=mark)
    results = results_of(done)
    by_step = step_summaries(done, seed=plan.seed) if rates else []
    num_learning = target.num_learning if isinstance(target, DirectTarget) else 0
    summary = summarise(results, seed=plan.seed, num_learning=num_learning)
    if json:
        each = {"steps": by_step} if by_step else {}
        typer.echo(msgspec.json.encode({"summary": summary, **each, "results": results}).decode())
    else:
        typer.echo("\n".join(filter(None, (steps_text(by_step), summary_text(summary)))))
    raise typer.Exit(1 if summary.num_failed else 0)


@contextmanager
def _tracing(directory: Path, *, trace: bool) -> Iterator[Tracing]:
    """What the requests of a load carry, as --trace, the OTEL_* variables and the running lab ask for."""
    if not trace:
        yield untraced
        return
    state = running_lab(directory)
    with roots_to(otlp_in(os.environ) or (state.otlp if state else None)) as roots:
        yield roots


def _router_url(directory: Path) -> str:
    url = find_lab(directory).router_url
    if url is None:
        raise NoLabError("Expected the running lab to have a router, found none: use --direct or --url.")
    return url


def _engine_urls(
    prefill: list[str] | None, decode: list[str] | None, directory: Path
) -> tuple[list[str], list[str]]:
    """The given engines, or those of the running lab."""
    if prefill and decode:
        return prefill, decode
    if prefill or decode:
        raise ValueError("Expected both --prefill and --decode, found only one of them.")
    state = find_lab(directory)
    return state.urls("prefill"), state.urls("decode")


T = TypeVar("T", bound=str)


def _one_of(value: str, allowed: Sequence[T], option: str) -> T:
    for each in allowed:
        if value == each:
            return each
    raise ValueError(f"Expected {option} to be one of {', '.join(allowed)}, found {value!r}.")


@contextmanager
def _clear_errors() -> Iterator[None]:
    """Errors that a user can do something about: their sentence, and exit status 2."""
    try:
        yield
    except (
        ValueError,
        OSError,
        ImportError,
        StartError,
        LabError,
        NoLabError,
        OrderError,
        NotSeenError,
    ) as error:
        sentence = str(error)
        if isinstance(error, OSError) and error.filename is not None:  # one that the system made
            sentence = f"Cannot use {error.filename}: {error.strerror}."
        _say_error(sentence)
        raise typer.Exit(2) from None


def _say_error(sentence: str) -> None:
    _errors.print(sentence, markup=False, highlight=False, soft_wrap=True)


app.command()(_clear_errors()(fault))
