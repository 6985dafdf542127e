"""``python -m pushscope.connector.fitness vllm|nixl``: how the installed one fits, as a line of JSON.

A program of its own, for importing vLLM takes long, and because what a library does to its process when its
environment is not as it should be is then not done to whoever asks.
"""

from __future__ import annotations

import ctypes
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import msgspec

from pushscope.connector.scheduler_seams import SCHEDULER, SchedulerProbe
from pushscope.connector.weave import SeamTable
from pushscope.connector.worker_probe import WorkerProbe
from pushscope.telemetry.events import Event, error_text
from pushscope.telemetry.fitness import NixlFitness, SeamOff, Side, VllmFitness
from pushscope.telemetry.recorder import Recorder

_NIXL = "vllm.distributed.kv_transfer.kv_connector.v1.nixl"


# -- vLLM ---------------------------------------------------------------------------------------------


def vllm_fitness() -> VllmFitness:
    """Every seam, as the facade would weave it, against the installed vLLM's classes."""
    try:
        from pushscope.connector import facade  # noqa: PLC0415 - imports vLLM

        envs = importlib.import_module("vllm.envs")
    except Exception as e:  # noqa: BLE001 - it is what is being examined
        return VllmFitness(error=error_text(e))

    def scheduler(cls: type) -> Side:
        off = list(seams_off(SCHEDULER, cls))
        num_seams = len(SCHEDULER.fitting(cls)) + len(off) + 1
        if not facade.listener_fits(cls):
            why = f"{facade.LISTENER} is not as expected"
            off.append(SeamOff(facade.LISTENER, why, ("side channel served", "listener dead")))
        return Side(num_seams=num_seams, off=tuple(off))

    def worker(cls: type, mode: str) -> Side:
        table = facade.worker_seams(mode)
        off = tuple(seams_off(table, cls))
        return Side(num_seams=len(table.fitting(cls)) + len(off), off=off)

    return VllmFitness(
        facade.CONNECTOR_VERSION,
        tuple(name for name in envs.environment_variables if name.startswith("VLLM_NIXL_")),
        tuple(
            _side(mode, part, examine)
            for mode in ("push", "pull")
            for part, examine in (("scheduler", scheduler), ("worker", partial(worker, mode=mode)))
        ),
    )


def _side(mode: str, part: str, examine: Callable[[type], Side]) -> Side:
    name = f"{mode} {part}"
    try:
        module = importlib.import_module(f"{_NIXL}.{mode}_{part}")
        side = examine(getattr(module, f"Nixl{mode.title()}Connector{part.title()}"))
    except Exception as e:  # noqa: BLE001 - as above
        side = Side(error=error_text(e))
    return msgspec.structs.replace(side, name=name)


def seams_off(table: SeamTable, cls: type) -> Iterator[SeamOff]:
    """The seams of ``table`` that do not fit ``cls``, each with what is lost by it."""
    observers = {seam.method: seam.observer for seam in table.seams}
    for why in table.missing_in(cls):
        method = why.split(" ", 1)[0]
        yield SeamOff(method, why, tuple(recorded_by(observers[method])) if method in observers else ())


def recorded_by(observer: Callable[..., Any]) -> list[str]:
    """The kinds of events that an observer, or what it calls of pushscope, names in its code, in words."""
    found: dict[str, None] = {}
    seen: set[CodeType] = set()

    def look(function: Any) -> None:
        function = inspect.unwrap(function)
        if not inspect.isfunction(function) or function.__code__ in seen:
            return
        seen.add(function.__code__)
        for name in _names(function.__code__):
            named = function.__globals__.get(name)
            if isinstance(named, type) and issubclass(named, Event):
                found[_in_words(named.__name__)] = None
            elif str(getattr(named, "__module__", "")).startswith("pushscope.connector."):
                look(named)
            for owner in (WorkerProbe, SchedulerProbe, Recorder):
                look(vars(owner).get(name))

    look(observer)
    return list(found)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _in_words(kind: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind).lower()


# -- NIXL ---------------------------------------------------------------------------------------------


def nixl_fitness() -> NixlFitness:
    """What NIXL has, and whether an agent like vLLM's comes to life in this environment."""
    try:
        api = importlib.import_module("nixl._api")
        agent = api.nixl_agent("pushscope-doctor", api.nixl_agent_config(backends=[]))
        plugins = tuple(agent.get_plugin_list())
    except Exception as e:  # noqa: BLE001 - it is what is being examined
        return NixlFitness(error=error_text(e))
    backend_error = ""
    try:
        agent.create_backend("UCX")
    except Exception as e:  # noqa: BLE001 - as above
        backend_error = error_text(e)
    return NixlFitness(plugins, backend_error, *_ucx())


def _ucx() -> tuple[str, tuple[str, ...]]:
    """Version and ``transport/device`` of the UCX that NIXL has loaded, by UCX's own public functions.

    Not by ``ucx_info``: that may be another UCX, and a wheel brings none.
    """
    mapped = (line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines())
    library = next((path for path in mapped if "/libucp" in path), None)
    if library is None:
        return "", ()
    ucp, libc = ctypes.CDLL(library), ctypes.CDLL(None)
    version = [ctypes.c_uint() for _ in range(3)]
    ucp.ucp_get_version(*map(ctypes.byref, version))
    found = ".".join(str(part.value) for part in version)
    config, context = ctypes.c_void_p(), ctypes.c_void_p()
    # ucp_params_t: which fields are set (1: features), then the features (2: RMA). The rest is not looked at.
    parameters = (ctypes.c_uint64 * 64)(1, 2)
    if ucp.ucp_config_read(None, None, ctypes.byref(config)) != 0 or ucp.ucp_init_version(
        version[0], version[1], parameters, config, ctypes.byref(context)
    ):
        return found, ()
    text, length = ctypes.c_char_p(), ctypes.c_size_t()
    libc.open_memstream.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(libc.open_memstream(ctypes.byref(text), ctypes.byref(length)))
    ucp.ucp_context_print_info(context, stream)
    libc.fclose(stream)
    return found, tuple(re.findall(r"resource \d+ .* -- (\S+)", (text.value or b"").decode()))


def main(what: str) -> None:
    """Print the fitness of ``vllm`` or ``nixl``. What libraries print goes to stderr."""
    answer = os.dup(1)
    os.dup2(2, 1)
    examine: dict[str, Callable[[], msgspec.Struct]] = {"vllm": vllm_fitness, "nixl": nixl_fitness}
    fitness = examine[what]()
    os.write(answer, msgspec.json.encode(fitness) + b"\n")
    os._exit(0)  # libraries that were made for serving are in no hurry to end


if __name__ == "__main__":
    main(sys.argv[1])
