"""Running a release: selections of the test suite, with its environment's Python."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from versions.environments import ROOT, Environment, Interpreter, UnavailableError, made
from versions.needs import seams_digest
from versions.verdict import Outcome, Run
from versions.wheels import WheelError

SELECTIONS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        # P and D in one process, plain and instrumented: tokens also of one engine alone, NIXL calls, what the
        # schedulers say, blocks; no seam off, no event lost, every transfer seen to its end.
        "push": ("tests/vllm/test_differential.py", "-k", "Push"),
        "pull": ("tests/vllm/test_differential.py", "-k", "Pull"),
        # Every scenario on vLLM's classes of every rank with a fake NIXL agent; every seam altered.
        "scenarios": ("tests/vllm/fake/test_scenarios.py", "tests/vllm/fake/test_mutations.py", "--tb=native"),
    }
)
"""Arguments for pytest, by the name that the page gives them. Whatever else shall hold on every release goes here."""

_RUN_S = 1800
_VERSIONS = "import importlib.metadata as m; print(m.version('nixl'), m.version('nixl-cu12'))"


def ran(environment: Environment, selections: Iterable[str], cache: Path, today: str) -> Run:
    """The environment made, if need be, and the selections run in it."""

    def run(nixl: str, library: str, outcomes: dict[str, Outcome], why_not: str = "") -> Run:
        over, digest = environment.over, seams_digest()
        return Run(environment.name, environment.vllm, over, nixl, library, today, digest, outcomes, why_not)

    try:
        interpreter = made(environment, cache)
    except (UnavailableError, WheelError) as e:
        return run(environment.nixl, "", {}, str(e))
    nixl, library = _call(interpreter, ["-c", _VERSIONS], 60).stdout.split()
    return run(nixl, library, {name: _outcome(interpreter, SELECTIONS[name]) for name in selections})


def _outcome(interpreter: Interpreter, selection: Sequence[str]) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="pushscope-versions-") as folder:
        report = Path(folder) / "report.xml"
        arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *selection]
        try:
            done = _call(interpreter, arguments, _RUN_S)
        except subprocess.TimeoutExpired:
            return Outcome(0, [f"not done within {_RUN_S} s"])
        outcome = outcome_of(report.read_text(encoding="utf-8") if report.exists() else "")
    if outcome.failed:
        print(done.stdout + done.stderr, file=sys.stderr)  # to be seen, not to be kept
    return outcome


def _call(
    interpreter: Interpreter, arguments: Sequence[str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(interpreter.python), *arguments],
        cwd=ROOT,
        env={**os.environ, **interpreter.variables},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def outcome_of(report: str) -> Outcome:
    """Counted from pytest's JUnit report; that no test ran is a failure."""
    cases = list(ET.fromstring(report).iter("testcase")) if report else []
    failed = [
        c.get("name", "") for c in cases if c.find("failure") is not None or c.find("error") is not None
    ]
    passed = sum(c.find("skipped") is None for c in cases) - len(failed)
    return Outcome(passed, failed if passed or failed else ["no test ran"])
