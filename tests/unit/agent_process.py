"""A real ``pushscope agent`` to test with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.samples import Sample

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


class AgentProcess:
    """A real ``pushscope agent``, and what it says."""

    def __init__(self, folder: Path, log: Path, *arguments: str, endpoint: str = "", **environ: str):
        self.folder, self.log = folder, log
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "PUSHSCOPE_"))
        }
        if endpoint:
            environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pushscope.telemetry.agent", "--rings", str(folder), *arguments],
                env=clean | {"PUSHSCOPE_BIND": "127.0.0.1:0", "OTEL_BSP_SCHEDULE_DELAY": "100"} | environ,
                stderr=out,
                stdout=out,
            )

    @property
    def said(self) -> str:
        return self.log.read_text()

    def wait_until(self, holds: Callable[[], object], timeout_s: float = 30.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)

    def ready(self) -> AgentProcess:
        self.wait_until(lambda: self.note().get("pid") == self.process.pid)
        return self

    def note(self) -> dict:
        """What it left in the folder; nothing yet, perhaps."""
        note = self.folder / "agent.json"
        return json.loads(note.read_text()) if note.exists() else {}

    def health(self) -> dict:
        with urllib.request.urlopen(self.note()["url"] + "/healthz", timeout=5) as answer:
            return json.load(answer)

    def get(self, path: str, **headers: str) -> tuple[int, str, str]:
        """Status, content type and text of what it answers."""
        request = urllib.request.Request(self.note()["url"] + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.headers["Content-Type"], e.read().decode()

    def page(self, accept: str = OPEN_METRICS) -> str:
        """What a scraper is shown."""
        status, _, text = self.get("/metrics", Accept=accept)
        assert status == 200, text
        return text

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(20)


def samples(page: str) -> list[Sample]:
    """Of an OpenMetrics page."""
    return [s for family in openmetrics.text_string_to_metric_families(page) for s in family.samples]


def total(page: str, name: str, **labels: str) -> float:
    """The sum of the series of that name with these labels."""
    return sum(s.value for s in samples(page) if s.name == name and labels.items() <= s.labels.items())
