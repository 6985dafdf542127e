"""Every event of a request has words, and says what it carries."""

from __future__ import annotations

import pytest

from pushscope.telemetry import events as ev
from pushscope.telemetry.why.words import SCHEDULERS, in_words

OF_REQUESTS = [kind for kind in ev.KINDS if issubclass(kind, ev.RequestEvent)]


@pytest.mark.parametrize("kind", OF_REQUESTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("of_d", [False, True])
def test_every_event_of_a_request_has_words(kind, of_d):
    words = in_words(kind(1, "r"), of_d=of_d)
    if kind is not ev.TraceContext:  # which says nothing if it has nothing
        assert words
    assert "None" not in words
    assert "  " not in words


def test_schedulers_record_no_event_of_a_transfer():
    assert not any(issubclass(kind, ev.TransferEvent) for kind in SCHEDULERS)


@pytest.mark.parametrize(
    ("event", "of_d", "words"),
    [
        (ev.TransferDone(1, "r", 2, 4096, 3), False, "write 2: seen done, 4.00 KiB, 3 descriptors after merging"),
        (ev.TransferDone(1, "r", 2, -1, -1), True, "read 2: seen done, size not known"),
        (ev.TransferFailed(1, "r", 0, "transfer_setup_failed", "x"), False, "write failed: transfer_setup_failed: x"),
        (ev.DescriptorsBuilt(1, "r", 1, 1), False, "write 1: prepared, 1 descriptor"),
        (ev.RegistrationSent(1, "r", 1, 2), True, "registration sent to P's pp1tp2"),
        (ev.NotificationDrained(1, "r", "p-0"), True, "the notification of completion arrived from P's tp0"),
        (ev.NotificationDrained(1, "r", "p-9"), True, "the notification of completion arrived"),
        (
            ev.Matched(1, "r", "d", False, "base_id"),
            False,
            "matched with D's d by the base id, the registration was first",
        ),
        (
            ev.RegistrationFailed(1, "r", 0, 1, True, "notification_failed", "gone"),
            True,
            "the registration could not be sent to P's tp1: notification_failed: gone",
        ),
        (ev.RegistrationFailed(1, "r", to_rank=False), True, "the registration could not be sent: cause not known"),
        (ev.TraceContext(1, "r", "00-a-b-01", "t"), True, "traceparent 00-a-b-01, transfer_id t"),
        (ev.TraceContext(1, "r", "", "t", "d-0"), True, "D's registration tells transfer_id t"),
        (ev.Evicted(1, "r", True, True), False, "the writer thread let go of the blocks and registration"),
    ],
)  # fmt: skip
def test_what_an_event_says(event, of_d, words):
    assert in_words(event, of_d=of_d, rank_of={"p-0": (0, 0)}.get) == words
