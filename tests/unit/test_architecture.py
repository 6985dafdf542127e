"""The arrows between packages point one way, and a laptop that only watches needs neither vLLM nor NIXL."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("connector", "telemetry", "dashboards", "tui", "lab")
SERVING = {"vllm", "nixl", "torch", "transformers", "tokenizers"}
HEAVY = {"opentelemetry", "textual", "httpx", "starlette", "uvicorn", "rich", "typer", "prometheus_client"}

INSIDE_AN_ENGINE = ("events", "ring", "recorder", "clock", "ids", "errors", "fitness", "presence")


def imports(path: Path) -> set[str]:
    """Modules that a file imports, wherever in it, but for those only for type checking."""
    found = set()
    tree = ast.parse(path.read_text())
    typing_only = {
        id(n)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for n in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def packages_used(path: Path) -> set[str]:
    return {m.split(".")[1] for m in imports(path) if m.startswith("pushscope.")}


def roots_used(path: Path) -> set[str]:
    return {m.split(".")[0] for m in imports(path)}


@pytest.mark.parametrize(
    ("package", "may_use"),
    [
        ("telemetry", {"telemetry"}),
        ("connector", {"connector", "telemetry"}),
        ("dashboards", {"dashboards", "telemetry"}),
        ("tui", {"tui", "telemetry"}),
        ("lab", {"lab", "tui", "dashboards", "telemetry"}),
    ],
)
def test_arrows(package, may_use):
    assert files(package)
    for path in files(package):
        assert packages_used(path) <= may_use, path


def test_the_connector_uses_of_telemetry_only_what_records_or_tells_of_its_fitness():
    allowed = set(INSIDE_AN_ENGINE)
    for path in files("connector"):
        used = {m.split(".")[2] for m in imports(path) if m.startswith("pushscope.telemetry.")}
        assert used <= allowed, path


@pytest.mark.parametrize("name", INSIDE_AN_ENGINE)
def test_what_runs_inside_an_engine_is_light(name):
    assert not roots_used(ROOT / "telemetry" / f"{name}.py") & (HEAVY | SERVING)


def test_nothing_but_the_connector_and_the_lab_knows_vllm():
    for package in ("telemetry", "dashboards", "tui"):
        for path in files(package):
            assert not roots_used(path) & SERVING, path
    for path in files("connector"):
        assert not roots_used(path) & HEAVY, path


def test_the_command_line_needs_neither_vllm_nor_nixl():
    code = (
        "import sys\n"
        f"for name in {sorted(SERVING)!r}: sys.modules[name] = None\n"
        "from pushscope.lab.main import main\n"
        "sys.argv = ['pushscope', '--help']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "", "COLUMNS": "100"} | {"PYTHONPATH": ":".join(p for p in sys.path if p)},
    )
    assert done.returncode == 0, done.stderr
    for command in ("top", "report", "record", "dashboards", "lab", "demo"):
        assert command in done.stdout


@pytest.mark.parametrize("module", ["pushscope.lab.main", "pushscope.telemetry.agent.command"])
def test_commands_start_without_what_only_an_agent_needs(module):
    code = f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"opentelemetry", "uvicorn", "starlette", "grpc"}


def test_every_package_is_in_the_wheel():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("__init__.py")}
    names = {".".join(("pushscope", *folder.relative_to(ROOT).parts)): folder for folder in folders}
    assert sorted(project["packages"]) == sorted(names)
    assert {name: ROOT / folder for name, folder in project["package-dir"].items()} == names


def test_symlinks_for_the_type_checker_name_every_package():
    links = {p.name: p.resolve() for p in (ROOT / ".layout" / "pushscope").iterdir()}
    assert links == {name: ROOT / name for name in PACKAGES}


def test_no_file_grows_out_of_its_room():
    """About 300 lines is a comfortable room; the vocabulary and the catalogue are lists and may be longer."""
    for package in PACKAGES:
        for path in files(package):
            limit = 700 if path.name in ("events.py", "catalogue.py") else 430
            assert len(path.read_text().splitlines()) <= limit, path
