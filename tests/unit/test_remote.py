"""Agents' events over real sockets: connections that are cut, clients that are slow, several sources as one."""

import contextlib
import json
import threading
import time
from collections import Counter

import httpx
import msgspec
import pytest
from typer.testing import CliRunner

from pushscope.lab.main import app
from pushscope.lab.simulator.network import Hardships, Relay
from pushscope.telemetry import events as ev
from pushscope.telemetry.agent import api
from pushscope.telemetry.agent.access import Access
from pushscope.telemetry.agent.api import make_app
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.frames import MAGIC, Decoder, Encoder
from pushscope.telemetry.joined import JoinedSource
from pushscope.telemetry.recording import RecordingSource
from pushscope.telemetry.remote import RemoteSource, agent_url
from pushscope.telemetry.ring import RingReader
from pushscope.telemetry.source import UNHEARD_NS, RingsSource
from pushscope.telemetry.watch import Watcher

from . import samples
from .agents import Agent, Engines, moved, serving, until
from .scenario import D_SCHEDULER, D_WORKER, ORIGINS, P_SCHEDULER, P_WORKER, delivered, ms, reading


@pytest.fixture
def engines(tmp_path):
    engines = Engines(dict.fromkeys(ORIGINS, tmp_path / "rings"))
    yield engines
    engines.close()


@pytest.fixture
def agent(engines, tmp_path):
    with serving(tmp_path / "rings") as agent:
        yield agent


def picked(reading) -> list[str]:
    """The requests whose blocks were picked up, as a reading has them."""
    events = [ev.decode(payload) for _, payload in reading.events]
    return [e.request_id for e in events if isinstance(e, ev.BlocksPickedUp)]


def numbered(n: int) -> ev.BlocksPickedUp:
    return ev.BlocksPickedUp(ms(n), f"r{n:06}")


class Following:
    """What came of a source, polled until it is enough."""

    def __init__(self, source):
        self.source, self.got = source, []
        self.reading = None

    def look(self) -> None:
        self.reading = self.source.poll()
        self.got += picked(self.reading)

    def until(self, number: int, timeout_s: float = 30.0) -> list[str]:
        def enough():
            self.look()
            return len(self.got) >= number

        until(enough, timeout_s)
        return self.got

    def noticed(self, *words: str) -> None:
        """Until a notice has any of these words."""

        def said():
            self.look()
            return any(word in notice for word in words for notice in self.reading.notices)

        until(said)

    def quiet(self) -> None:
        def connected():
            self.look()
            return not self.reading.notices

        until(connected)


# -- the API -------------------------------------------------------------------------------------------


def test_the_snapshot_and_the_health_as_json(tmp_path):
    with serving(tmp_path, snapshot=samples.busy()) as agent:
        assert httpx.get(agent.url + "/healthz").json() == {"status": "ok"}
        shown = httpx.get(agent.url + "/v1/snapshot").json()
        assert [e["name"] for e in shown["engines"]] == ["P1", "P2", "D1"]


def test_events_are_a_recording_in_the_making(agent, engines, tmp_path):
    engines.say(moved(delivered(), engines.began_ns, ms(0)))
    file = tmp_path / "curl.psr"
    with httpx.stream("GET", agent.url + "/v1/events") as response, file.open("wb") as out:
        assert response.headers["content-type"] == "application/vnd.pushscope.recording"
        begin = time.monotonic()
        for chunk in response.iter_raw():
            out.write(chunk)
            if time.monotonic() - begin > 2.5:
                break
    watcher = Watcher(RecordingSource(file))
    watcher.run_to_end()
    (t,) = watcher.snapshot().recent
    assert (t.base_id, t.outcome.value) == ("cmpl-r", "delivered")
    decoder, frames = Decoder(), 0
    decoder.feed(file.read_bytes()[len(MAGIC) :])
    while decoder.next():
        frames += 1
    assert 3 <= frames <= 4  # the first, and one a second


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "expected"),
        (b"\xff\xfe", "expected"),
        (b'{"after": 5}', "Expected `object`, got `int`"),
        (b'{"after": {"x": "y"}}', "Expected `int`, got `str`"),
        (b'{"after": {"x": -1}}', "a position of ring 'x', found -1"),
        (b'{"since": {}}', "unknown field `since`"),
    ],
)
def test_positions_that_are_none(agent, body, says):
    answer = httpx.post(agent.url + "/v1/events", content=body)
    assert answer.status_code == 400
    assert says in answer.text
    assert answer.text.count("\n") == 1


