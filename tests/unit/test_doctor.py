"""What doctor says of given facts, and how the command says it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import grpc
import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from pushscope.connector.fitness import recorded_by, seams_off
from pushscope.connector.worker_seams import WORKER
from pushscope.lab.main import app
from pushscope.telemetry.agent.health import Health
from pushscope.telemetry.clock import this_host
from pushscope.telemetry.doctor import child
from pushscope.telemetry.doctor.agent_facts import agent_of, endpoints_of
from pushscope.telemetry.doctor.check import Check, Group, Level, worst
from pushscope.telemetry.doctor.checks import checks_of
from pushscope.telemetry.doctor.facts import (
    Agent,
    Endpoint,
    Engine,
    Facts,
    Installed,
    Peer,
    Place,
    RingFolder,
)
from pushscope.telemetry.doctor.gather import place_of
from pushscope.telemetry.doctor.traps import environment_traps, fixed_in
from pushscope.telemetry.doctor.view import render
from pushscope.telemetry.events import EngineDown, EngineUp, HandshakeQueued
from pushscope.telemetry.fitness import NixlFitness, SeamOff, Side, VllmFitness
from pushscope.telemetry.presence import Note, Presence
from pushscope.telemetry.recorder import Recorder
from pushscope.telemetry.ring import DEFAULT_BYTES

from ..otlp_sink import OtlpSink
from .agent_process import AgentProcess
from .scenario import D_SCHEDULER, P_SCHEDULER, P_WORKER

GIB = 1 << 30
LOOPBACK = {"side_channel": "127.0.0.1:5600"}
FITS = VllmFitness(14, ("VLLM_NIXL_SIDE_CHANNEL_HOST",), (Side("push scheduler", 7), Side("push worker", 16)))
WORKS = NixlFitness(("POSIX", "UCX"), "", "1.23.0", ("self/memory", "tcp/eth0"))
HEALTHY = Facts(
    installed=Installed(
        python="3.11.7",
        executable="/bin/python",
        pushscope="0.1.0",
        vllm=("vllm", "0.32.0"),
        nixl=("nixl", "1.5.1"),
        nixl_builds=(("nixl-cu12", "1.5.1"),),
        router=("vllm-router", "0.1.17"),
    ),
    environment={"VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.1"},
    places={"10.0.0.1": Place.LOCAL, "127.0.0.1": Place.LOOPBACK, "10.0.0.2": Place.ELSEWHERE},
    folder=RingFolder(
        path="/rings",
        exists=True,
        owner="me",
        mode=0o700,
        ring_bytes=4 << 20,
        total_bytes=64 << 20,
        free_bytes=60 << 20,
    ),
    engines=(
        Engine(
            name="P1",
            side="P",
            engine_id="11111111-1111-4111-8111-111111111111",
            vllm="0.32.0",
            side_channel="10.0.0.1:5600",
            block_size=16,
        ),
        Engine(
            name="D1",
            side="D",
            engine_id="22222222-2222-4222-8222-222222222222",
            vllm="0.32.0",
            side_channel="10.0.0.1:5700",
            block_size=16,
        ),
    ),
    num_transfers=3,
    agent=Agent(
        pid=7,
        host="here",
        url="http://127.0.0.1:9479",
        version="0.1.0",
        health=Health(
            version="0.1.0", pid=7, host="here", rings="/rings", uptime_s=60, read_s_ago=0.1, num_engines=2
        ),
        peers=(Peer(url="http://10.0.0.2:9479", version="0.1.0"),),
    ),
    endpoints=(Endpoint(url="http://otel:4317", protocol="grpc"),),
    vllm=FITS,
    nixl=WORKS,
)


def but(**changes: object) -> Facts:
    return msgspec.structs.replace(HEALTHY, **changes)


def installed(**changes: object) -> Facts:
    return but(installed=msgspec.structs.replace(HEALTHY.installed, **changes))


def folder(**changes: object) -> Facts:
    return but(folder=msgspec.structs.replace(HEALTHY.folder, **changes))


def engines(p: dict[str, object] | None = None, d: dict[str, object] | None = None) -> Facts:
    changed = zip(HEALTHY.engines, (p or {}, d or {}), strict=True)
    return but(engines=tuple(msgspec.structs.replace(engine, **changes) for engine, changes in changed))


def found(facts: Facts) -> list[Check]:
    """The checks that a healthy host does not have."""
    healthy = set(checks_of(HEALTHY))
    return [check for check in checks_of(facts) if check not in healthy]


def bad(facts: Facts) -> list[Check]:
    return [check for check in found(facts) if check.level in (Level.WARNING, Level.FAILURE)]


def only_bad(facts: Facts) -> Check:
    (check,) = bad(facts)
    assert check.remedy, "what is not right says what to do"
    return check


def test_a_healthy_host_has_nothing_to_do():
    checks = checks_of(HEALTHY)
    assert {check.level for check in checks} == {Level.OK}
    assert {check.group for check in checks} == set(Group)
    assert worst(checks) is Level.OK


class TestInstalled:
    def test_a_laptop_that_only_watches_is_well(self):
        facts = msgspec.structs.replace(
            installed(vllm=None, nixl=None, nixl_builds=(), router=None),
            vllm=None,
            nixl=None,
            environment={},
        )
        assert bad(facts) == []
        assert {c.subject for c in found(facts)} == {"vLLM", "NIXL", "router"}

    def test_vllm_without_nixl_cannot_transfer(self):
        check = only_bad(msgspec.structs.replace(installed(nixl=None), nixl=None))
        assert (check.subject, check.level) == ("NIXL", Level.FAILURE)

    def test_an_old_vllm_is_told_what_goes_wrong_with_it(self):
        check = only_bad(installed(vllm=("vllm", "0.31.0")))
        assert check.level is Level.WARNING
        assert "leases" in check.finding
        assert check.remedy == "upgrade to vLLM 0.32.0"

    @pytest.mark.parametrize("version", ["0.32.0", "0.32.1.dev3+gabc", "0.33.0", "1.0", "0.1.dev1+g0", ""])
    def test_a_new_one_is_not(self, version):
        assert list(fixed_in(version)) == []


class TestSeams:
    def test_all_fit(self):
        assert [c.finding for c in checks_of(HEALTHY) if c.group is Group.SEAMS] == [
            "NIXL_CONNECTOR_VERSION 14",
            "all 7 seams fit",
            "all 16 seams fit",
        ]

    def test_one_that_is_off_says_what_is_lost(self):
        off = SeamOff("_xfer_blocks", "_xfer_blocks does not exist", ("descriptors started",))
        check = only_bad(but(vllm=VllmFitness(14, FITS.variables, (Side("push worker", 16, (off,)),))))
        assert (check.subject, check.level) == ("push worker", Level.WARNING)
        assert "15 of 16 seams fit" in check.finding
        assert "_xfer_blocks does not exist (not recorded: descriptors started)" in check.finding

    def test_a_mode_that_this_vllm_lacks(self):
        sides = (Side("push worker", error="ModuleNotFoundError('push_worker')"),)
        assert "ModuleNotFoundError" in only_bad(but(vllm=VllmFitness(14, FITS.variables, sides))).finding

    def test_vllm_that_cannot_be_imported_fails(self):
        check = only_bad(but(vllm=VllmFitness(error="ImportError('libcuda')")))
        assert check.level is Level.FAILURE
        assert "libcuda" in check.finding

    def test_quick_examines_nothing_and_says_so(self):
        facts = but(vllm=None, nixl=None)
        assert bad(facts) == []
        assert [c.finding for c in found(facts)] == ["not examined", "not examined"]

    def test_what_an_observer_records_is_read_from_its_code(self):
        observers = {seam.method: seam.observer for seam in WORKER.seams}
        assert recorded_by(observers["_reap_expired_send_leases"]) == ["lease expired"]
        assert set(recorded_by(observers["get_transfer_results"])) >= {
            "receive done",
            "receive failed",
            "loop",
        }

    def test_every_seam_of_a_class_that_has_none_is_off(self):
        off = list(seams_off(WORKER, type("Worker", (), {})))
        assert len(off) == len(WORKER.seams)
        assert all(seam.why == f"{seam.seam} does not exist" for seam in off)


class TestFolder:
    def test_it_cannot_be_read(self):
        check = only_bad(folder(error="the ring folder /rings can be written by other users"))
        assert check.level is Level.FAILURE
        assert "written by other users" in check.finding

    @pytest.mark.parametrize(("makeable", "level"), [(True, Level.WARNING), (False, Level.FAILURE)])
    def test_there_is_none(self, makeable, level):
        assert only_bad(folder(exists=False, makeable=makeable)).level is level

    def test_it_is_somebody_elses(self):
        facts = folder(mine=False, owner="vllm", mode=0o750)
        assert bad(facts) == []
        assert any(c.level is Level.INFORMATION and "vllm" in c.finding for c in found(facts))

    def test_recording_is_off(self):
        assert only_bad(folder(switched_off=True)).remedy == "pushscope recording on"

    def test_a_ring_that_is_none(self):
        (check,) = bad(folder(refused=("expected a pushscope ring at /rings/x.ring",)))
        assert "x.ring" in check.finding

    @pytest.mark.parametrize(
        ("total", "free", "rings"),
        [
            (64 << 20, 40 << 20, 2),
            (64 << 20, 39 << 20, 1),
            (64 << 20, 10 << 20, 0),
            (64 * GIB, GIB + (8 << 20), 2),
            (64 * GIB, GIB + (7 << 20), 1),
        ],
    )
    def test_new_rings_fit_while_half_of_the_file_system_or_a_gib_is_left(self, total, free, rings):
        facts = folder(total_bytes=total, free_bytes=free)
        (check,) = [c for c in checks_of(facts) if c.subject == "room"]
        assert f"room for {rings} new rings" in check.finding
        assert check.level is (Level.OK if rings >= 2 else Level.FAILURE)


class TestNixl:
    def test_no_agent_can_be_made(self):
        check = only_bad(but(nixl=NixlFitness(error="no library")))
        assert (check.group, check.level) == (Group.NIXL, Level.FAILURE)

    def test_no_backend_can_be_made_and_the_list_of_transports_is_named(self):
        facts = but(
            nixl=NixlFitness(("UCX",), "NIXL_ERR_BACKEND"),
            environment={**HEALTHY.environment, "UCX_TLS": "rc,self"},
        )
        (backend, list_) = bad(facts)
        assert "with UCX_TLS=rc,self: NIXL_ERR_BACKEND" in backend.finding
        assert (list_.subject, list_.level) == ("UCX_TLS", Level.FAILURE)
        assert "add tcp" in backend.remedy
        assert "add tcp" in list_.remedy

    def test_rdma_devices_that_are_not_used(self):
        check = only_bad(but(has_rdma=True))
        assert "none of this host's RDMA devices" in check.finding
        used = NixlFitness(("UCX",), "", "1.23.0", ("rc_mlx5/mlx5_0:1", "tcp/eth0"))
        assert bad(but(has_rdma=True, nixl=used)) == []

    @pytest.mark.parametrize("tls", ["tcp,self", "all", "^cuda_ipc", "rc,tcp", ""])
    def test_lists_of_transports_that_work(self, tls):
        assert list(environment_traps({"UCX_TLS": tls}, None, has_rdma=False)) == []

    @pytest.mark.parametrize("tls", ["self", "rc,sm,self", "^tcp", "^rc,tcp"])
    @pytest.mark.parametrize("has_rdma", [False, True])
    def test_lists_of_transports_without_tcp(self, tls, has_rdma):
        (trap,) = environment_traps({"UCX_TLS": tls}, None, has_rdma=has_rdma)
        assert trap.level is (Level.WARNING if has_rdma else Level.FAILURE)

    @pytest.mark.parametrize(
        ("name", "value", "level"),
        [
            ("NIXL_TELEMETRY_ENABLE", "n", Level.FAILURE),
            ("NIXL_TELEMETRY_ENABLE", "False", Level.FAILURE),
            ("NIXL_TELEMETRY_ENABLE", "", Level.FAILURE),
            ("VLLM_DISABLE_REQUEST_ID_RANDOMIZATION", "1", Level.WARNING),
            ("PUSHSCOPE_ENABLED", "false", Level.WARNING),
            ("VLLM_NIXL_ABORT_REQUEST_TIMEOUT", "60", Level.WARNING),
        ],
    )
    def test_a_variable_that_does_harm_or_nothing(self, name, value, level):
        check = only_bad(but(environment={**HEALTHY.environment, name: value}))
        assert (check.subject, check.level) == (name, level)

    def test_a_variable_is_unknown_only_where_the_known_ones_are(self):
        assert list(environment_traps({"VLLM_NIXL_X": "1"}, None, has_rdma=False)) == []
        assert [t.variable for t in environment_traps({"VLLM_NIXL_X": "1"}, (), has_rdma=False)] == [
            "VLLM_NIXL_X"
        ]

    def test_an_engines_environment_counts_as_doctors_own_does(self):
        check = only_bad(engines(p={"environment": {"NIXL_TELEMETRY_ENABLE": "off"}}))
        assert (check.subject, check.level) == ("P1", Level.FAILURE)


class TestSideChannel:
    @pytest.mark.parametrize(
        ("host", "place", "level"),
        [
            (None, None, Level.INFORMATION),
            ("localhost", Place.LOOPBACK, Level.INFORMATION),
            ("0.0.0.0", Place.ANY, Level.INFORMATION),
            ("10.0.0.1", Place.LOCAL, Level.OK),
            ("10.9.9.9", Place.ELSEWHERE, Level.FAILURE),
            ("no-such-host", Place.UNRESOLVED, Level.FAILURE),
        ],
    )
    def test_of_an_engine_started_from_here(self, host, place, level):
        environment = {} if host is None else {"VLLM_NIXL_SIDE_CHANNEL_HOST": host}
        facts = but(environment=environment, places={**HEALTHY.places, host: place})
        (check,) = [c for c in checks_of(facts) if c.group is Group.NETWORK]
        assert check.level is level
        assert level is Level.OK or "VLLM_NIXL_SIDE_CHANNEL_HOST" in check.remedy

    def test_loopback_is_right_while_all_are_on_one_host(self):
        assert bad(engines(LOOPBACK, LOOPBACK)) == []

    def test_loopback_with_peers_elsewhere(self):
        check = only_bad(engines(LOOPBACK, {"peer_hosts": ("10.0.0.2",)}))
        assert check.level is Level.WARNING
        assert "peers elsewhere (10.0.0.2)" in check.finding

    def test_loopback_with_one_side_only(self):
        facts = but(engines=engines(LOOPBACK).engines[:1])
        assert "no D records on this host" in only_bad(facts).finding

    def test_any_address_with_engines_on_another_host(self):
        facts = engines({"side_channel": "[::]:5600"}, {"host": "other", "here": False})
        facts = msgspec.structs.replace(facts, places={**HEALTHY.places, "::": Place.ANY})
        assert "engines on other" in only_bad(facts).finding

    def test_an_address_that_is_not_this_hosts(self):
        check = only_bad(engines({"side_channel": "10.0.0.2:5600"}))
        assert "10.0.0.2, which is no address of this host" in check.finding
        assert bad(engines({"side_channel": "10.0.0.2:5600", "here": False})) == []

    @pytest.mark.parametrize(
        ("host", "place"),
        [
            ("127.0.0.1", Place.LOOPBACK),
            ("localhost", Place.LOOPBACK),
            ("::1", Place.LOOPBACK),
            ("0.0.0.0", Place.ANY),
            ("::", Place.ANY),
            ("192.0.2.1", Place.ELSEWHERE),  # reserved for documentation
            ("2001:db8::1", Place.ELSEWHERE),
            ("no such host", Place.UNRESOLVED),
        ],
    )
    def test_where_an_address_leads(self, host, place):
        assert place_of(host) is place

    def test_an_address_of_this_host(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))  # sends nothing, chooses an address
            except OSError:
                pytest.skip("this host has no address but loopback")
            assert place_of(probe.getsockname()[0]) is Place.LOCAL


class TestEngines:
    def test_none(self):
        facts = but(engines=(), num_transfers=0)
        assert bad(facts) == []
        assert any("none records here" in c.finding for c in found(facts))

    @pytest.mark.parametrize(
        ("changes", "words", "level"),
        [
            (
                {"alive": False, "end": "has gone without shutting down"},
                "gone without shutting down",
                Level.WARNING,
            ),
            ({"lost": 7}, "7 events lost", Level.WARNING),
            ({"seams_off": ("_xfer_blocks does not exist",)}, "_xfer_blocks does not exist", Level.WARNING),
            ({"pushscope": "0.0.9"}, "records with pushscope 0.0.9, this is 0.1.0", Level.WARNING),
            ({"schedulers": 2}, "2 live engines share the id", Level.FAILURE),
            ({"engine_id": "prefill-a"}, "is set by hand", Level.WARNING),
        ],
    )
    def test_what_is_wrong_with_one(self, changes, words, level):
        check = only_bad(engines(changes))
        assert words in check.finding
        assert (check.subject, check.level) == ("P1", level)

    def test_one_that_shut_down_is_only_told_of(self):
        facts = engines({"alive": False, "end": "has shut down", "shut_down": True})
        assert bad(facts) == []
        assert any("has shut down" in c.finding for c in found(facts))

    def test_an_engine_id_of_a_data_parallel_rank_is_vllms_own(self):
        assert bad(engines({"engine_id": "11111111-1111-4111-8111-111111111111_dp1"})) == []

    @pytest.mark.parametrize(
        ("p", "d", "words"),
        [
            ({"vllm": "0.33.0"}, {}, "vLLM 0.33.0 and 0.32.0"),
            (
                {"connector_version": 14},
                {"connector_version": 15},
                "NIXL_CONNECTOR_VERSION is 14 and 15",
            ),
            ({"mode": "pull"}, {}, "one is pull, one is push"),
            ({"block_size": 32}, {"block_size": 128}, "32 and 128 tokens: push needs equal ones"),
            ({"block_size": 128}, {"block_size": 32}, "128 and 32 tokens: push needs equal ones"),
            (
                {"mode": "pull", "block_size": 128},
                {"mode": "pull", "block_size": 32},
                "pull needs P's to divide D's",
            ),
            ({"tp_size": 2}, {"tp_size": 3}, "2 and 3 don't divide"),
        ],
    )
    def test_a_pair_that_cannot_talk(self, p, d, words):
        check = only_bad(engines(p, d))
        assert words in check.finding
        assert (check.subject, check.level) == ("P1 and D1", Level.FAILURE)

    def test_what_is_not_known_is_not_held_against_them(self):
        assert bad(engines({"connector_version": 14, "block_size": 0}, {})) == []

    def test_pull_takes_smaller_blocks_at_p(self):
        assert bad(engines({"mode": "pull", "block_size": 32}, {"mode": "pull", "block_size": 128})) == []

    def test_more_d_ranks_than_p_ranks_is_a_risk_in_push(self):
        check = only_bad(engines({"tp_size": 1}, {"tp_size": 2}))
        assert check.level is Level.WARNING
        assert bad(engines({"tp_size": 1, "mode": "pull"}, {"tp_size": 2, "mode": "pull"})) == []

    def test_engines_of_two_models_are_not_meant_for_one_another(self):
        assert bad(engines({"vllm": "0.33.0", "model": "a"}, {"model": "b"})) == []

    def test_of_two_releases_side_by_side_each_pair_may_be_meant(self):
        """Each P has a D of its release: that the others don't fit is worth a warning, not a failure."""
        p, d = HEALTHY.engines
        newer = [
            msgspec.structs.replace(e, name=f"{e.side}2", engine_id=e.engine_id[::-1], vllm="0.33.0")
            for e in (p, d)
        ]
        facts = but(engines=(p, newer[0], d, newer[1]))
        crossed = [c for c in bad(facts) if " and " in c.subject]
        assert {c.subject for c in crossed} == {"P1 and D2", "P2 and D1"}
        assert {c.level for c in crossed} == {Level.WARNING}


