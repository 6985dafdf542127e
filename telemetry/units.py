"""How numbers and untrusted text are shown: the one place that formats durations, bytes, rates and ages.

Every public quantity is in SI base units (seconds, bytes); ``None`` means *not observed* and is shown as
``-``, never as zero. Text that came from outside (request ids, engine ids, error texts) goes through
``clean`` or ``shorten`` before it reaches a terminal.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size

UNKNOWN = "-"
"""What is shown for a value that was not observed."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86400

# A CSI sequence, an OSC/DCS/PM/APC string with its terminator, or any other two-character escape. A string
# without a terminator swallows nothing more than its introducer: what follows is still the user's text.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)
_BREAKS = re.compile(r"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")


def percentile(values: Iterable[float], percent: float) -> float | None:
    """The nearest-rank percentile: the smallest value that at least ``percent`` % of the values don't exceed.

    Exact, and always a value that was observed, never one between two. None if there are no values. Used by
    every view, so that two of them never disagree about a p99.
    """
    if not 0 <= percent <= 100:
        raise ValueError(f"a percentile lies between 0 and 100, not at {percent}")
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[nearest_rank(len(ordered), percent) - 1]


def nearest_rank(number: int, percent: float) -> int:
    """Which of so many ordered values, counted from 1, is the percentile."""
    # Rounded first: 99.9 / 100 * 1000 is a hair above 999 in floating point and must not mean the 1000th.
    return max(1, math.ceil(round(percent * number / 100, 9)))


def duration(seconds: float | None) -> str:
    """A measured time with three significant digits: ``820 ns``, ``1.23 µs``, ``45.6 ms``, ``12.0 s``."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 0:
        return "-" + duration(-seconds)
    nanoseconds = seconds * 1e9
    if nanoseconds < 999.5:
        return f"{nanoseconds:.0f} ns" if nanoseconds else "0 s"
    for scale, unit in ((1e6, "µs"), (1e3, "ms"), (1, "s")):
        if seconds * scale < 999.5:
            return f"{_three_digits(seconds * scale)} {unit}"
    return age(seconds)


def age(seconds: float | None) -> str:
    """How long something lasts: as ``duration`` below ten seconds, then ``42 s``, ``4m05s``, ``2h03m``."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 9.995:
        return duration(seconds)
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02d}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02d}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR:02d}h"


def coarse_age(seconds: float) -> str:
    """An age in whole seconds: ``0 s``, ``4 s``, ``4m05s``; for what is told once a second."""
    whole = round(seconds)
    return f"{whole} s" if whole < 10 else age(whole)


def size(num_bytes: float | None) -> str:
    """Bytes with three significant digits in binary units: ``512 B``, ``1.50 KiB``, ``12.0 MiB``."""
    if num_bytes is None or not math.isfinite(num_bytes):
        return UNKNOWN
    if num_bytes < 0:
        return "-" + size(-num_bytes)
    if num_bytes < 999.5:
        return f"{num_bytes:.0f} B"
    value = num_bytes
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 999.5:
            return f"{_three_digits(value)} {unit}"
    return f"{value / 1024:,.2f} PiB"


def count(number: int | None) -> str:
    """A number of things: ``1,234``; from ten million on ``12.3 M``, ``4.56 G``."""
    if number is None:
        return UNKNOWN
    if abs(number) < 10_000_000:
        return f"{number:,}"
    if abs(number) < 999_500_000:
        return f"{_three_digits(number / 1e6)} M"
    return f"{_three_digits(number / 1e9)} G"


def rate(per_second: float | None) -> str:
    """Things per second, without their name: ``0/s``, ``0.25/s``, ``12.3/s``, ``1,234/s``."""
    if per_second is None or not math.isfinite(per_second):
        return UNKNOWN
    if per_second == 0:
        return "0/s"
    return f"{per_second:,.0f}/s" if per_second >= 999.5 else f"{_three_digits(per_second)}/s"


def byte_rate(bytes_per_second: float | None) -> str:
    """Bytes per second: ``1.20 GiB/s``."""
    if bytes_per_second is None or not math.isfinite(bytes_per_second):
        return UNKNOWN
    return f"{size(bytes_per_second)}/s"


def share(part: float | None) -> str:
    """A part of one as per cent: ``0.42`` is ``42%``; what rounds to nothing but isn't is ``<1%``."""
    if part is None or not math.isfinite(part):
        return UNKNOWN
    return "<1%" if 0 < part < 0.005 else f"{part * 100:.0f}%"


def clean(text: str, limit: int | None = None) -> str:
    """Text from outside, made safe for one line of a terminal, and cut to ``limit`` cells (``…`` at the end).

    Escape sequences, control characters (C0 and C1), format characters (bidirectional overrides, zero-width
    characters, tags), surrogates and unassigned code points are dropped; a run of line breaks or tabs becomes
    one space. Rich and Textual markup is *not* touched: draw the result as ``rich.text.Text``, never as
    markup.
    """
    if not (text.isascii() and text.isprintable()):
        text = _BREAKS.sub(" ", _ESCAPES.sub("", text))
        text = "".join(char for char in text if not unicodedata.category(char).startswith("C"))
    if limit is None or cell_len(text) <= limit:
        return text
    return _cut(text, limit - 1) + "…" if limit > 0 else ""


def shorten(text: str, limit: int) -> str:
    """``clean`` text, cut in the middle to ``limit`` cells: an id differs from others in its tail."""
    text = clean(text)
    if cell_len(text) <= limit:
        return text
    if limit < 3:
        return _cut(text, limit)
    head = (limit - 1) // 3
    tail = limit - 1 - head
    return _cut(text, head) + "…" + _cut_left(text, tail)


def _three_digits(value: float) -> str:
    magnitude = abs(value)
    if magnitude < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if magnitude < 99.95 else f"{value:.0f}"


def _cut(text: str, limit: int) -> str:
    # set_cell_size pads with a space where a wide character would be cut in two.
    return set_cell_size(text, limit).rstrip(" ") if limit > 0 else ""


def _cut_left(text: str, limit: int) -> str:
    while cell_len(text) > limit:
        text = text[max(1, (cell_len(text) - limit) // 2) :]
    return text