def test_a_position_beyond_the_ring(agent, engines):
    ring = engines.recorders[P_WORKER].origin.instance
    answer = httpx.post(agent.url + "/v1/events", json={"after": {ring: 99}})
    assert (answer.status_code, answer.text) == (
        400, f"ring {ring} has 0 events, none after 99; begin anew, without positions\n"
    )  # fmt: skip
    answer = httpx.post(agent.url + "/v1/events", content=b'{"after": {' + b" " * (1 << 20) + b"}}")
    assert answer.status_code == 413


def test_unknown_paths_and_methods(agent):
    answer = httpx.get(agent.url + "/metricz")
    assert (answer.status_code, answer.text) == (
        404, "there is no '/metricz' here, only /healthz, /metrics, /v1/snapshot, /v1/events\n"
    )  # fmt: skip
    assert httpx.post(agent.url + "/v1/snapshot").status_code == 405


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9479", "127.0.0.1.evil.example", "localhost.", "10.0.0.7", ""]
)
@pytest.mark.parametrize("path", ["/healthz", "/v1/snapshot", "/v1/events"])
def test_on_loopback_only_names_of_loopback_are_answered(agent, host, path):
    answer = httpx.get(agent.url + path, headers={"Host": host})
    assert answer.status_code == 403
    assert "Host header" in answer.text


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:9479", "127.0.0.53", "[::1]:9479", "[::1]"]
)
def test_through_a_tunnel_the_port_may_be_another(agent, host):
    assert httpx.get(agent.url + "/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("bind_host", ["0.0.0.0", "10.0.0.7", "::", "node-a"])
def test_another_address_needs_a_token(tmp_path, bind_host):
    with pytest.raises(PushscopeError, match="has no token; set one with --token or PUSHSCOPE_TOKEN"):
        make_app(tmp_path, samples.busy, access=Access(bind_host))


@pytest.mark.parametrize("bind_host", ["127.0.0.1", "0.0.0.0"])
def test_with_a_token_nothing_is_told_without_it(tmp_path, bind_host):
    with serving(tmp_path, access=Access(bind_host, "s3cret")) as agent:
        for path in ("/v1/snapshot", "/v1/events"):
            for given in (
                {},
                {"Authorization": "Bearer s3cre"},
                {"Authorization": "Basic s3cret"},
                {"Authorization": "Bearer \xe9"},
            ):
                headers = {name: value.encode("latin-1") for name, value in given.items()}
                answer = httpx.get(agent.url + path, headers=headers)
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == "Bearer"
                assert "s3cret" not in answer.text
        assert (
            httpx.get(agent.url + "/v1/snapshot", headers={"Authorization": "Bearer s3cret"}).status_code
            == 200
        )
        assert httpx.get(agent.url + "/healthz").status_code == 200  # a probe has none


def test_elsewhere_the_name_is_free(tmp_path):
    with serving(tmp_path, access=Access("0.0.0.0", "s3cret")) as agent:
        headers = {"Host": "node-a:9479", "Authorization": "Bearer s3cret"}
        assert httpx.get(agent.url + "/v1/snapshot", headers=headers).status_code == 200


def test_a_client_that_goes_leaves_its_place_to_another(agent, monkeypatch):
    monkeypatch.setattr(api, "MAX_STREAMS", 2)

    def status(then=lambda: None) -> int:
        with httpx.stream("GET", agent.url + "/v1/events") as response:
            if response.status_code == 200:
                chunks = response.iter_raw()
                next(chunks)
                then()
            else:
                assert "2 clients are streaming already" in response.read().decode()
            return response.status_code

    for _ in range(5):
        until(lambda: status() == 200)
    seen: list[int] = []
    until(lambda: status(lambda: status(lambda: seen.append(status()))) == 200 and seen)
    assert seen == [503]


# -- the client ----------------------------------------------------------------------------------------


def test_a_late_ring_reader_goes_on_after_a_position(engines):
    recorder = engines.recorders[P_WORKER]
    for n in range(10):
        recorder.record(numbered(n))
    reader = RingReader(recorder.path)
    assert len(reader.poll(0)) == reader.position == 10
    again = RingReader(recorder.path, 7)
    assert [ev.decode(p).request_id for p in again.poll(0)] == ["r000007", "r000008", "r000009"]
    assert (again.position, again.lost, again.forgotten) == (10, 0, 0)
    for n in range(10, 5000):
        recorder.record(numbered(n))
    late = RingReader(recorder.path, 7)
    num = len(late.poll(0))
    assert late.position == 5000
    assert late.lost == 5000 - 7 - num > 0
    assert late.forgotten == 0
    for r in (reader, again, late):
        r.close()


@pytest.mark.parametrize("alive", [True, False])
def test_a_bounded_reader_comes_forward_in_every_ring(engines, tmp_path, alive):
    for recorder in engines.recorders.values():
        for n in range(1000):
            recorder.record(numbered(n))
    if not alive:
        engines.close()
    with contextlib.closing(RingsSource(tmp_path / "rings", at_most=1200)) as source:
        readings = [source.poll() for _ in range(4)]
    for number, read in enumerate(readings, 1):
        assert read.more is (number < 4)
        assert [ring.position for ring in read.rings] == [min(1000, 300 * number)] * 4
        assert all(ring.alive is alive for ring in read.rings)
    assert picked(readings[0]) == 4 * [f"r{n:06}" for n in range(300)]
    assert Counter(name for read in readings for name in picked(read)) == {f"r{n:06}": 4 for n in range(1000)}


def test_connections_that_never_last_long_still_bring_a_long_backlog(agent, engines):
    number = 3500
    for recorder in engines.recorders.values():
        for n in range(number):
            recorder.record(numbered(n))
    relay = Relay(agent.port, Hardships(reset_every=100_000), seed=1)  # all of it is more than 400 kB
    following = Following(RemoteSource(relay.url))
    following.until(4 * number, 60)
    assert Counter(following.got) == {f"r{n:06}": 4 for n in range(number)}
    assert relay.resets >= 2
    following.source.close()
    relay.close()


def test_what_an_agent_streams_is_what_its_rings_hold(agent, engines, tmp_path):
    source = RemoteSource(agent.url)
    watcher = Watcher(source)
    engines.say(moved(delivered("a") + delivered("b", 5), engines.began_ns, ms(0)))
    watcher.read_all()
    local = Watcher(RingsSource(tmp_path / "rings"))
    local.read_all()
    assert watcher.snapshot().recent == local.snapshot().recent
    assert len(local.snapshot().recent) == 2
    assert watcher.snapshot().clocks == ()
    assert watcher.snapshot().source == agent.url
    assert watcher.snapshot().totals.events == local.snapshot().totals.events
    source.close()
    local.source.close()


def test_an_agent_that_is_started_again_is_followed_on(agent, engines):
    p = engines.recorders[P_WORKER]
    following = Following(RemoteSource(agent.url))
    for n in range(100):
        p.record(numbered(n))
    following.until(100)
    following.quiet()
    agent.stop()
    following.noticed("disconnected since")
    for n in range(100, 200):
        p.record(numbered(n))
    assert len(following.reading.rings) == 4, "what is known of its rings stays"
    assert all(ring.unheard for ring in following.reading.rings)
    agent.start()
    assert following.until(200) == [f"r{n:06}" for n in range(200)]
    following.quiet()
    assert sum(s.lost + s.torn + s.forgotten for s in following.reading.rings) == 0
    assert not any(ring.unheard for ring in following.reading.rings)
    following.source.close()


def test_an_agent_is_out_of_reach_until_all_that_it_held_has_come(agent, engines, monkeypatch):
    monkeypatch.setattr(api, "AT_MOST", 200)
    relay = Relay(agent.port, Hardships(delay_s=0.2))
    following = Following(RemoteSource(relay.url))
    engines.recorders[P_WORKER].record(numbered(0))
    following.until(1)
    agent.stop()
    following.noticed("disconnected since")
    for recorder in engines.recorders.values():
        for n in range(3500):
            recorder.record(numbered(n))
    time.sleep(UNHEARD_NS / 1e9)
    agent.start()

    def heard() -> bool:
        following.look()
        return not any(ring.unheard for ring in following.reading.rings)

    until(heard)
    assert len(following.got) == 1 + 4 * 3500
    following.source.close()
    relay.close()


@pytest.mark.parametrize("seed", range(3))
def test_connections_that_are_reset_at_random_lose_and_repeat_nothing(agent, engines, seed, monkeypatch):
    monkeypatch.setattr(api, "AT_MOST", 200)
    relay = Relay(agent.port, Hardships(reset_every=25_000), seed=seed)
    following = Following(RemoteSource(relay.url))
    number = 3500  # the ring holds them all

    def record() -> None:
        for n in range(number):
            engines.recorders[P_WORKER].record(numbered(n))
            if n % 100 == 0:
                time.sleep(0.05)

    writer = threading.Thread(target=record)
    writer.start()
    got = following.until(number, 60)
    writer.join()
    assert got == [f"r{n:06}" for n in range(number)]
    assert relay.resets >= 2
    following.source.close()
    relay.close()


def test_what_was_overwritten_while_disconnected_is_counted_as_lost(engines, tmp_path):
    agent = Agent(tmp_path / "rings").start()
    p = engines.recorders[P_WORKER]
    following = Following(RemoteSource(agent.url))
    for n in range(10):
        p.record(numbered(n))
    following.until(10)
    agent.stop()
    slots = p._ring.num_slots
    for n in range(10, 10 + 2 * slots):
        p.record(numbered(n))
    agent.start()
    got = following.until(slots // 2)
    following.quiet()
    (state,) = (
        s
        for s in following.reading.rings
        if s.origin.connector_role == "worker" and "engine-p" in s.origin.engine_id
    )
    assert state.lost + len(got) == 10 + 2 * slots
    assert len(got) == len(set(got))
    assert state.position == 10 + 2 * slots
    following.source.close()
    agent.stop()


def test_a_slow_client_loses_only_its_own(engines, tmp_path):
    """It reads nothing while the ring turns over; another client has everything."""
    with serving(tmp_path / "rings") as agent:
        relay = Relay(agent.port)
        slow, fast = Following(RemoteSource(relay.url)), Following(RemoteSource(agent.url))
        p = engines.recorders[P_WORKER]
        p.record(numbered(0))
        slow.until(1)
        fast.until(1)
        relay.stall()
        number = 8 * p._ring.num_slots
        for n in range(1, number):
            p.record(numbered(n))
            if n % 500 == 0:
                time.sleep(0.15)
                fast.look()
        fast.until(number)
        slow.noticed("lagging", "disconnected")  # after ten seconds it is taken for that
        relay.flow()

        def over() -> bool:
            slow.look()
            return any(s.position == number for s in slow.reading.rings)

        until(over, 60)
        slow.quiet()
        lost = sum(s.lost for s in slow.reading.rings)
        assert lost > 0
        assert lost + len(slow.got) == number == len(fast.got)
        assert len(set(slow.got)) == len(slow.got)
        assert sum(s.lost for s in fast.reading.rings) == 0
        slow.source.close()
        fast.source.close()
        relay.close()


def test_a_reader_that_does_not_poll_holds_only_so_much(engines, tmp_path):
    with serving(tmp_path / "rings") as agent:
        source = RemoteSource(agent.url, max_buffered=1000)
        following = Following(source)
        p = engines.recorders[P_WORKER]
        p.record(numbered(0))
        following.until(1)
        for n in range(1, 20_000):
            p.record(numbered(n))
            if n % 500 == 0:
                time.sleep(0.03)
        time.sleep(0.5)
        assert source._buffered <= 1000 + p._ring.num_slots

        def over() -> bool:
            following.look()
            return any(s.position == 20_000 for s in following.reading.rings)

        until(over)
        assert len(following.got) + sum(s.lost for s in following.reading.rings) == 20_000
        source.close()


def test_a_wrong_token_is_said_and_a_right_one_works(engines, tmp_path):
    with serving(tmp_path / "rings", access=Access("0.0.0.0", "s3cret")) as agent:
        wrong, right = RemoteSource(agent.url, "guess"), RemoteSource(agent.url, "s3cret")
        with pytest.raises(PushscopeError, match="it answers 401: expected the agent's token"):
            wrong.settle()
        right.settle()
        assert len(right.poll().rings) == 4
        assert right.poll().notices == ()
        assert "disconnected since" in wrong.poll().notices[0]
        wrong.close()
        right.close()


def test_nobody_there_is_one_clear_sentence():
    source = RemoteSource("http://127.0.0.1:9")
    with pytest.raises(
        PushscopeError, match=r"127.0.0.1:9: .*Connection refused; is `pushscope agent` running there\?"
    ):
        source.settle()
    source.close()


def test_something_else_there_is_one_clear_sentence(tmp_path):
    async def other(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"<html>hello</html>"})

    agent = Agent(tmp_path)
    agent.start()
    agent._server.config.loaded_app = other
    source = RemoteSource(agent.url)
    with pytest.raises(PushscopeError, match="is it a pushscope agent"):
        source.settle()
    source.close()
    agent.stop()


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("node-a:9479", "http://node-a:9479"),
        ("http://node-a:9479/", "http://node-a:9479"),
        ("https://node-a", "https://node-a"),
        ("[::1]:9479", "http://[::1]:9479"),
    ],
)
def test_urls_of_agents(text, url):
    assert agent_url(text) == url


