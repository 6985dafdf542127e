import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushscope.telemetry import events as ev

LONGEST_ID = "i" * 87 + "-0123abcd"


def longest(kind: type[ev.Event]) -> ev.Event:
    """An event with every field at its longest allowed value."""
    values = {}
    for f in msgspec.structs.fields(kind):
        if f.type is int:
            values[f.name] = 2**62 if f.name in ("t", "started_t") else 2**31
        elif f.type is float:
            values[f.name] = 1e300
        elif f.type is bool:
            values[f.name] = True
        elif f.name == "error":
            values[f.name] = "e" * ev.MAX_TEXT_BYTES
        elif f.name in ("peer_engine", "agent"):
            values[f.name] = "g" * 40
        elif f.name in ("traceparent", "transfer_id", "peer_host"):
            values[f.name] = "h" * (55 if f.name == "traceparent" else 64)
        elif f.name == "seams_off":
            values[f.name] = "s" * 200
        elif "id" in f.name or f.name.startswith("first"):
            values[f.name] = LONGEST_ID
        else:
            values[f.name] = "finished_length_capped"
    return kind(**values)


@pytest.mark.parametrize("kind", ev.KINDS, ids=lambda k: k.__name__)
def test_every_kind_fits_a_slot_and_comes_back(kind):
    event = longest(kind)
    data = ev.encode(event)
    assert len(data) <= ev.MAX_EVENT_BYTES
    back = ev.decode(data)
    assert type(back) is kind
    for f in kind.__struct_fields__:
        if f != kind.gives_way:
            assert getattr(back, f) == getattr(event, f), f


def test_tags_are_unique_and_never_renumbered():
    """The numbers are the wire format: this list only ever grows."""
    assert {k.__name__: k.__struct_config__.tag for k in ev.KINDS} == {
        "RequestArrived": 1, "TraceContext": 2, "RequestPreempted": 3, "RequestEnded": 4,
        "RegistrationStaged": 10, "NothingToReceive": 11, "WatchdogFired": 12, "ReceiveFinished": 13,
        "DecodeScheduled": 14, "ReadStaged": 15, "NotificationSent": 16,
        "RegistrationHandedOff": 20, "RegistrationSent": 21, "RegistrationFailed": 22,
        "NotificationDrained": 23, "NotificationCounted": 24, "NotificationUnrecognised": 25,
        "ReceiveDone": 26, "ReceiveFailed": 27, "HeartbeatSent": 28, "ReadHandedOff": 29, "PrefillScheduled": 30,
        "BlocksStaged": 31, "PrefillNotProcessed": 32, "SendFinished": 33, "BlocksHandedOff": 40,
        "BlocksPickedUp": 41, "RegistrationDrained": 42, "Matched": 43, "TransferDeferred": 44,
        "TransferResumed": 45, "DescriptorsStarted": 46, "DescriptorsBuilt": 47, "SubmitStarted": 48,
        "Submitted": 49, "TransferDone": 50, "TransferFailed": 51, "NothingToPush": 52, "HeartbeatDrained": 53,
        "LeaseSet": 54, "LeaseExtended": 55, "LeaseExpired": 56, "Evicted": 57, "WriterException": 58,
        "HandshakeQueued": 60, "HandshakeStarted": 61, "HandshakeEnded": 62, "PeerRank": 63,
        "SideChannelServed": 64, "ListenerDead": 65, "EngineUp": 70, "EngineDown": 71, "EventsDropped": 72,
        "Loop": 73, "Tables": 74, "RecordingSwitched": 75,
        "ConnectorRaised": 76,
    }  # fmt: skip


def test_an_error_text_gives_way_from_its_end():
    event = ev.TransferFailed(
        1, LONGEST_ID, 7, "transfer_setup_failed", "NIXL_ERR_REMOTE_DISCONNECT " + "x" * 90
    )
    back = ev.decode(ev.encode(event))
    assert isinstance(back, ev.TransferFailed)
    assert back.error.startswith("NIXL_ERR_REMOTE_DISCONNECT")
    assert len(back.error) < len(event.error)


def test_a_trace_context_of_an_older_release_lacks_the_engine():
    old = msgspec.msgpack.encode((2, 7, "r-bbbbbbbb", "00-a-b-01", "transfer-9"))
    assert ev.decode(old) == ev.TraceContext(7, "r-bbbbbbbb", "00-a-b-01", "transfer-9", "")


@given(st.binary(max_size=300))
def test_bytes_that_are_no_event_are_refused_and_nothing_else(data):
    try:
        event = ev.decode(data)
    except msgspec.MsgspecError:
        return
    assert isinstance(event, ev.Event)


@given(st.text(), st.integers(0, 200))
def test_cut_keeps_whole_characters(text, limit):
    text = text.encode("utf-8", "replace").decode()
    short = ev.cut(text, limit)
    assert len(short.encode()) <= limit
    assert text.startswith(short)
