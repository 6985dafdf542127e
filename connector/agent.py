"""``"agent": "auto"``: the agent that reads these rings, started beside the engine.

It gets a process of its own that nobody who ends the engine takes for the engine's: no child of it, a session of its
own, every CPU, lower priority, and of the environment only what it needs. Whatever goes wrong costs one line in the
log.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pushscope.telemetry.presence import present_agent

logger = logging.getLogger("vllm.pushscope")

LOG_NAME: Final = "agent.log"
START_S: Final = 5.0
"""The starter takes some 20 ms; one that takes this long is left to itself."""
_NAMES: Final = frozenset(
    {
        "PATH",
        "HOME",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "USER",
        "LOGNAME",
        "HOSTNAME",
        "VIRTUAL_ENV",
        "PYTHONPATH",
        "PYTHONHOME",
        "LD_LIBRARY_PATH",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
    }
)
_PREFIXES: Final = ("LC_", "OTEL_", "PUSHSCOPE_", "XDG_", "GRPC_")

# Runs with nothing imported but what Python has built in, forks, and lets its child become the agent: that one has no
# parent then that could end it (vLLM kills the children of its processes) or wait for it. Where Linux groups processes
# by session (sched(7), autogroup), a process' own priority counts in its session only: the group's is lowered too.
_STARTER: Final = """\
import os, sys
log, *command = sys.argv[1:]
os.setsid()
if os.fork():
    os._exit(0)
out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
if os.fstat(out).st_size > 1 << 20:
    os.ftruncate(out, 0)
os.dup2(out, 1)
os.dup2(out, 2)
try:
    os.sched_setaffinity(0, range(os.sysconf("SC_NPROCESSORS_CONF")))
except OSError as e:
    print("pushscope agent: keeps the CPUs of the engine:", e, file=sys.stderr)
os.nice(10)
try:
    with open("/proc/sys/kernel/sched_autogroup_enabled") as enabled, open("/proc/self/autogroup", "w") as group:
        if enabled.read().strip() == "1":  # else it is still in the engine's
            group.write("10")
except OSError:
    pass
os.execv(command[0], command)
"""


def start_agent(folder: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Start the agent of a ring folder, unless one runs. Never raises, and waits for nothing but the starter."""
    try:
        note = present_agent(folder)
        if note is not None:
            logger.info("pushscope: the rings are read by %s", note.who)
            return
        _start(folder, environ)
    except Exception as e:  # noqa: BLE001 - an engine serves without an agent
        logger.warning("pushscope could not start its agent: %s; the engine serves and records as ever", e)
        return
    logger.info("pushscope started an agent; it logs to %s", folder / LOG_NAME)


def _start(folder: Path, environ: Mapping[str, str]) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _STARTER, str(folder / LOG_NAME), *agent_command(folder)],
        env=agent_environment(environ),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    _, said = starter.communicate(timeout=START_S)  # to its end, and until the agent writes into its log
    if starter.returncode or said:
        raise OSError(said.decode("utf-8", "replace").strip().rpartition("\n")[2] or "its starter failed")


def agent_command(folder: Path) -> list[str]:
    """What runs as the agent: it ends by itself when no engine records any more."""
    return [
        sys.executable,
        "-m",
        "pushscope.telemetry.agent",
        "--rings",
        str(folder),
        "--exit-with-engines",
        "--any-port",
    ]


def agent_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Of an engine's environment what its agent needs: nothing of CUDA, vLLM, NIXL or UCX."""
    needed = {name: value for name, value in environ.items() if name in _NAMES or name.startswith(_PREFIXES)}
    if path := needed.get("PYTHONPATH"):  # the agent runs in another folder
        needed["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, path.split(os.pathsep))))
    return needed
