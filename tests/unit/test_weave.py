"""Weaving: vLLM's method runs untouched, whatever the observer does."""

import contextlib
import time
from types import SimpleNamespace

import pytest

from pushscope.connector.weave import SeamTable


class Recorder:
    def __init__(self):
        self.failures = []
        self.times = []
        self.raisings = []

    def failed(self, error, where=""):
        self.failures.append((where, error))

    def took(self, ns):
        self.times.append(ns)

    def raised(self, error, where):
        self.raisings.append((where, error))


@pytest.fixture
def probe():
    return SimpleNamespace(recorder=Recorder(), seen=[])


class Upstream:
    def method(self, a, b=2, *, c=3):
        if a == "raise":
            raise KeyError(a)
        return (a, b, c)


def woven(probe, observer, *, timed=False, method="method"):
    table = SeamTable()
    table.seam(method, timed=timed)(observer)
    return table.woven(Upstream, probe)()


@pytest.mark.parametrize(
    ("args", "kwargs"), [((1,), {}), ((1, 5), {"c": 6}), ((), {"a": 1, "b": 5}), ((1,), {"c": 9, "b": 4})]
)
def test_arguments_are_bound_by_name_and_pass_through(probe, args, kwargs):
    def observer(probe, c, a, b):
        result = yield
        probe.seen.append((a, b, c, result))

    result = woven(probe, observer).method(*args, **kwargs)
    assert result == Upstream().method(*args, **kwargs)
    assert probe.seen == [(*result, result)]


def around(probe):
    yield


def after(probe, t, result):
    pass


@pytest.mark.parametrize("observer", [around, after])
@pytest.mark.parametrize("timed", [True, False])
def test_what_ends_the_engine_is_recorded(probe, observer, timed):
    """What a method raises on the engine's main thread; another thread's has its own event."""
    with pytest.raises(KeyError) as e:
        woven(probe, observer, timed=timed).method("raise")
    assert probe.recorder.raisings == ([("method", e.value)] if timed else [])
    assert probe.recorder.failures == []


def test_what_the_method_raises_is_seen_and_raised_as_it_was(probe):
    def observer(probe):
        try:
            yield
        except KeyError as e:
            probe.seen.append(e)
            raise

    with pytest.raises(KeyError) as caught:
        woven(probe, observer).method("raise")
    assert probe.seen == [caught.value]
    assert probe.recorder.failures == []


def test_an_observer_cannot_swallow_what_the_method_raises(probe):
    def observer(probe):
        with contextlib.suppress(KeyError):
            yield

    with pytest.raises(KeyError):
        woven(probe, observer).method("raise")


def _raises_before(probe, a):
    raise RuntimeError("before")
    yield


def _raises_after(probe, a):
    yield
    raise RuntimeError("after")


def _raises_instead(probe, a):
    try:
        yield
    except KeyError:
        raise RuntimeError("instead") from None


def _never_stops(probe, a):
    yield
    yield


@pytest.mark.parametrize("observer", [_raises_before, _raises_after, _raises_instead, _never_stops])
@pytest.mark.parametrize("a", [1, "raise"])
def test_a_broken_observer_changes_nothing(probe, observer, a):
    connector = woven(probe, observer)
    if a == "raise":
        with pytest.raises(KeyError):
            connector.method(a)
    else:
        assert connector.method(a) == (1, 2, 3)
    if observer is _raises_before:
        assert [str(e) for _, e in probe.recorder.failures] == ["before"]


def test_a_plain_observer_is_called_after_with_the_time_before_and_the_result(probe):
    def observer(probe, t, result, b, a):
        probe.seen.append((t, result, a, b))

    before = time.monotonic_ns()
    assert woven(probe, observer, timed=True).method(1, b=5) == (1, 5, 3)
    ((t, result, a, b),) = probe.seen
    assert before <= t <= time.monotonic_ns()
    assert (result, a, b) == ((1, 5, 3), 1, 5)
    assert len(probe.recorder.times) == 1


