"""Queries as another program's parser reads them: PyPI promql-parser, with Grafana's own variables filled in."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import promql_parser

RATE_INTERVAL = timedelta(seconds=1_234_567)
"""What stands for $__rate_interval: no query says so by chance."""


class Selector(NamedTuple):
    """A metric that a query names, and what it is in, from the outside in."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]
    """Label, operator, value."""
    parents: tuple[Any, ...]


def parse(query: str) -> Any:
    """Raises ValueError if it is not PromQL."""
    return promql_parser.parse(query.replace("$__rate_interval", f"{RATE_INTERVAL.total_seconds():.0f}s"))


def selectors(query: str) -> list[Selector]:
    """All of them."""
    return list(_selectors(parse(query), ()))


def nodes(node: Any, parents: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The node and all in it, each with what it is in."""
    yield node, parents
    for name in ("lhs", "rhs", "expr", "param", "vector_selector"):
        child = getattr(node, name, None)
        if isinstance(child, promql_parser.Expr):
            yield from nodes(child, (*parents, node))
    for child in getattr(node, "args", ()):
        yield from nodes(child, (*parents, node))


def _selectors(tree: Any, parents: tuple[Any, ...]) -> Iterator[Selector]:
    for node, above in nodes(tree, parents):
        if isinstance(node, promql_parser.VectorSelector):
            found = tuple((m.name, _OPERATORS[str(m.op)], m.value) for m in node.matchers.matchers)
            yield Selector(node.name, found, above)


_OPERATORS = {"MatchOp.Equal": "=", "MatchOp.NotEqual": "!=", "MatchOp.Re": "=~", "MatchOp.NotRe": "!~"}
