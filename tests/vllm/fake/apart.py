"""The same scenarios with P and D in a process each, and real NIXL between them.

A scenario finds here what it asks of a world: requests, aborts, turns, time. Each process has a world with one
engine, and does what it reads from its standard input, a line of JSON a command; both take turns. Real NIXL
delivers when it likes, so what is compared is what was done and said, in order, not in which turn.

usage of a process: apart.py plain|pushscope FOLDER MODE NAME LAYOUT
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.vllm.fake.layout import Layout
from tests.vllm.fake.world import World

ROOT = Path(__file__).parents[3]
BREATH_S = 0.004
"""After a turn, for NIXL to deliver."""


# -- a process ----------------------------------------------------------------------------------------


class Overheard:
    """A real NIXL agent, and what was asked of it: written down as the fabric's agents do."""

    def __init__(self, agent: Any, name: str) -> None:
        self._agent = agent
        self.name = self.label = name
        self.calls: list[tuple[str, str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    def _called(self, call: str, *arguments: Any) -> None:
        self.calls.append((threading.current_thread().name, call, arguments))

    def add_remote_agent(self, metadata: bytes) -> Any:
        self._called("add_remote_agent")
        return self._agent.add_remote_agent(metadata)

    def send_notif(self, remote_agent_name: Any, notif_msg: bytes, *args: Any, **kwargs: Any) -> Any:
        self._called("send_notif", bytes(notif_msg))
        return self._agent.send_notif(remote_agent_name, notif_msg, *args, **kwargs)

    def make_prepped_xfer(
        self,
        operation: str,
        local: Any,
        local_indices: Any,
        remote: Any,
        remote_indices: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        near, far = list(map(int, local_indices)), list(map(int, remote_indices))
        self._called("make_prepped_xfer", operation, near, far, *args, kwargs)
        return self._agent.make_prepped_xfer(
            operation, local, local_indices, remote, remote_indices, *args, **kwargs
        )

    def transfer(self, handle: Any, *args: Any, **kwargs: Any) -> Any:
        self._called("transfer", *args, kwargs)
        return self._agent.transfer(handle, *args, **kwargs)

    def release_xfer_handle(self, handle: Any) -> Any:
        self._called("release_xfer_handle")
        return self._agent.release_xfer_handle(handle)


def _serve(kind: str, folder: str, mode: str, name: str, layout: str) -> None:
    import warnings

    warnings.simplefilter("ignore")  # vLLM's and torch's own
    from tests.vllm.fake import conftest  # noqa: F401 - the environment
    from tests.vllm.fake.written import written_down

    def real(created: Any) -> Any:
        from vllm.distributed.nixl_utils import NixlWrapper

        def make(name: str, config: Any = None) -> Overheard:
            agent = Overheard(NixlWrapper(name, config), name)
            created(agent)
            return agent

        return make

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else prints
    with World(Path(folder), instrumented=kind == "pushscope", mode=mode, agents=real) as world:
        engine = world.engine(name, Layout(**json.loads(layout)))
        answers.write(json.dumps({"port": engine.port}) + "\n")
        for line in sys.stdin:
            command, *arguments = json.loads(line)
            answer: Any = None
            if command == "turn":
                world.turn()
                answer = engine.handed_over
            elif command == "add":
                engine.add(*arguments)
            elif command == "abort":
                engine.abort(*arguments)
            elif command == "advance":
                world.clock.advance(*arguments)
            elif command == "ports":
                world.ports = {int(port): name for port, name in arguments[0].items()}
            elif command == "written":
                answer = _orderly(written_down(world))
            answers.write(json.dumps(answer) + "\n")


def _orderly(written: dict[str, Any]) -> dict[str, Any]:
    """What was done and said, without the turns in which nothing was."""

    def says_something(value: Any) -> bool:
        if isinstance(value, dict):
            return any(says_something(v) for v in value.values())
        if isinstance(value, list):
            return any(map(says_something, value))
        return value not in (None, "a time", "", 0, -1)

    told = {name: list(filter(says_something, metas)) for name, metas in written["told"].items()}
    # By rank: which of two ranks is told first is NIXL's.
    reported: dict[str, dict[str, list[Any]]] = {}
    for name, outputs in written["reported"].items():
        by_rank = reported.setdefault(name, {})
        for label, output in outputs:
            if output and any(done := [output["KVConnectorOutput"].get(k) for k in _ENDS]):
                by_rank.setdefault(label, []).append(done)
    return written | {"told": told, "reported": reported}


_ENDS = ("finished_sending", "finished_recving", "failed_recving", "invalid_block_ids")


# -- the two of them ----------------------------------------------------------------------------------


class _Engine:
    """One of the processes, as a scenario sees an engine."""

    def __init__(self, kind: str, folder: Path, mode: str, name: str, layout: Layout) -> None:
        from pushscope.lab.environment import python_environment

        self.layout, self.engine_id, self.handed_over = layout, f"engine-{name}", dict[str, Any]()
        self.act = "cmpl-"
        """What request ids begin with."""
        env = python_environment()
        env["PYTHONHASHSEED"] = "0"  # heartbeats name the requests of a set, in its order
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env["PYTHONPATH"]])
        self._log = (folder.parent / f"{name}.log").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.vllm.fake.apart", kind, str(folder), mode, name, json.dumps(asdict(layout))],
            env=env, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
        )  # fmt: skip

    def ready(self) -> None:
        self.port = self._answer()["port"]

    def ask(self, *command: Any) -> Any:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(command).replace("cmpl-", self.act) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"a process ended early: {self._log.read()[-3000:]}")
        return json.loads(line.replace(self.act, "cmpl-"))

    def add(self, *request: Any) -> None:
        self.ask("add", *request)

    def abort(self, request_id: str) -> None:
        self.ask("abort", request_id)

    def turn(self) -> None:
        self.handed_over = self.ask("turn")

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()
        self._log.close()


class Apart:
    """P and D in processes of their own: what a scenario asks of a world.

    One pair plays several scenarios, one after the other; ``act`` keeps their requests apart.
    """

    def __init__(self, kind: str, folder: Path, mode: str, p: Layout, d: Layout) -> None:
        self.folder = folder
        self.engines = {
            name: _Engine(kind, folder, mode, name, layout) for name, layout in (("P", p), ("D", d))
        }

    def __enter__(self) -> Apart:
        for engine in self.engines.values():
            engine.ready()
        ports = {engine.port: name for name, engine in self.engines.items()}
        for engine in self.engines.values():
            engine.ask("ports", ports)
        return self

    def __exit__(self, *_: object) -> None:
        for engine in self.engines.values():
            engine.close()

    def play(self, number: int, scenario: Any) -> None:
        for engine in self.engines.values():
            engine.act = f"cmpl-{number}"
        scenario.play(self)
        self.settle(4)
        for engine in self.engines.values():
            engine.act = "cmpl-"

    prefill = World.prefill
    decode = World.decode

    def turn(self) -> None:
        for engine in self.engines.values():
            engine.turn()
            time.sleep(BREATH_S)

    def settle(self, turns: int = 8) -> None:
        for _ in range(turns):
            self.turn()

    def pass_time(self, seconds: float, turns: int = 1) -> None:
        for engine in self.engines.values():
            engine.ask("advance", seconds)
        self.settle(turns)

    def written(self) -> dict[str, Any]:
        return {name: engine.ask("written") for name, engine in self.engines.items()}


if __name__ == "__main__":
    _serve(*sys.argv[1:])