@pytest.mark.parametrize(
    "text", ["", "ftp://node-a", "http://", "http://node-a/v1/events", "http://a b", "http://a:99999999"]
)
def test_what_is_no_url_of_an_agent(text):
    with pytest.raises(
        PushscopeError, match=r"--connect is .*expected an agent's URL, such as http://10.0.0.7:9479"
    ):
        agent_url(text)


@pytest.mark.parametrize("token", ["gehéim", "two\nlines"])
def test_a_token_that_no_header_can_carry(token):
    with pytest.raises(PushscopeError, match="expected a token of plain ASCII"):
        RemoteSource("http://127.0.0.1:9", token)


def test_a_stream_of_rings_that_were_not_told_is_damaged():
    decoder = Decoder()
    first = reading(delivered(), 60)
    whole = Encoder().encode(msgspec.structs.replace(first, events=[(4, b"x")]))
    decoder.feed(whole)
    with pytest.raises(PushscopeError, match="speaks of rings that were not told"):
        decoder.next()


# -- several as one --------------------------------------------------------------------------------------


@pytest.fixture
def two_hosts(tmp_path):
    """P's rings in one folder, D's in another."""
    p, d = tmp_path / "p", tmp_path / "d"
    engines = Engines({P_SCHEDULER: p, P_WORKER: p, D_SCHEDULER: d, D_WORKER: d})
    said = [e for n in range(20) for e in delivered(f"r{n}", 10 * n)]
    engines.say(moved(said, engines.began_ns, ms(0)))
    yield engines, p, d
    engines.close()


