"""How a seam is woven around a method of vLLM: the method runs untouched, an observer looks on.

An observer is a generator function. What stands before its ``yield`` runs before vLLM's method, the
``yield`` gives the method's result (or raises what it raised), what follows runs after it::

    @seam("update_state_after_alloc")
    def _(probe, request, num_external_tokens):
        t = now()
        yield
        probe.recorder.record(...)

Or, where nothing has to be done before, a plain function, called after the method with the time before it
and its result. That costs half as much, and what runs at every engine step is of this kind::

    @seam("get_transfer_results")
    def _(probe, t, results): ...

The remaining parameters are names of parameters of vLLM's method: they are taken from the call by name,
wherever this release has them; one with a default may be missing, and then has its default. A seam whose
method or parameter the installed vLLM lacks is off. Where an older method had the part of a newer one, a seam
on it stands in::

    @seam("get_transfer_results")
    @seam("get_finished", instead_of="get_transfer_results")
    def _(probe, t, results): ...

Whatever an observer raises is counted by the recorder and goes nowhere else.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from inspect import Parameter
from types import FunctionType
from typing import Any, Protocol, cast

from pushscope.telemetry.recorder import Recorder, now

Observation = Generator[None, Any, None]
Observer = Callable[..., Observation | None]


class Probe(Protocol):
    """What observers of one connector instance share."""

    recorder: Recorder


class Seam:
    """One method of vLLM, and who looks on.

    ``timed``: it runs on the engine's main thread, count its time; what it raises ends the engine.
    ``unless(probe)``: a cheap look that spares an observer around the method. ``speaks_for_caller``: it logs
    with a ``stacklevel``, so that our frame must not count as its caller. ``instead_of``: the newer method
    whose part this one had; where vLLM has that one, this seam is not wanted.
    """

    def __init__(
        self,
        method: str,
        observer: Observer,
        *,
        timed: bool,
        unless: Callable[[Any], bool] | None,
        speaks_for_caller: bool,
        instead_of: str,
    ):
        self.unless = unless
        self.method = method
        self.observer = observer
        self.timed = timed
        self.speaks_for_caller = speaks_for_caller
        self.instead_of = instead_of
        self.around = inspect.isgeneratorfunction(observer)
        bound = list(inspect.signature(observer).parameters.values())[1 if self.around else 3 :]
        self.parameters = {p.name: p.default for p in bound}
        """What is taken from the call, with what stands for it where vLLM's method lacks it."""

    @property
    def required(self) -> list[str]:
        return [name for name, default in self.parameters.items() if default is Parameter.empty]

    def is_wanted_in(self, cls: type) -> bool:
        return not (self.instead_of and hasattr(cls, self.instead_of))

    def missing_in(self, cls: type) -> str:
        """Why this seam cannot be woven into ``cls``: an empty string if it can."""
        original = getattr(cls, self.method, None)
        if original is None:
            return f"{self.method} does not exist"
        known = inspect.signature(original).parameters
        lacking = [name for name in self.required if name not in known]
        return f"{self.method} has no parameter {', '.join(lacking)}" if lacking else ""


class SeamTable:
    """The seams of one kind of object, in the order in which they were declared."""

    def __init__(self, seams: Iterable[Seam] = ()) -> None:
        self.seams = list(seams)

    def __add__(self, other: SeamTable) -> SeamTable:
        return SeamTable([*self.seams, *other.seams])

    def seam(
        self,
        method: str,
        *,
        timed: bool = False,
        unless: Callable[[Any], bool] | None = None,
        speaks_for_caller: bool = False,
        instead_of: str = "",
    ) -> Callable[[Observer], Observer]:
        def declare(observer: Observer) -> Observer:
            seam = Seam(
                method,
                observer,
                timed=timed,
                unless=unless,
                speaks_for_caller=speaks_for_caller,
                instead_of=instead_of,
            )
            self.seams.append(seam)
            return observer

        return declare

    def fitting(self, cls: type) -> list[Seam]:
        """The seams that are woven into ``cls``."""
        return [seam for seam in self.seams if seam.is_wanted_in(cls) and not seam.missing_in(cls)]

    def missing_in(self, cls: type) -> list[str]:
        """Why seams are off for ``cls``. One that another stands in for is not."""
        stood_in_for = {seam.instead_of for seam in self.fitting(cls)}
        return [
            why
            for seam in self.seams
            if seam.is_wanted_in(cls) and seam.method not in stood_in_for and (why := seam.missing_in(cls))
        ]

    def woven(self, cls: type, probe: Probe) -> type:
        """A subclass of ``cls``, of the same name, with each seam that fits woven in for ``probe``."""
        methods = {seam.method: weave(getattr(cls, seam.method), seam, probe) for seam in self.fitting(cls)}
        return type(cls.__name__, (cls,), {**methods, "__module__": cls.__module__, "__doc__": cls.__doc__})


