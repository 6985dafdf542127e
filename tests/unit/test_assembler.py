"""Events in, transfers out: each test arranges a short event list and looks at the transfer."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushscope.telemetry import events as ev
from pushscope.telemetry.assembler import MAX_GROUPS, Assembler
from pushscope.telemetry.source import RingState
from pushscope.telemetry.transfer import Outcome, Stage, Transfer

from .scenario import (
    D_ENGINE,
    D_SCHEDULER,
    D_WORKER,
    ORIGINS,
    P_ENGINE,
    P_SCHEDULER,
    P_WORKER,
    assembled,
    delivered,
    ms,
    only,
    origin,
    until,
)

ON_P = (P_SCHEDULER, P_WORKER)
P1, D1 = "cmpl-r-aaaaaaaa", "cmpl-r-bbbbbbbb"
P2, D2 = "cmpl-r-cccccccc", "cmpl-r-dddddddd"


def the_transfer(assembler: Assembler) -> Transfer:
    (transfer,) = assembler.open_transfers()
    return transfer


def times(transfer: Transfer) -> dict[Stage, float]:
    """Stage -> milliseconds, of a transfer with one rank a side."""
    found = {s.stage: round(s.seconds * 1e3, 6) for s in transfer.stages if s.seconds is not None}
    assert len(found) == len(transfer.stages)
    return found


class TestDelivered:
    def test_d_first(self):
        t = the_transfer(assembled(delivered()))
        assert t.outcome is Outcome.DELIVERED
        assert (t.p_engine, t.d_engine) == (P_ENGINE, D_ENGINE)
        assert (t.p_request, t.d_request) == ("cmpl-r-aaaaaaaa", "cmpl-r-bbbbbbbb")
        assert t.order == "registration first"
        assert times(t) == {
            Stage.REGISTRATION: 1,
            Stage.FLIGHT: 2,
            Stage.HANDOFF: 2,
            Stage.RENDEZVOUS: 10,
            Stage.DESCRIPTORS: 0.5,
            Stage.SUBMIT: 1,
            Stage.WIRE: 5,
            Stage.NOTIFICATION: 1,
            Stage.WAKE: 2,
        }
        (rendezvous,) = [s for s in t.stages if s.stage is Stage.RENDEZVOUS]
        assert rendezvous.waited == "D waited for P"
        assert (t.num_bytes, t.descriptors, t.descriptors_merged) == (4096, 8, 2)
        assert (t.num_tokens, t.num_blocks) == (100, 4)
        assert (t.ranks_done, t.ranks) == (1, 1)
        assert t.sides == ("P", "D")
        assert not t.tentative

    def test_p_first(self):
        t = the_transfer(assembled(delivered(blocks_first=True)))
        assert t.order == "blocks first"
        (rendezvous,) = [s for s in t.stages if s.stage is Stage.RENDEZVOUS]
        assert rendezvous.waited == "P waited for D"
        assert rendezvous.seconds == pytest.approx(0.012)

    def test_exposed_is_what_the_first_token_waited_and_hidden_what_lay_under_the_prefill(self):
        t = the_transfer(assembled(delivered()))
        assert t.exposed_ns == 13e6  # blocks staged at 20, decode scheduled at 33
        assert t.hidden_ns == 10e6  # registration staged at 10

    @pytest.mark.parametrize("blocks_first", [True, False])
    def test_the_critical_path_is_disjoint_and_ends_at_decode_scheduled(self, blocks_first):
        said = delivered(blocks_first=blocks_first)
        t = the_transfer(assembled(said))
        staged = next(e.t for _, e in said if isinstance(e, ev.BlocksStaged))
        scheduled = next(e.t for _, e in said if isinstance(e, ev.DecodeScheduled))
        assert t.path[0].start_ns == staged
        assert t.path[-1].end_ns == scheduled
        for a, b in zip(t.path, t.path[1:], strict=False):
            assert a.end_ns is not None
            assert a.end_ns <= b.start_ns
        assert sum(s.seconds or 0 for s in t.path) <= (t.exposed_ns or 0) / 1e9

    def test_done_seen_at_p_is_no_border_when_d_is_seen(self):
        """P polls once per step: its done may come long after, or before, D's notification."""
        said = [
            (o, msgspec.structs.replace(e, t=ms(900)) if isinstance(e, ev.TransferDone) else e)
            for o, e in delivered()
        ]
        assert times(the_transfer(assembled(said)))[Stage.WIRE] == 5


class TestTraceContext:
    TOLD = ev.TraceContext(ms(13), D1, "00-a-b-01", "", D_ENGINE)

    def of_d(self, *said):
        (transfer,) = (assembler := assembled([*delivered(), *said])).open_transfers()
        sides = assembler.sides_of(transfer)
        assert sides is not None
        return sides.d.all(ev.TraceContext)

    def test_what_p_was_told_is_a_fact_of_ds_request(self):
        assert self.of_d((P_WORKER, self.TOLD)) == [((0, 0), self.TOLD)]

    def test_it_stands_beside_what_d_says_itself(self):
        own = ev.TraceContext(ms(1), D1, "00-a-b-01")
        assert len(self.of_d((P_WORKER, self.TOLD), (D_SCHEDULER, own))) == 2

    def test_alone_it_makes_no_half_of_ps(self):
        assembler = assembled([(P_WORKER, self.TOLD), *only(delivered(), D_SCHEDULER)])
        assert the_transfer(assembler).d_request == D1
        assert the_transfer(assembler).p_request is None

    def test_an_older_release_does_not_say_whose_it_is(self):
        assert self.of_d((P_WORKER, ev.TraceContext(ms(13), D1, "00-a-b-01"))) == []


@given(seed=st.randoms(use_true_random=False), again=st.integers(0, 30))
@settings(max_examples=150, deadline=None)
def test_the_result_does_not_depend_on_order_or_repetition(seed: random.Random, again: int):
    said = [
        *delivered("cmpl-a"),
        *delivered("cmpl-b", 7, blocks_first=True),
        *until(delivered("cmpl-c", 3), ev.Matched),
        *only(delivered("cmpl-d", 5), D_SCHEDULER, D_WORKER),
    ]
    expected = sorted(assembled(said).open_transfers(), key=lambda t: t.base_id)
    shuffled = said + seed.choices(said, k=again)
    seed.shuffle(shuffled)
    assert sorted(assembled(shuffled).open_transfers(), key=lambda t: t.base_id) == expected


