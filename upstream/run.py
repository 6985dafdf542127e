"""One run of vLLM's tests by pytest, in a process of its own, and what came of each test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from pushscope.telemetry.errors import PushscopeError
from upstream.outcome import Evidence, Outcome

_ROOT = Path(__file__).parents[1]
_NIXL = re.compile(r"v1\.nixl|make_nixl|Nixl\w*\(|\"NixlConnector\"")
_CONFIGURED, _CONNECTOR = "create_vllm_config", "kv_connector="
_FAILURES = ("failure", "error")


class RunError(PushscopeError):
    """A run came to no result; the message says what was expected and what was found."""


def files_concerned(folder: Path) -> list[str]:
    """The files in vLLM's folder ``tests`` that have to do with the NIXL connectors, relative to it.

    They name a NIXL class; or have a configuration made and name no connector, which gives NIXL's.
    """
    unit = folder / "v1" / "kv_connector" / "unit"
    files = [path for path in sorted(unit.glob("test_*.py")) if _is_concerned(path.read_text())]
    if not files:
        raise RunError(
            f"expected vLLM's folder `tests`, with v1/kv_connector/unit in it, found none in {folder}; "
            "take it from vLLM's source distribution of the installed release"
        )
    return [str(path.relative_to(folder)) for path in files]


def _is_concerned(text: str) -> bool:
    return bool(_NIXL.search(text)) or (_CONFIGURED in text and _CONNECTOR not in text)


def run(
    folder: Path,
    tests: Sequence[str],
    at: Path,
    *,
    in_place: bool,
    environment: Mapping[str, str],
    arguments: Sequence[str] = (),
) -> list[Outcome]:
    """Run ``tests``, files of ``folder`` or single tests in them, in the new folder ``at``, with further
    ``arguments`` for pytest, whose words go to the terminal.

    The tests want to be the package ``tests``; beside them there may be a ``vllm`` without its compiled parts,
    which must not be found: so a link in an empty folder is what they are run from.
    """
    at.mkdir()
    (at / "tests").symlink_to(folder.resolve())
    (at / "pytest.ini").write_text("[pytest]\n")
    junit, rings = at / "junit.xml", at / "rings"
    plugin = ["-p", "upstream.plugin"] if in_place else []
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", "pytest.ini", "-p", "no:cacheprovider", "-q"),
            *("--continue-on-collection-errors", "--tb=short", "--disable-warnings"),
            *("-o", "junit_family=xunit1", f"--junit-xml={junit}"),
            *(*plugin, *(f"tests/{test}" for test in tests), *arguments),
        ],
        cwd=at,
        check=False,
        env=os.environ
        | environment
        | {
            "PYTHONPATH": os.pathsep.join([*(p for p in sys.path if p), str(_ROOT)]),
            "PUSHSCOPE_DIR": str(rings),
            "PUSHSCOPE_BYTES": str(1 << 18),
        },
    )
    if not junit.exists():
        raise RunError(f"expected pytest to end and write {junit}, it did not; what it said above tells why")
    return outcomes_in(junit)


def outcomes_in(junit: Path) -> list[Outcome]:
    """The tests in pytest's JUnit file (family xunit1), one outcome each."""
    outcomes: dict[str, Outcome] = {}
    for case in ET.parse(junit).getroot().iter("testcase"):
        outcome = _outcome(case)
        known = outcomes.get(outcome.test)
        if known is None or known.result != "failed":  # an error in the teardown comes as a second case
            outcomes[outcome.test] = outcome
    return list(outcomes.values())


def _outcome(case: ET.Element) -> Outcome:
    evidence = [p.get("value", "") for p in case.iter("property") if p.get("name") == "pushscope"]
    result, message = "passed", ""
    for child in case:
        if child.tag in _FAILURES:
            result, message = "failed", _reason(child)
        elif child.tag == "skipped" and result == "passed":
            result, message = "skipped", _reason(child)
    return Outcome(
        "::".join(_names(case)),
        result,
        message,
        msgspec.json.decode(evidence[-1], type=Evidence) if evidence else None,
    )


def _names(case: ET.Element) -> Iterator[str]:
    """The file, the classes and the name of a test. A file that could not be imported has but the first."""
    path, name = case.get("file", ""), case.get("name", "")
    module = path.removesuffix(".py").replace("/", ".")
    yield path.removeprefix("tests/")
    if name == module:
        return
    yield from filter(None, case.get("classname", "").removeprefix(module).split("."))
    yield name


def _reason(element: ET.Element) -> str:
    """The first line of pytest's message; of a file that could not be imported, what it raised."""
    message = (element.get("message") or "").strip()
    if message == "collection failure":
        raised = [line[1:].strip() for line in (element.text or "").splitlines() if line.startswith("E ")]
        return raised[-1] if raised else message
    return next(iter(message.splitlines()), "")
