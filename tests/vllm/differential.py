"""One scenario on P and D in one process, plain or instrumented: what vLLM did, written down for comparison.

usage: differential.py plain|pushscope PORT FOLDER OUT

Written down, with what differs from run to run taken out (random id suffixes, agent names, ports): the NIXL
calls beneath everything, per agent and thread, with operation, descriptor ids and notification bytes; what
each scheduler told its workers; tokens, finish reasons and blocks in use. An instrumented run also says what
pushscope saw.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

SUFFIX = re.compile(r"-[0-9a-f]{8}(?=$|:|,|')")
LENGTHS = (1, 32, 33, 300, 1500)
"""Prompts in tokens: around a block's border, and in several chunks."""
QUIET = 40
"""Steps after each case, in which whatever is under way comes to its end."""


def plainly(value: Any) -> Any:
    """JSON, without what is random."""
    if isinstance(value, bytes):
        return plainly_message(value)
    if isinstance(value, str):
        return SUFFIX.sub("-*", value)
    if isinstance(value, dict):
        return {str(plainly(k)): plainly(v) for k, v in value.items()}
    if isinstance(value, set):
        return sorted(plainly(v) for v in value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plainly(v) for v in value]
    return value if isinstance(value, int | bool | None) else str(type(value).__name__)


def plainly_message(message: bytes) -> Any:
    import msgspec

    prefix = b"PUSH_REG:"
    if not message.startswith(prefix):
        return SUFFIX.sub("-*", message.decode())
    registration = msgspec.msgpack.decode(message[len(prefix) :])
    registration.pop("pushscope", None)  # the one key that may be added
    return {"PUSH_REG": {k: plainly(v) for k, v in registration.items() if not k.endswith("port")}}


class Log:
    """The NIXL calls of one agent, per thread."""

    def __init__(self) -> None:
        self.calls: dict[str, list[Any]] = {}

    def add(self, name: str, *arguments: Any) -> None:
        thread = threading.current_thread().name
        role = "writer" if thread.startswith("nixl-push-writer") else "main"
        self.calls.setdefault(role, []).append([name, *map(plainly, arguments)])


def listen(agent: Any, log: Log) -> None:
    """Write down every call that moves something. By the bare agent's own attributes: beneath any proxy."""
    prepare, post, send, release = (
        agent.make_prepped_xfer,
        agent.transfer,
        agent.send_notif,
        agent.release_xfer_handle,
    )

    def make_prepped_xfer(
        operation: str, local: Any, local_ids: Any, remote: Any, remote_ids: Any, *a: Any, **k: Any
    ):
        log.add("make_prepped_xfer", operation, local_ids, remote_ids, list(a), k)
        return prepare(operation, local, local_ids, remote, remote_ids, *a, **k)

    def transfer(handle: Any, *a: Any, **k: Any) -> Any:
        log.add("transfer", list(a), k)
        return post(handle, *a, **k)

    def send_notif(name: Any, notif_msg: bytes, *a: Any, **k: Any) -> Any:
        if not notif_msg.startswith(b"HB:"):  # heartbeats go by the clock
            log.add("send_notif", notif_msg, list(a), k)
        return send(name, notif_msg, *a, **k)

    def release_xfer_handle(handle: Any, *a: Any, **k: Any) -> Any:
        log.add("release_xfer_handle", list(a), k)
        return release(handle, *a, **k)

    for call in (make_prepped_xfer, transfer, send_notif, release_xfer_handle):
        setattr(agent, call.__name__, call)


def overhear(scheduler: Any, told: list[Any]) -> None:
    """Write down what a scheduler tells its workers, where it tells them anything."""
    build = scheduler.build_connector_meta

    def build_connector_meta(*a: Any, **k: Any) -> Any:
        meta = build(*a, **k)
        said = {
            "recv": {r: [m.local_block_ids, m.tp_size] for r, m in meta.reqs_to_recv.items()},
            "send": set(meta.reqs_to_send),
            "batch": meta.reqs_in_batch,
            "dropped": meta.reqs_not_processed,
            "registrations": {
                r: {k: v for k, v in d.items() if k not in ("pushscope", "remote_port", "decode_port")}
                for r, d in meta.push_registrations.items()
            },
            "finished": meta.push_finished_blocks,
        }
        if any(said.values()):
            told.append(plainly(said))
        return meta

    scheduler.build_connector_meta = build_connector_meta


