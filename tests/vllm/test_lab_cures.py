"""The cures for small machines take hold of the real NIXL bindings."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pushscope.lab.environment import engine_environment

_CODE = """
from nixl._api import nixl_agent, nixl_agent_config
import nixl_cu12._api as api
config = api.nixlBind.nixlAgentConfig()
config.pthrDelay = 0
config.listenPort = 7
agent = nixl_agent("a", nixl_agent_config(backends=[]))
print(config.pthrDelay, config.listenPort, agent.name)
"""


@pytest.mark.nixl
@pytest.mark.parametrize(("cured", "delay_us"), [(True, 1000), (False, 0)])
def test_nixl_agents_get_a_poll_time_out_and_nothing_else_changes(cured: bool, delay_us: int) -> None:
    pytest.importorskip("nixl")
    output = subprocess.run(
        [sys.executable, "-c", _CODE],
        env=engine_environment(cured=cured),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert output.splitlines()[-1] == f"{delay_us} 7 a"
