"""What spans a transfer has: names, parents, links, times; the same whoever looks."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.model import Severity
from pushscope.telemetry.spans.attributes import ATTRIBUTES, ERROR_TYPES, RECEIVE, SEND, On
from pushscope.telemetry.spans.model import Kind, Link, Span
from pushscope.telemetry.spans.part import engines_done

from . import samples
from .failures import MET, D, P, aborted, done, expires, fails, matches, posts, prefills, received, registers
from .scenario import D_ENGINE, D_SCHEDULER, D_WORKER, ORIGINS, P_ENGINE, P_WORKER, assembled, delivered, ms
from .span_scenes import (
    AHEAD_NS,
    CALLER,
    SCENES,
    UNSAMPLED,
    arrives,
    made,
    places,
    sent_on,
    traced,
)

TRACE, CALLERS_SPAN = int(CALLER[3:35], 16), int(CALLER[36:52], 16)
WHOLE = MET + posts() + arrives(30) + done(31) + received(32) + sent_on(33)
every_scene = pytest.mark.parametrize("scene", SCENES)


def of(spans: list[Span], name: str) -> list[Span]:
    return [span for span in spans if span.name == f"kv_transfer {name}"]


def one(spans: list[Span], name: str) -> Span:
    (found,) = of(spans, name)
    return found


def at(span: Span) -> tuple[float, float]:
    """Beginning and end, in the scene's milliseconds."""
    start, end = ((t - AHEAD_NS - ms(0)) / 1e6 for t in (span.start_unix_ns, span.end_unix_ns))
    return start, end


def parents(spans: list[Span]) -> dict[str, str]:
    """Child -> parent, by name; ``""`` for a root, ``caller`` for a span of another program."""
    names = {span.span_id: span.name for span in spans}
    return {
        span.name: names.get(span.parent_span_id or 0, "caller" if span.parent_span_id else "")
        for span in spans
    }


# -- what holds of every transfer ----------------------------------------------------------------------


@every_scene
def test_ids_are_distinct_and_every_parent_is_there_or_a_caller(scene):
    spans = made(*SCENES[scene])
    assert max(Counter((s.trace_id, s.span_id) for s in spans).values(), default=1) == 1
    known = {(s.trace_id, s.span_id) for s in spans}
    for span in spans:
        assert span.trace_id
        assert span.span_id
        if span.parent_span_id is not None and not span.parent_is_remote:
            assert (span.trace_id, span.parent_span_id) in known
    assert all(span.kind is Kind.INTERNAL for span in spans if span.name not in (RECEIVE, SEND))


@every_scene
def test_no_child_begins_before_its_parent_or_ends_after_it(scene):
    spans = made(*SCENES[scene])
    by_id = {(s.trace_id, s.span_id): s for s in spans}
    for span in spans:
        assert span.start_unix_ns <= span.end_unix_ns
        parent = by_id.get((span.trace_id, span.parent_span_id or 0))
        if parent is not None:
            assert parent.start_unix_ns <= span.start_unix_ns, span.name
            assert span.end_unix_ns <= parent.end_unix_ns, span.name


@every_scene
def test_links_lead_both_ways(scene):
    spans = made(*SCENES[scene])
    by_id = {Link(s.trace_id, s.span_id): s for s in spans}
    for span in spans:
        if len(span.attributes.get("kv_transfer.sides", ())) < 2:
            continue  # the other side's span is made elsewhere
        for link in span.links:
            assert Link(span.trace_id, span.span_id) in by_id[link].links
            assert {span.name, by_id[link].name} == {RECEIVE, SEND}


@every_scene
@pytest.mark.parametrize("engine", [P_ENGINE, D_ENGINE])
def test_ids_are_the_same_from_one_sides_view_alone(scene, engine):
    """And so are traces and parents: two agents that never talk make one trace."""
    alone, joined = made(*SCENES[scene], seen={engine}), made(*SCENES[scene], local={engine})
    known = {s.span_id: (s.name, s.trace_id, s.parent_span_id, s.start_unix_ns) for s in joined}
    for span in alone:
        if not (span.name == "kv_transfer wire" and engine == P_ENGINE):  # D's, where D is seen
            assert known[span.span_id] == (span.name, span.trace_id, span.parent_span_id, span.start_unix_ns)


