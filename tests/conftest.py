"""What every test may use: a tmpfs, and the table of what is reproduced and diagnosed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # what is only run on some release of vLLM does without the lab and its packages
    from diagnoses.session import Session
    from faults.result import Named

ROOT = Path(__file__).parents[1]


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a tmpfs with the given options; unmounted afterwards."""
    mounted: list[Path] = []

    def mount(options: str) -> Path:
        at = tmp_path / f"tmpfs{len(mounted)}"
        at.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(at)], check=True)
        mounted.append(at)
        return at

    yield mount
    for at in mounted:
        subprocess.run(["umount", "-l", str(at)], check=True)


# -- the table of what is diagnosed -----------------------------------------------------------------------

Reproduced = Callable[..., None]
SESSION: pytest.StashKey[Session] = pytest.StashKey()
"""Made when the first test reproduces something."""
NARROWED = pytest.StashKey[set[str]]()
"""Test files of which not all was run, or not all passed."""
WHOLE = pytest.StashKey[set[str]]()
"""The others."""


@pytest.fixture
def reproduced(request: pytest.FixtureRequest) -> Reproduced:
    """To be told of a failure mode that was made, and what it was named: ``reproduced(named, "the write hangs")``.

    Fails if that is not what the catalogue says of the row, if it took too long, or if the committed table says
    another thing. ``row``: of a code that stands for several. ``number``: of the small input that it is.
    """
    from diagnoses.result import reproduction
    from diagnoses.session import Session

    config = request.config
    if SESSION not in config.stash:
        config.stash[SESSION] = Session(writes=config.getoption("--write-table"))
    test = str(request.path.relative_to(ROOT))

    def note(named: Named, how: str, *, row: str | None = None, number: int = 0) -> None:
        wrong = config.stash[SESSION].note(reproduction(named, test, how, row=row, number=number))
        assert not wrong, wrong

    return note


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-table", action="store_true", help="write what is reproduced and diagnosed to docs/reference"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[NARROWED] = {arg.partition("::")[0] for arg in config.args if "::" in arg}


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        item.config.stash[NARROWED].add(_file(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if not report.passed:
        item.config.stash[NARROWED].add(_file(item))
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    stash = session.config.stash
    stash[WHOLE] = {_file(item) for item in session.items} - stash[NARROWED]
    if SESSION in stash and stash[SESSION].missing(stash[WHOLE]) and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if SESSION not in config.stash:
        return
    session, whole = config.stash[SESSION], config.stash[WHOLE]
    terminalreporter.section("what is diagnosed: seconds until named")
    for line in session.finish(whole):
        terminalreporter.write_line(line)
    for line in session.missing(whole):
        terminalreporter.write_line(line, red=True)


def _file(item: pytest.Item) -> str:
    return str(item.path.relative_to(ROOT)) if item.path.is_relative_to(ROOT) else str(item.path)
