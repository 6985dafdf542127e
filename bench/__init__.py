"""Benchmarks of pushscope against its budgets: ``python -m bench``.

Every figure is a comparison made in one run, its contenders taking turns, so that a busy machine slows all of
them alike. A benchmark is not a test: a missed budget is printed, not raised.
"""
