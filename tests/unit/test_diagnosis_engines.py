"""Causes on engines: for each code events that yield it, near misses that don't, and its end when it is undone."""

import random

import msgspec
import pytest

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.catalogue import CATALOGUE
from pushscope.telemetry.diagnosis.engines import diagnose_engines
from pushscope.telemetry.diagnosis.model import Diagnosis, Severity
from pushscope.telemetry.diagnosis.thresholds import DEFAULT, Thresholds
from pushscope.telemetry.source import Reading, RingState
from pushscope.telemetry.watch import Watcher

from .engine_failures import (
    BLOCKS,
    BROKEN,
    D2_SCHEDULER,
    D2_WORKER,
    DEAD,
    HASHES,
    HERE,
    KNOWN,
    MIB,
    RESTARTED,
    TIMED_OUT,
    WRONG,
    Origins,
    S,
    again,
    at,
    died,
    ended,
    growing,
    handshake,
    late_by,
    matched,
    refused,
    rejected,
    sizes,
    slow_at,
    unclaimed,
    waiting,
)
from .scenario import (
    D_ENGINE,
    D_SCHEDULER,
    D_WORKER,
    ORIGINS,
    P_ENGINE,
    P_SCHEDULER,
    P_WORKER,
    ListSource,
    Said,
    delivered,
    ms,
    only,
    origin,
    reading,
    until,
)


