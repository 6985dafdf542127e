"""Event lists in, exact figures out."""

import msgspec
import pytest

from pushscope.telemetry import events as ev
from pushscope.telemetry.source import Reading

from . import failures as f
from .metered import Metered
from .scenario import (
    D_ENGINE,
    D_SCHEDULER,
    D_WORKER,
    ORIGINS,
    P_ENGINE,
    P_SCHEDULER,
    P_WORKER,
    Said,
    delivered,
    ms,
    only,
    reading,
    until,
)

P, D = {"engine": P_ENGINE}, {"engine": D_ENGINE}
LATER = 60_000.0
MIXED = (
    delivered("a")
    + delivered("b", 40, blocks_first=True)
    + f.MET
    + f.posts()
    + f.fails(30, "transfer_failed", "NIXL_ERR_REMOTE_DISCONNECT", number=1)
    + [(D_WORKER, ev.ReceiveFailed(ms(31), f.D))]
    + f.aborted(40)
    + f.expires(50)
)


def metered(said: Said, at: float = LATER, origins: tuple[ev.Origin, ...] = ORIGINS, **options) -> Metered:
    first = max((e.t for _, e in said), default=ms(0))
    at_once = msgspec.structs.replace(reading(said, 0, origins), t_ns=first)
    return Metered(at_once, reading([], at, origins), **options)


def moved(said: Said, origins: tuple[ev.Origin, ...]) -> Said:
    """The same, said by other origins in the order of ``ORIGINS``."""
    return [(origins[ORIGINS.index(o)], e) for o, e in said]


def empty(at: float) -> Reading:
    return reading([], at)


def test_each_side_counts_its_own_and_agrees_with_the_snapshot():
    m = metered(MIXED)
    totals = m.watcher.snapshot().totals
    assert totals.outcomes == {"delivered": 2, "failed": 1}
    for side, role in ((P, "P"), (D, "D")):
        outcomes = m.values("kv_transfer_transfers_total", **side, role=role, mode="push")
        assert {outcome: n for (outcome,), n in outcomes.items() if n} == totals.outcomes
    assert m.value("kv_transfer_nixl_bytes_sum", **P) == totals.write_bytes == 8192
    assert m.value("kv_transfer_nixl_bytes_count", **P) == totals.writes == 2
    assert m.value("pushscope_events_read_total") == totals.events == len(MIXED)
    assert m.value("pushscope_events_lost_total") == totals.events_lost == 0


def test_a_peer_has_its_results():
    m = metered(MIXED)
    found = m.values("kv_transfer_peer_transfers_total", **P, peer=D_ENGINE, role="P")
    assert found == {("delivered",): 2, ("nothing_to_move",): 0, ("failed",): 1}
    assert m.value("kv_transfer_peer_bytes_total", **P, peer=D_ENGINE) == 8192
    assert m.value("kv_transfer_peer_bytes_total", **D) is None


def test_d_counts_what_it_was_due_of_a_peer_and_what_of_it_came():
    m = metered(MIXED)
    assert m.values("kv_transfer_peer_completions_total", **D, peer=P_ENGINE) == {
        ("came",): 2,
        ("missing",): 1,
    }
    assert m.values("kv_transfer_peer_completions_total", **P) == {}


def test_stages_are_of_the_side_at_work_in_them():
    m = metered(delivered())
    ends = {"mode": "push"}
    p = m.values("kv_transfer_stage_seconds_sum", **P, **ends, role="P")
    d = m.values("kv_transfer_stage_seconds_sum", **D, **ends, role="D")
    assert p == pytest.approx(
        {("handoff",): 0.002, ("rendezvous",): 0.010, ("descriptors",): 0.0005, ("submit",): 0.001}
    )
    assert d == pytest.approx(
        {
            ("registration",): 0.001,
            ("flight",): 0.002,
            ("wire",): 0.005,
            ("notification",): 0.001,
            ("wake",): 0.002,
        }
    )
    assert m.value("kv_transfer_rank_stage_seconds_sum", rank="tp0", stage="wire") == pytest.approx(0.005)
    assert m.value("kv_transfer_peer_stage_seconds_count", **D, peer=P_ENGINE, stage="wire") == 1
    assert m.values("kv_transfer_rendezvous_wait_seconds_sum") == pytest.approx({(P_ENGINE, "D"): 0.010})


