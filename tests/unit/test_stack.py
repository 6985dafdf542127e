"""The stack to start with: every file is there and read, ports fit, and no link from exemplar to trace is missing.

What collector, Tempo and Grafana make of it is not shown here; Prometheus runs with its part.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench.writer import SimulatedPair

from pushscope.dashboards import files
from pushscope.dashboards.alerts import ALERTS
from pushscope.lab.ports import free_ports
from pushscope.telemetry.agent.server import DEFAULT_ADDRESS
from pushscope.telemetry.metrics import catalogue as m
from pushscope.telemetry.metrics.page import rendered

from ..otlp_sink import OtlpSink
from ..prometheus import Prometheus
from .agent_process import AgentProcess
from .metered import OPEN_METRICS
from .promtool import promtool
from .test_metrics_page import whole

FOLDER = files.FOLDER.resolve() / "stack"
BOARDS = FOLDER.parent / "grafana"


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / name).read_text())


COMPOSE = read("compose.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PROMETHEUS = read("prometheus.yml")
COLLECTOR, TEMPO = read("collector.yaml"), read("tempo.yaml")
SOURCES = {source["type"]: source for source in read("grafana/datasources.yaml")["datasources"]}
MOUNTS = [(service, *volume.split(":")) for service, its in SERVICES.items() for volume in its["volumes"]]
"""Service, what is mounted, where, and perhaps how."""


class TestCompose:
    def test_has_all_four(self):
        assert {its["image"].partition(":")[0] for its in SERVICES.values()} == {
            "otel/opentelemetry-collector",
            "grafana/tempo",
            "prom/prometheus",
            "grafana/grafana",
        }

    @pytest.mark.parametrize("service", SERVICES)
    def test_images_have_a_name_and_a_whole_version(self, service: str):
        name, _, tag = SERVICES[service]["image"].partition(":")
        assert re.fullmatch(r"[a-z]+/[a-z-]+", name)
        assert re.fullmatch(r"v?\d+\.\d+\.\d+", tag)

    def test_every_file_that_is_mounted_is_there_and_every_volume_known(self):
        for service, what, *_ in MOUNTS:
            if what.startswith("."):
                assert (FOLDER / what).exists(), (service, what)
            else:
                assert what in COMPOSE["volumes"], (service, what)
        assert {what for _, what, *_ in MOUNTS if not what.startswith(".")} == set(COMPOSE["volumes"])

    def test_files_are_mounted_to_be_read_and_every_file_is(self):
        mounted = [(FOLDER / what).resolve() for _, what, *_ in MOUNTS if what.startswith(".")]
        assert all(how == ["ro"] for _, what, _, *how in MOUNTS if what.startswith("."))
        for file in FOLDER.rglob("*"):
            if file.is_file() and file.name not in ("compose.yaml", "README.md"):
                assert any(file.is_relative_to(path) for path in mounted), file

    def test_the_boards_are_where_grafana_is_told_to_look(self):
        (where,) = [where for _, what, where, *_ in MOUNTS if (FOLDER / what).resolve() == BOARDS]
        (provider,) = read("grafana/dashboards.yaml")["providers"]
        assert provider["options"]["path"] == where
        boards = [json.loads(path.read_text()) for path in BOARDS.rglob("*.json")]
        assert len({board["uid"] for board in boards}) == len(boards) == 4, "it looks into folders too"
        home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
        assert home.parent == Path(where)
        assert (BOARDS / home.name).exists()

    def test_each_program_is_told_where_its_file_is(self):
        at = {Path(what).name: where for _, what, where, *_ in MOUNTS}
        for service, option, name in (
            ("collector", "--config", "collector.yaml"),
            ("tempo", "-config.file", "tempo.yaml"),
            ("prometheus", "--config.file", "prometheus.yml"),
        ):
            assert f"{option}={at[name]}" in SERVICES[service]["command"]
        assert str(Path(at["datasources.yaml"]).parent).endswith("/provisioning/datasources")
        assert str(Path(at["dashboards.yaml"]).parent).endswith("/provisioning/dashboards")

    def test_nobody_else_can_reach_it(self):
        """In the host's network whatever listens elsewhere than on loopback is open to all."""
        assert {its["network_mode"] for its in SERVICES.values()} == {"host"}
        text = "".join(path.read_text() for path in FOLDER.rglob("*") if path.suffix in (".yaml", ".yml"))
        assert "0.0.0.0" not in text
        listening = [*endpoints(), f"{TEMPO['server']['http_listen_address']}:3200"]
        listening += [option(SERVICES["prometheus"], "--web.listen-address")]
        listening += [f"{SERVICES['grafana']['environment']['GF_SERVER_HTTP_ADDR']}:3000"]
        listening += [f"{TEMPO['server']['grpc_listen_address']}:{TEMPO['server']['grpc_listen_port']}"]
        assert all(address.startswith("127.0.0.1:") for address in listening)
        assert len(set(listening)) == len(listening) == 7, "each a port of its own"


