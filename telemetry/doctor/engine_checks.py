"""What the facts mean for the engines whose rings are there, each and in pairs. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from pushscope.telemetry.doctor.check import Check, Group, Level
from pushscope.telemetry.doctor.facts import Engine, Facts, Place
from pushscope.telemetry.doctor.traps import environment_traps, fixed_in
from pushscope.telemetry.units import UNKNOWN, count

_about = partial(Check, Group.ENGINES)
_MADE_BY_VLLM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(_dp\d+)?")
_AWAY = (Place.ELSEWHERE, Place.UNRESOLVED)
OK, INFORMATION, WARNING, FAILURE = Level


def engine_checks(facts: Facts) -> Iterator[Check]:
    """Every check of engines, in the order in which they are shown."""
    alive = [engine for engine in facts.engines if engine.alive]
    for engine in facts.engines:
        yield _presence(engine)
        if engine.alive:
            yield from _recording(engine, facts)
            yield from _identity(engine)
            yield from _side_channel(engine, alive, facts)
            yield from _settings(engine, facts)
    yield from _pairs(alive)
    yield _seen(facts)


def _seen(facts: Facts) -> Check:
    if not facts.engines:
        return _about(
            "engines",
            INFORMATION,
            "none records here",
            "start one with kv_connector_module_path=pushscope.connector, as its log then says",
        )
    level = OK if facts.num_transfers else INFORMATION
    seen = f"{count(facts.num_transfers)} in what the rings hold"
    return _about("transfers", level, seen)


# -- each ---------------------------------------------------------------------------------------------


def _presence(engine: Engine) -> Check:
    shape = f"TP {engine.tp_size}" + (f", PP {engine.pp_size}" if engine.pp_size > 1 else "")
    blocks = f", blocks of {engine.block_size} tokens" if engine.block_size else ""
    versions = f"vLLM {engine.vllm or UNKNOWN}, NIXL {engine.nixl or UNKNOWN}"
    told = (
        f"{engine.engine_id} on {engine.host}, {engine.mode}, {shape}{blocks}, {versions}, side channel "
        f"{engine.side_channel or UNKNOWN}, {engine.num_rings} rings, {count(engine.events)} events"
    )
    if engine.alive:
        return _about(engine.name, OK, told)
    told = f"{told}; {engine.end}"
    if engine.shut_down:
        return _about(engine.name, INFORMATION, told)
    return _about(engine.name, WARNING, told, "see the end of its log")


def _recording(engine: Engine, facts: Facts) -> Iterator[Check]:
    if engine.lost:
        yield _about(
            engine.name,
            WARNING,
            f"{count(engine.lost)} events lost: what they told is missing",
            "make rings larger (option bytes), and see its log for a line of pushscope",
        )
    for what in engine.seams_off:
        yield _about(
            engine.name,
            WARNING,
            f"not recorded with this vLLM: {what}",
            "docs/reference/versions.md says what is lost",
        )
    if not engine.recording and not facts.folder.switched_off:
        yield _about(
            engine.name,
            INFORMATION,
            "recording is still off",
            "an engine looks at its next step: send it a request",
        )
    if engine.pushscope and facts.installed.pushscope not in ("", engine.pushscope):
        yield _about(
            engine.name,
            WARNING,
            f"records with pushscope {engine.pushscope}, this is {facts.installed.pushscope}",
            "use one release on both",
        )


def _identity(engine: Engine) -> Iterator[Check]:
    if engine.schedulers > 1:
        yield _about(
            engine.name,
            FAILURE,
            f"{engine.schedulers} live engines share the id {engine.engine_id}: peers take one for the other",
            "leave engine_id out of kv-transfer-config",
        )
    if not _MADE_BY_VLLM.fullmatch(engine.engine_id):
        yield _about(
            engine.name,
            WARNING,
            f"its id {engine.engine_id} is set by hand: after a restart peers keep the dead engine's agent and every "
            "request hangs",
            "leave engine_id out of kv-transfer-config, and let the router learn it",
        )


def _side_channel(engine: Engine, alive: Sequence[Engine], facts: Facts) -> Iterator[Check]:
    host = engine.side_channel.rpartition(":")[0].strip("[]")
    place = facts.places.get(host)
    if place is None or not engine.here:
        return
    if place in (Place.ELSEWHERE, Place.UNRESOLVED):
        why = "is no address of this host" if place is Place.ELSEWHERE else "can't be resolved"
        yield _about(
            engine.name,
            WARNING,
            f"advertises {host}, which {why} as seen from here",
            "set VLLM_NIXL_SIDE_CHANNEL_HOST to an address of it, unless doctor runs in another network namespace",
        )
        return
    if place is Place.LOCAL:
        yield _about(engine.name, OK, f"advertises {host}, an address of this host")
        return
    if why := _several_hosts(engine, alive, facts):
        yield _about(
            engine.name,
            WARNING,
            f"advertises {host}, which no other host can reach, and {why}",
            "set VLLM_NIXL_SIDE_CHANNEL_HOST to an address that its peers reach (P and D both shake hands)",
        )
    else:
        yield _about(engine.name, OK, f"advertises {host}, and all engines seen are on this host")


def _several_hosts(engine: Engine, alive: Sequence[Engine], facts: Facts) -> str:
    """Why more than one host seems to be meant; empty if nothing says so."""
    away = sorted({h for e in alive for h in e.peer_hosts if facts.places.get(h) in _AWAY})
    if away:
        return f"there are peers elsewhere ({', '.join(away)})"
    others = {e.host for e in alive} - {engine.host}
    if others:
        return f"there are engines on {', '.join(sorted(others))}"
    sides = "".join(e.side for e in alive)
    if not ("P" in sides and "D" in sides):
        return f"no {'D' if 'P' in sides else 'P'} records on this host"
    return ""


def _settings(engine: Engine, facts: Facts) -> Iterator[Check]:
    if facts.installed.vllm is None or facts.installed.vllm[1] != engine.vllm:
        for release, what in fixed_in(engine.vllm):
            yield _about(engine.name, WARNING, what, f"upgrade to vLLM {release}")
    known = facts.vllm.variables if facts.vllm and not facts.vllm.error else None
    for trap in environment_traps(engine.environment or {}, known, has_rdma=facts.has_rdma):
        yield _about(
            engine.name, trap.level, f"has {trap.variable} in its environment: {trap.finding}", trap.remedy
        )


# -- in pairs -----------------------------------------------------------------------------------------


class Mismatch(msgspec.Struct, frozen=True):
    """Something in which a P and a D differ."""

    what: str
    remedy: str
    fatal: bool = True
    """They can't transfer at all."""