def test_exposed_and_hidden_time_are_of_d():
    m = metered(delivered())
    assert m.values("kv_transfer_exposed_seconds_sum") == pytest.approx({(D_ENGINE, "push", P_ENGINE): 0.013})
    assert m.values("kv_transfer_hidden_seconds_sum") == pytest.approx({(D_ENGINE, "push"): 0.010})
    buckets = m.values("kv_transfer_exposed_seconds_bucket", **D, mode="push", peer=P_ENGINE)
    assert buckets["0.01",] == 0
    assert buckets["0.025",] == buckets["+Inf",] == 1


def test_a_value_on_a_bound_is_in_its_bucket():
    said = [(P_WORKER, ev.TransferDone(ms(1), "r", 1, 1024, 4, -1, -1))]
    found = metered(said).values("kv_transfer_nixl_bytes_bucket", **P, mode="push")
    assert found["1024.0",] == 1


def test_only_d_s_agent_tells_what_is_joined():
    of_p = metered(delivered(), local={P_ENGINE})
    assert of_p.value("kv_transfer_exposed_seconds_count") is None
    assert of_p.value("kv_transfer_stage_seconds_count", stage="wire") is None
    assert of_p.value("kv_transfer_transfers_total", role="P") == 1
    assert of_p.value("kv_transfer_transfers_total", role="D") is None
    of_d = metered(delivered(), local={D_ENGINE})
    assert of_d.value("kv_transfer_exposed_seconds_count") == 1
    assert of_d.value("kv_transfer_stage_seconds_count", stage="wire") == 1
    assert of_d.value("kv_transfer_stage_seconds_count", stage="submit") is None
    assert D_ENGINE not in of_p.page().replace(f'peer="{D_ENGINE}"', "")


def test_without_the_other_side_what_is_joined_is_absent():
    p_alone = metered(only(delivered(), P_SCHEDULER, P_WORKER), origins=(P_SCHEDULER, P_WORKER))
    assert p_alone.value("kv_transfer_exposed_seconds_count") is None
    assert p_alone.values("kv_transfer_stage_seconds_sum", stage="wire", role="P") == pytest.approx(
        {(P_ENGINE, "push"): 0.007}
    )
    d_alone = metered(only(delivered(), D_SCHEDULER, D_WORKER), origins=(D_SCHEDULER, D_WORKER))
    assert d_alone.value("kv_transfer_transfers_total", role="D", outcome="delivered") == 1
    for joined in ("flight", "wire"):
        assert d_alone.value("kv_transfer_stage_seconds_count", stage=joined) is None


def test_zeros_are_there_before_anything_happened():
    m = Metered(reading([], 0))
    assert m.values("kv_transfer_leases_total", **P) == {("set",): 0, ("extended",): 0, ("expired",): 0}
    assert m.value("kv_transfer_leases_total", **D) is None
    assert m.values("kv_transfer_registrations_total", **D) == {("failed",): 0, ("sent",): 0}
    assert m.value("kv_transfer_transfers_total", **D, role="D", mode="push", outcome="lost") == 0
    assert m.value("kv_transfer_watchdog_fired_total", **D) == 0
    assert m.value("kv_transfer_connector_calls_total", **P, rank="tp0") == 0
    assert m.value("kv_transfer_stuck", **D, code="registration_without_prefill") == 0