@given(seed=st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_rings_may_be_discovered_in_any_order_too(seed: random.Random):
    said = delivered()
    expected = assembled(said).open_transfers()
    assembler = Assembler()
    seen: list[RingState] = []
    steps: list[object] = [*ORIGINS, *said]
    seed.shuffle(steps)
    for step in steps:
        if isinstance(step, ev.Origin):
            seen.append(RingState(step))
            assembler.rings(seen)
        else:
            assembler.feed(*step)
        assembler.open_transfers()  # looking in between changes nothing
    assert assembler.open_transfers() == expected


class TestUnderway:
    @pytest.mark.parametrize(
        ("before", "stage", "waits"),
        [
            (ev.RegistrationSent, Stage.REGISTRATION, "D waits for P's prefill, which is running"),
            (ev.RegistrationDrained, Stage.FLIGHT, "D waits for P's prefill, which is running"),
            (ev.BlocksStaged, Stage.RENDEZVOUS, "D waits for P's prefill, which is running"),
        ],
    )
    def test_d_waits_for_p(self, before, stage, waits):
        t = the_transfer(assembled(until(delivered(), before)))
        assert (t.outcome, t.stage, t.waits) == (Outcome.WAITING, stage, waits)
        assert t.tentative, "paired by the base id alone"

    @pytest.mark.parametrize(
        ("before", "stage"),
        [
            (ev.DescriptorsStarted, Stage.DESCRIPTORS),
            (ev.DescriptorsBuilt, Stage.DESCRIPTORS),
            (ev.Submitted, Stage.WIRE),
            (ev.NotificationDrained, Stage.WIRE),
            (ev.NotificationCounted, Stage.NOTIFICATION),
            (ev.DecodeScheduled, Stage.WAKE),
        ],
    )
    def test_a_matched_transfer_shows_its_stage(self, before, stage):
        t = the_transfer(assembled(until(delivered(), before)))
        assert (t.outcome, t.stage) == (Outcome.MOVING, stage)
        assert not t.tentative

    def test_p_waits_for_d(self):
        t = the_transfer(assembled(_p_waits()))
        assert (t.outcome, t.stage, t.waits) == (
            Outcome.WAITING,
            Stage.RENDEZVOUS,
            "P waits for D's registration",
        )
        assert t.since_ns == ms(22)

    def test_p_waits_for_a_request_that_d_has_in_its_queue(self):
        said = [*_p_waits(), (D_SCHEDULER, ev.RequestArrived(ms(5), "cmpl-r-bbbbbbbb", "decode", P_ENGINE))]
        t = the_transfer(assembled(said))
        assert t.waits == "P waits for D's registration, D has the request queued"

    def test_a_push_that_waits_for_a_handshake(self):
        said = until(delivered(), ev.DescriptorsStarted)
        said.append((P_WORKER, ev.TransferDeferred(ms(24), "cmpl-r-aaaaaaaa", D_ENGINE)))
        t = the_transfer(assembled(said))
        assert (t.stage, t.since_ns) == (Stage.HANDSHAKE, ms(24))
        assert t.waits == "D waits for P's handshake"

    def test_a_prompt_that_is_only_being_computed_is_no_transfer_yet(self):
        said = [(P_SCHEDULER, ev.RequestArrived(ms(0), "x-aaaaaaaa", "prefill"))]
        assert assembled(said).open_transfers() == []


def _p_waits():
    return [
        (o, e)
        for o, e in only(delivered(), P_SCHEDULER, P_WORKER)
        if e.t < ms(23) and not isinstance(e, ev.RegistrationDrained)
    ]


class TestOneSided:
    def test_p_alone_has_a_wire_that_is_an_upper_bound(self):
        t = the_transfer(assembled(only(delivered(), P_SCHEDULER, P_WORKER), (P_SCHEDULER, P_WORKER)))
        assert t.sides == ("P",)
        assert t.outcome is Outcome.DELIVERED
        (wire,) = [s for s in t.stages if s.stage is Stage.WIRE]
        assert wire.upper_bound
        assert wire.seconds == pytest.approx(0.007)
        assert {Stage.NOTIFICATION, Stage.WAKE, Stage.REGISTRATION, Stage.FLIGHT}.isdisjoint(
            s.stage for s in t.stages
        )
        assert t.exposed_ns is None
        assert t.path == ()
        assert (t.d_engine, t.d_request) == (D_ENGINE, "cmpl-r-bbbbbbbb"), "the registration names them"

    def test_d_alone_has_no_writes(self):
        t = the_transfer(assembled(only(delivered(), D_SCHEDULER, D_WORKER), (D_SCHEDULER, D_WORKER)))
        assert t.sides == ("D",)
        assert t.outcome is Outcome.DELIVERED
        assert t.p_engine == P_ENGINE, "D's registration names it"
        assert t.num_bytes is None
        assert {s.stage for s in t.stages} == {
            Stage.REGISTRATION,
            Stage.FLIGHT,
            Stage.NOTIFICATION,
            Stage.WAKE,
        }
        assert t.exposed_ns is None

    def test_only_the_flight_that_nobody_saw_end_is_open(self):
        t = the_transfer(assembled(only(delivered(), D_SCHEDULER, D_WORKER), (D_SCHEDULER, D_WORKER)))
        assert [s.stage for s in t.stages if s.end_ns is None] == [Stage.FLIGHT]


class TestEnds:
    def test_a_failed_write(self):
        said = until(delivered(), ev.SubmitStarted)
        said.append(
            (P_WORKER, ev.TransferFailed(ms(26), "cmpl-r-aaaaaaaa", 1, "transfer_setup_failed", "NIXL_ERR"))
        )
        t = the_transfer(assembled(said))
        assert (t.outcome, t.error) == (Outcome.FAILED, "transfer_setup_failed: NIXL_ERR")

    def test_a_failed_registration(self):
        said = until(delivered(), ev.RegistrationSent)
        d = "cmpl-r-bbbbbbbb"
        said.append(
            (D_WORKER, ev.RegistrationFailed(ms(15), d, 0, 0, False, "push_reg_handshake_failed", "Again"))
        )
        said.append((D_WORKER, ev.ReceiveFailed(ms(16), d)))
        t = the_transfer(assembled(said))
        assert (t.outcome, t.error) == (Outcome.FAILED, "push_reg_handshake_failed: Again")

    def test_an_expired_lease(self):
        said = [*_p_waits(), (P_WORKER, ev.LeaseExpired(ms(30_020), "cmpl-r-aaaaaaaa"))]
        t = the_transfer(assembled(said))
        assert (t.outcome, t.closed_ns) == (Outcome.EXPIRED, ms(30_020))

    def test_a_request_that_d_dropped_before_it_was_scheduled_is_aborted(self):
        d = "cmpl-r-bbbbbbbb"
        said = [
            (D_SCHEDULER, ev.RequestArrived(ms(0), d, "decode", P_ENGINE)),
            (D_SCHEDULER, ev.NothingToReceive(ms(1), d, "not_scheduled")),
            (D_SCHEDULER, ev.RequestEnded(ms(1), d, "finished_aborted")),
        ]
        assert the_transfer(assembled(said)).outcome is Outcome.ABORTED

    def test_an_abort_at_d_while_blocks_are_on_their_way(self):
        said = until(delivered(), ev.RegistrationDrained)
        said.append((D_SCHEDULER, ev.RequestEnded(ms(15), "cmpl-r-bbbbbbbb", "finished_aborted")))
        t = the_transfer(assembled(said))
        assert (t.outcome, t.error) == (Outcome.ABORTED, "D ended the request: finished_aborted")

    def test_d_waits_on_for_a_prefill_that_p_gave_up(self):
        said = until(delivered(), ev.BlocksStaged)
        said.append((P_SCHEDULER, ev.PrefillNotProcessed(ms(19), "cmpl-r-aaaaaaaa", "finished_aborted")))
        t = the_transfer(assembled(said))
        assert (t.outcome, t.waits) == (Outcome.WAITING, "D waits for a prefill that P gave up")

    @pytest.mark.parametrize("engine", [P_ENGINE, D_ENGINE])
    def test_a_transfer_is_lost_with_an_engine_that_is_gone(self, engine):
        said = until(delivered(), ev.NotificationDrained)
        t = the_transfer(assembled(said, gone=(engine,)))
        side = "P" if engine == P_ENGINE else "D"
        assert (t.outcome, t.error) == (Outcome.LOST, f"{side} is gone")

    @pytest.mark.parametrize(("p_heard_last", "outcome"), [(20, Outcome.LOST), (2000, Outcome.ABORTED)])
    def test_a_d_request_that_was_ended_when_p_was_gone_is_lost_and_one_that_ended_before_is_not(
        self, p_heard_last, outcome
    ):
        said = until(delivered(), ev.BlocksStaged)
        said.append((D_SCHEDULER, ev.RequestEnded(ms(25), "cmpl-r-bbbbbbbb", "finished_aborted")))
        assembler = assembled(said)
        assert the_transfer(assembler).outcome is Outcome.ABORTED
        assembler.heard(P_ENGINE, ms(p_heard_last))
        assembler.rings(RingState(o, o.engine_id != P_ENGINE) for o in ORIGINS)
        t = the_transfer(assembler)
        assert t.outcome is outcome
        if outcome is Outcome.LOST:
            assert t.error == "P is gone; D ended the request: finished_aborted"

    def test_an_aborted_request_that_p_never_had_is_not_lost_with_p(self):
        said = [
            (D_SCHEDULER, ev.RegistrationStaged(ms(10), "cmpl-r-bbbbbbbb", P_ENGINE)),
            (D_SCHEDULER, ev.RequestEnded(ms(25), "cmpl-r-bbbbbbbb", "finished_aborted")),
        ]
        assert the_transfer(assembled(said, gone=(P_ENGINE,))).outcome is Outcome.ABORTED

    @pytest.mark.parametrize(
        ("event", "outcome"),
        [
            (ev.TransferFailed(ms(26), "cmpl-r-aaaaaaaa", 1, "transfer_failed", "ERR"), Outcome.FAILED),
            (ev.NothingToPush(ms(26), "cmpl-r-aaaaaaaa"), Outcome.NOTHING_TO_PUSH),
            (ev.LeaseExpired(ms(26), "cmpl-r-aaaaaaaa"), Outcome.EXPIRED),
        ],
    )
    def test_that_the_client_gave_up_later_does_not_hide_what_went_wrong(self, event, outcome):
        said = [*until(delivered(), ev.SubmitStarted), (P_WORKER, event)]
        gave_up = (D_SCHEDULER, ev.RequestEnded(ms(9000), "cmpl-r-bbbbbbbb", "finished_aborted"))
        assert the_transfer(assembled([*said, gave_up])).outcome is outcome

    def test_an_abort_keeps_the_text_of_a_failed_registration(self):
        d = "cmpl-r-bbbbbbbb"
        said = until(delivered(), ev.RegistrationSent)
        said.append(
            (D_WORKER, ev.RegistrationFailed(ms(15), d, 0, 0, True, "push_reg_notif_failed", "no route"))
        )
        said.append((D_SCHEDULER, ev.RequestEnded(ms(25), d, "finished_aborted")))
        t = the_transfer(assembled(said))
        assert t.error == "D ended the request: finished_aborted, after push_reg_notif_failed: no route"

    def test_what_was_delivered_before_the_engine_went_stays_delivered(self):
        assert the_transfer(assembled(delivered(), gone=(P_ENGINE,))).outcome is Outcome.DELIVERED

    def test_an_engine_restarted_under_its_old_id_is_alive(self):
        reborn = msgspec.structs.replace(P_WORKER, instance="new", anchor_monotonic_ns=ms(100))
        assembler = assembled(until(delivered(), ev.NotificationDrained))
        states = [RingState(o) for o in (P_SCHEDULER, D_SCHEDULER, D_WORKER)]
        assembler.rings([*states, RingState(P_WORKER, alive=False), RingState(reborn)])
        assert the_transfer(assembler).outcome is Outcome.MOVING


class TestNothingToMove:
    """Transfers of their own kind: nothing moved, nothing is missing, nobody waits."""

    def nothing(self, d: str = D1):
        return [
            (D_SCHEDULER, ev.RequestArrived(ms(1), d, "decode", P_ENGINE)),
            (D_SCHEDULER, ev.NothingToReceive(ms(2), d, "no_external_tokens")),
            (D_SCHEDULER, ev.RequestEnded(ms(9), d, "finished_length_capped")),
        ]

    def test_d_alone(self):
        t = the_transfer(assembled(self.nothing()))
        assert (t.outcome, t.closed_ns) == (Outcome.NOTHING_TO_RECEIVE, ms(2))
        assert moved(t) == (0, 0, 0, 0, 0, 0)

    @pytest.mark.parametrize("expired", [False, True])
    @pytest.mark.parametrize("d_late", [False, True])
    def test_p_keeps_blocks_for_nobody_and_it_is_one_transfer(self, d_late, expired):
        said = _p_waits()
        if expired:
            said.append((P_WORKER, ev.LeaseExpired(ms(30_020), P1)))
            said.append((P_SCHEDULER, ev.SendFinished(ms(30_021), P1)))
        late = 40_000_000 if d_late else 0
        said += [(o, msgspec.structs.replace(e, t=e.t + late)) for o, e in self.nothing()]
        t = the_transfer(assembled(said))
        assert (t.p_request, t.d_request, t.attempt) == (P1, D1, 1)
        assert (t.outcome, t.waits, t.error) == (Outcome.NOTHING_TO_RECEIVE, "", "")
        assert moved(t) == (0, 0, 0, 0, 0, 0)

    def test_it_closes_as_one_when_p_let_its_blocks_go(self):
        said = [*self.nothing(), *_p_waits(), (P_WORKER, ev.LeaseExpired(ms(30_020), P1))]
        assembler = assembled([*said, (P_SCHEDULER, ev.SendFinished(ms(30_021), P1))])
        assembler.close_ended(ms(31_000), ms(30_980))
        assert assembler.closed_by_outcome == {Outcome.NOTHING_TO_RECEIVE: 1}

    def test_a_full_hit_that_is_computed_again_after_a_preemption_asks_p_after_all(self):
        said = [*self.nothing()[:2], (D_SCHEDULER, ev.RegistrationStaged(ms(50), D1, P_ENGINE))]
        t = the_transfer(assembled(said))
        assert (t.outcome, t.waits) == (Outcome.WAITING, "D waits for P's prefill")

    def test_pull_by_ids_that_share_no_base(self):
        d = "cmpl-other-0-bbbbbbbb"
        said = [
            (P_SCHEDULER, ev.BlocksStaged(ms(0), P1, 4, 100, 30.0)),
            (D_SCHEDULER, ev.RequestArrived(ms(1), d, "decode", P_ENGINE, P1)),
            (D_SCHEDULER, ev.NothingToReceive(ms(2), d, "no_external_tokens")),
            (D_WORKER, ev.ReadHandedOff(ms(3), d)),
            (D_WORKER, ev.NotificationSent(ms(4), d, P_WORKER.nixl_agent)),
            (P_SCHEDULER, ev.SendFinished(ms(5), P1)),
        ]
        t = the_transfer(assembled(said))
        assert (t.p_request, t.d_request, t.mode) == (P1, d, "pull")
        assert (t.outcome, t.tentative) == (Outcome.NOTHING_TO_RECEIVE, False)
        assert moved(t) == (0, 0, 0, 0, 0, 0)

    def test_a_prefill_that_left_no_blocks(self):
        said = [
            (P_SCHEDULER, ev.RequestArrived(ms(0), P1, "prefill")),
            (P_SCHEDULER, ev.PrefillNotProcessed(ms(1), P1, "finished_length_capped")),
            (P_WORKER, ev.RegistrationDrained(ms(0.5), D1, D_ENGINE)),
        ]
        t = the_transfer(assembled(said, ON_P))
        assert (t.outcome, t.error) == (Outcome.NOTHING_TO_PUSH, "")
        assert moved(t) == (0, 0, 0, 0, 0, 0)


def moved(t: Transfer) -> tuple[int | None, ...]:
    return t.ranks_done, t.ranks, t.num_blocks, t.num_bytes, t.descriptors, t.descriptors_merged


class TestLease:
    def test_heartbeats_put_its_end_off(self):
        said = [*_p_waits(), (P_WORKER, ev.LeaseSet(ms(21), P1, 30.0))]
        assert the_transfer(assembled(said)).lease_until_ns == ms(30_021)
        said += [(P_WORKER, ev.LeaseExtended(ms(t), P1, 20.0)) for t in (15_000, 20_000)]
        assert the_transfer(assembled(said)).lease_until_ns == ms(40_000)

    def test_a_lease_that_ran_out_while_d_has_the_request_queued_is_not_the_end(self):
        """D goes on to register, and waits for ever."""
        said = [*_p_waits(), (D_SCHEDULER, ev.RequestArrived(ms(25), D1, "decode", P_ENGINE))]
        said.append((P_WORKER, ev.LeaseExpired(ms(30_020), P1)))
        t = the_transfer(assembled(said))
        assert (t.outcome, t.waits) == (
            Outcome.WAITING,
            "D has the request queued, P has released its blocks",
        )
        said.append((D_SCHEDULER, ev.RegistrationStaged(ms(40_000), D1, P_ENGINE)))
        t = the_transfer(assembled(said))
        assert (t.outcome, t.waits) == (Outcome.WAITING, "D waits for blocks that P has released")

    def test_d_comes_with_the_name_of_a_request_whose_lease_ran_out(self):
        """As after P's answer lay about for too long: it is the same attempt."""
        said = [*_p_waits(), (P_WORKER, ev.LeaseExpired(ms(30_020), P1))]
        said.append((D_SCHEDULER, ev.RequestArrived(ms(40_000), D1, "decode", P_ENGINE, P1)))
        said.append((D_SCHEDULER, ev.RegistrationStaged(ms(40_001), D1, P_ENGINE)))
        t = the_transfer(assembled(said))
        assert (t.attempt, t.p_request, t.d_request) == (1, P1, D1)
        assert t.waits == "D waits for blocks that P has released"


class TestAttempts:
    """A request sent again: each try is an attempt with a transfer of its own."""

    def test_a_retry_is_another_attempt_of_the_same_request(self):
        first, second = attempts(assembled(delivered() + retry(50)))
        assert (first.attempt, second.attempt) == (1, 2)
        assert first.base_id == second.base_id
        assert (first.d_request, second.d_request) == (D1, D2)
        assert (first.pairing, second.pairing) == ("", "")
        assert times(first) == times(second)

    def test_a_retry_while_the_first_still_waits(self):
        said = [*until(delivered(), ev.BlocksStaged), *until(retry(1000), ev.BlocksStaged)]
        first, second = attempts(assembled(said))
        assert (first.attempt, first.d_request, first.p_request) == (1, D1, P1)
        assert (second.attempt, second.d_request, second.p_request) == (2, D2, P2)

    @pytest.mark.parametrize("ended", [True, False])
    def test_a_retry_paired_with_the_older_registration_is_seen_as_that(self, ended):
        """P lost the first prefill: its blocks of the second try meet D's registration of the first."""
        said = only(until(delivered(), ev.BlocksStaged), D_SCHEDULER, D_WORKER)
        said += [(o, e) for o, e in until(delivered(), ev.BlocksStaged) if type(e) is ev.RegistrationDrained]
        if ended:
            said.append((D_SCHEDULER, ev.RequestEnded(ms(500), D1, "finished_aborted")))
        said += crossing(until(retry(1000), ev.DescriptorsStarted), D2, D1)
        first, second = attempts(assembled(said))
        assert (first.d_request, first.p_request) == (D1, P2)
        assert (first.attempt, first.p_attempt) == (1, 2)
        met = "P's blocks of attempt 2 met D's registration of attempt 1"
        assert first.pairing == met + (", which D had ended" if ended else "")
        assert first.outcome is (Outcome.ABORTED if ended else Outcome.MOVING)
        assert (second.attempt, second.d_request, second.p_request) == (2, D2, None)
        assert second.waits == "D waits for blocks that P gave to attempt 1"

    def test_a_retry_of_the_prefill_alone_frees_d(self):
        said = until(delivered(), ev.BlocksStaged)
        said.append((P_SCHEDULER, ev.PrefillNotProcessed(ms(19), P1, "finished_aborted")))
        again = [(o, e) for o, e in only(retry(1000), *ON_P) if type(e) is not ev.RegistrationDrained]
        t = the_transfer(assembled([*said, *until(again, ev.BlocksStaged)]))
        assert (t.p_request, t.tentative) == (P2, True), "the one that is still at it"
        assert t.waits == "D waits for P's prefill, which is running"
        t = the_transfer(assembled([*said, *crossing(again, D2, D1)]))
        assert (t.attempt, t.p_attempt) == (1, 2)
        assert t.pairing == "P's blocks of attempt 2 met D's registration of attempt 1"

    def test_a_retry_of_the_decode_alone_takes_the_blocks_that_p_still_holds(self):
        said = [(o, e) for o, e in _p_waits()]
        said.append((D_SCHEDULER, ev.RequestArrived(ms(30), D1, "decode", P_ENGINE)))
        said.append((D_SCHEDULER, ev.RequestEnded(ms(40), D1, "finished_aborted")))
        said += only(until(retry(1000), ev.RegistrationDrained), D_SCHEDULER, D_WORKER)
        said.append((P_WORKER, ev.Matched(ms(1024), P1, D2, True, "base_id", D_ENGINE)))
        t = the_transfer(assembled(said))
        assert (t.attempt, t.p_attempt) == (2, 1)
        assert t.pairing == "P's blocks of attempt 1 met D's registration of attempt 2"

    def test_a_retry_after_the_first_was_closed_counts_on(self):
        assembler = assembled(delivered())
        assembler.close_ended(ms(1000), ms(980))
        for o, e in retry(5000):
            assembler.feed(o, e)
        assert the_transfer(assembler).attempt == 2

    def test_blocks_that_meet_a_registration_of_an_attempt_that_was_closed(self):
        """D's client gave up long ago, but P keeps the registration for ever."""
        said = only(until(delivered(), ev.BlocksStaged), D_SCHEDULER, D_WORKER)
        said.append((D_SCHEDULER, ev.RequestEnded(ms(500), D1, "finished_aborted")))
        assembler = assembled(said)
        assembler.close_ended(ms(60_000), ms(59_980))
        assert [t.outcome for t in assembler.recent] == [Outcome.ABORTED]
        for o, e in crossing(retry(70_000), D2, D1):
            assembler.feed(o, e)
        (t, waiting) = attempts(assembler)
        assert (t.attempt, t.p_attempt, t.outcome) == (1, 2, Outcome.ABORTED)
        assert t.pairing.endswith("which D had ended")
        assert t.error == "D did not wait for these blocks"
        assert waiting.attempt == 2

    @pytest.mark.parametrize("closed", [False, True])
    @pytest.mark.parametrize("again", [False, True])
    def test_a_decode_leg_that_comes_when_its_blocks_went_to_an_older_registration(self, closed, again):
        """It is the second try, not the third; and so is a prefill that is sent once more for it."""
        said = only(until(delivered(), ev.BlocksStaged), D_SCHEDULER, D_WORKER)
        said += [(o, e) for o, e in until(delivered(), ev.BlocksStaged) if type(e) is ev.RegistrationDrained]
        said.append((D_SCHEDULER, ev.RequestEnded(ms(500), D1, "finished_aborted")))
        said += [(o, e) for o, e in crossing(only(retry(1000), *ON_P), D2, D1) if e.request_id != D2]
        said.append((D_SCHEDULER, ev.ReceiveFinished(ms(1100), D1)))
        assembler = assembled(said)
        if closed:
            assembler.close_ended(ms(3000), ms(2980))
            assert assembler.open_transfers() == []
        late = only(until(retry(5000), ev.BlocksStaged), D_SCHEDULER, D_WORKER)
        if again:
            late += only(retry(5000, "cmpl-r-eeeeeeee", D2), *ON_P)
        for o, e in late:
            assembler.feed(o, e)
        t = next(t for t in assembler.open_transfers() if t.d_request == D2)
        assert t.attempt == 2
        if again:
            assert (t.p_request, t.pairing) == ("cmpl-r-eeeeeeee", "")
        else:
            assert t.waits == "D waits for blocks that P gave to attempt 1"

    def test_a_number_never_changes_by_what_comes_later(self):
        said = sorted(
            [
                *delivered(),
                *retry(1000),
                *only(retry(2000, "cmpl-r-eeeeeeee", "cmpl-r-ffffffff"), P_SCHEDULER),
            ],
            key=lambda s: s[1].t,
        )
        assembler = assembled([])
        numbers: dict[tuple[str | None, str | None], set[int]] = {}
        for o, e in said:
            assembler.feed(o, e)
            for t in assembler.open_transfers():
                key = (None, t.d_request) if t.d_request else (t.p_request, None)
                numbers.setdefault(key, set()).add(t.attempt)
        assert numbers[None, D1] == {1}
        assert numbers[None, D2] == {2}
        assert numbers["cmpl-r-eeeeeeee", None] == {3}

    @given(seed=st.randoms(use_true_random=False), again=st.integers(0, 30))
    @settings(max_examples=60, deadline=None)
    def test_in_any_order(self, seed, again):
        said = only(until(delivered(), ev.BlocksStaged), D_SCHEDULER, D_WORKER)
        said.append((D_SCHEDULER, ev.RequestEnded(ms(500), D1, "finished_aborted")))
        said += crossing(retry(1000), D2, D1) + retry(2000, "cmpl-r-eeeeeeee", "cmpl-r-ffffffff")
        expected = attempts(assembled(said))
        assert [t.attempt for t in expected] == [1, 2, 3]
        shuffled = said + seed.choices(said, k=again)
        seed.shuffle(shuffled)
        assert attempts(assembled(shuffled)) == expected


def attempts(assembler: Assembler) -> list[Transfer]:
    return sorted(assembler.open_transfers(), key=lambda t: (t.attempt, t.opened_ns))


def retry(at: float, p: str = P2, d: str = D2):
    """The same request again, ``at`` milliseconds later."""
    return [(o, _renamed(e, {P1: p, D1: d})) for o, e in delivered(at=at)]


def crossing(said, mine: str, other: str):
    """P's part of it goes to another registration, and D's never gets further than having sent its own."""
    on_d = (ev.RequestArrived, ev.RegistrationStaged, ev.RegistrationSent)
    return [
        (o, _renamed(e, {mine: other}) if o.engine_id == P_ENGINE else e)
        for o, e in said
        if (o.engine_id == P_ENGINE and type(e) is not ev.RegistrationDrained) or isinstance(e, on_d)
    ]


def _renamed(event: ev.Event, names: dict[str, str]) -> ev.Event:
    changes = {
        f: names[getattr(event, f)]
        for f in ("request_id", "peer_request_id")
        if getattr(event, f, None) in names
    }
    return msgspec.structs.replace(event, **changes)


class TestRanks:
    """P TP 2 -> D TP 1: D counts two notifications, one from each P rank."""

    P0, P1 = origin(P_ENGINE, "worker", tp=0, tp_size=2), origin(P_ENGINE, "worker", tp=1, tp_size=2)
    ALL = (P_SCHEDULER, P0, P1, D_SCHEDULER, D_WORKER)

    def said(self, *, second_rank: bool = True):
        p, d = "cmpl-r-aaaaaaaa", "cmpl-r-bbbbbbbb"
        said = [
            (D_SCHEDULER, ev.RegistrationStaged(ms(10), d, P_ENGINE, "h", 1, 2, 1, 100, 4)),
            (D_WORKER, ev.RegistrationSent(ms(11), d, 0, 0, self.P0.nixl_agent)),
            (D_WORKER, ev.RegistrationSent(ms(12), d, 0, 1, self.P1.nixl_agent)),
            (P_SCHEDULER, ev.BlocksStaged(ms(20), p, 4, 100, 30.0)),
        ]
        for rank, worker in enumerate((self.P0, self.P1)[: 2 if second_rank else 1]):
            at = 20 + 5 * rank
            said += [
                (worker, ev.RegistrationDrained(ms(13), d, D_ENGINE, "h", 2, 1, 4, D_WORKER.nixl_agent)),
                (worker, ev.BlocksPickedUp(ms(at + 1), p)),
                (worker, ev.Matched(ms(at + 2), p, d, False, "base_id", D_ENGINE)),
                (worker, ev.DescriptorsStarted(ms(at + 3), p, 1, 0, D_ENGINE, d)),
                (worker, ev.DescriptorsBuilt(ms(at + 4), p, 1, 8)),
                (worker, ev.SubmitStarted(ms(at + 5), p, 1)),
                (worker, ev.Submitted(ms(at + 6), p, 1, "PROC")),
                (D_WORKER, ev.NotificationDrained(ms(at + 8), d, worker.nixl_agent, 2)),
                (D_WORKER, ev.NotificationCounted(ms(at + 9), d, rank + 1, 2, 1)),
            ]
        if second_rank:
            said.append((D_SCHEDULER, ev.DecodeScheduled(ms(40), d)))
        return said

    def test_each_rank_has_its_own_stages(self):
        t = the_transfer(assembled(self.said(), self.ALL))
        assert (t.ranks_done, t.ranks) == (2, 2)
        wires = {s.rank: round(s.seconds * 1e3, 3) for s in t.stages if s.stage is Stage.WIRE}
        assert wires == {(0, 0): 3, (0, 1): 3}
        assert {s.rank for s in t.stages if s.stage is Stage.RENDEZVOUS} == {(0, 0), (0, 1)}

    def test_the_critical_path_goes_through_the_last_rank(self):
        t = the_transfer(assembled(self.said(), self.ALL))
        assert {s.rank for s in t.path if s.stage in (Stage.SUBMIT, Stage.WIRE)} == {(0, 1)}

    def test_one_of_two(self):
        t = the_transfer(assembled(self.said(second_rank=False), self.ALL))
        assert (t.ranks_done, t.ranks) == (1, 2)
        assert t.is_open

    @pytest.mark.parametrize("crossed", [0, 1])
    def test_ranks_that_pair_differently(self, crossed):
        """One P rank pairs with the registration of the first attempt, the other with the second's."""
        said = [(P_SCHEDULER, ev.RequestArrived(ms(5), P1, "prefill"))]
        said += [(P_SCHEDULER, ev.BlocksStaged(ms(20), P1, 4, 100, 30.0))]
        for at, d in ((10, D1), (11, D2)):
            said.append((D_SCHEDULER, ev.RegistrationStaged(ms(at), d, P_ENGINE, "h", 1, 2, 1, 100, 4)))
            for worker in (self.P0, self.P1):
                drained = ev.RegistrationDrained(ms(at + 3), d, D_ENGINE, "h", 2, 1, 4, D_WORKER.nixl_agent)
                said.append((worker, drained))
        for rank, worker in enumerate((self.P0, self.P1)):
            d = D2 if rank == crossed else D1
            said += [
                (worker, ev.BlocksPickedUp(ms(21), P1)),
                (worker, ev.Matched(ms(22), P1, d, False, "base_id", D_ENGINE)),
                (worker, ev.DescriptorsStarted(ms(23), P1, 1, 0, D_ENGINE, d)),
                (worker, ev.DescriptorsBuilt(ms(24), P1, 1, 8)),
                (worker, ev.SubmitStarted(ms(25), P1, 1)),
                (D_WORKER, ev.NotificationDrained(ms(28), d, worker.nixl_agent, 2)),
                (D_WORKER, ev.NotificationCounted(ms(29), d, 1, 2, 1)),
            ]
        one, two = attempts(assembled(said, self.ALL))
        assert (one.d_request, two.d_request) == (D1, D2)
        to = {crossed: 2, 1 - crossed: 1}
        note = f"P's ranks paired attempts differently: tp0 1→{to[0]}, tp1 1→{to[1]}"
        assert one.pairing == note
        assert two.pairing == f"P's blocks of attempt 1 met D's registration of attempt 2; {note}"
        for t, rank in ((one, 1 - crossed), (two, crossed)):
            assert {s.rank for s in t.stages if s.stage is Stage.WIRE} == {(0, rank)}
            assert (t.outcome, t.ranks_done, t.ranks) == (Outcome.MOVING, 1, 2)
            assert t.waits == f"D waits for P's tp{1 - rank} to pair it"

    def test_ranks_that_write_different_attempts_to_one_registration(self):
        """Rank 1 lost the first prefill's push, and pairs the second's: D is one transfer, not two. What rank 0 has of
        the second waits on."""
        said = self.said(second_rank=False)
        said += [(P_SCHEDULER, ev.BlocksStaged(ms(60), P2, 4, 100, 30.0))]
        said += [(o, _renamed(e, {P1: P2})) for o, e in self.said() if o is self.P1]
        t, left = attempts(assembled(said, self.ALL))
        assert (left.p_request, left.d_request, left.outcome) == (P2, None, Outcome.WAITING)
        assert left.pairing == "tp1 gave these blocks to another attempt"
        assert (t.p_request, t.d_request, t.descriptors) == (P1, D1, 16)
        assert t.pairing == "P's ranks paired attempts differently: tp0 1→1, tp1 2→1"


class TestClosing:
    def test_a_transfer_closes_when_both_sides_are_final_and_its_late_events_do_not_reopen_it(self):
        closed: list[Transfer] = []
        assembler = Assembler(closed.append)
        assembler.rings(RingState(o) for o in ORIGINS)
        for o, e in delivered():
            assembler.feed(o, e)
        assembler.close_ended(ms(100), ms(80))
        assert closed == [], "not settled"
        assembler.close_ended(ms(1000), ms(980))
        assert [t.outcome for t in closed] == [Outcome.DELIVERED]
        assembler.feed(D_SCHEDULER, ev.RequestEnded(ms(5000), "cmpl-r-bbbbbbbb", "finished_length_capped"))
        assert assembler.open_transfers() == []

    def test_a_registration_said_again_after_the_end_does_not_reopen_it(self):
        assembler = assembled(delivered())
        assembler.close_ended(ms(1000), ms(980))
        staged = next((o, e) for o, e in delivered() if isinstance(e, ev.RegistrationStaged))
        assembler.feed(*staged)
        assert assembler.open_transfers() == []

    def test_the_same_id_registered_anew_is_a_new_transfer(self):
        assembler = assembled(delivered())
        assembler.close_ended(ms(1000), ms(980))
        assembler.feed(D_SCHEDULER, ev.RegistrationStaged(ms(9000), "cmpl-r-bbbbbbbb", P_ENGINE))
        assert [t.outcome for t in assembler.open_transfers()] == [Outcome.WAITING]

    def test_what_d_holds_for_an_ended_request_is_followed_while_d_says_so(self):
        """vLLM's D holds the blocks of an aborted request for ever, and its recorder says so again and again."""
        d = "cmpl-r-bbbbbbbb"
        staged = (D_SCHEDULER, ev.RegistrationStaged(ms(10), d, P_ENGINE, num_blocks=4))
        ended = (D_SCHEDULER, ev.RequestEnded(ms(25), d, "finished_aborted"))
        assembler = assembled([staged, ended])
        for second in range(1, 4000, 10):
            assembler.close_ended(ms(second * 1000), ms(second * 1000 - 20))
            for o, e in (staged, ended, *delivered(f"other-{second}", second * 1000)):
                assembler.feed(o, e)
        (held,) = [t for t in assembler.open_transfers() if t.d_request == d]
        assert (held.outcome, held.d_holds, held.num_blocks) == (Outcome.ABORTED, True, 4)
        assert held.closed_ns == ms(25)
        assert assembler.closed_by_outcome.keys() == {Outcome.DELIVERED}
        assert assembler.closed_by_outcome[Outcome.DELIVERED] > 300
        assembler.feed(D_SCHEDULER, ev.ReceiveFinished(ms(4_000_000), d))
        assembler.close_ended(ms(4_050_000), ms(4_049_000))
        assert assembler.closed_by_outcome[Outcome.ABORTED] == 1
        assert not any(t.d_holds for t in assembler.open_transfers())

    def test_what_d_no_longer_says_to_hold_is_held_no_longer(self):
        d = "cmpl-r-bbbbbbbb"
        assembler = assembled(
            [
                (D_SCHEDULER, ev.RegistrationStaged(ms(10), d, P_ENGINE)),
                (D_SCHEDULER, ev.RequestEnded(ms(25), d, "finished_aborted")),
            ]
        )
        assembler.close_ended(ms(70_000), ms(69_000))
        assert assembler.closed_by_outcome == {Outcome.ABORTED: 1}

    @pytest.mark.parametrize(
        "end",
        [
            (P_WORKER, ev.TransferFailed(ms(60), "cmpl-r-aaaaaaaa", 0, "push_handshake_failed")),
            (P_WORKER, ev.LeaseExpired(ms(30_000), "cmpl-r-aaaaaaaa")),
        ],
    )
    def test_a_d_that_waits_on_is_followed_whatever_became_of_it_at_p(self, end):
        """It would be closed a lease after P's end, and D still holds its blocks and the client's connection."""
        waiting = (D_SCHEDULER, ev.RegistrationStaged(ms(15), "cmpl-r-bbbbbbbb", P_ENGINE, num_blocks=4))
        p_side = [
            said for said in until(delivered(), ev.DescriptorsStarted) if said[0] in (P_SCHEDULER, P_WORKER)
        ]
        assembler = assembled([*p_side, end, waiting])
        for second in range(31, 500, 10):
            assembler.close_ended(ms(second * 1000), ms(second * 1000 - 20))
            assembler.feed(*waiting)
        (t,) = assembler.open_transfers()
        assert (t.d_request, t.d_holds) == ("cmpl-r-bbbbbbbb", False), "its request has not ended"

    def test_a_lost_transfer_of_one_observed_side_closes(self):
        only_p = (P_SCHEDULER, P_WORKER)
        assembler = assembled(until(only(delivered(), *only_p), ev.TransferDone), only_p, gone=(P_ENGINE,))
        assembler.close_ended(ms(5000), ms(4980))
        assert assembler.closed_by_outcome == {Outcome.LOST: 1}

    def test_what_ended_while_recording_was_off_does_not_wait_for_ever(self):
        assembler = assembled([*_p_waits(), *until(delivered("confirmed"), ev.BlocksStaged)])
        assembler.close_ended(ms(60_000), ms(59_980))
        for engine in (P_ENGINE, D_ENGINE):
            assembler.gap_ended(engine, ms(60_000))
        assembler.close_ended(ms(61_000), ms(60_980))
        for o, e in until(delivered("confirmed"), ev.BlocksStaged):
            assembler.feed(o, e)  # said again
        assembler.close_ended(ms(80_000), ms(79_980))
        assert [t.base_id for t in assembler.open_transfers()] == ["confirmed"]
        (unseen,) = assembler.recent
        assert (unseen.outcome, unseen.error) == (Outcome.UNSEEN, "it ended while recording was off")

    def test_one_side_closes_after_its_lease(self):
        assembler = assembled(only(delivered(), P_SCHEDULER, P_WORKER), (P_SCHEDULER, P_WORKER))
        assembler.close_ended(ms(30_000), ms(29_980))
        assert len(assembler.open_transfers()) == 1
        assembler.close_ended(ms(36_000), ms(35_980))
        assert assembler.open_transfers() == []
        assert assembler.closed_by_outcome == {Outcome.DELIVERED: 1}

    def test_an_open_transfer_never_closes_by_time(self):
        assembler = assembled(until(delivered(), ev.BlocksStaged))
        assembler.close_ended(ms(4e6), ms(4e6))
        assert len(assembler.open_transfers()) == 1

    def test_too_many_evicts_ended_ones_first_and_counts(self, monkeypatch):
        monkeypatch.setattr("pushscope.telemetry.assembler.MAX_GROUPS", 3)
        assert MAX_GROUPS > 1000
        assembler = assembled(delivered("done"))
        assembler.open_transfers()
        for name in ("a", "b", "c"):
            assembler.feed(D_SCHEDULER, ev.RegistrationStaged(ms(1), f"{name}-bbbbbbbb", P_ENGINE))
        assert sorted(t.base_id for t in assembler.open_transfers()) == ["a", "b", "c"]
        assert assembler.evicted == 1


class TestPull:
    """D reads: no registration, no rendezvous; D says by itself which of P's requests it reads."""

    P, D = "cmpl-p-0-aaaaaaaa", "cmpl-d-0-bbbbbbbb"

    def said(self):
        p, d = self.P, self.D
        return [
            (P_SCHEDULER, ev.RequestArrived(ms(0), p, "prefill")),
            (P_SCHEDULER, ev.PrefillScheduled(ms(1), p, 100)),
            (P_SCHEDULER, ev.BlocksStaged(ms(20), p, 4, 100, 30.0)),
            (P_SCHEDULER, ev.RequestEnded(ms(20), p, "finished_length_capped")),
            (D_SCHEDULER, ev.RequestArrived(ms(25), d, "decode", P_ENGINE, p)),
            (D_SCHEDULER, ev.ReadStaged(ms(27), d, P_ENGINE, 1, 1, 100, 4)),
            (D_WORKER, ev.ReadHandedOff(ms(28), d)),
            (D_WORKER, ev.TransferDeferred(ms(28.5), d, P_ENGINE)),
            (D_WORKER, ev.TransferResumed(ms(30), d)),
            (D_WORKER, ev.DescriptorsStarted(ms(31), d, 1, 0, P_ENGINE, p)),
            (D_WORKER, ev.DescriptorsBuilt(ms(32), d, 1, 8)),
            (D_WORKER, ev.SubmitStarted(ms(32), d, 1)),
            (D_WORKER, ev.Submitted(ms(33), d, 1, "PROC")),
            (P_WORKER, ev.NotificationDrained(ms(36), p, D_WORKER.nixl_agent, 1)),
            (P_WORKER, ev.NotificationCounted(ms(36), p, 1, 1, 1)),
            (P_SCHEDULER, ev.SendFinished(ms(37), p)),
            (D_WORKER, ev.TransferDone(ms(38), d, 1, 4096, 2, 100, 900)),
            (D_WORKER, ev.ReceiveDone(ms(38), d)),
            (D_SCHEDULER, ev.ReceiveFinished(ms(39), d)),
            (D_SCHEDULER, ev.DecodeScheduled(ms(40), d)),
        ]

    def test_ids_that_share_no_base_are_one_transfer(self):
        t = the_transfer(assembled(self.said()))
        assert (t.mode, t.outcome, t.tentative) == ("pull", Outcome.DELIVERED, False)
        assert (t.p_request, t.d_request) == (self.P, self.D)
        assert (t.num_bytes, t.descriptors, t.descriptors_merged) == (4096, 8, 2)
        assert (t.ranks_done, t.ranks) == (1, 1)

    def test_its_stages_follow_each_other(self):
        t = the_transfer(assembled(self.said()))
        assert times(t) == {
            Stage.RELAY: 5,
            Stage.ALLOCATION: 2,
            Stage.HANDOFF: 1,
            Stage.HANDSHAKE: 1.5,
            Stage.DESCRIPTORS: 1,
            Stage.SUBMIT: 1,
            Stage.WIRE: 6,
            Stage.WAKE: 2,
        }
        assert t.exposed_ns == 20e6
        assert t.hidden_ns is None
        assert sum(s.seconds or 0 for s in t.path) == pytest.approx(0.0185), "1.5 ms are nobody's"

    @given(seed=st.randoms(use_true_random=False))
    @settings(max_examples=60, deadline=None)
    def test_in_any_order(self, seed):
        said = self.said()
        expected = assembled(said).open_transfers()
        seed.shuffle(said)
        assert assembled(said).open_transfers() == expected

    def test_a_read_under_way(self):
        t = the_transfer(assembled(until(self.said(), ev.NotificationDrained)))
        assert (t.outcome, t.stage, t.mode) == (Outcome.MOVING, Stage.WIRE, "pull")

    def test_a_read_that_waits_for_a_handshake(self):
        t = the_transfer(assembled(until(self.said(), ev.TransferResumed)))
        assert (t.outcome, t.stage) == (Outcome.WAITING, Stage.HANDSHAKE)
        assert t.waits == "D waits for its handshake with P"

    def test_p_waits_for_d_to_read(self):
        pull = tuple(msgspec.structs.replace(o, mode="pull") for o in ORIGINS)
        said = [
            (pull[ORIGINS.index(o)], e)
            for o, e in until(self.said(), ev.ReadStaged)
            if o in (P_SCHEDULER, P_WORKER)
        ]
        t = the_transfer(assembled(said, pull))
        assert (t.outcome, t.waits, t.mode) == (Outcome.WAITING, "P waits for D to read", "pull")

    def test_two_requests_of_d_that_read_one_of_p(self):
        """n > 1: vLLM answers with one child of P's, and both of D's read it."""
        again = [
            (o, _renamed(e, {self.D: "1_cmpl-d-0-bbbbbbbb"}))
            for o, e in self.said()
            if o in (D_SCHEDULER, D_WORKER)
        ]
        one, two = sorted(assembled([*self.said(), *again]).open_transfers(), key=lambda t: t.d_request or "")
        assert (one.p_request, two.p_request) == (self.P, self.P)
        assert (one.attempt, two.attempt, one.pairing, two.pairing) == (1, 1, "", "")
        assert (one.outcome, two.outcome) == (Outcome.DELIVERED, Outcome.DELIVERED)

    def test_a_second_read_of_the_same_blocks(self):
        later = [
            (o, msgspec.structs.replace(_renamed(e, {self.D: "cmpl-d-0-dddddddd"}), t=e.t + 1_000_000_000))
            for o, e in self.said()
            if o in (D_SCHEDULER, D_WORKER)
        ]
        said = [(o, e) for o, e in self.said() if not isinstance(e, ev.DecodeScheduled)]
        said += [(D_SCHEDULER, ev.RequestEnded(ms(41), self.D, "finished_aborted")), *later]
        one, two = attempts(assembled(said))
        assert (one.attempt, two.attempt) == (1, 2)
        assert (one.outcome, two.outcome) == (Outcome.ABORTED, Outcome.DELIVERED)
