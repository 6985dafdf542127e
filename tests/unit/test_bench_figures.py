"""What benchmarks say of their measurements; never how fast anything is."""

from __future__ import annotations

import math
import statistics
import time

import pytest
from bench.__main__ import MISUSED, main
from bench.catalogue import BENCHES, chosen
from bench.child import run_apart
from bench.estimate import Estimate, differences, geometric_mean_of, mean_of, median_of, ratio_of
from bench.figure import BenchError, Settings, compared
from bench.machine import this_machine
from bench.table import cells, number, verdict_of, with_spread
from bench.traffic import SUBMITTED, TRANSFER, stream


def test_a_median_lies_between_the_least_and_the_most():
    assert median_of([3.0, 1.0, 2.0]) == Estimate(2.0, 1.0, 3.0, "min-max")


def test_a_ratio_is_taken_within_each_round():
    # The machine got twice as slow in the last round: the ratios do not see it.
    assert ratio_of([1.0, 1.0, 2.0], [4.0, 4.0, 8.0]) == Estimate(0.25, 0.25, 0.25, "min-max")


def test_a_ratio_needs_a_reference_for_each_value():
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        ratio_of([1.0, 2.0], [1.0])


def test_differences():
    assert differences([3.0, 5.0], [1.0, 4.0]) == [2.0, 1.0]


def test_an_interval_holds_the_mean_and_is_the_same_each_time():
    values = [float(n % 7) for n in range(100)]
    estimate = mean_of(values)
    assert estimate.low < estimate.value == statistics.fmean(values) < estimate.high
    assert estimate == mean_of(values)
    assert estimate.spread == "95 %"


def test_an_interval_is_as_wide_as_theory_says():
    values = [float(n % 7) for n in range(700)]
    estimate = mean_of(values)
    expected = 2 * 1.96 * statistics.pstdev(values) / math.sqrt(len(values))
    assert estimate.high - estimate.low == pytest.approx(expected, rel=0.1)


def test_equal_values_have_no_interval():
    assert mean_of([2.0] * 5) == Estimate(2.0, 2.0, 2.0, "95 %")


def test_groups_that_differ_widen_the_interval():
    values = [1.0] * 20 + [2.0] * 20 + [3.0] * 20
    groups = [0] * 20 + [1] * 20 + [2] * 20
    alone, grouped = mean_of(values), mean_of(values, groups)
    assert grouped.value == alone.value
    assert (grouped.low, grouped.high) == (1.0, 3.0)
    assert alone.high - alone.low < 0.5


def test_a_group_is_needed_for_each_value():
    with pytest.raises(ValueError, match="shorter"):
        mean_of([1.0, 2.0], [0])


def test_the_geometric_mean_of_a_ratio_and_its_inverse_is_one():
    estimate = geometric_mean_of([0.5, 2.0] * 10)
    assert estimate.value == pytest.approx(1.0)
    assert estimate.low * estimate.high == pytest.approx(1.0, rel=0.2)
    assert estimate.low < 1.0 < estimate.high


def test_a_figure_has_its_budget_and_a_verdict():
    figure = compared("a call", "us", [1.0, 2.0, 3.0], [10.0, 20.0, 30.0], "another call")
    assert verdict_of(figure) == ""
    assert verdict_of(figure.against("<= 1/5", held=True)) == "held"
    missed = figure.against("<= 1/20", held=False)
    assert verdict_of(missed) == "MISSED"
    assert cells(missed) == (
        "a call",
        "2.00 us (1.000 to 3.00)",
        "20.0 us, another call",
        "0.100 (0.100 to 0.100)",
        "<= 1/20",
    )


def test_numbers_keep_the_digits_that_tell_something():
    assert [number(n) for n in (123456.7, 99.44, 1.234, 0.0987, -12.34)] == [
        "123,457",
        "99.4",
        "1.234",
        "0.099",
        "-12.3",
    ]


def test_a_spread_says_what_it_is():
    assert with_spread(Estimate(1.0, 0.9, 1.1, "95 %")) == "1.000 (95 %: 0.900 to 1.100)"
    assert with_spread(Estimate(104.0, 104.0, 104.0, "once"), "MiB") == "104 MiB"


def test_all_benches_by_default_but_the_control_and_the_outage():
    assert chosen([]) == [name for name in BENCHES if name not in ("control", "outage")]
    assert chosen(["serving", "record"]) == ["record", "serving"]


def test_an_unknown_bench_is_named_in_one_sentence(capsys):
    assert main(["recrod"]) == MISUSED
    said = capsys.readouterr().err
    assert said == (
        "bench: unknown bench 'recrod'; known are record, step, read, memory, metrics, agent, outage, screen, "
        "watching, serving, watched, control (did you mean 'record'?)\n"
    )


@pytest.mark.parametrize("pairs", ["1", "-3", "many"])
def test_a_wrong_number_of_pairs_is_named(pairs, capsys):
    with pytest.raises(SystemExit):
        main(["serving", "--pairs", pairs])
    assert f"expected a number of at least 2, found '{pairs}'" in capsys.readouterr().err


def test_a_bench_whose_process_dies_is_an_error_with_its_last_words():
    with pytest.raises(BenchError, match=r"(?s)exit status 1.*KeyError: 'no such bench'"):
        run_apart("no such bench", Settings(), lambda _done, _text: None)


def test_a_machine_is_one_line():
    line = this_machine().line()
    assert "\n" not in line
    assert "cores" in line


def test_traffic_is_what_the_assembler_takes_for_whole_transfers():
    from bench.memory import Traffic

    from pushscope.telemetry.watch import Watcher

    traffic = Traffic()
    traffic.give(stream(20, 1_000_000_000_000, 100.0))
    watcher = Watcher(traffic)
    watcher.run_to_end()
    watcher.assembler.close_all()
    snapshot = watcher.snapshot()
    assert snapshot.totals.outcomes == {"delivered": 20}
    assert snapshot.totals.events == 20 * len(TRANSFER)
    assert all(t.path and t.exposed_ns for t in snapshot.recent)


def test_submitted_traffic_is_in_flight():
    from bench.memory import Traffic

    from pushscope.telemetry.watch import Watcher

    traffic = Traffic()
    traffic.give(stream(20, time.monotonic_ns(), 100.0, moments=SUBMITTED))
    watcher = Watcher(traffic)
    watcher.run_to_end()
    assert len(watcher.snapshot().in_flight) == 20
