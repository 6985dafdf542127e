"""Rotel, an OTLP collector of another maker, which passes on what it is sent.

with OtlpSink() as sink, Rotel(sink.grpc_endpoint) as rotel:
    environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = rotel.grpc_endpoint  # or rotel.http_endpoint
"""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from pushscope.lab.ports import free_ports

START_S = 20.0


class Rotel:
    """Takes OTLP over gRPC and HTTP at free ports of 127.0.0.1, and sends it on, by gRPC and gzipped."""

    def __init__(self, onwards: str):
        """``onwards``: the endpoint that gets everything."""
        self._onwards = onwards
        self._grpc_port, self._http_port = free_ports(), free_ports()
        self._folder = tempfile.TemporaryDirectory()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def grpc_endpoint(self) -> str:
        return f"http://127.0.0.1:{self._grpc_port}"

    @property
    def http_endpoint(self) -> str:
        """The base: exporters add ``/v1/traces`` to it."""
        return f"http://127.0.0.1:{self._http_port}"

    def __enter__(self) -> Rotel:
        folder = Path(self._folder.name)
        options = {
            "otlp-grpc-endpoint": f"127.0.0.1:{self._grpc_port}",
            "otlp-http-endpoint": f"127.0.0.1:{self._http_port}",
            "exporter": "otlp",
            "otlp-exporter-protocol": "grpc",
            "otlp-exporter-endpoint": self._onwards,
            "pid-file": str(folder / "pid"),
            "log-file": str(folder / "log"),
        }
        arguments = [text for name, value in options.items() for text in (f"--{name}", value)]
        with (folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [str(_program()), "start", *arguments], stdout=output, stderr=subprocess.STDOUT
            )
        try:
            for port in (self._grpc_port, self._http_port):
                self._wait_for(port, folder / "output")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def _wait_for(self, port: int, output: Path) -> None:
        assert self._process is not None
        end = time.monotonic() + START_S
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"rotel does not listen at port {port}: {output.read_text()}")
            time.sleep(0.05)


def _program() -> Path:
    """The program inside the package, which is not imported."""
    spec = importlib.util.find_spec("rotel")
    assert spec is not None, "the package rotel, of requirements/dev.lock, is not installed"
    assert spec.origin is not None
    return Path(spec.origin).with_name("rotel-agent")
