"""Two runs of vLLM's tests, read from pytest's JUnit files and compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.machine import this_machine
from upstream.__main__ import PAGE, committed
from upstream.compare import compare, settled
from upstream.outcome import Evidence, Outcome
from upstream.page import Result, page_of, summary_of
from upstream.run import RunError, files_concerned, run

TESTS = """
import importlib.util
import pytest

def test_passes(): pass

class TestOne:
    @pytest.mark.parametrize("n", ["a.b", "c"])
    def test_fails(self, n): assert n == "c", "not c"

@pytest.mark.skip(reason="no GPU")
def test_skipped(): pass

@pytest.fixture
def breaks():
    yield
    raise OSError("late")

def test_breaks_afterwards(breaks): pass

def test_what_lies_beside_the_folder_is_not_found():
    from tests.v1.kv_connector.unit import beside
    assert importlib.util.find_spec("beside_the_folder") is None

NAMES = "v1.nixl"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder like vLLM's, with a module beside it as vLLM's sources lie beside theirs."""
    unit = tmp_path / "source" / "tests" / "v1" / "kv_connector" / "unit"
    unit.mkdir(parents=True)
    (tmp_path / "source" / "beside_the_folder.py").touch()
    for package in (unit, *list(unit.parents)[:3]):
        (package / "__init__.py").touch()
    (unit / "beside.py").touch()
    (unit / "test_a.py").write_text(TESTS)
    (unit / "test_b.py").write_text("import missing_package\nfrom x.v1.nixl import y\n")
    return tmp_path / "source" / "tests"


# -- a run --------------------------------------------------------------------------------------------


def test_every_test_has_one_outcome_with_its_reason(folder, tmp_path):
    files = files_concerned(folder)
    outcomes = run(folder, files, tmp_path / "run", in_place=False, environment={})
    unit = "v1/kv_connector/unit"
    assert {o.test: (o.result, o.message) for o in outcomes} == {
        f"{unit}/test_a.py::test_passes": ("passed", ""),
        f"{unit}/test_a.py::TestOne::test_fails[a.b]": ("failed", "AssertionError: not c"),
        f"{unit}/test_a.py::TestOne::test_fails[c]": ("passed", ""),
        f"{unit}/test_a.py::test_skipped": ("skipped", "no GPU"),
        f"{unit}/test_a.py::test_breaks_afterwards": ("failed", 'failed on teardown with "OSError: late"'),
        f"{unit}/test_a.py::test_what_lies_beside_the_folder_is_not_found": ("passed", ""),
        f"{unit}/test_b.py": ("failed", "ModuleNotFoundError: No module named 'missing_package'"),
    }


@pytest.mark.parametrize(
    ("text", "concerned"),
    [
        ("from vllm.distributed.kv_transfer.kv_connector.v1.nixl import NixlConnector", True),
        ("config = create_vllm_config()", True),
        ('config = create_vllm_config(kv_connector="MooncakeConnector")', False),
        ("# triggers NixlConnectorMetadata.", False),
    ],
)
def test_files_are_chosen_by_whether_they_meet_a_nixl_connector(folder, text, concerned):
    (folder / "v1" / "kv_connector" / "unit" / "test_c.py").write_text(text)
    assert ("v1/kv_connector/unit/test_c.py" in files_concerned(folder)) is concerned


def test_another_folder_is_told(tmp_path):
    with pytest.raises(RunError, match="expected vLLM's folder `tests`"):
        files_concerned(tmp_path)


def test_a_run_that_writes_no_result_is_told(folder, tmp_path):
    with pytest.raises(RunError, match="expected pytest to end"):
        run(
            folder,
            [],
            tmp_path / "run",
            in_place=False,
            environment={},
            arguments=["--no-such-option"],
        )


# -- the comparison -----------------------------------------------------------------------------------

SEEN = Evidence(instances={"made by hand": 1}, events={"EngineUp": 1, "Matched": 2})


def ran(test: str, result: str = "passed", message: str = "", evidence: Evidence | None = None) -> Outcome:
    return Outcome(test, result, message, evidence)


def test_what_comes_out_alike_is_counted_per_file():
    plain = [ran("a.py::x"), ran("a.py::y", "failed", "no GPU"), ran("b.py::z", "skipped", "no ray")]
    comparison = compare(
        plain, [with_evidence(o, SEEN if o.test == "a.py::x" else Evidence()) for o in plain]
    )
    assert comparison.differences == []
    assert [
        (r.file, list(r.plain.values()), list(r.in_place.values()), r.instrumented) for r in comparison.rows
    ] == [
        ("a.py", [1, 1, 0], [1, 1, 0], 1),
        ("b.py", [0, 0, 1], [0, 0, 1], 0),
    ]
    assert comparison.not_passed == {"failed: no GPU": 1, "skipped: no ray": 1}
    assert comparison.events == {"Matched": 2, "EngineUp": 1}
    assert comparison.proven


def test_each_difference_is_a_sentence():
    plain = [ran("a.py::x"), ran("a.py::y", "failed", "E"), ran("a.py::gone")]
    in_place = [ran("a.py::x", "failed", "KeyError: 'n'"), ran("a.py::y", "failed", "F"), ran("a.py::new")]
    assert {d.test: d.sentence for d in compare(plain, in_place).differences} == {
        "a.py::gone": "ran only plain.",
        "a.py::new": "ran only with pushscope.",
        "a.py::x": "passed plain, but failed (KeyError: 'n') with pushscope.",
    }


def test_a_difference_is_one_if_it_comes_again():
    plain = [ran("a.py::slow"), ran("a.py::broken")]
    in_place = [ran("a.py::slow", "failed", "E"), ran("a.py::broken", "failed", "E")]
    alike = compare(plain, plain)
    result = settled(compare(plain, in_place), [alike, compare(plain[1:], in_place[1:]), alike])
    assert [d.test for d in result.differences] == ["a.py::broken"]
    assert [d.test for d in result.unsteady] == ["a.py::slow"]
    assert "a.py::slow" in summary_of(Result(this_machine(), result))


@pytest.mark.parametrize(
    "evidence", [None, Evidence(), Evidence(instances={"made by hand": 1}), Evidence(refused=["no ring"])]
)
def test_a_run_in_which_nothing_was_recorded_proves_nothing(evidence):
    assert not compare([ran("a.py::x")], [ran("a.py::x", evidence=evidence)]).proven


def with_evidence(outcome: Outcome, evidence: Evidence) -> Outcome:
    return Outcome(outcome.test, outcome.result, outcome.message, evidence)


# -- the committed result -----------------------------------------------------------------------------


def test_the_page_says_what_the_result_says():
    assert PAGE.read_text(encoding="utf-8") == page_of(committed())
    assert summary_of(committed()) in page_of(committed())


def test_the_committed_result_shows_no_difference_and_that_pushscope_was_there():
    comparison = committed().comparison
    assert set(comparison.instances) == {"made by a connector", "made by hand", "made without __init__"}
    assert comparison.proven
    assert comparison.differences == []
    assert comparison.lost == {}
    assert comparison.refused == {}
    # vLLM drops these too.
    assert all(why.startswith("_handle_push_reg_notif: ValidationError") for why in comparison.lost_bare)