def test_two_folders_and_two_agents_are_as_one_source_of_all(two_hosts, tmp_path):
    _, p, d = two_hosts
    with serving(p) as of_p, serving(d) as of_d:
        sources = {
            "two folders": JoinedSource([RingsSource(p), RingsSource(d)]),
            "two agents": JoinedSource([RemoteSource(of_p.url), RemoteSource(of_d.url)]),
            "a folder and an agent": JoinedSource([RingsSource(d), RemoteSource(of_p.url)]),
            "all of it twice": JoinedSource(
                [RingsSource(p), RemoteSource(of_d.url), RemoteSource(of_p.url), RingsSource(d)]
            ),
        }
        everything = tmp_path / "everything"
        everything.mkdir(mode=0o700)
        for folder in (p, d):
            for ring in folder.glob("*.ring"):
                (everything / ring.name).hardlink_to(ring)
        sources["one folder"] = RingsSource(everything)
        seen = {}
        for name, source in sources.items():
            watcher = Watcher(source)
            watcher.read_all()
            s = watcher.snapshot()
            seen[name] = (
                sorted((t.base_id, t.outcome, t.stages, t.path, t.sides) for t in s.recent),
                s.totals.events, s.totals.writes, sorted(e.engine_id for e in s.engines), s.notices,
            )  # fmt: skip
            source.close()
    assert len(seen["one folder"][0]) == 20
    for name, found in seen.items():
        assert found == seen["one folder"], name


