"""The router in front of the lab's engines: PyPI's ``vllm-router``.

It sends both legs of a request at once, with one ``X-Request-Id`` that it makes itself. The first request to
a P engine goes to P before D, which is how it learns that engine's id; after a restart of P the id it knows
is stale, and requests hang until their time-out.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pushscope.lab.ports import free_ports
from pushscope.lab.spec import HOST


@dataclass(frozen=True, slots=True)
class RouterSpec:
    """How the router is run. A port of 0 is chosen by the deployment."""

    port: int = 0
    metrics_port: int = 0
    request_timeout_s: int = 120
    """The router's own default of 1800 s would hide a stuck transfer for half an hour."""
    policy: str = "round_robin"
    """Round robin uses every pair of engines, also for few requests."""
    args: Sequence[str] = ()
    """More arguments for ``vllm-router``; a repeated one overrules ours."""

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def with_ports(self) -> RouterSpec:
        """The same router with free ports where none were given."""
        return replace(self, port=self.port or free_ports(), metrics_port=self.metrics_port or free_ports())

    def command(self, prefill_urls: Sequence[str], decode_urls: Sequence[str]) -> list[str]:
        """The command line that starts the router.

        Retries and circuit breakers are off: in the lab a failed leg has to show as a failed leg.
        """
        command = [router_program(), "--host", HOST, "--port", str(self.port)]
        command += ["--prometheus-host", HOST, "--prometheus-port", str(self.metrics_port)]
        command += ["--vllm-pd-disaggregation", "--kv-connector", "nixl", "--policy", self.policy]
        for url in prefill_urls:
            command += ["--prefill", url]
        for url in decode_urls:
            command += ["--decode", url]
        command += ["--request-timeout-secs", str(self.request_timeout_s)]
        command += ["--worker-startup-check-interval", "1", "--health-check-interval-secs", "5"]
        return [*command, "--disable-retries", "--disable-circuit-breaker", *self.args]


def router_program() -> str:
    """The ``vllm-router`` beside this Python, else on PATH.

    Raises FileNotFoundError if there is none.
    """
    beside = Path(sys.executable).with_name("vllm-router")
    found = str(beside) if beside.exists() else shutil.which("vllm-router")
    if found is None:
        raise FileNotFoundError(
            f"Expected the program vllm-router beside {sys.executable} or on PATH, found none: "
            "install the package vllm-router."
        )
    return found