@every_scene
def test_the_critical_path_is_disjoint_whole_and_ends_at_decode_scheduled(scene):
    for span in of(made(*SCENES[scene]), "receive"):
        seconds = span.attributes.get("kv_transfer.path_seconds")
        if seconds is None:
            continue
        assert len(seconds) == len(span.attributes["kv_transfer.path_stages"])
        assert min(seconds) > 0
        assert sum(seconds) == pytest.approx(span.attributes["kv_transfer.exposed_seconds"], abs=1e-9)


TYPES = {"string": str, "int": int, "double": float, "boolean": bool}


@every_scene
def test_attributes_are_those_of_the_table(scene):
    table = {a.name: a for a in ATTRIBUTES}
    for span in made(*SCENES[scene], uncertainty_ns=None):
        place = span.name.removeprefix("kv_transfer ")
        for name, value in span.attributes.items():
            attribute = table[name]
            item, is_many = attribute.type.removesuffix("[]"), attribute.type.endswith("[]")
            assert isinstance(value, tuple) is is_many, name
            assert all(type(v) is TYPES[item] for v in (value if is_many else (value,))), name
            where = attribute.on.value.split(", ")
            stage = "stages" in where and place not in ("receive", "send")
            assert attribute.on is On.ANY or place in where or stage, (name, span.name)
        error_type = span.attributes.get("error.type", "")
        assert error_type in {"", *ERROR_TYPES}
        assert span.error_type in ("", error_type)


