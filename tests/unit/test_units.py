"""How durations, bytes, ages and untrusted text are shown."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from pushscope.telemetry import units


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (float("nan"), "-"),
        (0, "0 s"),
        (8.2e-7, "820 ns"),
        (9.996e-7, "1.00 µs"),
        (1.234e-6, "1.23 µs"),
        (9.996e-6, "10.0 µs"),
        (9.996e-4, "1.00 ms"),
        (0.0456, "45.6 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (12.0, "12.0 s"),
        (120.4, "120 s"),
        (1200, "20m00s"),
        (-0.002, "-2.00 ms"),
    ],
)
def test_durations_have_three_digits_and_the_unit_that_fits(seconds: float | None, shown: str) -> None:
    assert units.duration(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (0.42, "420 ms"),
        (9.99, "9.99 s"),
        (9.996, "10 s"),
        (59.4, "59 s"),
        (245, "4m05s"),
        (7384, "2h03m"),
        (273600, "3d04h"),
    ],
)
def test_ages_lose_digits_as_they_grow(seconds: float | None, shown: str) -> None:
    assert units.age(seconds) == shown


@pytest.mark.parametrize(
    ("num_bytes", "shown"),
    [
        (None, "-"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.98 KiB"),
        (1536, "1.50 KiB"),
        (12 << 20, "12.0 MiB"),
        (1023 << 20, "1.00 GiB"),
        (3 << 50, "3.00 PiB"),
    ],
)
def test_bytes_use_binary_units(num_bytes: float | None, shown: str) -> None:
    assert units.size(num_bytes) == shown


def test_a_coarse_age_has_whole_seconds() -> None:
    assert [units.coarse_age(s) for s in (0.2, 4.4, 9.7, 245.0)] == ["0 s", "4 s", "10 s", "4m05s"]


def test_counts_rates_and_shares() -> None:
    assert [units.count(n) for n in (None, 0, 1234, 12_345_678)] == ["-", "0", "1,234", "12.3 M"]
    assert units.count(4_560_000_000) == "4.56 G"
    assert [units.rate(r) for r in (None, 0, 0.25, 12.34)] == ["-", "0/s", "0.25/s", "12.3/s"]
    assert units.rate(1234) == "1,234/s"
    assert units.byte_rate(1.5 * 2**30) == "1.50 GiB/s"
    assert [units.share(s) for s in (None, 0, 0.001, 0.421, 1)] == ["-", "0%", "<1%", "42%", "100%"]


def test_a_percentile_is_the_nearest_rank_and_always_an_observed_value() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0, 6.0, 7.0, 8.0, 9.0, 10.0]
    assert units.percentile(values, 50) == 5
    assert units.percentile(values, 90) == 9
    assert units.percentile(values, 99) == 10
    assert units.percentile(values, 0) == 1
    assert units.percentile(range(1, 1001), 99.9) == 999
    assert units.percentile([7.0], 99) == 7
    assert units.percentile([], 50) is None


def test_a_percentile_outside_0_to_100_is_an_error() -> None:
    with pytest.raises(ValueError, match="between 0 and 100"):
        units.percentile([1.0], 101)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain-id_1", "plain-id_1"),
        ("[bold red]x[/]", "[bold red]x[/]"),
        ("a\x1b[31mred\x1b[0m", "ared"),
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b]8;;http://x\x1b\\b", "ab"),
        ("a\x1b]unterminated", "aunterminated"),
        ("a\x9b2Jb", "ab"),
        ("a\x1b(Bb\x1bcc", "abc"),
        ("one\r\n\ttwo\u2028three", "one two three"),
        ("nul\x00bel\x07del\x7fc1\x84", "nulbeldelc1"),
        ("rtl\u202eevil\u202c\u2066x\u2069\u200f", "rtlevilx"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("lone\udc80surrogate", "lonesurrogate"),
        ("München 東京", "München 東京"),
    ],
)
def test_clean_drops_what_a_terminal_would_obey_and_keeps_the_rest(text: str, shown: str) -> None:
    assert units.clean(text) == shown


@pytest.mark.parametrize("limit", range(12))
def test_cut_text_never_exceeds_its_cells(limit: int) -> None:
    for text in ("cmpl-0123456789abcdef", "東京東京東京東京", "aé東\x1b[0mb" * 5):
        assert cell_len(units.clean(text, limit)) <= limit
        assert cell_len(units.shorten(text, limit)) <= limit


def test_shorten_keeps_head_and_tail() -> None:
    assert units.shorten("chatcmpl-5f0c9a7be1d24a08-3f2a", 16) == "chatc…24a08-3f2a"
    assert units.shorten("short", 16) == "short"
    assert units.clean("error: something long", 10) == "error: so…"
