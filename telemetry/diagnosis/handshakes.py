"""Causes in the handshakes: D's with P before it registers or reads, P's with D before it pushes."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.case import Case, Rule, aftermath, span
from pushscope.telemetry.diagnosis.model import Diagnosis
from pushscope.telemetry.transfer import Stage, rank_name

AT_P: Final = "push_handshake_failed"
AT_D: Final = frozenset({"handshake_failed", "push_reg_handshake_failed", "no_remote_agents"})
COLD_NS: Final = 1_000_000_000
"""A handshake takes 0.2 to 5 s; a shorter one is not worth a word."""
_HANGS_NS: Final = 30_000_000_000


def p_cannot_reach_d(case: Case) -> Diagnosis | None:
    """The reverse handshake failed: the pair that had met is thrown away, and never tried again."""
    failed = sorted(
        ((e.t, rank, e) for rank, e in case.p.all(ev.TransferFailed) if e.error_type == AT_P),
        key=lambda found: found[:2],
    )
    if not failed or case.delivered:
        return None
    since_ns, rank, first = failed[0]
    drained = next((e for r, e in case.d.all(ev.RegistrationDrained) if r == rank), None)
    host = drained.peer_host if drained else ""
    code = _peculiar(case, first.error, host, at_p=True) or "reverse_handshake_failed"
    address = f"{host}:{drained.peer_port}, which D advertises" if drained else "D's side channel"
    ranks = ", ".join(rank_name(r) for _, r, _ in failed)
    sentence = (
        f"{_reason(case, code)}P's handshake with D at {address}, failed on {ranks} ({_named(first)}); "
        f"the push is dropped and not tried again, {aftermath(case, since_ns)}."
    )
    evidence = [case.p_saw(e, f"handshake with D failed: {_named(e)}", r) for _, r, e in failed]
    heard = case.p_saw(drained, f"registration says {host}:{drained.peer_port}", rank) if drained else None
    return case.found(code, sentence, since_ns, heard, *evidence)


def d_cannot_reach_p(case: Case) -> Diagnosis | None:
    """D's own handshake failed: it cannot register (push) or read (pull), and fails the request by itself."""
    failures: list[ev.RegistrationFailed | ev.TransferFailed] = [
        e for _, e in case.d.all(ev.RegistrationFailed) if not e.to_rank
    ]
    failures += [e for _, e in case.d.all(ev.TransferFailed) if e.error_type in AT_D]
    if not failures or case.delivered:
        return None
    first = min(failures, key=lambda e: (e.t, e.error_type, e.error))
    asked = case.d.first(ev.RegistrationStaged)
    host = asked.peer_host if asked else ""
    code = _peculiar(case, first.error, host, at_p=False) or "handshake_failed"
    address = f"P at {host}:{asked.peer_port}" if asked else "P"
    what = "read" if case.pull else "register"
    sentence = (
        f"{_reason(case, code)}D's handshake with {address}, as the router named it, failed ({_named(first)}), so D "
        f"could not {what}, {aftermath(case, first.t)}."
    )
    return case.found(
        code,
        sentence,
        first.t,
        case.d_saw(asked, f"registration staged for {host}:{asked.peer_port}") if asked else None,
        case.d_saw(first, f"handshake with P failed: {_named(first)}"),
        certain=True,
    )


def first_handshake(case: Case) -> Diagnosis | None:
    """Two engines meet for the first time: it takes a while, once."""
    cold = [s for s in case.transfer.stages if s.stage is Stage.HANDSHAKE]
    since_ns = min((s.start_ns for s in cold), default=None)
    open_now = any(s.end_ns is None for s in cold)
    handed = case.d.first(ev.RegistrationHandedOff)
    if handed and not cold and not case.d.has(ev.RegistrationSent, ev.RegistrationFailed, *_D_IS_OVER):
        since_ns, open_now = handed.t, True
    if since_ns is None:
        return None
    took_ns = max((s.end_ns or case.now_ns) - s.start_ns for s in cold) if cold else case.age_ns(since_ns)
    if took_ns < COLD_NS or (open_now and took_ns >= _HANGS_NS):
        return None
    who = "D" if case.pull or not cold else "P"
    other = "P" if who == "D" else "D"
    took = f"has been at it for {span(took_ns)}" if open_now else f"took {span(took_ns)}"
    return case.found(
        "cold_handshake",
        f"{who} shakes hands with {other} for the first time and {took}; it happens once for each pair.",
        since_ns,
    )


def _received(error: str, engine_id: str | None) -> bool:
    """Whether the engine that answered, as far as the error was long enough to say, is this one."""
    received = error.partition("received ")[2].rstrip(".')\"")
    return bool(received and engine_id) and str(engine_id).startswith(received)


def _peculiar(case: Case, error: str, host: str, *, at_p: bool) -> str:
    """The cause that an error's text, or what is known of the engines, gives away; empty if none."""
    mismatch = "engine ID mismatch" in error
    p, d = case.p_engine, case.d_engine
    one_host = bool(p.host) and p.host == d.host
    spoke_to_itself = mismatch and _received(
        error, case.transfer.p_engine if at_p else case.transfer.d_engine
    )
    if is_loopback(host) and (spoke_to_itself or not (mismatch or one_host)):
        return "loopback_side_channel"
    if "compatibility hash" in error:
        return "incompatible_engines"
    if mismatch:
        return "engine_id_mismatch"
    if "block size" in error.lower() or (p.block_size and d.block_size and p.block_size != d.block_size):
        return "block_sizes_differ"
    if "AssertionError" in error and p.observed and d.observed and p.tp_size != d.tp_size:
        return "unsupported_tp_pair"
    return ""


def is_loopback(host: str) -> bool:
    """Whether an advertised host means every machine itself, or all of its addresses."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _sizes(case: Case) -> str:
    return (
        f"P has tensor-parallel size {case.p_engine.tp_size}, D {case.d_engine.tp_size}, which this model's KV heads "
        "don't allow: "
    )


def _blocks(case: Case) -> str:
    p, d = case.p_engine.block_size, case.d_engine.block_size
    return f"P has blocks of {p} tokens, D of {d}: " if p and d and p != d else "P's and D's blocks differ: "


def _reason(c: Case, code: str) -> str:
    """How the sentence begins: what is peculiar about it."""
    match code:
        case "loopback_side_channel":
            return "A loopback address is no way to another host: "
        case "incompatible_engines":
            return "P and D differ in what must be alike: "
        case "engine_id_mismatch":
            return "Another engine is there than the one that was named: "
        case "block_sizes_differ":
            return _blocks(c)
        case "unsupported_tp_pair":
            return _sizes(c)
    return ""


_D_IS_OVER: Final = (ev.RequestEnded, ev.ReceiveFailed, ev.ReceiveFinished, ev.DecodeScheduled)


def _named(failed: ev.TransferFailed | ev.RegistrationFailed) -> str:
    return failed.error or failed.error_type


RULES: Final[tuple[Rule, ...]] = (p_cannot_reach_d, d_cannot_reach_p, first_handshake)