def test_one_agent_that_is_gone_does_not_hide_the_other(two_hosts):
    _, _, d = two_hosts
    with serving(d) as of_d:
        source = JoinedSource([RemoteSource("http://127.0.0.1:9"), RemoteSource(of_d.url)])
        watcher = Watcher(source)
        watcher.read_all()
        s = watcher.snapshot()
        assert [e.side for e in s.engines] == ["D"]
        assert any("http://127.0.0.1:9: disconnected since" in n for n in s.notices)
        assert s.unread
        source.close()
    with (
        contextlib.closing(
            JoinedSource([RemoteSource("http://127.0.0.1:9"), RemoteSource("http://127.0.0.1:7")])
        ) as source,
        pytest.raises(PushscopeError, match="Connection refused"),
    ):
        source.settle()


# -- commands ----------------------------------------------------------------------------------------------


def run(*arguments: str, **environment: str):
    return CliRunner().invoke(app, list(arguments), env=environment)


def test_commands_read_agents(two_hosts, tmp_path):
    _, p, d = two_hosts
    access = Access("0.0.0.0", "s3cret")
    with serving(p, access=access) as of_p, serving(d, access=access) as of_d:
        both = ("--connect", of_p.url, "--connect", of_d.url)
        done = run("top", "--once", "--json", *both, "--token", "s3cret")
        assert done.exit_code == 0, done.output
        shown = json.loads(done.stdout)
        assert shown["totals"]["outcomes"] == {"delivered": 20}
        assert shown["source"] == f"{of_p.url}, {of_d.url}"
        done = run("report", "--json", *both, PUSHSCOPE_TOKEN="s3cret")
        assert json.loads(done.stdout)["transfers"] == 20
        done = run("why", "r7", *both, PUSHSCOPE_TOKEN="s3cret")
        assert done.exit_code == 0
        assert "delivered" in done.stdout
        done = run("stuck", *both, "--token", "s3cret")
        assert done.exit_code == 0, done.output
        done = run("record", "-o", str(tmp_path / "both.psr"), "--for", "1.5", *both, "--token", "s3cret")
        assert done.exit_code == 0
        done = run("report", "--json", "--replay", str(tmp_path / "both.psr"))
        assert json.loads(done.stdout)["transfers"] == 20
        done = run("report", "--json", "--rings", str(d), "--connect", of_p.url, "--token", "s3cret")
        assert json.loads(done.stdout)["transfers"] == 20


