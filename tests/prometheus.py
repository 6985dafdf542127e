"""A real Prometheus with rules of ours, to ask what boards and alerts ask.

with Prometheus.scraping(folder, {"pushscope": ["127.0.0.1:9479"]}, rules) as prometheus:
    prometheus.now("up")
"""

from __future__ import annotations

import math
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import yaml

from pushscope.lab.ports import free_ports

START_S = 30.0
SCRAPE_S = 3


def installed() -> str:
    """The program. Skips the test where there is none."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (Debian: apt install prometheus)")
    return program


class Series(NamedTuple):
    """One series of an answer, and its values that are numbers, in the order of time."""

    labels: Mapping[str, str]
    values: tuple[float, ...]


class RefusedError(Exception):
    """A query that Prometheus refuses."""


class Prometheus:
    """A server with a configuration, at a free port. Skips the test where the program is not installed."""

    def __init__(self, configuration: Path, data: Path, *options: str):
        """``options``: of its command line, besides those that say where everything is."""
        self._port, self._log = free_ports(), data.with_suffix(".log")
        self._command = [
            installed(),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={data}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            *options,
        ]
        self.url = f"http://127.0.0.1:{self._port}"
        self._client = httpx.Client(base_url=f"{self.url}/api/v1", trust_env=False, timeout=20)
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def scraping(
        cls, folder: Path, targets: Mapping[str, Sequence[str]], rules: Mapping[str, str]
    ) -> Prometheus:
        """One that scrapes every three seconds and keeps exemplars. ``targets`` by job; ``rules``: files by name."""
        folder.mkdir(parents=True)
        for name, text in rules.items():
            (folder / name).write_text(text)
        configuration = {
            "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": "1s"},
            "rule_files": [str(folder / name) for name in rules],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": list(its)}]} for job, its in targets.items()
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        return cls(folder / "prometheus.yml", folder / "data", "--enable-feature=exemplar-storage")

    def __enter__(self) -> Prometheus:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        self.until(self._is_up, "Prometheus answers", START_S)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._client.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def until(self, holds: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
        """Wait until it is so."""
        end = time.monotonic() + timeout_s
        while not holds():
            assert self._process is not None
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < end, f"expected within {timeout_s:g} s: {what}"
            time.sleep(0.2)

    def now(self, query: str) -> list[Series]:
        """An instant vector: one value for each series, if that is a number."""
        found = self._get("query", query=query)
        assert found["resultType"] in ("vector", "scalar"), found
        if found["resultType"] == "scalar":
            return [Series({}, _numbers([found["result"]]))]
        return _series((each["metric"], [each["value"]]) for each in found["result"])

    def over(self, query: str, seconds: float) -> list[Series]:
        """A line for each series, over the last so many seconds."""
        end = time.time()
        found = self._get("query_range", query=query, start=end - seconds, end=end, step=SCRAPE_S)
        assert found["resultType"] == "matrix", found
        return _series((each["metric"], each["values"]) for each in found["result"])

    def labels(self, metric: str) -> set[str]:
        """The names of all labels that a metric has had; none of one that there is not."""
        found = self._get("series", **{"match[]": f'{{__name__="{metric}"}}', "start": 0})
        return {name for series in found for name in series} - {"__name__"}

    def label_values(self, selector: str, label: str) -> list[str]:
        """As Grafana fills a variable."""
        found = self._get("series", **{"match[]": selector, "start": 0})
        return sorted({series[label] for series in found if label in series})

    def exemplars(self, query: str, seconds: float) -> list[dict[str, str]]:
        """The labels of each exemplar."""
        end = time.time()
        found = self._get("query_exemplars", query=query, start=end - seconds, end=end)
        return [each["labels"] for series in found for each in series["exemplars"]]

    def rules(self) -> dict[str, dict[str, Any]]:
        """What it says of each rule, by name."""
        return {rule["name"]: rule for group in self._get("rules")["groups"] for rule in group["rules"]}

    def firing(self) -> set[str]:
        """The names of alerts that fire."""
        return {series.labels["alertname"] for series in self.now('ALERTS{alertstate="firing"}')}

    def _is_up(self) -> bool:
        try:
            return self._client.get("/status/buildinfo").status_code == 200
        except httpx.TransportError:
            return False

    def _get(self, what: str, **asked: Any) -> Any:
        answer = self._client.get(f"/{what}", params=asked)
        said = answer.json()
        if said["status"] != "success":
            raise RefusedError(f"{said['error']}: {asked}")
        assert not said.get("warnings"), said["warnings"]
        return said["data"]


def _series(found: Any) -> list[Series]:
    """Those that have a number at all."""
    every = (Series(labels, _numbers(values)) for labels, values in found)
    return [series for series in every if series.values]


def _numbers(values: Sequence[Sequence[Any]]) -> tuple[float, ...]:
    return tuple(number for _, text in values if not math.isnan(number := float(text)))
