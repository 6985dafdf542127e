"""A page in gzip, for clients that take it: it is a tenth of itself then, and costs some milliseconds a MiB."""

from __future__ import annotations

import gzip
from typing import Final

_LEVEL: Final = 1
"""A higher one takes several times as long for a page that is hardly smaller."""
_LEAST_BYTES: Final = 1400
"""What fits into one packet as it is."""


def takes_gzip(accept_encoding: str) -> bool:
    """Whether a request's ``Accept-Encoding`` names gzip, or everything, and not with a quality of zero (RFC 9110)."""
    qualities = {}
    for offer in accept_encoding.lower().split(","):
        coding, *parameters = (part.strip() for part in offer.split(";"))
        qualities[coding] = next((_number(p[2:]) for p in parameters if p.startswith("q=")), 1.0)
    return qualities.get("gzip", qualities.get("*", 0.0)) > 0


def squeezed(page: bytes, accept_encoding: str) -> tuple[bytes, dict[str, str]]:
    """The page as it goes out, and the headers that say so."""
    varies = {"Vary": "Accept, Accept-Encoding"}
    if len(page) < _LEAST_BYTES or not takes_gzip(accept_encoding):
        return page, varies
    return gzip.compress(page, _LEVEL, mtime=0), {**varies, "Content-Encoding": "gzip"}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