def test_a_plain_observer_that_fails_or_a_method_that_raises(probe):
    def observer(probe, t, result):
        probe.seen.append(result)
        raise RuntimeError("after")

    connector = woven(probe, observer)
    assert connector.method(1) == (1, 2, 3)
    assert [(where, str(e)) for where, e in probe.recorder.failures] == [("method", "after")]
    with pytest.raises(KeyError):
        connector.method("raise")
    assert probe.seen == [(1, 2, 3)], "nothing came of the second call"


def test_a_look_can_spare_the_observer(probe):
    def observer(probe):
        probe.seen.append("looked on")
        yield

    table = SeamTable()
    table.seam("method", unless=lambda probe: probe.idle)(observer)
    connector = table.woven(Upstream, probe)()
    probe.idle = True
    assert connector.method(1) == (1, 2, 3)
    assert probe.seen == []
    probe.idle = False
    assert connector.method(1) == (1, 2, 3)
    assert probe.seen == ["looked on"]


def test_failures_name_the_seam(probe):
    woven(probe, _raises_after).method(1)
    assert [where for where, _ in probe.recorder.failures] == ["method"]


def test_a_missing_method_or_parameter_is_off_and_named(probe):
    table = SeamTable()

    @table.seam("absent")
    def _(probe):
        yield

    @table.seam("method")
    def _(probe, zeta):
        yield

    assert table.missing_in(Upstream) == ["absent does not exist", "method has no parameter zeta"]
    cls = table.woven(Upstream, probe)
    assert cls().method(1) == (1, 2, 3)
    assert cls.method is Upstream.method


class Newer:
    def newer(self, a):
        return self.older(a)

    def older(self, a):
        return a


class Older:
    def older(self, a):
        return a


class Neither:
    pass


def either() -> SeamTable:
    table = SeamTable()

    @table.seam("newer")
    @table.seam("older", instead_of="newer")
    def _(probe, t, result, a):
        probe.seen.append(a)

    return table


@pytest.mark.parametrize("cls", [Newer, Older])
def test_an_older_method_stands_in_where_the_newer_is_not(probe, cls):
    table = either()
    assert table.missing_in(cls) == []
    connector = table.woven(cls, probe)()
    assert getattr(connector, "newer", connector.older)(1) == 1
    assert probe.seen == [1], "not twice where one calls the other"


def test_a_seam_that_nothing_stands_in_for_is_named(probe):
    assert either().missing_in(Neither) == ["older does not exist", "newer does not exist"]


def test_an_older_method_with_other_parameters_does_not_stand_in(probe):
    class Different:
        def older(self, b): ...

    assert either().missing_in(Different) == ["older has no parameter a", "newer does not exist"]


def test_a_newer_method_that_does_not_fit_is_off_though_the_older_would(probe):
    class Changed(Older):
        def newer(self, b): ...

    assert either().missing_in(Changed) == ["newer has no parameter a"]
    assert either().woven(Changed, probe).older is Older.older


@pytest.mark.parametrize("around", [True, False])
def test_a_parameter_with_a_default_may_be_missing(probe, around):
    if around:

        def observer(probe, a, z="none", c=0):
            probe.seen.append((a, z, c))
            yield
    else:

        def observer(probe, t, result, a, z="none", c=0):
            probe.seen.append((a, z, c))

    connector = woven(probe, observer)
    connector.method(1)
    connector.method(a=1, c=5)
    assert probe.seen == [(1, "none", 3), (1, "none", 5)]
    assert probe.recorder.failures == []


def test_the_class_keeps_its_name_and_only_timed_seams_are_timed(probe):
    def observer(probe):
        yield

    assert type(woven(probe, observer)).__name__ == "Upstream"
    woven(probe, observer).method(1)
    assert probe.recorder.times == []
    woven(probe, observer, timed=True).method(1)
    assert len(probe.recorder.times) == 1
