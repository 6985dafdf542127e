"""``make demo`` without a terminal: real engines, a report, and an exit status that can be trusted."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pushscope.lab.demo import ALWAYS_SEEN
from pushscope.lab.environment import python_environment
from pushscope.lab.processes import processes_with_environment
from pushscope.telemetry.presence import present_agent

pytestmark = pytest.mark.engines


@pytest.mark.timeout(180)
def test_a_fixed_number_of_requests_a_report_exit_0_and_nothing_left(tmp_path):
    rings = Path(f"/dev/shm/test-{os.getpid()}-demo")
    done = subprocess.run(
        [sys.executable, "-c", "from pushscope.lab.main import main; main()", "demo", "--requests", "8"],
        env={
            **python_environment(),
            "PUSHSCOPE_LAB_DIR": str(tmp_path),
            "PUSHSCOPE_DIR": str(rings).removesuffix("-demo"),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 of 8 requests ok" in done.stdout
    assert "delivered 8" in done.stdout
    for stage in ALWAYS_SEEN:
        assert stage.value in done.stdout
    assert "unobserved" not in done.stdout
    assert done.stderr == ""
    said = (rings / "agent.log").read_text()
    assert said.count("answering at http://127.0.0.1:") == 1
    assert "ended: 0 spans exported" in said
    assert present_agent(rings) is None
    assert processes_with_environment("PUSHSCOPE_DIR", str(rings)) == []
    shutil.rmtree(rings)
