"""``python -m soak [--real N] [--simulated N]``: see that engines which are well raise no alarm.

``python -m soak relay`` and ``replay``: watched far away, over a hard network; and played, for an hour.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
from bench.machine import this_machine

from pushscope.lab.launch import Zygote
from pushscope.lab.signals import exit_on_sigterm
from soak import real as real_engines
from soak import relay, replay
from soak import simulated as simulated_engines
from soak.display import OnProgress, display
from soak.page import page_of
from soak.result import PAGE, REAL, RELAY_S, REPLAY_S, SIMULATED, Part, Relayed, read


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 if nothing of severity error was said, nothing was lost and memory was flat; otherwise 1."""
    options = _parser().parse_args(arguments)
    machine, result = this_machine(), read()
    whole = options.real is None and options.simulated is None and options.seconds is None
    if options.only == "relay":
        relayed = _relay(options.seconds or RELAY_S, options.seed)
        result = msgspec.structs.replace(result, relay=(machine, relayed))
        parts, held = [relayed.watched], relayed.held
    elif options.only == "replay":
        replayed = _replay(options.seconds or REPLAY_S, options.seed)
        result = msgspec.structs.replace(result, replay=(machine, replayed))
        parts, held = [replayed], replayed.held
    else:
        parts = _parts(options, whole=whole)
        result, held = result.updated(machine, parts), all(part.held for part in parts)
    if whole or options.update:
        result.write()
        PAGE.write_text(page_of(result))
    for part in parts:
        _say(part)
    return 0 if held else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m soak",
        description="Watch engines that are well for long: nothing may be called an error.",
    )
    parser.add_argument(
        "only",
        nargs="?",
        choices=("relay", "replay"),
        help="relay: watched far away, over a network that is hard on connections; "
        "replay: a long recording, played on the screen; without: from nearby",
    )
    parser.add_argument("--real", type=_some, metavar="N", help=f"transfers on real engines only ({REAL:,})")
    parser.add_argument("--simulated", type=_some, metavar="N", help=f"simulated ones only ({SIMULATED:,})")
    parser.add_argument(
        "--seconds",
        type=_some,
        metavar="N",
        help=f"relay: how long engines write ({RELAY_S:,}); replay: of the recording ({REPLAY_S:,})",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the simulation (default 0)")
    parser.add_argument("--keep", type=Path, help="folder for logs and rings of real engines, kept")
    parser.add_argument(
        "--update", action="store_true", help="put what was run into the page, as a whole soak is"
    )
    return parser


def _some(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, found {text!r}")
    return int(text)


def _parts(options: argparse.Namespace, *, whole: bool) -> list[Part]:
    parts: list[Part] = []
    if simulated := SIMULATED if whole else options.simulated:
        parts.append(_simulated(simulated, options.seed))
    if real := REAL if whole else options.real:
        parts += _real(real, options.keep)
    return parts


def _relay(seconds: int, seed: int) -> Relayed:
    with _folder() as folder, display("relay", round(seconds * relay.PER_S)) as on_progress:
        return relay.run(seconds, folder, on_progress, seed=seed)


def _replay(seconds: int, seed: int) -> Part:
    with _folder() as folder, display("replay", seconds, "seconds") as on_progress:
        return replay.run(seconds, folder, on_progress, seed=seed)


@contextmanager
def _folder() -> Iterator[Path]:
    with exit_on_sigterm(), tempfile.TemporaryDirectory(prefix="soak-") as folder:
        yield Path(folder)


def _simulated(num_transfers: int, seed: int) -> Part:
    with display("simulated", num_transfers) as on_progress:
        return simulated_engines.run(num_transfers, on_progress, seed=seed)


def _real(num_transfers: int, keep: Path | None) -> list[Part]:
    with ExitStack() as stack, exit_on_sigterm():
        folder = keep or stack.enter_context(_folder())
        zygote = stack.enter_context(Zygote())

        def progress(name: str, total: int) -> OnProgress:
            return stack.enter_context(display(name, total))

        return real_engines.run(num_transfers, folder.absolute(), zygote, progress)


def _say(part: Part) -> None:
    wrong = f", {part.wrong}" if part.wrong else ""
    print(
        f"{part.name}: {part.transfers:,} transfers, {part.snapshots:,} snapshots, {part.error_count} errors, "
        f"{part.events_lost} events lost{wrong}; {part.resident_mib[-1]:.0f} MiB, {part.wall_s:.0f} s"
    )
    for said in part.errors:
        print(f"  {said}")


if __name__ == "__main__":
    sys.exit(main())
