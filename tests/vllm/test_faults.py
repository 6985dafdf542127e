"""Faults made on real engines are named, and nothing is left of them when they are undone.

The quick ones; `make faults` makes all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.run import faulty_lab, make

from pushscope.lab.faults.sight import Sight
from pushscope.lab.faults.table import FAULTS
from pushscope.lab.launch import Zygote

pytestmark = [pytest.mark.engines, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def lab(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Sight]]:
    directory = tmp_path_factory.mktemp("faults")
    with faulty_lab(directory, zygote) as rings, Sight(rings) as sight:
        yield directory, sight


@pytest.mark.parametrize(
    ("name", "besides"),
    [
        ("lost-prefill", ()),
        ("retry-pending", ()),
        ("abort-registered", ()),
        ("decode-stopped", ("engine_stopped",)),  # the cause of the WRITE that does not end
    ],
)
def test_a_fault_is_named_and_clears_when_it_is_undone(
    name: str, besides: tuple[str, ...], lab: tuple[Path, Sight]
) -> None:
    row = asyncio.run(make(FAULTS[name], *lab))
    assert row.named_s is not None, row
    assert row.besides == besides, row
    assert row.cleared_s is not None, row
