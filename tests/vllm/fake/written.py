"""What vLLM did in a world, written down for comparison: JSON, with what differs from run to run taken out."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tests.vllm.fake.world import World

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
REGISTRATION = b"PUSH_REG:"
OURS = "pushscope"
"""The one key that may be added to a registration."""


def written_down(world: World) -> dict[str, Any]:
    """Everything that the differential proof compares."""
    plain = _Plain(world)
    return {
        "tokens": {e.name: dict(e.outputs) for e in world.engines.values()},
        "finished": {e.name: dict(e.finished) for e in world.engines.values()},
        "handed over": {e.name: plain(e.handed_over) for e in world.engines.values()},
        "nixl": {worker.label: _by_thread(plain, worker.agent.calls) for worker in world.workers},
        "told": {e.name: [plain(meta) for meta in e.told] for e in world.engines.values()},
        "reported": {
            e.name: [[label, plain(output)] for label, output in e.reported] for e in world.engines.values()
        },
        "logged": [plain(line) for line in world.logged],
        "listening": {e.name: e.listening for e in world.engines.values()},
        "free blocks": {
            e.name: e.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
            for e in world.engines.values()
        },
        "still there": {e.name: sorted(e.scheduler.requests) for e in world.engines.values()},
    }


def _by_thread(plain: _Plain, calls: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for thread, call, arguments in calls:
        found.setdefault(re.sub(r"_\d+$", "", thread), []).append([call, *plain(list(arguments))])
    return found


class _Plain:
    """Values as JSON: agents by their rank, ports by their engine, no times."""

    def __init__(self, world: World) -> None:
        self._names = {worker.agent.name: worker.label for worker in world.workers}
        self._ports = {port: f"port of {name}" for port, name in world.ports.items()}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return self._message(value)
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, float):
            return "a time"
        if isinstance(value, bool | None):
            return value
        if isinstance(value, int):
            return self._ports.get(value, value)
        if isinstance(value, dict):
            return {str(self(k)): self(v) for k, v in value.items() if k != OURS}
        if isinstance(value, set | frozenset):
            return sorted(self(v) for v in value)
        if isinstance(value, list | tuple):
            return [self(v) for v in value]
        if hasattr(value, "tolist"):
            return value.tolist()
        fields = getattr(value, "__dict__", None) or {
            name: getattr(value, name) for name in getattr(value, "__struct_fields__", ())
        }
        return {type(value).__name__: {k: self(v) for k, v in fields.items() if not k.startswith("__")}}

    def _text(self, text: str) -> str:
        for name, label in self._names.items():
            text = text.replace(name, label)
        for port, label in self._ports.items():
            text = text.replace(str(port), label)
        return _UUID.sub("an agent", text)

    def _message(self, message: bytes) -> Any:
        if message.startswith(REGISTRATION):
            return {"PUSH_REG": self(msgspec.msgpack.decode(message[len(REGISTRATION) :]))}
        return self._text(message.decode("utf-8", "replace"))