def endpoints() -> list[str]:
    """Where collector and Tempo take spans."""
    protocols = [COLLECTOR["receivers"]["otlp"]["protocols"]]
    protocols.append(TEMPO["distributor"]["receivers"]["otlp"]["protocols"])
    return [its["endpoint"] for each in protocols for its in each.values()]


def option(service: dict[str, Any], name: str) -> str:
    (value,) = [each.partition("=")[2] for each in service["command"] if each.startswith(f"{name}=")]
    return value


class TestPrometheus:
    @pytest.fixture
    def laid_out(self, tmp_path: Path) -> Path:
        """Its files as they lie in the container."""
        root = Path(option(SERVICES["prometheus"], "--config.file")).parent
        for service, what, where, *_ in MOUNTS:
            if service == "prometheus" and what.startswith("."):
                to = tmp_path / Path(where).relative_to(root)
                to.parent.mkdir(parents=True, exist_ok=True)
                to.symlink_to((FOLDER / what).resolve())
        return tmp_path / "prometheus.yml"

    def test_promtool_takes_the_configuration_and_finds_its_files(self, laid_out: Path):
        done = promtool("check", "config", laid_out)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("SUCCESS") == 4, done.stdout
        assert f"{len(ALERTS)} rules found" in done.stdout

    def test_promtool_misses_a_file_that_is_not_there(self, laid_out: Path):
        """The check above does look."""
        (laid_out.parent / "rules" / "alerts.yml").unlink()
        (laid_out.parent / "rules" / "alerts.yml").write_text("groups: [{name: a, rules: [{alert: b}]}]")
        assert promtool("check", "config", laid_out).returncode == 1

    def test_a_real_one_keeps_the_exemplars_of_a_real_agent(self, laid_out: Path, tmp_path: Path):
        """With its own configuration and options, but for the agent's port and patience."""
        rings, port = tmp_path / "rings", free_ports()
        rings.mkdir(mode=0o700)
        text = laid_out.read_text().replace("15s", "1s")
        laid_out.unlink()
        laid_out.write_text(text)
        targets = laid_out.parent / "targets"
        targets.unlink()
        targets.mkdir()
        (targets / "agents.yml").write_text(f'- targets: ["127.0.0.1:{port}"]')
        keeps = [each for each in SERVICES["prometheus"]["command"] if each.startswith("--enable-feature")]
        with (
            OtlpSink() as sink,
            SimulatedPair(rings, 20),
            Prometheus(laid_out, tmp_path / "data", *keeps) as prometheus,
        ):
            agent = AgentProcess(
                rings, tmp_path / "log", endpoint=sink.grpc_endpoint, PUSHSCOPE_BIND=f"127.0.0.1:{port}"
            )
            try:
                query = f"{m.EXPOSED_SECONDS.name}_bucket"
                prometheus.until(lambda: prometheus.exemplars(query, 60), "exemplars")
                found = {labels["trace_id"] for labels in prometheus.exemplars(query, 60)}
                prometheus.until(lambda: found <= {span.trace_id for span in sink.spans}, "their traces")
                assert set(prometheus.rules()) >= {alert.name for alert in ALERTS}
            finally:
                agent.end()

    def test_scrapes_an_agent_where_it_is_by_default_and_vllm(self):
        jobs = {job["job_name"]: job["file_sd_configs"][0]["files"] for job in PROMETHEUS["scrape_configs"]}
        assert set(jobs) == {"pushscope", "vllm"}
        targets = {job: read(file)[0]["targets"] for job, (file,) in jobs.items()}
        assert targets["pushscope"] == [str(DEFAULT_ADDRESS)]
        assert all(re.fullmatch(r"127\.0\.0\.1:\d+", target) for target in targets["vllm"])


