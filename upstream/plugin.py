"""The pytest plugin of the second run: takes vLLM's place, and says per test what came of it."""

from __future__ import annotations

from collections.abc import Generator

import msgspec
import pytest

from upstream.in_place import Place

PROPERTY = "pushscope"
"""The property of a test in the JUnit file: its :class:`Evidence` as JSON."""

_place = Place()


def pytest_sessionstart() -> None:
    _place.take()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    try:
        return (yield)
    finally:
        item.user_properties.append((PROPERTY, msgspec.json.encode(_place.taken()).decode()))
