"""What a load sends and when: prompts and arrival times, a function of the seed alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Literal, get_args

from pushscope.lab.model import FIRST_TEXT_TOKEN, VOCAB_SIZE

Arrivals = Literal["poisson", "fixed"]
ARRIVALS: tuple[Arrivals, ...] = get_args(Arrivals)
TokenCount = int | tuple[int, int]
"""A number of tokens, or the least and the most of a uniform choice."""


def parse_token_count(text: str) -> TokenCount:
    """``"200"`` or ``"100-400"``.

    Raises ValueError for anything else.
    """
    low, dash, high = text.partition("-")
    try:
        count = (int(low), int(high)) if dash else (int(low), int(low))
    except ValueError:
        count = (0, 0)
    if not 0 < count[0] <= count[1]:
        raise ValueError(
            f"Expected a number of tokens such as 200 or a range such as 100-400, found {text!r}."
        )
    return count if dash else count[0]


def token_count(spec: TokenCount, seed: int, index: int, what: str) -> int:
    """The number of tokens of request ``index``; ``what`` tells prompt from output."""
    if isinstance(spec, int):
        return spec
    return _random(seed, index, what).randint(*spec)


def make_prompt(seed: int, index: int, num_tokens: int) -> list[int]:
    """The token ids of request ``index``. Prompts of different requests share no prefix but by chance."""
    draw = _random(seed, index, "prompt")
    return [draw.randrange(FIRST_TEXT_TOKEN, VOCAB_SIZE) for _ in range(num_tokens)]


def arrival_times(rate: float, arrivals: Arrivals, seed: int) -> Iterator[float]:
    """Seconds from the start of the load at which requests arrive, ``rate`` per second on average, without
    end."""
    draw = _random(seed, 0, "arrivals")
    at = 0.0
    while True:
        yield at
        at += draw.expovariate(rate) if arrivals == "poisson" else 1 / rate


def _random(seed: int, index: int, what: str) -> random.Random:
    return random.Random(f"{seed}/{index}/{what}")