def weave(original: Callable[..., Any], seam: Seam, probe: Probe) -> Callable[..., Any]:
    """``original``, with the seam's observer looking on for ``probe``."""
    woven = (_around if seam.around else _after)(original, seam, probe)
    functools.update_wrapper(woven, original)
    if seam.speaks_for_caller:
        # Logging skips frames of its own file when it looks for the caller: vLLM's lines name vLLM's files.
        woven.__code__ = woven.__code__.replace(co_filename=logging.addLevelName.__code__.co_filename)
    return woven


def _after(original: Callable[..., Any], seam: Seam, probe: Probe) -> FunctionType:
    observe, name, timed, recorder = seam.observer, seam.method, seam.timed, probe.recorder
    arguments, in_order = _picker(original, seam.parameters), _takes_all(original, seam.parameters)

    def woven(self: Any, *args: Any, **kwargs: Any) -> Any:
        t = now()
        try:
            result = original(self, *args, **kwargs)
        except Exception as error:
            if timed:
                recorder.raised(error, name)
            raise
        try:
            if in_order and not kwargs:
                observe(probe, t, result, *args)
            else:
                observe(probe, t, result, *arguments(args, kwargs))
        except Exception as e:  # noqa: BLE001 - see above
            recorder.failed(e, name)
        if timed:
            recorder.took(now() - t)
        return result

    return cast(FunctionType, woven)


def _around(original: Callable[..., Any], seam: Seam, probe: Probe) -> FunctionType:
    observe = cast(Callable[..., Observation], seam.observer)
    name, timed, unless, recorder = seam.method, seam.timed, seam.unless, probe.recorder
    arguments = _picker(original, seam.parameters)

    def woven(self: Any, *args: Any, **kwargs: Any) -> Any:
        if unless is not None and unless(probe):
            return original(self, *args, **kwargs)
        started = now()
        watch: Observation | None = None
        try:
            watch = observe(probe, *arguments(args, kwargs))
            watch.send(None)
        except StopIteration:
            watch = None
        except Exception as e:  # noqa: BLE001 - see above
            recorder.failed(e, name)
            watch = None
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            if watch is not None:
                _tell(watch, name, recorder, raised=error)
            if timed and isinstance(error, Exception):
                recorder.raised(error, name)
            raise
        if watch is not None:
            _tell(watch, name, recorder, result=result)
        if timed:
            recorder.took(now() - started)
        return result

    return cast(FunctionType, woven)


def _tell(
    watch: Observation,
    name: str,
    recorder: Recorder,
    *,
    result: Any = None,
    raised: BaseException | None = None,
) -> None:
    try:
        if raised is None:
            watch.send(result)
        else:
            watch.throw(raised)
    except StopIteration:
        pass
    except BaseException as e:  # noqa: BLE001 - see above
        if e is not raised:
            recorder.failed(e, name)


def _picker(
    original: Callable[..., Any], wanted: Mapping[str, Any]
) -> Callable[[tuple[Any, ...], dict[str, Any]], Sequence[Any]]:
    """A function of (args, kwargs) of a bound call that gives the values of the named parameters."""
    known = inspect.signature(original).parameters
    names = list(known)
    places = [
        (names.index(name) - 1, name, known[name].default) if name in known else (sys.maxsize, name, default)
        for name, default in wanted.items()
    ]

    def pick(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        return [args[at] if at < len(args) else kwargs.get(name, default) for at, name, default in places]

    return pick


def _takes_all(original: Callable[..., Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the named parameters are all that the method has, in its order, and none is optional: a call
    without keywords then gives just them."""
    parameters = list(inspect.signature(original).parameters.values())[1:]
    return [p.name for p in parameters] == list(wanted) and all(p.default is p.empty for p in parameters)