@given(scene=st.sampled_from(sorted(SCENES)), order=st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_spans_do_not_depend_on_the_order_of_rings(scene: str, order: random.Random):
    said, origins = SCENES[scene]
    shuffled = said + order.choices(said, k=5)
    order.shuffle(shuffled)
    key = msgspec.structs.astuple
    assert sorted(map(repr, map(key, made(shuffled, origins)))) == sorted(
        map(repr, map(key, made(said, origins)))
    )


def test_every_attribute_and_error_word_of_ours_is_made_by_some_transfer():
    """The table has nothing that is not there."""
    extra = [
        *made(WHOLE, uncertainty_ns=5),
        *made(traced(WHOLE), diagnoses=(samples.diagnosis("slow_link", Severity.WARNING, "x"),)),
        *made([*WHOLE, (D_SCHEDULER, ev.TraceContext(ms(1), D, "", "transfer-1"))], with_model()),
        *made([(o, msgspec.structs.replace(e, t=e.t - 10**9) if o is D_WORKER else e) for o, e in WHOLE]),
        *made(WHOLE, seen={P_ENGINE}),
        *made(MET + posts() + fails(28, "of_a_later_release", number=1)),
        *made(MET + posts(), gone=(P_ENGINE,)),
        *made([*MET, (D_WORKER, ev.ReceiveFailed(ms(40), D))]),
        *made([*registers(), (D_WORKER, ev.RegistrationFailed(ms(12), D, to_rank=False, error_type="no_remote_agents")),
               (D_WORKER, ev.ReceiveFailed(ms(13), D))]),
    ]  # fmt: skip
    spans = extra + [span for scene in SCENES.values() for span in made(*scene, uncertainty_ns=None)]
    missing = {a.name for a in ATTRIBUTES} - {name for span in spans for name in span.attributes}
    assert missing == set()
    words = {str(span.attributes.get("error.type")) for span in spans}
    ours = {"no_remote_agents", "receive_failed", "lease_expired", "engine_lost", "aborted", "_OTHER"}
    assert ours <= words


def with_model() -> tuple[ev.Origin, ...]:
    return tuple(msgspec.structs.replace(o, model="tiny") for o in ORIGINS)


# -- a whole transfer ----------------------------------------------------------------------------------


class TestDelivered:
    def test_d_early(self):
        spans = made(delivered())
        assert parents(spans) == {
            "kv_transfer receive": "",
            "kv_transfer registration": "kv_transfer receive",
            "kv_transfer flight": "kv_transfer receive",
            "kv_transfer wire": "kv_transfer receive",
            "kv_transfer notification": "kv_transfer receive",
            "kv_transfer wake": "kv_transfer receive",
            "kv_transfer send": "",
            "kv_transfer rendezvous": "kv_transfer send",
            "kv_transfer handoff": "kv_transfer send",
            "kv_transfer descriptors": "kv_transfer send",
            "kv_transfer submit": "kv_transfer send",
        }
        assert len({s.trace_id for s in spans}) == 1
        assert (at(one(spans, "receive")), at(one(spans, "send"))) == ((10, 33), (13, 32))
        assert (at(one(spans, "wire")), at(one(spans, "rendezvous"))) == ((25, 30), (13, 23))
        assert (one(spans, "receive").kind, one(spans, "send").kind) == (Kind.CONSUMER, Kind.PRODUCER)
        assert {s.engine_id for s in spans if s.name.split()[1] in ("wire", "flight", "receive")} == {
            D_ENGINE
        }
        assert one(spans, "rendezvous").attributes["kv_transfer.waited"] == "D waited for P"

    def test_p_early_begins_before_d(self):
        spans = made(delivered(blocks_first=True))
        assert at(one(spans, "send"))[0] == 20
        assert at(one(spans, "receive"))[0] == 30

    def test_figures(self):
        spans = made(delivered(), with_model())
        receive, send = one(spans, "receive").attributes, one(spans, "send").attributes
        assert receive["kv_transfer.exposed_seconds"] == 0.013
        assert receive["kv_transfer.hidden_seconds"] == 0.010
        assert (receive["kv_transfer.ranks_done"], receive["kv_transfer.ranks_expected"]) == (1, 1)
        assert "kv_transfer.exposed_seconds" not in send
        for attributes in (receive, send):
            assert attributes["kv_transfer.bytes"] == 4096
            assert attributes["kv_transfer.descriptors"] == 8
            assert attributes["kv_transfer.merged_descriptors"] == 2
            assert attributes["gen_ai.request.model"] == "tiny"
        assert (receive["server.port"], send["server.port"]) == (5600, 5700)
        assert one(spans, "submit").attributes["kv_transfer.nixl_post_seconds"] == 0.0001
        assert one(spans, "wire").attributes["kv_transfer.nixl_transfer_seconds"] == 0.0009

    def test_the_gaps_of_the_critical_path_have_names(self):
        path = one(made(delivered()), "receive").attributes["kv_transfer.path_stages"]
        assert path == (
            "handoff", "rendezvous", "before descriptors", "descriptors", "before submit", "submit", "wire",
            "notification", "wake",
        )  # fmt: skip

    def test_nothing_is_said_of_an_uncertainty_on_one_host(self):
        assert not any("clock" in name for s in made(delivered()) for name in s.attributes)

    def test_joined_spans_say_how_sure_the_clocks_are(self):
        sure = {s.name.split()[1] for s in made(delivered(), uncertainty_ns=2_000_000)
                if s.attributes.get("kv_transfer.clock_uncertainty_seconds") == 0.002}  # fmt: skip
        assert sure == {"receive", "flight", "wire"}
        unsure = made(delivered(), uncertainty_ns=None)
        assert one(unsure, "wire").attributes["kv_transfer.clock_unsure"] is True

    def test_what_was_wrong_with_it_is_named_by_its_codes(self):
        found = tuple(
            samples.diagnosis(code, Severity.WARNING, "cmpl-r") for code in ("slow_link", "handover_slow")
        )
        for span in made(delivered(), diagnoses=found):
            if span.name in (RECEIVE, SEND):
                assert span.attributes["kv_transfer.diagnosis"] == "slow_link"
                assert span.attributes["kv_transfer.diagnoses"] == ("slow_link", "handover_slow")


class TestRanks:
    def test_two_p_ranks_are_two_sends(self):
        spans = made(*SCENES["TP 2 to 1"])
        ranks = [s.attributes["kv_transfer.p.rank"] for s in of(spans, "send")]
        assert ranks == ["tp0", "tp1"]
        for name in ("rendezvous", "descriptors", "submit", "wire", "notification"):
            assert sorted(s.attributes["kv_transfer.p.rank"] for s in of(spans, name)) == ranks, name
        assert len(one(spans, "receive").links) == 2
        numbers = [s.attributes["kv_transfer.notification"] for s in of(spans, "notification")]
        assert numbers == [1, 2]
        sends = {s.span_id: s.attributes["kv_transfer.p.rank"] for s in of(spans, "send")}
        assert all(sends[s.parent_span_id] == s.attributes["kv_transfer.p.rank"] for s in of(spans, "submit"))

    def test_two_d_ranks_are_two_writes_of_one_send(self):
        spans = made(*SCENES["TP 1 to 2"])
        send = one(spans, "send")
        for name in ("descriptors", "submit", "wire", "registration"):
            assert sorted(s.attributes["kv_transfer.d.rank"] for s in of(spans, name)) == ["tp0", "tp1"], name
        assert [s.attributes["kv_transfer.write"] for s in of(spans, "submit")] == [1, 2]
        assert send.attributes["kv_transfer.bytes"] == 8192

    def test_ids_never_come_from_the_global_random(self, monkeypatch):
        """vLLM seeds it alike in every rank."""
        before = made(*SCENES["TP 2 to 1"])
        random.seed(0)
        state = random.getstate()
        for name in ("random", "getrandbits", "randbytes", "randint", "choice"):
            monkeypatch.setattr(random, name, None)
        assert made(*SCENES["TP 2 to 1"]) == before
        monkeypatch.undo()
        assert random.getstate() == state


class TestPull:
    def test_d_posts_and_p_waits(self):
        spans = made(*SCENES["pull"])
        found = parents(spans)
        assert {name.split()[1] for name, parent in found.items() if parent == RECEIVE} == {
            "allocation", "handoff", "descriptors", "submit", "wire", "wake",
        }  # fmt: skip
        assert [name for name, parent in found.items() if not parent] == [
            RECEIVE, "kv_transfer relay", SEND,
        ]  # fmt: skip
        assert len({s.trace_id for s in spans}) == 1
        assert at(one(spans, "relay")) == (20, 40), "it ends where D's part begins"
        assert at(one(spans, "send")) == (20, 54.5)

    def test_two_requests_of_d_that_read_one_of_p_are_one_send(self):
        said, origins = SCENES["pull"]
        again = [
            (o, msgspec.structs.replace(e, request_id="1_" + D)) for o, e in said if o.engine_id == D_ENGINE
        ]
        spans = made(said + again, origins)
        assert len(of(spans, "receive")) == 2
        assert len(of(spans, "send")) == 1
        assert len({s.span_id for s in spans}) == len(spans)


# -- callers -------------------------------------------------------------------------------------------


class TestCallers:
    def test_both_sides_are_under_the_callers_span(self):
        spans = made(traced(WHOLE))
        assert {s.trace_id for s in spans} == {TRACE}
        for name in ("receive", "send"):
            assert one(spans, name).parent_span_id == CALLERS_SPAN
            assert one(spans, name).parent_is_remote

    def test_p_is_told_of_ds_caller(self):
        (send,) = of(made(traced(WHOLE), seen={P_ENGINE}), "send")
        assert (send.trace_id, send.parent_span_id) == (TRACE, CALLERS_SPAN)

    def test_ps_own_caller_goes_before_ds(self):
        other = CALLER.replace("b7ad6b7169203331", "00f067aa0ba902b7")
        send = one(made(traced(WHOLE, p=other)), "send")
        assert send.parent_span_id == 0x00F067AA0BA902B7

    def test_two_callers_are_two_traces_that_link_to_each_other(self):
        other = CALLER.replace("0af7651916cd43dd", "0000000000000001")
        spans = made(traced(WHOLE, p=other))
        send, receive = one(spans, "send"), one(spans, "receive")
        assert send.trace_id != receive.trace_id
        assert send.links == (Link(receive.trace_id, receive.span_id),)
        assert receive.links == (Link(send.trace_id, send.span_id),)

    def test_what_a_caller_did_not_sample_has_no_spans(self):
        assert made(traced(WHOLE, d=UNSAMPLED)) == []
        assert len(made(traced(WHOLE, d=UNSAMPLED), unsampled=True)) == len(made(WHOLE))

    @pytest.mark.parametrize("text", ["", "00-0-0-01", "garbage", "00-" + "0" * 32 + CALLER[35:]])
    def test_what_is_no_traceparent_is_no_caller(self, text):
        assert made(traced(WHOLE, d=text)) == made(WHOLE)

    def test_retries_do_not_mix_under_one_caller(self):
        spans = made(*SCENES["tried again"])
        assert {s.trace_id for s in spans} == {TRACE}
        receives = of(spans, "receive")
        assert [s.attributes["kv_transfer.attempt"] for s in receives] == [1, 2]
        for receive in receives:
            linked = [s for s in spans if Link(s.trace_id, s.span_id) in receive.links]
            ids = {s.attributes["kv_transfer.d.request_id"] for s in (receive, *linked)}
            assert len(ids) == 1

    def test_retries_without_a_caller_are_traces_of_their_own(self):
        said = [(o, e) for o, e in SCENES["tried again"][0] if not isinstance(e, ev.TraceContext)]
        spans = made(said)
        assert len({s.trace_id for s in spans}) == 2
        for trace_id in {s.trace_id for s in spans}:
            mine = [s for s in spans if s.trace_id == trace_id and s.name in (RECEIVE, SEND)]
            assert len({s.attributes["kv_transfer.attempt"] for s in mine}) == 1


# -- one side ------------------------------------------------------------------------------------------


class TestOneSided:
    def test_p_alone_ends_the_wire_with_its_own_poll(self):
        spans = made(delivered(), seen={P_ENGINE})
        assert {s.name.split()[1] for s in spans} == {
            "send", "rendezvous", "handoff", "descriptors", "submit", "wire",
        }  # fmt: skip
        wire = one(spans, "wire")
        assert wire.attributes["kv_transfer.upper_bound"] is True
        assert at(wire) == (25, 32)

    def test_d_alone_has_no_joined_figure(self):
        spans = made(delivered(), seen={D_ENGINE})
        assert {s.name.split()[1] for s in spans} == {"receive", "registration", "notification", "wake"}
        receive = one(spans, "receive")
        assert not {"kv_transfer.exposed_seconds", "kv_transfer.path_seconds"} & receive.attributes.keys()
        assert len(receive.links) == 1, "P's span has an id that D can compute"

    def test_joined_figures_come_once_from_ds_agent(self):
        """Each host's agent reads the other's events too."""
        of_p, of_d = made(delivered(), local={P_ENGINE}), made(delivered(), local={D_ENGINE})
        assert {s.engine_id for s in of_p} == {P_ENGINE}
        assert {s.engine_id for s in of_d} == {D_ENGINE}
        assert not of(of_p, "wire")
        assert len(of(of_d, "wire")) == 1
        assert sorted(map(repr, of_p + of_d)) == sorted(map(repr, made(delivered())))


# -- other ends ----------------------------------------------------------------------------------------


class TestEnds:
    def test_a_failed_write_is_an_error_on_its_way_up(self):
        spans = made(
            MET + posts() + fails(29, "transfer_failed", "NIXL_ERR", number=1) + aborted(60) + expires(30_000)
        )
        wrong = {s.name.split()[1]: s.error_type for s in spans if s.error_type}
        assert wrong == {"receive": "transfer_failed", "send": "transfer_failed", "wire": "transfer_failed"}
        assert "NIXL_ERR" in one(spans, "wire").error

    def test_another_ranks_failure_is_not_this_ones(self):
        said, origins = SCENES["TP 2 to 1"]
        said = [(o, e) for o, e in said if e.t < ms(33)]
        spans = made(said + fails(33, "transfer_failed", number=1, by=origins[2]) + aborted(60), origins)
        assert [s.error_type for s in of(spans, "send")] == ["", "transfer_failed"]

    def test_an_expired_lease(self):
        spans = made(prefills() + expires(30_000))
        send = one(spans, "send")
        assert send.error_type == "lease_expired"
        assert at(send) == (20, 30_000)
        rendezvous = one(spans, "rendezvous")
        assert rendezvous.attributes["kv_transfer.unfinished"] is True
        assert at(rendezvous) == (22, 30_000)

    def test_an_aborted_request_is_no_error_of_ours(self):
        spans = made(registers() + aborted(5_000))
        receive = one(spans, "receive")
        assert receive.attributes["error.type"] == "aborted"
        assert receive.error_type == ""
        assert at(receive) == (10, 5_000)
        assert one(spans, "rendezvous").attributes["kv_transfer.unfinished"] is True, "P had the registration"

    def test_an_engine_that_is_gone(self):
        spans = made(MET + posts(), gone=(P_ENGINE,))
        assert {one(spans, name).error_type for name in ("receive", "send")} == {"engine_lost"}

    def test_what_is_open_ends_where_it_is_asked_to(self):
        spans = made(MET + posts(), until_ns=ms(9_000))
        for name in ("receive", "send", "wire"):
            assert at(one(spans, name))[1] == 9_000
        assert one(spans, "wire").attributes["kv_transfer.unfinished"] is True
        assert one(spans, "receive").attributes["kv_transfer.outcome"] == "moving"

    def test_a_send_goes_on_while_one_of_its_writes_does(self):
        spans = made(MET + posts() + posts(30, number=2, to=1) + done(40), until_ns=ms(9_000))
        assert at(one(spans, "send"))[1] == 9_000
        spans = made(
            MET + posts() + posts(30, number=2, to=1) + done(40) + done(50, number=2), until_ns=ms(9_000)
        )
        assert at(one(spans, "send"))[1] == 50

    def test_a_registration_that_no_prefill_came_for_ends_with_ds_request(self):
        spans = made(registers() + aborted(5_000), until_ns=ms(9_000))
        assert {at(one(spans, name))[1] for name in ("send", "rendezvous", "receive")} == {5_000}

    def test_the_part_of_an_engine_that_is_gone_ends_with_the_last_it_said(self):
        spans = made(MET + posts() + aborted(5_000), gone=(P_ENGINE,), until_ns=ms(9_000))
        assert at(one(spans, "send"))[1] == 28
        assert at(one(spans, "receive"))[1] == 5_000

    def test_blocks_that_d_did_not_need_expire_without_an_error(self):
        full_hit = (D_SCHEDULER, ev.NothingToReceive(ms(15), D, "no_external_tokens"))
        spans = made([*registers()[:1], full_hit, *prefills(), *expires(30_000)])
        assert one(spans, "receive").attributes["kv_transfer.outcome"] == "nothing to receive"
        assert one(spans, "send").attributes.get("error.type") is None

    def test_the_path_goes_up_to_the_decode_though_the_wake_was_not_seen(self):
        said, origins = SCENES["pull"]
        spans = made([(o, e) for o, e in said if not isinstance(e, ev.ReceiveDone)], origins)
        receive = one(spans, "receive").attributes
        assert receive["kv_transfer.path_stages"][-1] == "before decode"
        assert sum(receive["kv_transfer.path_seconds"]) == pytest.approx(
            receive["kv_transfer.exposed_seconds"]
        )

    def test_ps_part_is_over_with_its_lease_though_d_waits_on(self):
        def over(said):
            (transfer,) = (assembler := assembled(said)).open_transfers()
            sides = assembler.sides_of(transfer)
            assert sides is not None
            return engines_done(transfer, sides)

        said = prefills() + registers(drained=False)
        assert over(said) == frozenset()
        assert over(said + expires(30_000)) == {P_ENGINE}
        assert over(said + expires(30_000) + aborted(40_000)) == {P_ENGINE, D_ENGINE}
        assert over(registers() + aborted(5_000)) == {P_ENGINE, D_ENGINE}, "P has no part of its own"


# -- clocks --------------------------------------------------------------------------------------------


class TestClocks:
    @pytest.mark.parametrize("ahead_ms", [-400, -20, 20, 400])
    @pytest.mark.parametrize(
        "scene", ["delivered, D early", "delivered, P early", "TP 2 to 1", "TP 1 to 2", "pull"]
    )
    def test_nothing_impossible_is_said_if_they_disagree(self, scene, ahead_ms):
        said, origins = SCENES[scene]
        skewed = [
            (o, msgspec.structs.replace(e, t=e.t + ahead_ms * 1_000_000) if o.engine_id == D_ENGINE else e)
            for o, e in said
        ]
        spans = made(skewed, origins)
        by_id = {s.span_id: s for s in spans}
        assert spans
        for span in spans:
            assert span.start_unix_ns <= span.end_unix_ns
            if parent := by_id.get(span.parent_span_id or 0):
                assert parent.start_unix_ns <= span.start_unix_ns
                assert span.end_unix_ns <= parent.end_unix_ns
        for notification in of(spans, "notification"):
            ranks = [notification.attributes[f"kv_transfer.{side}.rank"] for side in "pd"]
            (write,) = (
                s
                for s in of(spans, "submit")
                if ranks == [s.attributes[f"kv_transfer.{x}.rank"] for x in "pd"]
            )
            assert write.start_unix_ns <= notification.start_unix_ns

    def test_a_notification_that_seems_to_come_before_its_write_is_moved_and_marked(self):
        early = [
            (o, msgspec.structs.replace(e, t=e.t - 6_000_000) if isinstance(e, ev.NotificationDrained) else e)
            for o, e in WHOLE
        ]
        spans = made(early)
        notification, submit = one(spans, "notification"), one(spans, "submit")
        assert notification.start_unix_ns >= submit.start_unix_ns
        for span in (notification, one(spans, "wire")):
            assert span.attributes["kv_transfer.clamped"] is True

    def test_a_registration_that_p_drains_when_d_has_given_up_ends_with_d(self):
        spans = made(registers(drained=False) + aborted(50) + registers(60)[4:])
        flight = one(spans, "flight")
        assert at(flight) == (11, 50)
        assert flight.attributes["kv_transfer.clamped"] is True


def test_places_are_those_of_the_scene():
    """The scenes' helpers themselves: nothing is said by an engine that is not there."""
    for said, origins in SCENES.values():
        assert {o for o, _ in places(said, origins)} <= set(origins)
    assert matches()[0][0] is P_WORKER
    assert P != D
