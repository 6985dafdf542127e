"""What stands above the tables: how the source is doing, the totals, the engines, and notices.

Everything is a list of pieces, each with words that say its state; ``flow`` lays them out in lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from pushscope.telemetry import units
from pushscope.telemetry.clocks import ClockOffset
from pushscope.telemetry.diagnosis.model import WORST_FIRST, Diagnosis
from pushscope.telemetry.marks import Mark
from pushscope.telemetry.snapshot import Engine, Totals
from pushscope.telemetry.stuck import tally
from pushscope.telemetry.transfer import Outcome
from pushscope.tui.columns import Cell
from pushscope.tui.severity import severity_cell
from pushscope.tui.tones import COLOURED, Tones

BETWEEN = " · "
SILENT_AFTER_NS = 5_000_000_000
"""An engine whose newest event is older than this is said to be silent."""

_SIDES = {"P": "prefill", "D": "decode", "PD": "prefill+decode"}
_ALWAYS_SHOWN = (Outcome.DELIVERED, Outcome.FAILED)
_BAD = {Outcome.FAILED, Outcome.EXPIRED, Outcome.LOST}


def totals_pieces(totals: Totals, diagnoses: Sequence[Diagnosis] = ()) -> list[Cell]:
    """The totals, in the order of their importance."""
    pieces = [
        Cell(f"{units.rate(totals.transfers_per_s).removesuffix('/s')} transfers/s"),
        Cell(units.byte_rate(totals.bytes_per_s)),
        Cell(f"in flight {units.count(totals.in_flight)}"),
        Cell(f"waiting {units.count(totals.waiting)}"),
    ]
    if diagnoses:
        worst = min(diagnoses, key=lambda d: WORST_FIRST.index(d.severity)).severity
        pieces.append(Cell(f"stuck: {tally(diagnoses)}", severity_cell(worst).tone))
    for outcome in Outcome:
        number = totals.outcomes.get(outcome.value, 0)
        if number or outcome in _ALWAYS_SHOWN:
            tone = "bad" if number and outcome in _BAD else ""
            pieces.append(Cell(f"{outcome.value} {units.count(number)}", tone))
    if totals.events_lost:
        lost = f"EVENTS LOST {units.count(totals.events_lost)} of {units.count(totals.events)}"
        pieces.append(Cell(f"{lost}: counts are too low", "bad"))
    else:
        pieces.append(Cell("events lost 0"))
    return pieces


def engine_piece(engine: Engine, taken_ns: int) -> Cell:
    """``P1 prefill node-a/4101+2 alive``: name, side, host and pid, further processes, and its state at
    ``taken_ns``."""
    side = _SIDES.get(engine.side, units.clean(engine.side, 16))
    where = units.clean(engine.host, 24) or "?"
    if engine.processes:
        pids = sorted({process.pid for process in engine.processes})
        where += f"/{pids[0]}" + (f"+{len(pids) - 1}" if len(pids) > 1 else "")
    state, tone = engine_state(engine, taken_ns)
    return Cell(f"{units.clean(engine.name, 16)} {side} {where} {state}", tone)


def engine_pieces(engines: Sequence[Engine], taken_ns: int) -> list[Cell]:
    """The engines, those that are gone first: they must not be scrolled out of sight."""
    return sorted((engine_piece(engine, taken_ns) for engine in engines), key=lambda piece: not piece.tone)


def clock_pieces(clocks: Sequence[ClockOffset]) -> list[Cell]:
    """How far apart the clocks of the engines' hosts are known to be."""
    return [
        Cell(
            f"clocks {units.clean(c.host, 24)}/{units.clean(c.peer_host, 24)} "
            + ("UNSURE" if c.uncertainty_ns is None else f"±{units.duration(c.uncertainty_ns / 1e9)}"),
            "warn" if c.uncertainty_ns is None else "",
        )
        for c in clocks
    ]


def mark_pieces(marks: Sequence[Mark], now_unix_s: float) -> list[Cell]:
    """The last mark, and how long ago it was made."""
    if not marks:
        return []
    last = marks[-1]
    ago = units.coarse_age(max(0.0, now_unix_s - last.unix_s))
    return [Cell(f"mark {ago} ago: {units.clean(last.label, 60)}")]


def views_line(views: Sequence[tuple[str, str, str]], current: str, width: int) -> Text:
    """``1 Live 24   2 Stuck 3 …``: name, title and number of each view; a click goes there. The one that is seen is
    between brackets; where there is little room, the numbers go first."""
    for numbers in (True, False):
        line = Text()
        for key, (name, title, number) in enumerate(views, 1):
            words = f"{key} {title}" + (f" {number}" if number and numbers else "")
            click = Style(meta={"@click": f"screen.view('{name}')"})
            seen = name == current
            line.append(f"[{words}]" if seen else f" {words} ", click + Style(bold=seen, reverse=seen))
            line.append(" ")
        if cell_len(line.plain) <= width:
            break
    return line


def flow(pieces: Iterable[Cell], width: int, *, tones: Tones = COLOURED) -> Text:
    """Pieces side by side, in as many lines as they need; a piece longer than a line is cut."""
    text = Text()
    used = 0
    for piece in pieces:
        words = units.clean(piece.text, width)
        if used and used + len(BETWEEN) + cell_len(words) > width:
            text.append("\n")
            used = 0
        if used:
            text.append(BETWEEN, "dim")
            used += len(BETWEEN)
        text.append(words, tones[piece.tone])
        used += cell_len(words)
    return text


def state_line(source: str, state: Cell, width: int, *, tones: Tones = COLOURED) -> Text:
    """The first line: the program, what it reads, and, at the right, whether it is live."""
    left = "pushscope top"
    room = width - cell_len(state.text) - 2
    if source:
        left += f"{BETWEEN}{source}"
    left = units.clean(left, room)
    text = Text(left, "bold")
    text.append(" " * max(width - cell_len(left) - cell_len(state.text), 1))
    return text.append(state.text, tones[state.tone] or "bold")


def notice_lines(notices: Sequence[str], width: int, limit: int, *, tones: Tones = COLOURED) -> Text:
    """Up to ``limit`` notices, each cut to one line; the last line says how many more there are."""
    shown = list(notices[:limit])
    more = len(notices) - len(shown)
    ending = f" (+{more} more: press ?)" if more else ""
    lines = [units.clean("! " + notice, width) for notice in shown]
    if more:
        lines[-1] = units.clean("! " + shown[-1], width - len(ending)) + ending
    return Text("\n".join(lines), tones["warn"])


def engine_state(engine: Engine, taken_ns: int) -> tuple[str, str]:
    """In words, and their tone: alive, silent for how long, or which part of it is gone."""
    if not engine.alive:
        part = any(process.alive for process in engine.processes)
        gone = " and ".join(process.name for process in engine.gone) if part else ""
        return f"{gone} GONE".lstrip(), "bad"
    newest_ns = max((p.last_event_ns for p in engine.processes if p.last_event_ns is not None), default=None)
    if newest_ns is not None and taken_ns - newest_ns > SILENT_AFTER_NS:
        # No alarm: an engine without requests has nothing to say.
        return f"alive, silent {units.coarse_age((taken_ns - newest_ns) / 1e9)}", ""
    return "alive", ""