def diagnosed(
    said: Said,
    now: float,
    origins: Origins = ORIGINS,
    *,
    gone: Origins = (),
    lost: int = 0,
    thresholds: Thresholds = DEFAULT,
) -> tuple[Diagnosis, ...]:
    """What is found at ``now`` when all of ``said`` has been read before, and since."""
    watcher = Watcher(ListSource())
    ring = {o.instance: n for n, o in enumerate(origins)}
    dead = {o.instance for o in gone}
    rings = tuple(RingState(o, o.instance not in dead, lost) for o in origins)
    times = sorted({e.t for _, e in said if e.t < ms(now)})
    begin = 0
    for t in [*times[:: max(1, len(times) // 300)], ms(now)]:  # as it goes: what is over is closed in time
        events = [(ring[o.instance], ev.encode(e)) for o, e in said if begin < e.t <= t]
        watcher.source = ListSource([Reading(t, 0, rings, events)])
        watcher.poll()
        begin = t
    return looked_at(watcher, now, thresholds)


def looked_at(watcher: Watcher, now: float, thresholds: Thresholds = DEFAULT) -> tuple[Diagnosis, ...]:
    return diagnose_engines(
        watcher.stories.all(),
        watcher.snapshot().engines,
        watcher.assembler.open_transfers(),
        tuple(watcher.assembler.recent),
        now_ns=ms(now),
        thresholds=thresholds,
    )


def codes(found: tuple[Diagnosis, ...]) -> list[str]:
    return [d.code for d in found]


def one(found: tuple[Diagnosis, ...], code: str) -> Diagnosis:
    assert codes(found) == [code], [d.sentence for d in found]
    return found[0]


# -- A8 -----------------------------------------------------------------------------------------------


def test_a_writer_exception_names_the_request_that_hangs_on_it():
    d = one(diagnosed([*matched(), BROKEN], 2 * S), "writer_exception")
    assert (d.severity, d.subject, d.since_ns) == (Severity.ERROR, P_ENGINE, ms(100))
    assert d.sentence == (
        "P1's push writer (tp0) failed once, 1.90 s ago, in _do_start_push_kv over request cmpl-w-aaaaaaaa: "
        "KeyError('a bug'); it costs 1 request."
    )
    assert [(e.rank, e.engine) for e in d.evidence] == [((0, 0), P_ENGINE)]
    assert d.remedy == CATALOGUE["writer_exception"].remedy


def test_it_stands_as_long_as_the_request_hangs_and_no_longer():
    said = [*matched(), BROKEN]
    assert one(diagnosed(said, 300 * S), "writer_exception").severity is Severity.ERROR
    ended = [
        *said,
        (D_SCHEDULER, ev.RequestEnded(ms(9 * S), "cmpl-w-bbbbbbbb", "finished_aborted")),
        (D_SCHEDULER, ev.ReceiveFinished(ms(9 * S), "cmpl-w-bbbbbbbb")),
        (P_WORKER, ev.LeaseExpired(ms(30 * S), "cmpl-w-aaaaaaaa")),
        (P_SCHEDULER, ev.SendFinished(ms(30 * S), "cmpl-w-aaaaaaaa")),
        (D_WORKER, ev.Tables(ms(31 * S))),
    ]
    assert codes(diagnosed(ended, 120 * S)) == []


def test_registrations_in_the_same_batch_are_its_victims():
    lost = (P_WORKER, ev.WriterException(ms(100), "_handle_push_reg_notif", "other", 2, "AssertionError()"))
    in_flight = until(waiting("cmpl-1"), ev.RegistrationDrained) + until(
        waiting("cmpl-2"), ev.RegistrationDrained
    )
    later = until(waiting("cmpl-3", 500), ev.RegistrationDrained)
    d = one(diagnosed([*in_flight, *later, lost], 2 * S), "writer_exception")
    assert "it costs 2 requests. It dropped 2 notifications of the same batch." in d.sentence
    assert sorted(d.costs) == [("cmpl-1", 1), ("cmpl-2", 1)]


def test_without_a_victim_it_is_a_warning_that_ends():
    said: Said = [*delivered(), (P_WORKER, ev.WriterException(ms(100), "w", "", 0, "ValueError()"))]
    assert one(diagnosed(said, 5 * S), "writer_exception").severity is Severity.WARNING
    assert codes(diagnosed(said, 40 * S)) == []


# -- A14 ----------------------------------------------------------------------------------------------


def test_a_dead_listener():
    d = one(diagnosed([*delivered(), DEAD], 3 * S, (HERE, *ORIGINS[1:])), "handshake_listener_dead")
    assert (d.severity, d.subject, d.since_ns) == (Severity.ERROR, P_ENGINE, ms(1000))
    assert "P1's side channel at 10.0.0.1:5600 accepts connections and does not answer" in d.sentence
    assert "died 2.00 s ago of KeyError((0, 7))" in d.sentence
    assert "those that know it go on" in d.sentence


def test_who_tried_since_is_named_and_its_requests_counted():
    origins = (*ORIGINS, D2_SCHEDULER, D2_WORKER)
    said: Said = [
        DEAD,
        (D2_WORKER, ev.HandshakeQueued(ms(2000), P_ENGINE, "10.0.0.1", 5600)),
        (D2_WORKER, ev.HandshakeStarted(ms(2000), P_ENGINE)),
        (D2_WORKER, ev.HandshakeEnded(ms(7000), P_ENGINE, ms(2000), 0, 0.0, "Again", "Again(...)")),
        (D2_SCHEDULER, ev.RegistrationStaged(ms(1990), "r-bbbbbbbb", P_ENGINE, "10.0.0.1", 5600)),
    ]
    d = one(diagnosed(said, 8 * S, origins), "handshake_listener_dead")
    assert "(D2 tried); it costs 1 request." in d.sentence
    assert [e.engine for e in d.evidence] == [P_ENGINE, "engine-d2"]


def test_a_listener_of_an_engine_that_was_restarted_or_is_gone_is_no_news():
    restarted = (*ORIGINS, again(P_SCHEDULER, 2000), again(P_WORKER, 2000))
    assert codes(diagnosed([DEAD], 5 * S, restarted, gone=ORIGINS[:2])) == []
    down: Said = [DEAD, (P_SCHEDULER, ev.EngineDown(ms(1100))), (P_WORKER, ev.EngineDown(ms(1100)))]
    assert codes(diagnosed(down, 5 * S, gone=ORIGINS[:2])) == []


# -- A16 ----------------------------------------------------------------------------------------------


def test_a_handshake_that_waits_behind_an_unreachable_peer():
    said = [
        *handshake("dead", 0, 1, 5001, TIMED_OUT),
        *handshake("dead", 6000, 6001),
        *handshake(P_ENGINE, 6002),
        (D_SCHEDULER, ev.RegistrationStaged(ms(5990), "r-bbbbbbbb", P_ENGINE, "h", 5600)),
    ]
    cause, d = diagnosed(said, 10 * S)
    assert (cause.code, d.code) == ("peer_unreachable", "handshake_queue_blocked")
    assert (d.severity, d.subject, d.since_ns) == (Severity.WARNING, D_ENGINE, ms(6002))
    assert d.sentence == (
        "D1 (tp0) has waited 4.00 s to shake hands with P1: its one thread for handshakes is held up by engine dead at "
        "host-of-dead:5600, which does not answer (1 time in vain so far); it costs 1 request."
    )
    assert one(diagnosed(said, 60 * S), "handshake_queue_blocked").severity is Severity.ERROR, (
        "longer than a lease"
    )
    served = [
        *said,
        *handshake("dead", 6000, 6001, 11_000, TIMED_OUT),
        *handshake(P_ENGINE, 6002, 11_001, 11_005),
    ]
    assert codes(diagnosed(served, 12 * S)) == ["peer_unreachable"]
    assert codes(diagnosed(served, 50 * S)) == []


def test_nobody_waits_behind_it():
    said = handshake("dead", 0, 1, 5001, TIMED_OUT) + handshake("dead", 6000, 6001)
    assert codes(diagnosed(said, 10 * S)) == ["peer_unreachable"]


def test_the_first_handshake_with_a_peer_may_take_seconds():
    cold = handshake("cold", 0, 1) + handshake(P_ENGINE, 2)
    assert codes(diagnosed(cold, 4.5 * S)) == []
    d = one(diagnosed(cold, 8 * S), "handshake_queue_blocked")
    assert "held up by engine cold at host-of-cold:5600, whose handshake has lasted 8.00 s" in d.sentence


def test_a_short_wait_or_one_behind_a_peer_that_answers():
    short = handshake("dead", 0, 1) + handshake(P_ENGINE, 4000)
    assert codes(diagnosed(short, 5 * S)) == []
    answers = handshake("slow", 0, 1, 2000) + handshake("slow-too", 1, 2001) + handshake(P_ENGINE, 2)
    assert codes(diagnosed(answers, 4 * S)) == []


# -- A17 ----------------------------------------------------------------------------------------------


def test_a_peer_restarted_under_its_old_id():
    d = one(diagnosed([KNOWN], 15 * S, RESTARTED, gone=ORIGINS[:2]), "stale_agent_after_restart")
    assert (d.severity, d.subject, d.since_ns, d.certain) == (Severity.WARNING, D_ENGINE, ms(10 * S), True)
    assert (
        "P1 was restarted under its old engine id 5.00 s ago, and D1 still uses the NIXL agent" in d.sentence
    )
    assert [e.engine for e in d.evidence] == [D_ENGINE, P_ENGINE]


def test_its_victims_make_it_an_error():
    said = [KNOWN, *until(waiting(t=11 * S), ev.RegistrationDrained)]
    d = one(diagnosed(said, 15 * S, RESTARTED, gone=ORIGINS[:2]), "stale_agent_after_restart")
    assert d.severity is Severity.ERROR
    assert d.sentence.endswith("it costs 1 request.")


def test_p_too_can_keep_the_agent_of_a_restarted_d():
    known = (P_WORKER, ev.PeerRank(ms(5), D_ENGINE, 0, 0, D_WORKER.nixl_agent))
    origins = (*ORIGINS, again(D_SCHEDULER, 10 * S), again(D_WORKER, 10 * S))
    d = one(diagnosed([known], 15 * S, origins, gone=ORIGINS[2:]), "stale_agent_after_restart")
    assert d.subject == P_ENGINE


def test_a_new_handshake_or_a_restart_of_the_survivor_ends_it():
    anew = (D_WORKER, ev.PeerRank(ms(12 * S), P_ENGINE, 0, 0, RESTARTED[-1].nixl_agent))
    assert codes(diagnosed([KNOWN, anew], 15 * S, RESTARTED, gone=ORIGINS[:2])) == []
    both = (*RESTARTED, again(D_SCHEDULER, 12 * S), again(D_WORKER, 12 * S))
    assert codes(diagnosed([KNOWN], 15 * S, both, gone=ORIGINS)) == []


def test_a_restart_under_a_new_id_is_none():
    anew = (
        *ORIGINS,
        again(P_SCHEDULER, 10 * S, engine_id="engine-new"),
        again(P_WORKER, 10 * S, engine_id="engine-new"),
    )
    found = diagnosed([KNOWN], 15 * S, anew, gone=ORIGINS[:2])
    assert "stale_agent_after_restart" not in codes(found)


def beats(times: range, error: str = "") -> Said:
    return [(D_WORKER, ev.HeartbeatSent(ms(t * S), P_WORKER.nixl_agent, 1, "x", error)) for t in times]


GONE = "nixlRemoteDisconnectError('NIXL_ERR_REMOTE_DISCONNECT')"


def test_d_alone_says_that_it_is_not_sure():
    said = [KNOWN, *beats(range(5, 20, 5)), *beats(range(20, 40, 5), GONE), *waiting(t=15 * S)]
    alone = [x for x in said if x[0] in ORIGINS[2:]]
    d = one(diagnosed(alone, 36 * S, ORIGINS[2:]), "stale_agent_after_restart")
    assert (d.severity, d.certain, d.since_ns) == (Severity.ERROR, False, ms(20 * S))
    assert "engine engine-p is gone, or was restarted under its old engine id" in d.sentence
    assert "D1 alone can't tell" in d.sentence


def test_one_refused_heartbeat_is_too_little_and_one_that_goes_ends_it():
    assert codes(diagnosed([KNOWN, *beats(range(5, 10, 5), GONE)], 6 * S, ORIGINS[2:])) == []
    said = [KNOWN, *beats(range(5, 30, 5), GONE), *beats(range(30, 31))]
    assert codes(diagnosed(said, 31 * S, ORIGINS[2:])) == []


# -- B1 -----------------------------------------------------------------------------------------------


def test_aborted_requests_hold_blocks():
    said = [*waiting("a"), *waiting("b", 10), *ended("a", 3 * S), *ended("b", 4 * S)]
    d = one(diagnosed(said, 10 * S), "aborted_requests_pin_blocks")
    assert (d.severity, d.subject, d.since_ns) == (Severity.INFO, D_ENGINE, ms(3 * S))
    assert d.sentence == (
        "8 blocks of D1's KV cache are held by 2 requests that ended before P's push came, the first 7.00 s ago: vLLM "
        "frees them when the push comes, and not otherwise."
    )


def test_many_of_them_are_a_warning():
    said = [x for n in range(25) for x in (*waiting(f"a{n}", n), *ended(f"a{n}", 3 * S))]
    assert one(diagnosed(said, 10 * S), "aborted_requests_pin_blocks").severity is Severity.WARNING


def test_and_so_is_one_if_a_request_cannot_get_blocks_meanwhile():
    queued: Said = [
        *unclaimed("q", 5 * S),
        (D_SCHEDULER, ev.RequestArrived(ms(5 * S), "q-bbbbbbbb", "decode", P_ENGINE)),
    ]
    d = one(diagnosed([*waiting("a"), *ended("a", 3 * S), *queued], 10 * S), "aborted_requests_pin_blocks")
    assert d.severity is Severity.WARNING
    assert d.sentence.endswith("meanwhile 1 request queued at D1 can't get any.")
    assert d.costs == (("q", 1),)


def test_they_are_known_for_as_long_as_d_says_so():
    said = [*waiting("a"), *ended("a", 3 * S)]
    others = [x for n in range(120) for x in delivered(f"o{n}", 100 * S + n * 5 * S)]
    again = [(o, e) for o, e in said if o is D_SCHEDULER]
    watcher = Watcher(ListSource())
    for t in range(0, 700, 10):
        new = [(o, e) for o, e in (*said, *others) if ms((t - 10) * S) < e.t <= ms(t * S)]
        watcher.source = ListSource([reading(new + again, t * S)])
        watcher.poll()
    d = one(looked_at(watcher, 690 * S), "aborted_requests_pin_blocks")
    assert d.sentence.startswith("4 blocks of D1's KV cache are held by 1 request")


def test_a_late_push_frees_them():
    said: Said = [*waiting("a"), *ended("a", 3 * S)]
    said.append((D_SCHEDULER, ev.ReceiveFinished(ms(9 * S), "a-bbbbbbbb")))
    assert codes(diagnosed(said, 8 * S)) == ["aborted_requests_pin_blocks"]
    assert codes(diagnosed(said, 11 * S)) == []


def test_those_whose_write_failed_hold_blocks_too():
    failed = ev.TransferFailed(ms(100), "cmpl-w-aaaaaaaa", 1, "transfer_failed", "NIXL reports ERR")
    said = [*matched(), (P_WORKER, failed), *ended("cmpl-w", 3 * S)]
    assert codes(diagnosed(said, 10 * S)) == ["aborted_requests_pin_blocks"]


def test_a_restart_of_d_frees_them():
    said = [*waiting("a"), *ended("a", 3 * S)]
    origins = (*ORIGINS, again(D_SCHEDULER, 6 * S), again(D_WORKER, 6 * S))
    assert codes(diagnosed(said, 11 * S, origins, gone=ORIGINS[2:])) == []


def test_an_abort_just_now_and_one_of_a_request_that_still_queues():
    assert codes(diagnosed([*waiting("a"), *ended("a", 3 * S)], 4 * S)) == []
    queued: Said = [
        (D_SCHEDULER, ev.RequestArrived(ms(0), "q-bbbbbbbb", "decode", P_ENGINE)),
        *unclaimed("q"),
        *ended("q", 1 * S),
    ]
    assert codes(diagnosed(queued, 10 * S)) == []


# -- B5 -----------------------------------------------------------------------------------------------


def test_entries_of_requests_that_had_nothing_to_receive():
    said = rejected(1000) + growing(D_WORKER, 200, "receiving", 10, 1000)
    d = one(diagnosed(said, 200 * S), "notify_only_entries_leak")
    assert (d.severity, d.subject) == (Severity.WARNING, D_ENGINE)
    assert "D1's worker (tp0) keeps 1,000 entries of requests that had nothing to receive" in d.sentence


def test_a_table_that_empties_leaks_nothing():
    said = rejected(1000) + [(D_WORKER, ev.Tables(ms(n * S), receiving=1000 * (n < 100))) for n in range(200)]
    assert codes(diagnosed(said, 200 * S)) == []


def test_an_engine_that_said_its_last_size_at_its_busiest_and_became_idle():
    """Nothing steps any more, so nothing is said: its table is empty all the same."""
    busy = [x for n in range(400) for x in _long(n)]
    said = [*rejected(1000), *busy, *sizes(D_WORKER, 40, receiving=100)]
    assert codes(diagnosed(said, 300 * S)) == []


def _long(n: int) -> Said:
    """D waits ten seconds for a prefill; about a hundred at a time."""
    whole = delivered(f"b{n}", n * 100.0)
    return [
        (o, e if e.t < ms(n * 100.0 + 14) else msgspec.structs.replace(e, t=e.t + 10_000_000_000))
        for o, e in whole
    ]


# -- B6 -----------------------------------------------------------------------------------------------


def test_surplus_registrations_pile_up_slowly_and_it_is_a_warning():
    """D has more ranks than P: each transfer leaves one behind."""
    said: Said = []
    for n in range(60):
        said += delivered(f"r{n}", n * 2 * S, blocks_first=True)
        said.append((P_WORKER, ev.Tables(ms(n * 2 * S + S), unmatched_registrations=n + 1)))
    d, *_ = diagnosed(said, 120 * S)
    assert d.code == "stale_registrations_pile_up"
    assert (d.severity, d.subject) == (Severity.WARNING, P_ENGINE)
    assert "P1 (tp0) keeps 52 registrations that no request waits for" in d.sentence
    assert "more than" in d.sentence
    assert "stale_registrations_pile_up" not in codes(diagnosed(said, 30 * S)), "a few are no pile"


def test_registrations_that_requests_wait_for_are_no_pile():
    said = [x for n in range(50) for x in waiting(f"w{n}", n)]
    found = diagnosed([*said, *sizes(P_WORKER, 60, unmatched_registrations=50)], 60 * S)
    assert codes(found) == []


def test_those_whose_decode_leg_has_ended_are():
    said = [x for n in range(50) for x in waiting(f"w{n}", n)]
    said += [x for n in range(50) for x in ended(f"w{n}", 2 * S)]
    said += sizes(P_WORKER, 60, unmatched_registrations=50)
    held, pile = diagnosed(said, 60 * S)
    assert (held.code, pile.code) == ("aborted_requests_pin_blocks", "stale_registrations_pile_up")
    assert "P1 (tp0) keeps 50 registrations" in pile.sentence
    origins = (*ORIGINS, again(P_SCHEDULER, 61 * S), again(P_WORKER, 61 * S))
    found = codes(diagnosed(said, 70 * S, origins, gone=ORIGINS[:2]))
    assert "stale_registrations_pile_up" not in found, "a restart of P ends it"


def test_events_that_were_lost_lower_certainty():
    found = diagnosed(sizes(P_WORKER, 60, unmatched_registrations=50), 60 * S, lost=3)
    assert one(found, "stale_registrations_pile_up").certain is False


# -- B13 ----------------------------------------------------------------------------------------------


def test_polling_for_prefills_that_nobody_claims():
    said = unclaimed() + sizes(P_WORKER, 20, unmatched_blocks=1)
    d = one(diagnosed(said, 20 * S), "polling_for_unmatched")
    assert (d.severity, d.subject) == (Severity.INFO, P_ENGINE)
    assert "1 finished prefill that nobody has claimed for 20 s" in d.sentence


def test_a_prefill_that_waits_a_little():
    assert codes(diagnosed(unclaimed() + sizes(P_WORKER, 5, unmatched_blocks=1), 5 * S)) == []


def test_a_prefill_that_was_claimed():
    said = [*delivered(blocks_first=True), *sizes(P_WORKER, 20, unmatched_blocks=0)]
    assert codes(diagnosed(said, 20 * S)) == []


# -- D ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "error", "code", "words"),
    [
        (
            "update_state_after_alloc",
            "KeyError('remote_engine_id')",
            "incomplete_transfer_params",
            "D1 got a request whose kv_transfer_params lack remote_engine_id",
        ),
        ("build_connector_meta", "KeyError('tp_size')", "incomplete_transfer_params", "lack tp_size"),
        (
            "get_transfer_results",
            "ValueError('not enough values to unpack (expected 2, got 1)')",
            "engine_main_thread_exception",
            "got a notification that it cannot read",
        ),
        (
            "get_transfer_results",
            "UnicodeDecodeError('utf-8')",
            "engine_main_thread_exception",
            "cannot read",
        ),
        (
            "start_load_kv",
            "AssertionError('num_decode_blocks 4 > 3')",
            "engine_main_thread_exception",
            "several prompts over one handoff",
        ),
        (
            "update_connector_output",
            "KeyError('r-1')",
            "engine_main_thread_exception",
            "it does not know (any more)",
        ),
        ("start_load_kv", "RuntimeError('odd')", "engine_main_thread_exception", "failed in its connector"),
        (
            "get_transfer_results",
            "AssertionError('Local block size 32 is not divisible by remote block size 128 or vice versa.')",
            "block_sizes_differ",
            "has blocks of 32 tokens and a peer with blocks of 128",
        ),
    ],
)
def test_what_ended_an_engine(where: str, error: str, code: str, words: str):
    d = one(diagnosed(died(where, error), 3 * S, gone=ORIGINS[2:]), code)
    assert (d.severity, d.subject, d.since_ns) == (Severity.ERROR, D_ENGINE, ms(1000))
    assert words in d.sentence
    assert f"{where} raised {error}. The engine has ended of it." in d.sentence


def test_its_victims_are_counted_and_its_end_is_not_named_twice():
    said = [*waiting(), *died("start_load_kv", "RuntimeError('odd')", P_WORKER)]
    d = one(diagnosed(said, 3 * S, gone=ORIGINS[:2]), "engine_main_thread_exception")
    assert d.sentence.endswith("The engine has ended of it; it costs 1 request.")


def test_an_engine_that_survives_is_named_for_a_while():
    said = died("start_load_kv", "RuntimeError('odd')")
    d = one(diagnosed(said, 3 * S), "engine_main_thread_exception")
    assert "still there" in d.sentence
    assert codes(diagnosed(said, 40 * S)) == []


def test_a_restart_ends_it():
    said = died("start_load_kv", "RuntimeError('odd')")
    origins = (*ORIGINS, again(D_SCHEDULER, 2000), again(D_WORKER, 2000))
    assert codes(diagnosed(said, 3 * S, origins, gone=ORIGINS[2:])) == []
    addressed = tuple(at(o, side_channel="h:1") if o.connector_role == "scheduler" else o for o in ORIGINS)
    anew = tuple(again(o, 2000, engine_id="new") for o in addressed[2:])
    said = [(addressed[2], said[0][1])]
    assert codes(diagnosed(said, 3 * S, (*addressed, *anew), gone=addressed[2:])) == []


# -- gone ---------------------------------------------------------------------------------------------


def test_an_engine_that_took_a_request_with_it():
    d = one(diagnosed(waiting(), 5 * S, gone=ORIGINS[:2]), "engine_gone")
    assert (d.severity, d.subject) == (Severity.ERROR, P_ENGINE)
    assert "P1 has gone without shutting down" in d.sentence
    assert d.sentence.endswith("it costs 1 request.")
    assert d.costs == (("cmpl-w", 1),)


def test_an_engine_that_took_nothing_with_it_is_a_warning_and_its_successor_ends_it():
    addressed = tuple(at(o, side_channel="h:1") if o.connector_role == "scheduler" else o for o in ORIGINS)
    said = [(addressed[ORIGINS.index(o)], e) for o, e in delivered()]
    assert (
        one(diagnosed(said, 5 * S, addressed, gone=addressed[:2]), "engine_gone").severity is Severity.WARNING
    )
    anew = tuple(again(o, 3 * S, engine_id="new") for o in addressed[:2])
    assert codes(diagnosed(said, 5 * S, (*addressed, *anew), gone=addressed[:2])) == []


def test_a_rank_that_is_lost():
    second = origin(P_ENGINE, "worker", tp=1, tp_size=2)
    d = one(diagnosed(delivered(), 5 * S, (*ORIGINS, second), gone=(second,)), "engine_gone")
    assert d.severity is Severity.ERROR
    assert "P1 has lost worker 1" in d.sentence


def test_an_engine_s_processes_do_not_end_at_one_moment():
    said = [*delivered(), (P_WORKER, ev.EngineDown(ms(1000)))]
    assert codes(diagnosed(said, 2 * S, gone=(P_WORKER,))) == []
    assert one(diagnosed(said, 5 * S, gone=(P_WORKER,)), "engine_gone").severity is Severity.ERROR
    killed = one(diagnosed(delivered(), 1 * S, gone=(P_WORKER,)), "engine_gone")
    assert killed.severity is Severity.WARNING, "the rest may follow"


def test_a_clean_end_is_none():
    said = [*delivered(), (P_SCHEDULER, ev.EngineDown(ms(1000))), (P_WORKER, ev.EngineDown(ms(1000)))]
    assert codes(diagnosed(said, 5 * S, gone=ORIGINS[:2])) == []


def test_one_that_went_down_in_a_handshake_with_a_restarted_peer():
    said = [*handshake(P_ENGINE, 11 * S, 11 * S)]
    found = diagnosed(said, 13 * S, RESTARTED, gone=ORIGINS)
    assert codes(found) == ["engine_gone"]
    assert "while it shook hands with P1, which had been restarted" in found[0].sentence


# -- E ------------------------------------------------------------------------------------------------


def test_another_engine_answers():
    d = one(diagnosed(refused(WRONG.format("old", P_ENGINE), peer="old"), 3 * S), "engine_id_mismatch")
    assert (d.severity, d.subject) == (Severity.ERROR, D_ENGINE)
    assert d.sentence == (
        "D1 was sent to 10.0.0.1:5600 for engine old, but P1 answers there: the router names an engine that is gone. "
        "1 handshake failed, the last 2.00 s ago."
    )


def test_the_id_that_answered_may_be_cut_short():
    cut = ev.cut(WRONG.format("5b7c1f9e-0f5d-4b0e-9a53-3f2f7f1f8a01", "8d1e44a2-93f1-4e6c-8f0a-9b0f0c4fd202"))
    other = tuple(at(o, engine_id="8d1e44a2-93f1-4e6c-8f0a-9b0f0c4fd202") for o in ORIGINS[:2])
    said = refused(cut, peer="5b7c1f9e-0f5d-4b0e-9a53-3f2f7f1f8a01")
    assert (
        "but P1 answers there"
        in one(diagnosed(said, 3 * S, (*other, *ORIGINS[2:])), "engine_id_mismatch").sentence
    )


def test_a_wrong_id_is_history_when_it_does_not_come_again():
    assert codes(diagnosed(refused(WRONG.format("old", P_ENGINE), peer="old"), 40 * S)) == []


def test_a_loopback_address_that_leads_to_oneself():
    """Input 10: a loopback address comes before the mismatch that it leads to."""
    said = refused(WRONG.format("x", D_ENGINE), host="localhost", peer="x")
    d = one(diagnosed(said, 3 * S), "loopback_side_channel")
    assert d.certain
    assert "engine x advertises localhost:5600, which for D1 is a port of its own host" in d.sentence
    assert "that engine itself answers there" in d.sentence


def test_a_loopback_address_where_nobody_answers():
    d = one(diagnosed(refused(TIMED_OUT, host="127.0.0.1", peer="x"), 3 * S), "loopback_side_channel")
    assert d.certain is False
    assert "D1 alone can tell" in d.sentence
    away = tuple(at(o, host="elsewhere") for o in ORIGINS[:2])
    d = one(
        diagnosed(refused(TIMED_OUT, host="127.0.0.1"), 3 * S, (*away, *ORIGINS[2:])), "loopback_side_channel"
    )
    assert d.certain


def test_a_loopback_address_where_another_d_answers():
    origins = (*ORIGINS, D2_SCHEDULER, D2_WORKER)
    said = refused(WRONG.format("x", D2_SCHEDULER.engine_id), host="localhost", peer="x")
    d = one(diagnosed(said, 3 * S, origins), "loopback_side_channel")
    assert "D2 answers there" in d.sentence
    elsewhere = refused(WRONG.format("x", "y"), host="localhost", peer="x")
    d = one(diagnosed(elsewhere, 3 * S), "loopback_side_channel")
    assert "engine y answers there" in d.sentence
    assert d.certain is False


def test_where_all_is_on_one_host_a_loopback_address_is_good():
    here = (at(P_SCHEDULER, side_channel="127.0.0.1:5600"), *ORIGINS[1:])
    assert codes(diagnosed(delivered(), 3 * S, here)) == []
    said = refused(WRONG.format("old", P_ENGINE), host="127.0.0.1", peer="old")
    one(diagnosed(said, 3 * S, here), "engine_id_mismatch")


# -- nobody answers -----------------------------------------------------------------------------------


def test_d_gets_no_answer_and_the_router_names_another_address():
    here = (at(P_SCHEDULER, side_channel="10.0.0.1:5700"), *ORIGINS[1:])
    said = [*refused(TIMED_OUT), *until(waiting(), ev.RegistrationSent)]
    d = one(diagnosed(said, 3 * S, here), "peer_unreachable")
    assert (d.severity, d.subject, d.certain) == (Severity.ERROR, D_ENGINE, True)
    assert d.sentence == (
        "D1 gets no answer from P1's side channel at 10.0.0.1:5600; P1 advertises 10.0.0.1:5700: the router names "
        "another address. 1 handshake failed, the last 2.00 s ago; it costs 1 request."
    )
    same = one(
        diagnosed(said, 3 * S, (at(here[0], side_channel="10.0.0.1:5600"), *here[1:])), "peer_unreachable"
    )
    assert "look for a firewall between the two" in same.sentence
    alone = one(diagnosed([x for x in said if x[0] in ORIGINS[2:]], 3 * S, ORIGINS[2:]), "peer_unreachable")
    assert alone.certain is False


def test_that_p_gets_no_answer_from_d_is_said_of_the_transfers():
    theirs: Said = [(P_WORKER, ev.HandshakeEnded(ms(1500), D_ENGINE, 0, 0, 0.0, "Again", TIMED_OUT))]
    assert codes(diagnosed(theirs, 3 * S)) == []


def test_a_peer_that_is_gone_or_deaf_is_no_cause_of_its_own():
    assert codes(diagnosed([*delivered(), *refused(TIMED_OUT)], 3 * S, gone=ORIGINS[:2])) == ["engine_gone"]
    assert codes(diagnosed([DEAD, *refused(TIMED_OUT, t=6000)], 8 * S)) == ["handshake_listener_dead"]


def test_incompatible_engines_and_what_they_differ_in():
    old = tuple(at(o, vllm_version="0.31.0") for o in ORIGINS[:2])
    new = tuple(at(o, vllm_version="0.32.0", connector_version=14) for o in ORIGINS[2:])
    d = one(diagnosed(refused(HASHES), 3 * S, (*old, *new)), "incompatible_engines")
    assert "differ in vLLM 0.32.0 and 0.31.0, connector version 14 and unknown." in d.sentence
    alone = one(diagnosed(refused(HASHES), 3 * S, ORIGINS[2:]), "incompatible_engines")
    assert "engine engine-p is not observed" in alone.sentence
    same = one(diagnosed(refused(HASHES), 3 * S), "incompatible_engines")
    assert "see their dtypes and attention backends" in same.sentence


def test_a_pair_that_refuses_one_another_is_named_once():
    mine = refused(HASHES)
    theirs: Said = [(P_WORKER, msgspec.structs.replace(mine[-1][1], t=ms(1500), peer_engine=D_ENGINE))]
    assert one(diagnosed([*mine, *theirs], 3 * S), "incompatible_engines").subject == D_ENGINE


def test_block_sizes_that_differ_and_whom_it_costs():
    """Input 11."""
    said = [*refused(BLOCKS), *until(waiting(), ev.RegistrationSent)]
    d = one(diagnosed(said, 3 * S), "block_sizes_differ")
    assert "D1 has blocks of 32 tokens, P1 blocks of 128: D1 refuses to shake hands." in d.sentence
    assert d.sentence.endswith("it costs 1 request.")


def test_the_writer_s_complaint_of_block_sizes_is_no_other_cause():
    said = [*refused(BLOCKS), (P_WORKER, ev.WriterException(ms(1200), "_xfer_blocks", "", 0, BLOCKS))]
    one(diagnosed(said, 3 * S), "block_sizes_differ")


def test_a_handshake_that_goes_well_ends_them_all():
    for error in (BLOCKS, HASHES, WRONG.format(P_ENGINE, "x")):
        well = (D_WORKER, ev.HandshakeEnded(ms(2000), P_ENGINE, ms(1990), 1))
        assert codes(diagnosed([*refused(error), well], 3 * S)) == []


# -- E8 -----------------------------------------------------------------------------------------------


def test_nixl_without_telemetry():
    """Input 17."""
    said: Said = []
    for n in range(3):
        said += [x for x in delivered(f"r{n}", n * 100) if not isinstance(x[1], ev.TransferDone)]
        error = "telemetry: nixlNoTelemetryError('NIXL_ERR_NO_TELEMETRY')"
        failed = ev.TransferFailed(ms(n * 100 + 35), f"r{n}-aaaaaaaa", n + 1, "transfer_exception", error)
        said.append((P_WORKER, failed))
    d = one(diagnosed(said, 3 * S), "telemetry_missing")
    assert (d.severity, d.subject) == (Severity.WARNING, P_ENGINE)
    assert "P1's NIXL has no telemetry. 3 transfers of late" in d.sentence
    assert codes(diagnosed(said, 60 * S)) == []


def test_a_transfer_that_really_failed():
    failed = ev.TransferFailed(ms(100), "cmpl-w-aaaaaaaa", 1, "transfer_failed", "NIXL reports ERR")
    assert codes(diagnosed([*matched(), (P_WORKER, failed)], 3 * S)) == []


# -- F ------------------------------------------------------------------------------------------------


def test_a_serial_router():
    """Input 9: 20 requests, all blocks finished 30 to 60 ms before the registration."""
    said = [x for n in range(20) for x in late_by(f"r{n}", n * 100, 20 + n)]
    d = one(diagnosed(said, 3 * S), "serial_router")
    assert (d.severity, d.subject) == (Severity.WARNING, P_ENGINE)
    assert (
        "D1's registration came after P1's finished prefill in 20 of the last 20 transfers, by 4"
        in d.sentence
    )
    assert "D1 had the request only then" in d.sentence
    assert codes(diagnosed(said, 60 * S)) == [], "nothing moves any more"


def test_a_registration_that_is_late_as_d_was_busy():
    """D had the request when P had: the router is not to blame."""
    in_time = {f"r{n}-bbbbbbbb": ms(n * 100 + 1) for n in range(20)}
    said = [
        (
            o,
            msgspec.structs.replace(e, t=in_time[e.request_id])
            if isinstance(e, ev.RequestArrived) and o is D_SCHEDULER
            else e,
        )
        for n in range(20)
        for o, e in late_by(f"r{n}", n * 100, 40)
    ]
    assert codes(diagnosed(said, 3 * S)) == []


def test_p_alone_cannot_tell_a_serial_router_from_a_busy_d():
    said = only([x for n in range(20) for x in late_by(f"r{n}", n * 100, 40)], *ORIGINS[:2])
    d = one(diagnosed(said, 3 * S, ORIGINS[:2]), "serial_router")
    assert (d.severity, d.certain) == (Severity.INFO, False)
    assert "which is not observed, admits late" in d.sentence


def test_a_router_that_sends_both_at_once():
    said = [x for n in range(20) for x in delivered(f"r{n}", n * 100, blocks_first=n % 4 == 0)]
    assert codes(diagnosed(said, 3 * S)) == []


def test_a_registration_that_comes_a_hair_too_late():
    said = [x for n in range(20) for x in late_by(f"r{n}", n * 100, -4)]
    assert codes(diagnosed(said, 3 * S)) == []


def test_a_few_are_too_few_to_tell():
    assert codes(diagnosed([x for n in range(5) for x in late_by(f"r{n}", n * 100, 40)], 3 * S)) == []


def test_a_busy_writer():
    said = [x for n in range(40) for x in slow_at(f"r{n}", n * 250, ev.Submitted, 220)]
    d = one(diagnosed(said, 10.2 * S), "writer_busy")
    assert (d.severity, d.subject) == (Severity.WARNING, P_ENGINE)
    assert "P1's push writer (tp0) was busy for 8" in d.sentence
    assert codes(diagnosed(said, 21 * S)) == []


def test_a_writer_that_is_busy_half_the_time():
    said = [x for n in range(40) for x in slow_at(f"r{n}", n * 250, ev.Submitted, 110)]
    assert codes(diagnosed(said, 10.2 * S)) == []


def test_a_submit_that_hangs_keeps_the_writer():
    said = [*until(delivered(), ev.Submitted)]
    assert "writer_busy" in codes(diagnosed(said, 12 * S))


def test_a_slow_link():
    said = [x for n in range(8) for x in slow_at(f"r{n}", n * 1000, ev.NotificationDrained, 900, 4 * MIB)]
    d = one(diagnosed(said, 12 * S), "slow_link")
    assert (d.severity, d.subject) == (Severity.WARNING, P_ENGINE)
    assert "From P1 to D1 blocks move at 4.4" in d.sentence
    assert "for 905 ms (median)" in d.sentence


def test_a_link_that_is_slow_beside_another():
    origins = (*ORIGINS, D2_SCHEDULER, D2_WORKER)
    there = {D_SCHEDULER.instance: D2_SCHEDULER, D_WORKER.instance: D2_WORKER}

    def of_d2(e: ev.Event) -> dict[str, str]:
        """What P says of D, said of the other one."""
        other = {"peer_engine": D2_WORKER.engine_id, "agent": D2_WORKER.nixl_agent}
        return {field: value for field, value in other.items() if getattr(e, field, "")}

    def to_d2(base: str, t: float) -> Said:
        whole = slow_at(base, t, ev.NotificationDrained, 0, 1024 * MIB)
        return [
            (there.get(o.instance, o), msgspec.structs.replace(e, **(of_d2(e) if o is P_WORKER else {})))
            for o, e in whole
        ]

    slow = [x for n in range(8) for x in slow_at(f"r{n}", n * 1000, ev.NotificationDrained, 900, 1024 * MIB)]
    fast = [x for n in range(8) for x in to_d2(f"q{n}", n * 1000 + 50)]
    d = one(diagnosed([*slow, *fast], 12 * S, origins), "slow_link")
    assert "From P1 to D1 blocks move at 1.10 GiB/s, 20" in d.sentence
    assert codes(diagnosed(slow, 12 * S, origins)) == [], "alone it can't be told"


def test_small_transfers_say_nothing_of_a_link():
    said = [x for n in range(8) for x in slow_at(f"r{n}", n * 1000, ev.NotificationDrained, 900, 4096)]
    assert codes(diagnosed(said, 12 * S)) == []


# -- healthy ------------------------------------------------------------------------------------------


def alive_and_well(seconds: int, *, per_second: int = 4) -> Said:
    said: Said = [(o, ev.EngineUp(ms(0))) for o in ORIGINS]
    said += handshake(P_ENGINE, 1, 2, 30)
    said.append((D_WORKER, ev.PeerRank(ms(30), P_ENGINE, 0, 0, P_WORKER.nixl_agent)))
    said.append((P_WORKER, ev.PeerRank(ms(30), D_ENGINE, 0, 0, D_WORKER.nixl_agent)))
    for second in range(seconds):
        for o in ORIGINS:
            said.append((o, ev.Loop(ms(second * S), 100, 2_000_000, 500_000, True)))
        said.append((P_WORKER, ev.Tables(ms(second * S), 0, second % 3, second % 7, 2, 5)))
        said.append((D_WORKER, ev.Tables(ms(second * S), receiving=second % 9)))
        said += [
            x
            for n in range(per_second)
            for x in delivered(f"r{second}-{n}", second * S + n * 200, blocks_first=n == 0)
        ]
    return said


def test_concurrent_dispatch_whose_heartbeats_never_match():
    said = alive_and_well(60)
    said += [(D_WORKER, ev.HeartbeatSent(ms(n * 5 * S), P_WORKER.nixl_agent, 3, "cmpl-x")) for n in range(12)]
    said += [(P_WORKER, ev.HeartbeatDrained(ms(n * 5 * S), 0, 3, "cmpl-x")) for n in range(12)]
    for now in (1, 5, 20, 59, 61, 200):
        assert codes(diagnosed(said, now * S)) == []


def test_idle_engines():
    assert codes(diagnosed(alive_and_well(5), 900 * S)) == []
    assert codes(diagnosed([], 900 * S)) == []


def test_full_hits_and_a_few_aborts_are_no_error():
    said = alive_and_well(40)
    for n in range(30):
        t = n * S
        said += unclaimed(f"hit{n}", t)
        said.append((D_SCHEDULER, ev.NothingToReceive(ms(t + 30), f"hit{n}-bbbbbbbb", "no_external_tokens")))
        said += [*waiting(f"ab{n}", t), *ended(f"ab{n}", t + 500)]
    found = diagnosed(said, 60 * S)
    assert [d.severity for d in found if d.severity is Severity.ERROR] == []


def test_only_one_side_is_observed():
    said = alive_and_well(30)
    for side in (ORIGINS[:2], ORIGINS[2:]):
        assert codes(diagnosed(only(said, *side), 31 * S, side)) == []


def test_heavy_tails_and_bursts_with_all_ranks_of_two_engines():
    rng = random.Random(7)
    said = alive_and_well(1)
    for n in range(200):
        begin = rng.choice([0, 0, 5, 20]) * S + rng.random() * 3000
        said += slow_at(
            f"h{n}",
            begin,
            rng.choice([ev.RegistrationDrained, ev.BlocksStaged, ev.NotificationDrained]),
            rng.paretovariate(1.2) * 20,
        )
    for now in (1, 3, 6, 15, 24, 40, 100):
        found = diagnosed(said, now * S)
        assert [d.sentence for d in found if d.severity is Severity.ERROR] == [], now


def test_every_code_that_is_found_is_in_the_catalogue_and_no_worse_than_it_says():
    rank = list(Severity)
    for found in (
        diagnosed(died("x", "KeyError('tp_size')"), 3 * S),
        diagnosed([DEAD], 3 * S),
        diagnosed([BROKEN], 2 * S),
    ):
        for d in found:
            assert rank.index(d.severity) <= rank.index(CATALOGUE[d.code].severity)
            assert d.runbook.endswith(d.code)