class TestView:
    CHECKS = (
        Check(Group.INSTALLED, "vLLM", Level.OK, "0.32.0"),
        Check(Group.RINGS, "folder", Level.FAILURE, "is not there \x1b[31m" + "and so on " * 20, "make it"),
    )

    def drawn(self, **options: object) -> str:
        console = Console(record=True, width=80, file=open(os.devnull, "w"), **options)  # noqa: SIM115
        render(self.CHECKS, console)
        console.file.close()
        return console.export_text()

    def test_every_check_has_a_sign_and_a_word_and_what_to_do(self):
        text = self.drawn()
        assert "✓ ok" in text
        assert "✗ failure" in text
        assert "-> make it" in text
        assert "1 ok, 0 information, 0 warning, 1 failure" in text
        assert "\x1b" not in text

    def test_a_terminal_wraps_and_a_pipe_does_not(self):
        assert all(len(line) <= 80 for line in self.drawn(force_terminal=True).splitlines())
        assert any(len(line) > 200 for line in self.drawn(force_terminal=False).splitlines())


class TestChild:
    def test_one_that_dies_is_an_error_in_words(self, monkeypatch):
        monkeypatch.setattr(child, "_COMMAND", (sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"))
        vllm, nixl = child.examine(vllm=True, nixl=False, on_progress=lambda _: None)
        assert vllm.error == "it ended with signal 11: nothing said"
        assert nixl is None

    def test_one_that_fails_says_its_last_words(self, monkeypatch):
        monkeypatch.setattr(child, "_COMMAND", (sys.executable, "-c", "raise SystemExit('no such thing')"))
        _, nixl = child.examine(vllm=False, nixl=True, on_progress=lambda _: None)
        assert nixl.error == "it ended with exit status 1: no such thing"

    def test_one_that_hangs_is_given_up(self, monkeypatch):
        said: list[str] = []
        monkeypatch.setattr(child, "_COMMAND", (sys.executable, "-c", "import time; time.sleep(60)"))
        vllm, nixl = child.examine(vllm=True, nixl=True, on_progress=said.append, timeout_s=0.5)
        assert vllm.error == nixl.error == "no answer within 0.5 s"
        assert said[0].startswith("examining vLLM and NIXL")


class TestCommand:
    """In a clean environment, with rings of our own."""

    @pytest.fixture(autouse=True)
    def _clean(self, monkeypatch):
        for name in list(os.environ):
            if name.startswith(("UCX_", "NIXL_", "VLLM_", "PUSHSCOPE_")):
                monkeypatch.delenv(name)

    def run(self, folder: Path, *more: str):
        return CliRunner().invoke(app, ["doctor", "--quick", "--rings", str(folder), *more])

    def checks(self, folder: Path) -> list[dict[str, str]]:
        return json.loads(self.run(folder, "--json").output)["checks"]

    def here(self, origin, **changes: object):
        host = this_host()
        now = time.monotonic_ns()
        mine = {"host": host.name, "boot_id": host.boot_id, "pid": os.getpid(), "anchor_monotonic_ns": now}
        return msgspec.structs.replace(origin, **mine, **changes)

    @pytest.fixture
    def pair(self, tmp_path, enough_room):
        p = Recorder(
            tmp_path / "rings",
            self.here(P_SCHEDULER, side_channel="127.0.0.1:5600", engine_id=HEALTHY.engines[0].engine_id),
        )
        d = Recorder(
            tmp_path / "rings",
            self.here(D_SCHEDULER, side_channel="127.0.0.1:5700", engine_id=HEALTHY.engines[1].engine_id),
        )
        yield p, d
        p.close()
        d.close()

    @pytest.fixture
    def enough_room(self, tmp_path):
        fs = os.statvfs(tmp_path)
        if fs.f_bavail * fs.f_frsize < min(fs.f_blocks * fs.f_frsize // 2, GIB) + 8 * DEFAULT_BYTES:
            pytest.skip("the file system of temporary files is too full")

    def test_exit_status_0_for_a_healthy_pair(self, tmp_path, pair):
        done = self.run(tmp_path / "rings")
        assert done.exit_code == 0, done.output
        assert "✓ ok           P1" in done.output
        assert " warning, 0 failure" in done.output

    def test_exit_status_1_for_a_warning(self, tmp_path, pair):
        p, d = pair
        p.record(EngineUp(time.monotonic_ns(), "_xfer_blocks does not exist"))
        done = self.run(tmp_path / "rings")
        assert done.exit_code == 1
        assert "not recorded with this vLLM: _xfer_blocks does not exist" in done.output
        d.record(EngineDown(time.monotonic_ns()))
        d.close()
        assert "has shut down" in self.run(tmp_path / "rings").output

    def test_exit_status_2_for_a_failure(self, tmp_path):
        (tmp_path / "rings").mkdir()
        (tmp_path / "rings").chmod(0o777)
        done = self.run(tmp_path / "rings")
        assert done.exit_code == 2
        assert "can be written by other users" in done.output
        assert json.loads(self.run(tmp_path / "rings", "--json").output)["level"] == "failure"

    def test_a_link_is_no_folder(self, tmp_path):
        (tmp_path / "rings").symlink_to(tmp_path)
        assert self.run(tmp_path / "rings").exit_code == 2

    def test_no_folder_yet(self, tmp_path, enough_room):
        done = self.run(tmp_path / "no" / "rings")
        assert done.exit_code == 1
        assert "does not exist: no engine has recorded there" in done.output
        assert not (tmp_path / "no").exists()

    def test_the_hosts_of_peers_are_read_from_the_rings(self, tmp_path, pair):
        pair[0].record(HandshakeQueued(time.monotonic_ns(), "other", "192.0.2.1", 5600))
        findings = [c["finding"] for c in self.checks(tmp_path / "rings")]
        assert any("peers elsewhere (192.0.2.1)" in finding for finding in findings)

    def test_the_environment_of_an_engine_is_read_if_it_holds_its_ring(self, tmp_path, enough_room):
        code = (
            "import os, sys, time, msgspec\n"
            "from pathlib import Path\n"
            "from pushscope.telemetry.events import Origin\n"
            "from pushscope.telemetry.recorder import Recorder\n"
            "origin = msgspec.json.decode(sys.argv[1], type=Origin)\n"
            "Recorder(Path(sys.argv[2]), msgspec.structs.replace(origin, pid=os.getpid()))\n"
            "print('ready', flush=True)\n"
            "sys.stdin.read()\n"
        )
        engine = subprocess.Popen(
            [sys.executable, "-c", code, msgspec.json.encode(self.here(P_WORKER)), tmp_path / "rings"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NIXL_TELEMETRY_ENABLE": "n"},
        )
        with engine:
            assert engine.stdout.readline() == b"ready\n"
            while_it_runs = self.run(tmp_path / "rings")
            engine.stdin.close()
        assert "has NIXL_TELEMETRY_ENABLE in its environment" in while_it_runs.output
        assert while_it_runs.exit_code == 2
        assert "NIXL_TELEMETRY_ENABLE" not in self.run(tmp_path / "rings").output


def health(**changes: object) -> Facts:
    agent = HEALTHY.agent
    return but(agent=msgspec.structs.replace(agent, health=msgspec.structs.replace(agent.health, **changes)))


def agent(**changes: object) -> Facts:
    return but(agent=msgspec.structs.replace(HEALTHY.agent, **changes))


class TestAgent:
    def test_none_is_only_worth_knowing(self):
        facts = but(agent=None, endpoints=())
        assert bad(facts) == []
        assert [(c.subject, c.level) for c in found(facts)] == [
            ("agent", Level.INFORMATION),
            ("OTLP", Level.INFORMATION),
        ]

    def test_one_that_does_not_answer(self):
        check = only_bad(agent(health=None, peers=(), error="Connection refused"))
        assert "pid 7 on here does not answer at http://127.0.0.1:9479: Connection refused" in check.finding

    def test_one_without_a_note_can_not_be_asked(self):
        facts = agent(pid=0, url="", health=None, peers=())
        assert bad(facts) == []
        assert "could not leave a note" in found(facts)[0].finding

    def test_one_that_hangs(self):
        assert "has not read the rings for" in only_bad(health(read_s_ago=30.0)).finding

    def test_its_own_troubles_are_told(self):
        assert only_bad(health(troubles=("the journal is gone",))).finding == "the journal is gone"

    @pytest.mark.parametrize("reason", ["queue_full", "refused", "failed"])
    def test_what_it_dropped(self, reason):
        check = only_bad(health(counts={f"spans.dropped.{reason}": 12.0}))
        assert check.finding == f"12 spans were dropped: {reason.replace('_', ' ')}"

    def test_releases_that_differ(self):
        check = only_bad(agent(version="0.2.0", peers=()))
        assert "is pushscope 0.2.0, this is 0.1.0" in check.finding

    def test_peers(self):
        check = only_bad(agent(peers=(Peer(url="http://10.0.0.2:9479", error="timed out"),)))
        assert "10.0.0.2:9479 can't be asked from here: timed out" in check.finding
        check = only_bad(agent(peers=(Peer(url="http://10.0.0.2:9479", version="0.2.0"),)))
        assert "is pushscope 0.2.0, the agent here 0.1.0" in check.finding

    @pytest.mark.parametrize(
        ("endpoint", "says"),
        [
            (Endpoint(url="http://otel:4317", protocol="grpc", error="no connection: refused"), "a receiver"),
            (Endpoint(url="http://otel:4318", protocol="grpc", error="x"), "PROTOCOL=http/protobuf"),
            (Endpoint(url="", error="OTEL_EXPORTER_OTLP_PROTOCOL is 'x'"), "OTEL_EXPORTER_OTLP_"),
        ],
    )
    def test_an_endpoint_that_takes_nothing(self, endpoint, says):
        check = only_bad(but(endpoints=(endpoint,)))
        assert check.subject == "OTLP"
        assert says in check.remedy

    def test_switched_off(self):
        facts = but(endpoints=(Endpoint(url="", off="OTEL_SDK_DISABLED is true"),))
        assert bad(facts) == []


class TestLookingAtTheAgent:
    """The facts, from a real one."""

    def ask(self, folder, environ=None):
        engines = HEALTHY.engines
        return agent_of(folder, lambda _: None), endpoints_of(engines, environ or {}, lambda _: None)

    def test_none(self, tmp_path):
        folder = tmp_path / "rings"
        assert self.ask(folder) == (None, ())
        folder.mkdir(mode=0o700)
        assert self.ask(folder) == (None, ())

    def test_a_real_one_and_its_peer(self, tmp_path):
        for name in ("here", "there"):
            (tmp_path / name).mkdir(mode=0o700)
        there = AgentProcess(tmp_path / "there", tmp_path / "there.log").ready()
        url = there.note()["url"]
        here = AgentProcess(tmp_path / "here", tmp_path / "here.log", "--peer", url).ready()
        try:
            found, _ = self.ask(tmp_path / "here")
            assert found.pid == here.process.pid
            assert found.error == ""
            assert found.health.rings == str(tmp_path / "here")
            assert found.peers == (Peer(url=url, version=found.version),)
            there.end()
            found, _ = self.ask(tmp_path / "here")
            assert found.peers[0].error
        finally:
            for each in (here, there):
                each.process.kill()
                each.process.wait()

    def test_what_is_no_agent(self, tmp_path):
        folder = tmp_path / "rings"
        folder.mkdir(mode=0o700)
        presence = Presence(folder)
        with OtlpSink() as sink:
            presence.tell(Note(pid=1, host="h", url=sink.http_endpoint))
            found, _ = self.ask(folder)
            assert "it answers" in found.error
        found, _ = self.ask(folder)
        assert found.health is None
        assert found.error
        presence.close()

    @pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
    def test_endpoints_are_tried(self, tmp_path, protocol, monkeypatch):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        with OtlpSink() as sink:
            url = sink.grpc_endpoint if protocol == "grpc" else sink.http_endpoint
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
            assert self.ask(tmp_path, os.environ)[1] == (Endpoint(url=url, protocol=protocol),)
            sink.behaviour.grpc_refuses, sink.behaviour.http_refuses = grpc.StatusCode.UNAUTHENTICATED, 401
            (refused,) = self.ask(tmp_path, os.environ)[1]
            assert "an empty export is refused" in refused.error
        (gone,) = self.ask(tmp_path, os.environ)[1]
        assert "no connection: Connection refused" in gone.error

    def test_an_engines_own_endpoint_is_tried_where_the_environment_names_none(self):
        with OtlpSink() as sink:
            engines = [msgspec.structs.replace(HEALTHY.engines[0], otlp_endpoint=sink.grpc_endpoint)]
            assert endpoints_of(engines, {}, lambda _: None) == (
                Endpoint(url=sink.grpc_endpoint, protocol="grpc"),
            )

    def test_what_is_no_address_is_told(self):
        (found,) = endpoints_of((), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:y"}, lambda _: None)
        assert "no address" in found.error
        (found,) = endpoints_of((), {"OTEL_EXPORTER_OTLP_PROTOCOL": "x"}, lambda _: None)
        assert "expected grpc or http/protobuf" in found.error