def test_commands_say_what_they_cannot_read(two_hosts, tmp_path):
    _, p, d = two_hosts
    with serving(p, access=Access("0.0.0.0", "s3cret")) as of_p:
        for command in (("top", "--once"), ("report",), ("stuck",), ("why", "r7")):
            done = run(*command, "--connect", of_p.url, "--token", "wrong")
            assert done.exit_code == 2, (command, done.output)
            assert "it answers 401" in " ".join(done.stderr.split()), command
            done = run(*command, "--connect", "ftp://x")
            assert done.exit_code == 2
            assert "expected an agent's URL" in " ".join(done.stderr.split())
        done = run("stuck", "--rings", str(d), "--connect", of_p.url)
        assert done.exit_code == 2
        assert "disconnected since" in done.output
        done = run("report", "--replay", str(tmp_path / "x.psr"), "--connect", of_p.url)
        assert done.exit_code == 2
        assert "--replay reads a recording and nothing else" in " ".join(done.stderr.split())


def test_a_recording_of_agents_has_what_replays_its_clocks(two_hosts, tmp_path):
    _, p, _ = two_hosts
    with serving(p) as of_p:
        done = run("record", "-o", str(tmp_path / "p.psr"), "--for", "1.2", "--connect", of_p.url)
        assert done.exit_code == 0
    source = RecordingSource(tmp_path / "p.psr")
    stamps = []
    while reading := source.poll():
        assert reading.host is not None
        stamps += reading.stamps
    assert stamps
    assert stamps[0].asked_ns is not None
    assert all(s.host == reading_host for s in stamps for reading_host in [stamps[0].host])
    assert all((s.asked_ns or 0) <= s.t_ns <= s.heard_ns for s in stamps)
