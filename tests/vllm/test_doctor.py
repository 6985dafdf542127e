"""What is installed here, examined as ``pushscope doctor`` examines it."""

from __future__ import annotations

import pytest

from pushscope.telemetry.doctor.child import examine


@pytest.mark.vllm
@pytest.mark.nixl
def test_every_seam_fits_and_nixl_works():
    vllm, nixl = examine(vllm=True, nixl=True, on_progress=lambda _: None)
    assert vllm is not None
    assert vllm.error == ""
    assert vllm.connector_version > 0
    assert "VLLM_NIXL_SIDE_CHANNEL_HOST" in vllm.variables
    assert [side.name for side in vllm.sides] == [
        "push scheduler",
        "push worker",
        "pull scheduler",
        "pull worker",
    ]
    assert [(side.name, side.error, side.off) for side in vllm.sides if side.error or side.off] == []
    assert nixl is not None
    assert (nixl.error, nixl.backend_error) == ("", "")
    assert "UCX" in nixl.plugins
    assert any(transport.startswith("tcp/") for transport in nixl.transports)


@pytest.mark.nixl
def test_a_list_of_transports_without_tcp_makes_no_backend(monkeypatch):
    """Where there is no RDMA device; if there is one, UCX may find a way through it."""
    monkeypatch.setenv("UCX_TLS", "self")
    _, nixl = examine(vllm=False, nixl=True, on_progress=lambda _: None)
    assert nixl is not None
    assert nixl.error == ""
    assert "NIXL_ERR_BACKEND" in nixl.backend_error
    assert nixl.transports == ("self/memory",)