def run(pair: Any, mode: str) -> dict[str, Any]:
    """The scenario: orders, lengths, chunks, aborts, a retry, a failed handshake, an expired lease."""
    logs = {"P": Log(), "D": Log()}
    told: dict[str, list[Any]] = {"P": [], "D": []}
    for name, engine in (("P", pair.p), ("D", pair.d)):
        wrapper = engine.agent.connector_worker.nixl_wrapper
        listen(
            wrapper.__dict__.get("_agent", wrapper) if type(wrapper).__name__ == "NixlProxy" else wrapper,
            logs[name],
        )
        overhear(engine.scheduler.connector.connector_scheduler, told[name])
    outcome: dict[str, Any] = {}

    def rest() -> None:
        for _ in range(QUIET):
            pair.p.step()
            pair.d.step()
            time.sleep(0.002)

    orders = ("p first",) if mode == "Pull" else ("both", "p first", "d first")
    for order in orders:
        for num_tokens in LENGTHS:
            outcome[f"{order} {num_tokens}"] = pair.transfer(
                num_tokens, order=order, base=f"cmpl-{order}-{num_tokens}-0"
            )
            rest()
    prompt = pair.prompt(100)
    if mode == "Push":
        pair.decode("cmpl-late-0", prompt)  # P aborts its leg, a retry of it frees D
        for _ in range(5):
            pair.d.step()
            time.sleep(0.01)
        pair.prefill("cmpl-late-0", prompt)
        pair.p.abort("cmpl-late-0")
        rest()
        pair.prefill("cmpl-late-0", prompt)
        finished = pair.step_until(lambda found: any(o.finished for o in found))
        outcome["late"] = list(finished[0].outputs[0].token_ids)
        rest()
    handed_over = {}
    if mode == "Pull":
        pair.prefill("cmpl-wrong-0", prompt)
        handed_over = pair.handed_over()
    pair.decode("cmpl-wrong-0", prompt, **handed_over | {"remote_engine_id": "somebody-else"})
    finished = pair.step_until(lambda found: any(o.finished for o in found))
    outcome["wrong engine"] = finished[0].outputs[0].finish_reason
    rest()
    pair.prefill("cmpl-expires-0", prompt)
    pair.step_until(lambda _: bool(pair.p.agent.connector_worker._reqs_to_send))
    pair.step_until(lambda _: not pair.p.agent.connector_worker._reqs_to_send)
    rest()
    # Now that seconds have passed, both workers have said what they say once a second.
    outcome[f"last {LENGTHS[0]}"] = pair.transfer(LENGTHS[0], order="p first", base="cmpl-last-0")
    rest()
    usage = {n: e.scheduler.kv_cache_manager.usage for n, e in (("P", pair.p), ("D", pair.d))}
    return {
        "alone": {str(n): pair.reference(n) for n in LENGTHS},
        "tokens": outcome,
        "nixl": {n: log.calls for n, log in logs.items()},
        "told": told,
        "blocks in use": usage,
    }


def seen(pair: Any) -> dict[str, Any]:
    """What pushscope made of the run: outcomes, kinds of events by who recorded them, and what it missed."""
    from pushscope.telemetry.events import EngineUp, decode
    from pushscope.telemetry.source import RingsSource
    from pushscope.telemetry.watch import Watcher

    source = RingsSource(pair.folder)
    reading = source.poll()
    source.close()
    kinds: dict[str, set[str]] = {}
    seams_off = []
    for ring, payload in reading.events:
        origin, event = reading.rings[ring].origin, decode(payload)
        kinds.setdefault(f"{origin.engine_id} {origin.connector_role}", set()).add(type(event).__name__)
        if isinstance(event, EngineUp) and event.seams_off:
            seams_off.append(event.seams_off)
    watcher = Watcher(RingsSource(pair.folder))
    watcher.poll()
    snapshot = watcher.snapshot()
    watcher.source.close()
    shown = [*snapshot.in_flight, *snapshot.waiting, *snapshot.recent]
    return {
        "outcomes": Counter(t.outcome.value for t in shown),
        "modes": sorted({t.mode for t in shown}),
        "kinds": {who: sorted(names) for who, names in kinds.items()},
        "seams off": seams_off,
        "dropped": sum(recorder.dropped for recorder in pair.recorders),
    }


def main(kind: str, mode: str, port: str, folder: str, out: str) -> None:
    from tests.vllm.pair import make_pair

    pair = make_pair(Path(folder) / "rings", int(port), instrumented=kind == "pushscope", mode=mode)
    result = run(pair, mode)
    result["recorded"] = len(list((Path(folder) / "rings").glob("*.ring")))
    if kind == "pushscope":
        result["seen"] = seen(pair)
    Path(out).write_text(json.dumps(result, indent=1, sort_keys=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
