"""What a transfer should have done next: cut a whole one off at any event, and the next step is missed."""

from __future__ import annotations

import msgspec
import pytest

from pushscope.telemetry import events as ev
from pushscope.telemetry.half import NO_FACTS, Half
from pushscope.telemetry.why.expected import Sides, missing

from .scenario import (
    D_ENGINE,
    D_SCHEDULER,
    D_WORKER,
    P_ENGINE,
    P_SCHEDULER,
    P_WORKER,
    delivered,
    ms,
    only,
    until,
)

ONE = frozenset({(0, 0)})
TWO = frozenset({(0, 0), (0, 1)})


def sides(said, *, p_ranks=ONE, d_ranks=ONE, pull=False) -> Sides:
    p, d = Half(P_ENGINE, "p"), Half(D_ENGINE, "d")
    for origin, event in said:
        of_d = origin.engine_id == D_ENGINE or isinstance(event, ev.RegistrationDrained)
        (d if of_d else p).add((origin.pp_rank, origin.tp_rank), event)
    return Sides(
        p.by_kind() if p.events else NO_FACTS, d.by_kind() if d.events else NO_FACTS, p_ranks, d_ranks, pull
    )


def missed(said, **ranks) -> list[tuple[str, object, str]]:
    return [(m.side, m.rank, m.what) for m in missing(sides(said, **ranks))]


def without(kind, said):
    return [(o, e) for o, e in said if not isinstance(e, kind)]


def test_of_a_whole_transfer_nothing_is_missing():
    assert missed(delivered()) == []
    assert missed(delivered(blocks_first=True)) == []


RANK = (0, 0)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ev.PrefillScheduled, ("P", None, "the prefill begins")),
        (ev.RegistrationStaged, ("D", None, "blocks allocated, registration staged")),
        (ev.RegistrationHandedOff, ("D", RANK, "the registration reaches the worker")),
        (ev.RegistrationSent, ("D", RANK, "the registration is sent to P")),
        (ev.RegistrationDrained, ("P", RANK, "D's registration arrives (an idle P reads none)")),
        (ev.BlocksStaged, ("P", None, "the prefill is done")),
        (ev.BlocksPickedUp, ("P", RANK, "the writer thread picks up the blocks")),
        (ev.Matched, ("P", RANK, "blocks and registration are matched")),
        (ev.DescriptorsStarted, ("P", RANK, "a write begins")),
        (ev.DescriptorsBuilt, ("P", RANK, "write 1: prepared")),
        (ev.SubmitStarted, ("P", RANK, "write 1: given to NIXL")),
        (ev.Submitted, ("P", RANK, "write 1: NIXL takes it (the call has not returned)")),
        (ev.NotificationDrained, ("D", RANK, "1 of 1 notifications of completion")),
        (ev.TransferDone, ("P", RANK, "write 1: done")),
        (ev.ReceiveDone, ("D", RANK, "the blocks are reported as received")),
        (ev.ReceiveFinished, ("D", None, "the scheduler hears that all ranks have received")),
        (ev.DecodeScheduled, ("D", None, "decode scheduled")),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_the_step_that_is_next_is_missed(kind, expected):
    assert expected in missed(until(delivered(), kind))


def test_of_a_chain_only_the_first_is_missed_with_the_time_of_the_step_before():
    (found,) = [m for m in missing(sides(until(delivered(), ev.BlocksStaged))) if m.side == "P"]
    assert (found.what, found.since_ns) == ("the prefill is done", ms(1))


def test_a_leg_that_never_came():
    no_prefill = [(o, e) for o, e in delivered() if o.engine_id == D_ENGINE][:4]
    assert ("P", None, "the prefill leg arrives") in missed(no_prefill)
    no_decode = only(until(delivered(blocks_first=True), ev.RegistrationStaged), P_SCHEDULER, P_WORKER)
    assert missed(no_decode, d_ranks=frozenset()) == [
        ("D", None, "the decode leg (no observed engine has it)")
    ]


def test_a_prefill_that_p_gave_up():
    said = [
        *until(delivered(), ev.BlocksStaged),
        (P_SCHEDULER, ev.PrefillNotProcessed(ms(15), "p", "finished_aborted")),
    ]
    assert ("P", None, "blocks for D (P ended the prefill leg: finished_aborted)") in missed(said)


def test_what_an_engine_that_is_not_observed_did_is_not_missed():
    of_d = only(until(delivered(), ev.NotificationDrained), D_SCHEDULER, D_WORKER)
    assert missed(of_d, p_ranks=frozenset()) == []
    of_p = only(until(delivered(), ev.TransferDone), P_SCHEDULER, P_WORKER)
    assert missed(of_p, d_ranks=frozenset()) == [("P", RANK, "write 1: done")]


def test_a_handshake_that_does_not_end():
    said = [
        *until(delivered(), ev.DescriptorsStarted),
        (P_WORKER, ev.TransferDeferred(ms(23), "p", D_ENGINE)),
    ]
    assert ("P", RANK, "the handshake with D is done") in missed(said)
    resumed = [*said, (P_WORKER, ev.TransferResumed(ms(24), "p"))]
    assert ("P", RANK, "a write begins") in missed(resumed)


def test_each_rank_is_missed_by_itself():
    half_way = until(delivered(), ev.SendFinished)
    second = msgspec.structs.replace(P_WORKER, tp_rank=1)
    said = [
        (o, msgspec.structs.replace(e, peer_tp=2) if isinstance(e, ev.RegistrationStaged) else e)
        for o, e in until(delivered(), ev.NotificationCounted)
    ]
    said += [(second, e) for o, e in half_way if o == P_WORKER and isinstance(e, ev.RegistrationDrained)]
    found = missed(said, p_ranks=TWO)
    assert ("P", (0, 1), "the writer thread picks up the blocks") in found
    assert ("D", RANK, "2 of 2 notifications of completion") in found


def test_a_failed_write_is_not_awaited():
    said = [
        *until(delivered(), ev.SubmitStarted),
        (P_WORKER, ev.TransferFailed(ms(24.5), "p", 1, "transfer_setup_failed", "")),
    ]
    assert [m for m in missed(said) if m[0] == "P"] == []


def test_pull_awaits_reads_of_every_rank():
    said = [
        (P_SCHEDULER, ev.RequestArrived(ms(0), "p", "prefill")),
        (P_SCHEDULER, ev.BlocksStaged(ms(10), "p", 4, 100, 30.0)),
        (D_SCHEDULER, ev.RequestArrived(ms(12), "d", "decode", P_ENGINE, "p")),
        (D_SCHEDULER, ev.ReadStaged(ms(13), "d", P_ENGINE, 1, 1, 100, 4)),
        (D_WORKER, ev.ReadHandedOff(ms(14), "d")),
    ]
    assert missed(said, pull=True) == [("D", RANK, "a read begins")]
    begun = [
        *said,
        (D_WORKER, ev.DescriptorsStarted(ms(15), "d", 1)),
        (D_WORKER, ev.DescriptorsBuilt(ms(16), "d", 1, 4)),
    ]
    assert missed(begun, pull=True) == [("D", RANK, "read 1: given to NIXL")]
    assert missed(said[:2], pull=True, d_ranks=frozenset()) == [
        ("D", None, "the decode leg (no observed engine has it)")
    ]