TOLD = [
    (D_WORKER, ev.RegistrationSent(ms(1), "r", 0, 0, "a"), "registrations_total", {"result": "sent"}, 1),
    (D_WORKER, ev.RegistrationFailed(ms(1), "r"), "registrations_total", {"result": "failed"}, 1),
    (
        D_WORKER,
        ev.RegistrationFailed(ms(1), "r", 0, 0, True, "no_remote_agents"),
        "failures_total",
        {"error_type": "no_remote_agents"},
        1,
    ),
    (
        P_WORKER,
        ev.RegistrationDrained(ms(1), "r", D_ENGINE),
        "registrations_total",
        {"result": "received"},
        1,
    ),
    (
        P_WORKER,
        ev.RegistrationDrained(ms(1), "r", D_ENGINE, surplus=True),
        "registrations_total",
        {"result": "surplus"},
        1,
    ),
    (D_WORKER, ev.NotificationCounted(ms(1), "r"), "notifications_total", {"result": "counted"}, 1),
    (D_WORKER, ev.NotificationUnrecognised(ms(1), "r"), "notifications_total", {"result": "unrecognised"}, 1),
    (P_WORKER, ev.WriterException(ms(1), "x", "r", 3), "writer_exceptions_total", {}, 1),
    (P_WORKER, ev.WriterException(ms(1), "x", "r", 3), "notifications_total", {"result": "lost"}, 3),
    (
        P_WORKER,
        ev.TransferFailed(ms(1), "r", 0, "transfer_failed"),
        "failures_total",
        {"error_type": "transfer_failed"},
        1,
    ),
    (
        P_WORKER,
        ev.TransferFailed(ms(1), "r", 0, "a_new_one"),
        "failures_total",
        {"error_type": "_OTHER"},
        1,
    ),
    (P_WORKER, ev.DescriptorsBuilt(ms(1), "r", 1, 16), "nixl_descriptors_sum", {"merged": "false"}, 16),
    (P_WORKER, ev.TransferDone(ms(1), "r", 1, 9, 4, 10, 20), "nixl_descriptors_sum", {"merged": "true"}, 4),
    (P_WORKER, ev.TransferDone(ms(1), "r", 1, 9, 4, 10, 20), "rank_bytes_total", {"rank": "tp0"}, 9),
    (P_WORKER, ev.TransferDone(ms(1), "r", 1, 9, 4, 10, 20), "nixl_seconds_sum", {"phase": "post"}, 1e-5),
    (P_WORKER, ev.TransferDone(ms(1), "r", 1, 9, 4, 10, 20), "nixl_seconds_sum", {"phase": "transfer"}, 2e-5),
    (P_WORKER, ev.HandshakeEnded(ms(9), "e", ms(1)), "handshakes_total", {"result": "succeeded"}, 1),
    (P_WORKER, ev.HandshakeEnded(ms(9), "e", ms(1)), "handshake_seconds_sum", {"peer": "e"}, 0.008),
    (
        P_WORKER,
        ev.HandshakeEnded(ms(9), "e", ms(1), error_type="E"),
        "peer_handshakes_total",
        {"peer": "e", "result": "failed"},
        1,
    ),
    (
        P_WORKER,
        ev.HandshakeQueued(ms(1), "e"),
        "peer_handshakes_total",
        {"peer": "e", "result": "failed"},
        0,
    ),
    (P_WORKER, ev.HandshakeQueued(ms(1), "e"), "peer_transfers_total", {"role": "P", "result": "failed"}, 0),
    (
        D_WORKER,
        ev.HandshakeQueued(ms(1), "e"),
        "peer_completions_total",
        {"peer": "e", "result": "missing"},
        0,
    ),
    (D_WORKER, ev.HeartbeatSent(ms(1), "a", 7), "heartbeat_ids_total", {"result": "sent"}, 7),
    (D_WORKER, ev.HeartbeatSent(ms(1), "a", 7, "r", "no"), "heartbeat_ids_total", {"result": "unsent"}, 7),
    (P_WORKER, ev.HeartbeatDrained(ms(1), 5, 2), "heartbeat_ids_total", {"result": "applied"}, 5),
    (P_WORKER, ev.HeartbeatDrained(ms(1), 5, 2), "heartbeat_ids_total", {"result": "ignored"}, 2),
    (P_WORKER, ev.LeaseSet(ms(1), "r", 30.0), "leases_total", {"event": "set"}, 1),
    (P_WORKER, ev.LeaseExtended(ms(1), "r", 30.0), "leases_total", {"event": "extended"}, 1),
    (P_WORKER, ev.LeaseExpired(ms(1), "r"), "leases_total", {"event": "expired"}, 1),
    (P_WORKER, ev.Evicted(ms(1), "r", True, False), "evictions_total", {"held": "blocks"}, 1),
    (P_WORKER, ev.Evicted(ms(1), "r", True, False), "evictions_total", {"held": "registration"}, 0),
    (D_SCHEDULER, ev.WatchdogFired(ms(1), "r"), "watchdog_fired_total", {}, 1),
    (D_SCHEDULER, ev.Loop(ms(1), 10, 2_000_000), "connector_calls_total", {"rank": "scheduler"}, 10),
    (P_WORKER, ev.Loop(ms(1), 10, 2_000_000), "connector_seconds_total", {"rank": "tp0"}, 0.002),
    (
        P_WORKER,
        ev.Tables(ms(1), 0, 3, 0, 0, 5, 0),
        "table_entries",
        {"rank": "tp0", "table": "unmatched_blocks"},
        3,
    ),
    (
        P_SCHEDULER,
        ev.Tables(ms(1), 4),
        "table_entries",
        {"rank": "scheduler", "table": "staged"},
        4,
    ),
]


