"""Where a lab sends its spans: what is given, what the standard variables say, and what an engine is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from pushscope.lab.otlp import Otlp, otlp_at, otlp_in
from pushscope.lab.spec import EngineSpec
from pushscope.telemetry.agent.otlp import OtlpError

GRPC, HTTP = "grpc", "http/protobuf"


@pytest.mark.parametrize(
    ("url", "protocol", "endpoint"),
    [
        ("http://h:4317", GRPC, "http://h:4317"),
        ("http://h:4318", HTTP, "http://h:4318/v1/traces"),
        ("http://h:4318/", HTTP, "http://h:4318/v1/traces"),
        ("https://h/otlp/traces", HTTP, "https://h/otlp/traces"),
    ],
)
def test_a_url_becomes_the_endpoint_of_traces(url, protocol, endpoint):
    assert otlp_at(url, protocol) == Otlp(endpoint, protocol)


@pytest.mark.parametrize("url", ["", "localhost:4317", "http://", "ftp://h"])
def test_what_is_no_url_is_refused(url):
    with pytest.raises(ValueError, match="Expected a URL of OTLP"):
        otlp_at(url)


def test_an_unknown_protocol_is_refused():
    with pytest.raises(ValueError, match="Expected a protocol of OTLP, grpc or http/protobuf, found 'http'"):
        otlp_at("http://h:4318", "http")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"ENDPOINT": "http://h:1"}, Otlp("http://h:1", GRPC)),
        ({"ENDPOINT": "http://h:1", "PROTOCOL": HTTP}, Otlp("http://h:1/v1/traces", HTTP)),
        ({"TRACES_ENDPOINT": "http://h:1/x", "TRACES_PROTOCOL": HTTP}, Otlp("http://h:1/x", HTTP)),
    ],
)
def test_the_standard_variables_name_it(environ, expected):
    assert otlp_in({f"OTEL_EXPORTER_OTLP_{name}": value for name, value in environ.items()}) == expected


def test_variables_that_switch_it_off_or_cannot_be_followed():
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1"}
    assert otlp_in({**endpoint, "OTEL_SDK_DISABLED": "true"}) is None
    assert otlp_in({**endpoint, "OTEL_TRACES_EXPORTER": "none"}) is None
    with pytest.raises(OtlpError, match="OTEL_EXPORTER_OTLP_PROTOCOL is 'http/json'"):
        otlp_in({**endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"})


def test_an_engine_is_told_of_receiver_and_agent(monkeypatch):
    monkeypatch.delenv("PUSHSCOPE_BIND", raising=False)
    spec = EngineSpec("P1", "prefill", agent=True, otlp=Otlp("http://h:1", HTTP))
    assert spec.arguments(Path("m"))[-2:] == ["--otlp-traces-endpoint", "http://h:1"]
    env = spec.environment()
    assert env["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] == "http://h:1"
    assert env["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] == HTTP
    assert env["PUSHSCOPE_BIND"] == "127.0.0.1:0"
    assert _extra(spec) == {"pushscope": {"agent": "auto"}}


def test_an_engine_without_either_is_told_nothing(monkeypatch):
    monkeypatch.delenv("PUSHSCOPE_BIND", raising=False)
    spec = EngineSpec("P1", "prefill")
    assert "--otlp-traces-endpoint" not in spec.arguments(Path("m"))
    assert "PUSHSCOPE_BIND" not in spec.environment()
    assert _extra(spec) is None


def test_only_an_instrumented_engine_has_an_agent_and_other_options_stay():
    assert _extra(EngineSpec("P1", "prefill", instrumented=False, agent=True)) is None
    options = {"kv_lease_duration": 4, "pushscope": {"bytes": 1 << 20, "agent": "off"}}
    assert _extra(EngineSpec("P1", "prefill", agent=True, extra_config=options)) == options
    assert _extra(EngineSpec("P1", "prefill", agent=True, extra_config={"kv_lease_duration": 4})) == {
        "kv_lease_duration": 4,
        "pushscope": {"agent": "auto"},
    }


def _extra(spec: EngineSpec) -> object:
    config = spec.kv_transfer_config()
    assert config is not None
    return config.get("kv_connector_extra_config")
