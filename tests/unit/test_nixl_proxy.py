"""Every call to NIXL goes on as it came: the agent behind the proxy cannot tell that somebody listens."""

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, call

import pytest

from pushscope.connector.nixl_proxy import NixlProxy
from pushscope.connector.worker_probe import WorkerProbe
from pushscope.telemetry.recorder import Recorder

from .scenario import origin


@pytest.fixture
def agent() -> MagicMock:
    return MagicMock()


@pytest.fixture
def proxy(agent: MagicMock, tmp_path: Path) -> NixlProxy:
    recorder = Recorder(tmp_path / "rings", origin("P", "worker"), num_bytes=1 << 16)
    return NixlProxy(agent, WorkerProbe(SimpleNamespace(_remote_agents={}), recorder, str, b"PUSH_REG:"))


@pytest.mark.parametrize(
    ("method", "as_made"),
    [
        ("send_notif", call("peer", notif_msg=b"req:1")),  # vLLM's form
        ("send_notif", call("peer", b"req:1")),
        ("send_notif", call("peer", b"req:1", "UCX")),
        ("send_notif", call("peer")),
        ("get_new_notifs", call()),
        ("get_new_notifs", call(["UCX"])),
        ("make_prepped_xfer", call("WRITE", 1, [0, 1], 2, [4, 5], b"req:1")),
        ("make_prepped_xfer", call("READ", local_xfer_side=1, local_indices=[0], remote_xfer_side=2)),
        ("transfer", call(7)),
        ("transfer", call(7, notif_msg=b"req:1")),
        ("check_xfer_state", call(7)),
        ("get_xfer_telemetry", call(7)),
        ("release_xfer_handle", call(7)),
        ("register_memory", call("descriptors", backends=["UCX"])),
    ],
)
def test_a_call_goes_on_in_the_form_in_which_it_came(proxy, agent, method, as_made):
    result = getattr(proxy, method)(*as_made.args, **as_made.kwargs)
    assert getattr(agent, method).call_args_list == [as_made]
    assert result is getattr(agent, method).return_value


@pytest.mark.parametrize("method", ["send_notif", "check_xfer_state", "release_xfer_handle"])
def test_what_the_agent_raises_is_raised(proxy, agent, method):
    error = RuntimeError("the backend is gone")
    getattr(agent, method).side_effect = error
    with pytest.raises(RuntimeError) as raised:
        getattr(proxy, method)(7)
    assert raised.value is error