@pytest.mark.parametrize(("origin", "event", "name", "labels", "expected"), TOLD)
def test_what_is_told_is_counted(origin, event, name, labels, expected):
    m = metered([(origin, event)], at=100)
    assert m.value(f"kv_transfer_{name}", engine=origin.engine_id, **labels) == pytest.approx(expected)


@pytest.mark.parametrize("kind", [ev.RegistrationSent, ev.RegistrationDrained])
def test_what_is_said_again_is_counted_once(kind):
    (said,) = [(o, e) for o, e in delivered() if isinstance(e, kind)]
    m = Metered(reading([said], 30), reading([said, said], 10_000), reading([said], 120_000))
    result = "sent" if kind is ev.RegistrationSent else "received"
    assert m.value("kv_transfer_registrations_total", result=result) == 1


def test_what_nixl_does_not_tell_is_not_counted_as_nothing():
    m = metered([(P_WORKER, ev.TransferDone(ms(1), "r", 1, -1, -1, -1, -1))])
    for name in ("nixl_bytes_count", "nixl_descriptors_count", "nixl_seconds_count"):
        assert m.value(f"kv_transfer_{name}") is None
    assert m.value("kv_transfer_rank_bytes_total") == 0


class TestNow:
    def test_in_flight_at_both_sides(self):
        m = Metered(reading(until(delivered(), ev.NotificationDrained), 40))
        assert m.values("kv_transfer_in_flight") == {(P_ENGINE, "P"): 1, (D_ENGINE, "D"): 1}
        age_s = m.values("kv_transfer_oldest_in_flight_seconds")
        assert age_s == pytest.approx({(P_ENGINE, "P"): 0.015, (D_ENGINE, "D"): 0.015})
        assert m.value("pushscope_transfers_followed") == 1

    def test_d_waits(self):
        m = Metered(reading(f.registers(), 5000))
        assert m.values("kv_transfer_waiting") == {(P_ENGINE, "P"): 0, (D_ENGINE, "D"): 1}
        assert m.value("kv_transfer_oldest_waiting_seconds", **D) == pytest.approx(4.987)
        assert m.value("kv_transfer_pinned_requests", **P) == 0

    def test_p_waits_and_holds(self):
        m = Metered(reading(f.prefills(tokens=77), 5000))
        assert m.values("kv_transfer_waiting") == {(P_ENGINE, "P"): 1, (D_ENGINE, "D"): 0}
        held = [m.value(f"kv_transfer_pinned_{what}", **P) for what in ("requests", "blocks", "tokens")]
        assert held == [1, 4, 77]
        m.read(reading(f.expires(30_020), 30_100))
        held = [m.value(f"kv_transfer_pinned_{what}", **P) for what in ("requests", "blocks", "tokens")]
        assert held == [0, 0, 0]

    def test_p_holds_what_d_has_given_up(self):
        said = f.MET + f.posts() + f.aborted(500)
        again = [(o, e) for o, e in said if isinstance(e, ev.RegistrationStaged)]
        m = Metered(reading(said, 1000), reading(again, 11_000))
        assert m.value("kv_transfer_waiting") == 0
        assert m.value("kv_transfer_pinned_blocks", **P) == 4
        assert m.value("kv_transfer_abandoned_blocks", **D) == 4
        assert m.value("kv_transfer_abandoned_requests", **D) == 1

    def test_an_engine_that_is_gone_holds_nothing_and_is_down(self):
        m = Metered(reading(f.prefills(), 5000, gone=(P_ENGINE,)))
        assert m.value("kv_transfer_pinned_blocks", **P) == 0
        assert m.values("kv_transfer_engine_up") == {(P_ENGINE,): 0, (D_ENGINE,): 1}

    def test_stuck_is_told_at_one_side(self):
        m = Metered(reading(f.registers() + f.stepping(7), 7000))
        (found,) = [d for d in m.watcher.snapshot().diagnoses if d.attempt]
        labels = {"code": found.code, "severity": found.severity.value}
        assert m.value("kv_transfer_stuck", **D, **labels) == 1
        assert m.value("kv_transfer_stuck", **P, code=found.code) == 0
        of_p = Metered(reading(f.registers() + f.stepping(7), 7000), local={P_ENGINE})
        assert of_p.value("kv_transfer_stuck", code=found.code) == 0

    def test_recording_off_and_seams_off(self):
        said = [
            (D_WORKER, ev.RecordingSwitched(ms(1), False)),
            (P_WORKER, ev.EngineUp(ms(1), "_handle_heartbeat")),
        ]
        m = Metered(reading(said, 10))
        assert m.values("pushscope_recording") == {(P_ENGINE,): 1, (D_ENGINE,): 0}
        assert m.values("pushscope_seams_off") == {(P_ENGINE,): 1, (D_ENGINE,): 0}

    def test_what_an_engine_is(self):
        origins = tuple(msgspec.structs.replace(o, model="m", vllm_version="0.32.0") for o in ORIGINS)
        m = Metered(reading([], 10, origins))
        assert m.value("kv_transfer_engine_info", **P, role="P", model="m", vllm_version="0.32.0") == 1


