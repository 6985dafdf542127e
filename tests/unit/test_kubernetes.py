"""The Kubernetes manifests: they load, fit together, and say what the code says."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from pushscope.connector.options import read_options
from pushscope.telemetry.agent.access import HEALTH_PATH, METRICS_PATH, is_loopback
from pushscope.telemetry.agent.command import agent
from pushscope.telemetry.agent.journal import Journal
from pushscope.telemetry.agent.server import PORT, parse_address
from pushscope.telemetry.presence import Note, Presence, present_agent
from pushscope.telemetry.ring import DEFAULT_BYTES, RingReader, RingWriter, room_for_others

from .scenario import P_SCHEDULER

FOLDER = Path(__file__).parents[2] / "dashboards" / "kubernetes"
KUBERNETES = {
    path.name: [each for each in yaml.safe_load_all(path.read_text()) if each]
    for path in FOLDER.glob("*.yaml")
}
DEPLOYMENTS = {name: KUBERNETES[f"{name}.yaml"][0] for name in ("prefill", "decode")}
SUFFIXES = {"Mi": 1 << 20, "Gi": 1 << 30}


def pod(name: str) -> dict:
    return DEPLOYMENTS[name]["spec"]["template"]


def containers(name: str) -> tuple[dict, dict]:
    engine, agent_container = pod(name)["spec"]["containers"]
    return engine, agent_container


def environment(container: dict) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container["env"]}


def test_every_file_is_looked_at():
    assert sorted(KUBERNETES) == ["agents.yaml", "decode.yaml", "prefill.yaml"]


@pytest.mark.parametrize("name", ["prefill", "decode"])
class TestPod:
    def test_selector_and_labels_agree(self, name):
        spec = DEPLOYMENTS[name]["spec"]
        assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()

    def test_the_connector_takes_its_options(self, name):
        engine, _ = containers(name)
        config = json.loads(engine["args"][1].partition("=")[2])
        assert config["kv_connector_module_path"] == "pushscope.connector"
        assert config["kv_role"] == {"prefill": "kv_producer", "decode": "kv_consumer"}[name]
        options = read_options(config.get("kv_connector_extra_config"), environment(engine))
        assert str(options.folder) == environment(engine)["PUSHSCOPE_DIR"]
        assert options.group == str(pod(name)["spec"]["securityContext"]["fsGroup"])

    def test_engine_and_agent_share_the_rings_and_nothing_else(self, name):
        engine, sidecar = containers(name)
        assert environment(engine)["PUSHSCOPE_DIR"] == environment(sidecar)["PUSHSCOPE_DIR"]
        (mount,) = sidecar["volumeMounts"]
        assert mount in engine["volumeMounts"]
        # An emptyDir itself may be written by everybody in the group: rings lie in a folder of the engine's own.
        rings, state = (
            Path(environment(sidecar)["PUSHSCOPE_DIR"]),
            Path(environment(sidecar)["PUSHSCOPE_STATE"]),
        )
        assert rings.parent == state.parent == Path(mount["mountPath"])
        assert rings != state
        (volume,) = pod(name)["spec"]["volumes"]
        assert volume["name"] == mount["name"]
        assert volume["emptyDir"]["medium"] == "Memory"
        assert "shareProcessNamespace" not in pod(name)["spec"]

    def test_the_volume_holds_the_rings_of_eight_ranks(self, name):
        limit = pod(name)["spec"]["volumes"][0]["emptyDir"]["sizeLimit"]
        size = int(limit[:-2]) * SUFFIXES[limit[-2:]]
        assert size - 9 * DEFAULT_BYTES >= room_for_others(size)

    def test_the_agent_is_told_what_it_understands(self, name):
        _, sidecar = containers(name)
        assert sidecar["command"] == ["pushscope", "agent"]
        asked = {variable for variable in environment(sidecar) if variable.startswith("PUSHSCOPE_")}
        app = typer.Typer()
        app.command()(agent)
        told = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
        for variable in asked - {"PUSHSCOPE_DIR"}:
            assert variable in told
        assert parse_address(environment(sidecar)["PUSHSCOPE_BIND"]).port == PORT
        assert not is_loopback(parse_address(environment(sidecar)["PUSHSCOPE_BIND"]).host)
        assert "PUSHSCOPE_TOKEN" in asked

    def test_ports_and_probe(self, name):
        _, sidecar = containers(name)
        assert sidecar["ports"] == [{"name": "pushscope", "containerPort": PORT}]
        assert sidecar["livenessProbe"]["httpGet"] == {"path": HEALTH_PATH, "port": "pushscope"}

    def test_the_agent_has_no_rights_but_to_read(self, name):
        security = containers(name)[1]["securityContext"]
        assert security["runAsNonRoot"]
        assert security["runAsUser"] != 0
        assert security["runAsGroup"] == pod(name)["spec"]["securityContext"]["fsGroup"]
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}


class TestAgents:
    def services(self) -> dict[str, dict]:
        return {
            each["metadata"]["name"]: each for each in KUBERNETES["agents.yaml"] if each["kind"] == "Service"
        }

    def test_services_lead_to_the_agents(self):
        for name, deployment in DEPLOYMENTS.items():
            service = self.services()[f"pushscope-{name}"]
            labels = deployment["spec"]["template"]["metadata"]["labels"]
            assert service["spec"]["selector"].items() <= labels.items()
            assert service["spec"]["ports"] == [
                {"name": "pushscope", "port": PORT, "targetPort": "pushscope"}
            ]

    def test_ds_agent_finds_ps_by_its_service(self):
        peer = environment(containers("decode")[1])["PUSHSCOPE_PEERS"]
        assert peer == f"http://pushscope-prefill:{PORT}"
        assert "PUSHSCOPE_PEERS" not in environment(containers("prefill")[1])

    def test_prometheus_finds_them_with_their_token(self):
        (monitor,) = [each for each in KUBERNETES["agents.yaml"] if each["kind"] == "PodMonitor"]
        for name in DEPLOYMENTS:
            labels = pod(name)["metadata"]["labels"]
            assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
            token = next(e for e in containers(name)[1]["env"] if e["name"] == "PUSHSCOPE_TOKEN")
            (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
            assert endpoint["authorization"]["credentials"] == token["valueFrom"]["secretKeyRef"]
            assert endpoint["port"] == containers(name)[1]["ports"][0]["name"]
            assert endpoint["path"] == METRICS_PATH


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be two users")
def test_an_agent_of_the_group_can_do_its_work_on_what_an_engine_writes():
    """As in the pod: the engine is root, the volume is everybody's in the group, the agent only of the group."""
    volume = Path(tempfile.mkdtemp(dir="/dev/shm"))
    os.chown(volume, 0, 2000)
    volume.chmod(0o2777)
    writer = RingWriter(volume / "rings", P_SCHEDULER, num_bytes=1 << 20, group="2000")
    try:
        assert stat.S_IMODE((volume / "rings").stat().st_mode) & 0o777 == 0o750
        child = os.fork()
        if child == 0:
            status = 99
            try:
                os.setgroups([2000])
                os.setgid(2000)
                os.setuid(10001)
                status = work_as_an_agent(volume / "rings", volume / "agent")
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        writer.close()
        shutil.rmtree(volume)


def work_as_an_agent(rings: Path, state: Path) -> int:
    """What an agent needs; 0 if it can do all of it."""
    (ring,) = rings.glob("*.ring")
    presence = Presence(rings)
    journal = Journal().open(state)
    journal.exported([1], {})
    may = [RingReader(ring).alive(), present_agent(rings) is not None, journal.trouble == ""]
    may.append(not presence.tell(Note()))  # it can't write there
    presence.close()
    return 0 if all(may) else 1