class TestFromExemplarToTrace:
    """Each link is missed in silence."""

    def test_the_page_has_exemplars_with_a_trace_id(self):
        page = whole().page(OPEN_METRICS)
        (destination,) = SOURCES["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
        assert re.search(rf' # {{[^}}]*{destination["name"]}="[0-9a-f]{{32}}"', page)

    def test_only_openmetrics_has_them_and_prometheus_asks_for_it(self):
        """It does by default: nothing here says otherwise."""
        assert b" # {" not in rendered(whole_metrics(), "text/plain")[0]
        for job in (PROMETHEUS["global"], *PROMETHEUS["scrape_configs"]):
            assert "scrape_protocols" not in job

    def test_prometheus_keeps_them(self):
        assert option(SERVICES["prometheus"], "--enable-feature") == "exemplar-storage"
        assert PROMETHEUS["storage"]["exemplars"]["max_exemplars"] > 0

    def test_grafana_asks_this_prometheus_and_leads_to_this_tempo(self):
        prometheus, tempo = SOURCES["prometheus"], SOURCES["tempo"]
        assert prometheus["url"] == f"http://{option(SERVICES['prometheus'], '--web.listen-address')}"
        assert prometheus["jsonData"]["exemplarTraceIdDestinations"] == [
            {"name": "trace_id", "datasourceUid": tempo["uid"]}
        ]
        server = TEMPO["server"]
        assert tempo["url"] == f"http://{server['http_listen_address']}:{server['http_listen_port']}"

    def test_names_are_given_once_in_the_file(self):
        """A second jsonData would silently replace the first."""
        text = (FOLDER / "grafana" / "datasources.yaml").read_text()
        assert text.count("jsonData:") == 1

    def test_spans_come_to_tempo(self):
        (exporter,) = COLLECTOR["exporters"].values()
        assert (
            exporter["endpoint"] == TEMPO["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
        )
        assert exporter["tls"] == {"insecure": True}
        pipeline = COLLECTOR["service"]["pipelines"]["traces"]
        for kind in ("receivers", "processors", "exporters"):
            assert pipeline[kind] == list(COLLECTOR[kind]), "what is configured is used, in that order"

    def test_engines_and_agents_find_the_collector_at_the_standard_ports(self):
        ports = {name: its["endpoint"] for name, its in COLLECTOR["receivers"]["otlp"]["protocols"].items()}
        assert ports == {"grpc": "127.0.0.1:4317", "http": "127.0.0.1:4318"}

    def test_boards_ask_for_exemplars(self):
        asked = [path.name for path in BOARDS.glob("*.json") if '"exemplar": true' in path.read_text()]
        assert asked
        assert m.EXPOSED_SECONDS.exemplars
        assert m.STAGE_SECONDS.exemplars


def whole_metrics() -> Any:
    from pushscope.telemetry.metrics.page import gathered

    metered = whole()
    return gathered(metered.watcher, metered.meter)
