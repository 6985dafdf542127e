"""One P, one D, a router and a load, from nothing to a summary."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pushscope.lab.deployment import Deployment
from pushscope.lab.folders import lab_dir
from pushscope.lab.launch import Launcher, LaunchMode
from pushscope.lab.load import LoadPlan, ServerTarget, run_load
from pushscope.lab.readiness import OnProgress
from pushscope.lab.results import LoadSummary, RequestResult, summarise
from pushscope.lab.spec import prefill_decode
from pushscope.lab.up import LabPlan, lab

DEMO_LOAD = LoadPlan(num_requests=40, rate=4.0, prompt_tokens=(100, 1000), output_tokens=(8, 32))


def run_demo(
    *,
    load: LoadPlan = DEMO_LOAD,
    directory: Path | None = None,
    launch: LaunchMode = "forked",
    launcher: Launcher | None = None,
    on_progress: OnProgress | None = None,
    on_ready: Callable[[Deployment], None] | None = None,
    on_result: Callable[[RequestResult], None] | None = None,
    on_done: Callable[[Deployment, list[RequestResult]], None] | None = None,
    **spec: Any,
) -> LoadSummary:
    """Start one P and one D, run the load through the router, take all down, and sum up.

    ``on_ready`` is called before the load, ``on_done`` after it while the engines still run; ``spec`` are
    fields of both EngineSpecs. The model and the logs are in ``directory``, by default the user's lab folder.
    """
    plan = LabPlan(directory=directory or lab_dir(), specs=prefill_decode(1, 1, **spec), launch=launch)
    with lab(plan, on_progress=on_progress, launcher=launcher) as deployment:
        if on_ready is not None:
            on_ready(deployment)
        results = asyncio.run(run_load(load, ServerTarget(deployment.router_url), on_result=on_result))
        if on_done is not None:
            on_done(deployment, results)
    return summarise(results, seed=load.seed)