def test_losses_by_cause():
    r = reading([(P_WORKER, ev.EventsDropped(ms(1), 5))], 10)
    worker = r.rings[ORIGINS.index(P_WORKER)]
    rings = tuple(msgspec.structs.replace(s, lost=3, torn=2) if s is worker else s for s in r.rings)
    garbage = [(ORIGINS.index(P_WORKER), b"\xc1")]
    m = Metered(msgspec.structs.replace(r, rings=rings, events=[*r.events, *garbage]))
    lost = m.values("pushscope_events_lost_total", **P)
    assert lost == {("overwritten",): 3, ("damaged",): 2, ("unknown",): 1, ("unrecorded",): 5}
    assert m.watcher.snapshot().totals.events_lost == sum(lost.values())


def test_figures_of_an_engine_end_when_it_is_long_gone():
    gone = reading(delivered(), 60, gone=(P_ENGINE,))
    m = Metered(gone, reading([], 60_000, gone=(P_ENGINE,)))
    assert m.value("kv_transfer_transfers_total", **P) == 1
    m.read(reading([], 700_000, gone=(P_ENGINE,)))
    assert m.value("kv_transfer_transfers_total", **P) is None
    assert m.value("kv_transfer_transfers_total", **D) == 1


def test_a_pair_that_is_idle_for_long_is_forgotten():
    m = Metered(reading(delivered(), 60), empty(5000))
    assert m.value("kv_transfer_exposed_seconds_count") == 1
    m.read(empty(4_000_000))
    assert m.value("kv_transfer_exposed_seconds_count") is None
    assert m.value("kv_transfer_transfers_total", **D, outcome="delivered") == 1


def test_an_engine_that_is_both_counts_both_parts():
    both = tuple(msgspec.structs.replace(o, kv_role="kv_both") for o in ORIGINS)
    m = metered(moved(delivered(), both), origins=both)
    assert m.value("kv_transfer_transfers_total", **P, role="P", outcome="delivered") == 1
    assert m.value("kv_transfer_transfers_total", **P, role="D", outcome="delivered") == 0
    assert m.value("kv_transfer_transfers_total", **D, role="D", outcome="delivered") == 1


def test_pull_is_d_s():
    origins = tuple(msgspec.structs.replace(o, mode="pull") for o in ORIGINS)
    said = f.pull(*f.READ, *f.done(60, by=D_WORKER, request=f.D), *f.received(61))
    said += [
        (P_WORKER, ev.NotificationDrained(ms(62), f.P, D_WORKER.nixl_agent, 1)),
        (P_WORKER, ev.NotificationCounted(ms(62), f.P, 1, 1, 1)),
        (P_SCHEDULER, ev.SendFinished(ms(63), f.P)),
    ]
    m = metered(moved(said, origins), origins=origins)
    stages = m.values("kv_transfer_stage_seconds_count", **D, mode="pull", role="D")
    assert set(stages) == {
        (s,) for s in ("relay", "allocation", "handoff", "descriptors", "submit", "wire", "wake")
    }
    assert m.value("kv_transfer_stage_seconds_count", role="P") is None
    assert m.value("kv_transfer_exposed_seconds_count", **D, mode="pull", peer=P_ENGINE) == 1
    assert m.value("kv_transfer_peer_bytes_total", **D, mode="pull", peer=P_ENGINE) == 4096
    assert m.value("kv_transfer_notifications_total", **P, result="counted") == 1
