"""What is typed after ``/``: words and ``key:value`` terms, all of which a row must fit; ``!`` before one denies it.

``cmpl-7 !engine:P2 stage:wire age>5s`` is: ``cmpl-7`` in the request id, not of engine P2, on the wire, for more than
five seconds. A term that a table knows nothing of (a stage, of an engine) does not filter that table.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pushscope.telemetry.units import clean
from pushscope.tui.lookup import Lookup

Texts = Callable[[Any, Lookup], Iterable[str]]
"""What a row has for a key, in lower case."""
Number = Callable[[Any, Lookup], float | None]
"""What a row has for a key: seconds, bytes or a count; None if that is not known."""


@dataclass(frozen=True)
class Fields:
    """What a table's rows can be filtered by."""

    texts: Mapping[str, Texts] = field(default_factory=dict)
    numbers: Mapping[str, Number] = field(default_factory=dict)


ANYWHERE: Final = ("id", "engine", "diagnosis")
"""Where a word without a key is looked for."""

_WITHIN: Final = frozenset({"id", "diagnosis", "host", "error"})
"""Keys whose value may stand anywhere in the text; of others it is the beginning. A UUID contains nearly every pair of
digits somewhere."""
_WHOLE: Final = frozenset({"rank"})
TEXT_KEYS: Final = (
    "id",
    "engine",
    "p",
    "d",
    "host",
    "rank",
    "stage",
    "outcome",
    "diagnosis",
    "severity",
    "mode",
    "seen",
    "error",
)
NUMBER_KEYS: Final = ("age", "exposed", "bytes", "tokens", "blocks")

_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_NUMBER_TERM: Final = re.compile(r"(?P<key>[a-z]+)(?P<sign>>=|<=|>|<)(?P<value>.*)")
_TEXT_TERM: Final = re.compile(r"(?P<key>[a-z]+):(?P<value>.*)")
_VALUE: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[a-zµ]*)")
_UNITS: Final = {
    "": 1.0,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "k": 1e3,
    "b": 1.0,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "kib": 2.0**10,
    "mib": 2.0**20,
    "gib": 2.0**30,
}


class QueryError(ValueError):
    """A filter that can't be read; the message says what is known."""


@dataclass(frozen=True)
class Term:
    """One condition."""

    key: str
    """Empty: a word, looked for anywhere."""
    text: str = ""
    compare: Callable[[float, float], bool] | None = None
    number: float = 0.0
    denied: bool = False

    def fits(self, row: Any, fields: Fields, lookup: Lookup) -> bool:
        """Whether a row is as this term says; True where the table knows nothing of its key."""
        if self.compare is not None:
            if self.key not in fields.numbers:
                return True
            value = fields.numbers[self.key](row, lookup)
            found = value is not None and self.compare(value, self.number)
        else:
            keys = [key for key in ([self.key] if self.key else ANYWHERE) if key in fields.texts]
            if not keys:
                return True
            found = any(self._is_in(key, fields.texts[key](row, lookup)) for key in keys)
        return found is not self.denied

    def _is_in(self, key: str, texts: Iterable[str]) -> bool:
        wanted = self.text
        if key in _WITHIN:
            return any(wanted in text for text in texts)
        if key in _WHOLE:
            return wanted in texts
        return any(text.startswith(wanted) for text in texts)


@dataclass(frozen=True)
class Query:
    """A filter. Without terms everything fits."""

    text: str = ""
    terms: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    def fits(self, row: Any, fields: Fields, lookup: Lookup) -> bool:
        return all(term.fits(row, fields, lookup) for term in self.terms)


EVERYTHING: Final = Query()


def parse(text: str) -> Query:
    """A filter as it was typed; case does not matter. Raises QueryError with a sentence."""
    return Query(text.strip(), tuple(_term(word) for word in text.lower().split() if word != "!"))


def _term(word: str) -> Term:
    denied = word.startswith("!")
    word = word.removeprefix("!")
    if found := _NUMBER_TERM.fullmatch(word):
        key = found["key"]
        if key not in NUMBER_KEYS:
            raise QueryError(f"{clean(key, 20)} can't be compared; {', '.join(NUMBER_KEYS)} can")
        return Term(key, compare=_COMPARE[found["sign"]], number=_value(found["value"]), denied=denied)
    if found := _TEXT_TERM.fullmatch(word):
        key = found["key"]
        if key in NUMBER_KEYS:
            raise QueryError(f"{key} is compared, as in {key}>1")
        if key not in TEXT_KEYS:
            raise QueryError(
                f"unknown key {clean(key, 20)}; known: {', '.join(TEXT_KEYS)}, {', '.join(NUMBER_KEYS)}"
            )
        return Term(key, found["value"], denied=denied)
    return Term("", word, denied=denied)


def _value(text: str) -> float:
    found = _VALUE.fullmatch(text)
    if found is None or found["unit"] not in _UNITS:
        raise QueryError(f"expected a number as 5, 5s, 200ms or 1MiB, found {clean(text, 20) or 'nothing'}")
    return float(found["number"]) * _UNITS[found["unit"]]
