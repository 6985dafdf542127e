"""Real engines for many tests: vLLM is imported once, and every engine is forked from there. And engine cores."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pushscope.lab.launch import Zygote
from pushscope.lab.model import make_model
from tests.vllm.pair import Pair
from tests.vllm.scenes import Scene, scene_of, small_pair


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("lab") / "model"
    make_model(directory)
    return directory


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    with Zygote() as zygote:
        yield zygote


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Engine cores with small caches, in the MODE of the test's module."""
    mode = request.module.MODE
    return small_pair(tmp_path_factory.mktemp(mode.lower()), mode)


@pytest.fixture
def scene(pair: Pair) -> Iterator[Scene]:
    with scene_of(pair) as scene:
        yield scene


@pytest.fixture
def base(pair: Pair) -> str:
    """A base id that no other test has: to pushscope, too, a second one would be a retry."""
    return f"cmpl-{next(pair._numbers)}-0"
