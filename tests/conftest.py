"""What every test may use: a tmpfs, and the table of what is reproduced and diagnosed."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from diagnoses.result import Level, Reproduction, row_of
from diagnoses.session import Session
from faults.result import Named

ROOT = Path(__file__).parents[1]
SESSION = pytest.StashKey[Session]()
NARROWED = pytest.StashKey[set[str]]()
"""Test files of which not all is run, or something failed."""
LEVELS = {"tests/unit": Level.EVENTS, "tests/vllm/fake": Level.CLASSES}


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


@pytest.fixture
def reproduced(request: pytest.FixtureRequest) -> Reproduced:
    """To be told of a failure mode that was made, and what it was named: ``reproduced(named, "the write hangs")``.

    Fails if that is not what the catalogue says of the row, if it took too long, or if the committed table says
    another thing. ``row``: of a code that stands for several.
    """
    test = request.path.relative_to(ROOT)
    level = LEVELS[str(test.parent)]

    def note(named: Named, how: str, *, row: str | None = None, number: int = 0) -> None:
        fields = {name: getattr(named, name) for name in Named.__struct_fields__}
        wrong = request.config.stash[SESSION].note(
            Reproduction(
                row=row_of(named.code) if row is None else row,
                level=level,
                how=how,
                input=number,
                test=str(test),
                **fields,
            )
        )
        assert not wrong, wrong

    return note


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-table", action="store_true", help="write what is reproduced and diagnosed to docs/reference"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SESSION] = Session(writes=config.getoption("--write-table"))
    config.stash[NARROWED] = {arg.partition("::")[0] for arg in config.args if "::" in arg}


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        item.config.stash[NARROWED].add(_file(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> object:
    report = yield
    if not report.passed:
        item.config.stash[NARROWED].add(_file(item))
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if session.config.stash[SESSION].missing(_whole(session.config, session.items)) and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    session.config.stash[WHOLE] = _whole(session.config, session.items)


WHOLE = pytest.StashKey[set[str]]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    session, whole = config.stash[SESSION], config.stash.get(WHOLE, set())
    if session.noted:
        terminalreporter.section("what is diagnosed: seconds until named")
        for line in session.finish(whole):
            terminalreporter.write_line(line)
    for line in session.missing(whole):
        terminalreporter.write_line(line, red=True)


def _whole(config: pytest.Config, items: list[pytest.Item]) -> set[str]:
    """The test files of which everything ran and passed."""
    return {_file(item) for item in items} - config.stash[NARROWED]


def _file(item: pytest.Item) -> str:
    return str(item.path.relative_to(ROOT))
