"""A real agent to measure, and an OTLP receiver that takes everything and keeps nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
import msgspec

from bench.figure import BenchError
from pushscope.telemetry.agent.health import Health
from pushscope.telemetry.presence import present_agent

READY_S = 180.0
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
_EXPORT = "opentelemetry.proto.collector.trace.v1.TraceService"


class Receiver:
    """OTLP over gRPC at a free port of 127.0.0.1, or at ``port``; answers without looking."""

    def __init__(self, port: int = 0):
        self.num_bytes = 0
        self._server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
        take = grpc.unary_unary_rpc_method_handler(self._take)  # no serializers: bytes in, bytes out
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_EXPORT, {"Export": take}),)
        )
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()

    def _take(self, request: bytes, _: Any) -> bytes:
        self.num_bytes += len(request)
        return b""

    def close(self) -> None:
        self._server.stop(0).wait()


class AgentProcess:
    """``pushscope agent`` on a folder of rings, in a process of its own."""

    def __init__(self, folder: Path, endpoint: str, **environ: str):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        if endpoint:
            environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
        self._folder = folder
        self._log = tempfile.NamedTemporaryFile("w+b", prefix="bench-agent-", suffix=".log")  # noqa: SIM115
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "pushscope.telemetry.agent",
                "--rings",
                str(folder),
                "--bind",
                "127.0.0.1:0",
            ],
            env=clean | environ,
            stderr=self._log,
        )

    def __enter__(self) -> AgentProcess:
        self.wait_until(lambda: present_agent(self._folder) is not None and bool(self.url), "starting")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()

    @property
    def url(self) -> str:
        """Where it answers; empty before it does."""
        note = present_agent(self._folder)
        return note.url if note else ""

    def health(self) -> Health:
        """What it says of itself."""
        with urllib.request.urlopen(f"{self.url}/healthz", timeout=30) as answer:
            return msgspec.convert(json.load(answer), Health)

    def scrape(self) -> bytes:
        """The page of metrics, as Prometheus asks for it."""
        request = urllib.request.Request(f"{self.url}/metrics", headers={"Accept": OPEN_METRICS})
        with urllib.request.urlopen(request, timeout=60) as answer:
            page: bytes = answer.read()
        return page

    def wait_until(self, holds: Callable[[], bool], what: str, timeout_s: float = READY_S) -> None:
        """Raises BenchError with the end of its log if it ends before, or if that takes too long."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"the agent did not come to {what}: {self._said()}")
            time.sleep(0.05)

    def cpu_s(self) -> float:
        """CPU seconds that it has used."""
        user, system = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> float:
        """Its resident memory, without the rings: those are the engines'."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        kib = {
            line.split(":")[0]: int(line.split()[1]) for line in status.splitlines() if line.startswith("Rss")
        }
        return (kib["RssAnon"] + kib["RssFile"]) / 1024

    def _said(self) -> str:
        return Path(self._log.name).read_text()[-500:]
