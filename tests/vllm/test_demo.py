"""``make demo`` without a terminal: real engines, a report, and an exit status that can be trusted."""

import os
import subprocess
import sys

import pytest

from pushscope.lab.demo import ALWAYS_SEEN
from pushscope.lab.environment import python_environment

pytestmark = pytest.mark.engines


@pytest.mark.timeout(180)
def test_a_fixed_number_of_requests_a_report_and_exit_0(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", "from pushscope.lab.main import main; main()", "demo", "--requests", "8"],
        env={
            **python_environment(),
            "PUSHSCOPE_LAB_DIR": str(tmp_path),
            "PUSHSCOPE_DIR": f"/dev/shm/test-{os.getpid()}",
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
