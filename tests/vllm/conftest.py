"""Real engines for many tests: vLLM is imported once, and every engine is forked from there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pushscope.lab.launch import Zygote
from pushscope.lab.model import make_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("lab") / "model"
    make_model(directory)
    return directory


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    with Zygote() as zygote:
        yield zygote