def mismatches(p: Engine, d: Engine) -> list[Mismatch]:
    """In what P and D differ that they must, or should, have in common."""
    found = []
    if p.mode != d.mode:
        found.append(
            Mismatch(f"one is {p.mode}, one is {d.mode}: they refuse one another", "use one kv_connector")
        )
    if p.vllm != d.vllm:
        found.append(
            Mismatch(
                f"they run vLLM {p.vllm} and {d.vllm}, which refuse one another (compatibility hash)",
                "run one release on both",
            )
        )
    elif p.connector_version != d.connector_version and p.connector_version and d.connector_version:
        found.append(
            Mismatch(
                f"their NIXL_CONNECTOR_VERSION is {p.connector_version} and {d.connector_version}",
                "run one build of vLLM on both",
            )
        )
    if p.block_size and d.block_size and not _block_sizes_fit(p, d):
        found.append(
            Mismatch(
                f"their blocks are {p.block_size} and {d.block_size} tokens: "
                + ("push needs equal ones" if p.mode == "push" else "pull needs P's to divide D's"),
                "give both the same --block-size",
            )
        )
    if max(p.tp_size, d.tp_size) % min(p.tp_size, d.tp_size):
        found.append(
            Mismatch(
                f"tensor parallel {p.tp_size} and {d.tp_size} don't divide",
                "make one a multiple of the other",
            )
        )
    elif p.mode == "push" and d.tp_size > p.tp_size:
        found.append(
            Mismatch(
                f"D has more ranks ({d.tp_size}) than P ({p.tp_size}): a slower D rank can drop a completion that "
                "comes early, and waits for ever; registrations pile up at P",
                "use equal tensor parallel sizes, or pull",
                fatal=False,
            )
        )
    return found


def _block_sizes_fit(p: Engine, d: Engine) -> bool:
    """Each side that shakes hands asks for a multiple of the other's (``TransferTopology.block_size_ratio``):
    pull, D; push, both."""
    return d.block_size % p.block_size == 0 and (p.mode == "pull" or p.block_size % d.block_size == 0)


def _pairs(alive: Sequence[Engine]) -> Iterator[Check]:
    """Every P with every D of its model. Where each has another partner they may not be meant for one another."""
    pairs = [
        (p, d, mismatches(p, d))
        for p in alive
        for d in alive
        if p is not d and "P" in p.side and "D" in d.side and p.model == d.model
    ]
    served = {e.engine_id for p, d, found in pairs if not any(m.fatal for m in found) for e in (p, d)}
    for p, d, found in pairs:
        alone = {p.engine_id, d.engine_id} - served
        for m in found:
            level = FAILURE if m.fatal and alone else WARNING
            yield _about(f"{p.name} and {d.name}", level, m.what, m.remedy)
