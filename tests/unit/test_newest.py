"""The newest few of a set, in whatever order they come."""

import random

from hypothesis import given
from hypothesis import strategies as st

from pushscope.telemetry.newest import Newest


@given(
    items=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3))),
    limit=st.integers(1, 8),
    seed=st.randoms(use_true_random=False),
)
def test_it_is_the_end_of_the_sorted_set(items: list[tuple[int, int]], limit: int, seed: random.Random):
    newest: Newest[tuple[int, int]] = Newest(limit, tuple)
    said = items + seed.choices(items, k=3) if items else []
    seed.shuffle(said)
    for item in said:
        newest.add(item)
    assert newest.all() == tuple(sorted(set(items))[-limit:])


def test_what_was_given_does_not_change():
    newest: Newest[tuple[int]] = Newest(2, tuple)
    newest.add((1,))
    before = newest.all()
    newest.add((2,))
    assert (before, newest.all()) == (((1,),), ((1,), (2,)))
