import pytest

from pushscope.connector.options import Options, OptionsError, read_options


def test_defaults():
    assert read_options(None, {}) == Options()
    assert read_options({"kv_lease_duration": 5}, {}).enabled


def test_the_environment_overrides():
    options = read_options(
        {"pushscope": {"dir": "/a", "bytes": 1 << 20}}, {"PUSHSCOPE_DIR": "/b", "PUSHSCOPE_ENABLED": "0"}
    )
    assert (options.dir, options.bytes, options.enabled) == ("/b", 1 << 20, False)


def test_unknown_keys_are_named():
    with pytest.raises(OptionsError, match=r"'byts', 'grup'.*known are enabled, dir, bytes"):
        read_options({"pushscope": {"byts": 1, "grup": 2}}, {})


@pytest.mark.parametrize(
    ("given", "environ", "says"),
    [
        ({"pushscope": []}, {}, "must be an object"),
        ({"pushscope": {"bytes": "many"}}, {}, "wrong value"),
        (None, {"PUSHSCOPE_ENABLED": "perhaps"}, "wrong value"),
        ({"pushscope": {"agent": "on"}}, {}, "'on'; expected off or auto"),
    ],
)
def test_wrong_values_are_one_clear_sentence(given, environ, says):
    with pytest.raises(OptionsError, match=says):
        read_options(given, environ)
