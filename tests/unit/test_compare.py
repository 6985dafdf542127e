"""Two runs compared: what is slower is found, what is noise is not, and what cannot be told is said."""

from __future__ import annotations

import io
import random
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from pushscope.lab.main import app
from pushscope.telemetry.compare import LEAST, Comparison, Verdict, compare
from pushscope.telemetry.recording import RecordingWriter
from pushscope.telemetry.transfer import Stage, Transfer
from pushscope.tui.compare_view import render_comparison

from . import samples
from .scenario import delivered, reading


def run(
    seed: int, *, number: int = 300, slower: Stage | None = None, factor: float = 1.0, drift: float = 0.0
):
    """A run whose stages are spread by a third around their usual times; one may be slower, or rise from end to end."""
    draw = random.Random(seed)
    made: list[Transfer] = []
    for n in range(number):
        whole = samples.delivered(n, scale=draw.lognormvariate(0.0, 0.33) * (1 + drift * n / number))
        stages = tuple(
            msgspec.structs.replace(
                s, start_ns=(s.end_ns or 0) - round(((s.end_ns or 0) - s.start_ns) * factor)
            )
            if s.stage is slower
            else s
            for s in whole.stages
        )
        made.append(
            msgspec.structs.replace(whole, stages=stages, closed_ns=n * 1_000_000, since_ns=n * 1_000_000)
        )
    return f"run {seed}", made


def verdicts(comparison: Comparison) -> dict[str, Verdict]:
    return {each.name: each.verdict for each in comparison.differences}


def test_a_stage_that_takes_longer_is_found_and_only_that() -> None:
    found = compare(run(1), run(2, slower=Stage.WIRE, factor=1.5))
    (wire,) = [each for each in found.differences if each.name == "wire"]
    assert wire.verdict is Verdict.SLOWER
    assert wire.ratio == pytest.approx(1.5, rel=0.1)
    assert wire.low is not None
    assert wire.high is not None
    assert 1.0 < wire.low < wire.ratio < wire.high
    assert {v for name, v in verdicts(found).items() if name != "wire"} == {Verdict.NOISE}


def test_the_other_way_round_it_is_faster() -> None:
    found = compare(run(2, slower=Stage.WIRE, factor=1.5), run(1))
    assert verdicts(found)["wire"] is Verdict.FASTER


def test_runs_of_one_kind_differ_by_noise_nearly_always() -> None:
    told = [v for seed in range(20) for v in verdicts(compare(run(seed), run(seed + 100))).values()]
    wrong = [v for v in told if v is not Verdict.NOISE]
    assert len(wrong) / len(told) < 0.08


def test_a_run_that_drifts_is_less_sure() -> None:
    steady = compare(run(1), run(2, slower=Stage.WIRE, factor=1.15))
    drifting = compare(run(1, drift=2.0), run(2, drift=2.0, slower=Stage.WIRE, factor=1.15))
    assert verdicts(steady)["wire"] is Verdict.SLOWER
    assert verdicts(drifting)["wire"] is Verdict.NOISE


def test_few_transfers_tell_nothing() -> None:
    found = compare(run(1, number=LEAST - 1), run(2, slower=Stage.WIRE, factor=9.0))
    (wire,) = [each for each in found.differences if each.name == "wire"]
    assert (wire.verdict, wire.low) == (Verdict.TOO_FEW, None)
    assert wire.ratio is not None


def test_push_and_pull_stand_apart_and_what_one_lacks_is_said() -> None:
    label, transfers = run(1)
    pulled = [msgspec.structs.replace(t, mode="pull") for t in transfers]
    found = compare((label, transfers), ("pull", pulled))
    assert {each.verdict for each in found.differences} == {Verdict.ONE_SIDED}
    assert {each.mode for each in found.differences} == {"push", "pull"}


def test_a_transfer_counts_with_its_slowest_rank() -> None:
    two = [samples.two_by_two(n) for n in range(60)]
    found = compare(("a", two), ("b", two))
    (wire,) = [each for each in found.differences if each.name == "wire" and not each.upper_bound]
    assert wire.before.count == 60


def test_of_nothing_there_is_nothing_to_compare() -> None:
    found = compare(("a", []), ("b", []))
    assert found.differences == ()
    assert (found.before.transfers, found.before.delivered_per_s) == (0, None)


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_and_hostile_names_are_harmless(width: int) -> None:
    out = io.StringIO()
    _, transfers = run(1)
    found = compare(("\x1b[2Jevil", transfers), run(2, slower=Stage.WIRE, factor=1.5))
    render_comparison(found, Console(file=out, width=width))
    text = out.getvalue()
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    (line,) = [line for line in text.splitlines() if line.startswith("wire")]
    assert line.rstrip().endswith("slower")


def recorded(path: Path, number: int) -> Path:
    writer = RecordingWriter(path)
    for n in range(number):
        writer.write(reading(delivered(f"cmpl-{n}", n * 100), n * 100 + 90))
    writer.close()
    return path


class TestCommand:
    def test_it_compares_two_recordings(self, tmp_path: Path) -> None:
        a, b = recorded(tmp_path / "a.psr", 60), recorded(tmp_path / "b.psr", 70)
        result = CliRunner().invoke(app, ["report", "--compare", str(a), str(b)])
        assert result.exit_code == 0, result.output
        assert "within noise" in result.output
        as_json = CliRunner().invoke(app, ["report", "--json", "--compare", str(a), str(b)])
        found = msgspec.json.decode(as_json.output, type=Comparison)
        assert (found.before.transfers, found.after.transfers) == (60, 70)

    def test_with_anything_else_it_is_a_sentence(self, tmp_path: Path) -> None:
        a = recorded(tmp_path / "a.psr", 2)
        result = CliRunner().invoke(app, ["report", "--compare", str(a), str(a), "--fail-if", "stuck>0"])
        assert result.exit_code == 2
        assert "--compare reads two recordings and nothing else" in result.output

    def test_a_file_that_is_no_recording_is_a_sentence(self, tmp_path: Path) -> None:
        a = recorded(tmp_path / "a.psr", 2)
        result = CliRunner().invoke(app, ["report", "--compare", str(a), str(tmp_path / "none.psr")])
        assert result.exit_code == 2
        assert "cannot read the recording" in result.output
