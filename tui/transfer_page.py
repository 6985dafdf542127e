"""One transfer on a page: how it stands, what is wrong and what to do, where its time went, what happened, ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from rich.console import Console
from rich.style import Style
from rich.text import Text

from pushscope.telemetry import units
from pushscope.telemetry.diagnosis.model import Diagnosis
from pushscope.telemetry.report import exposed_window
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.stuck import worst_first
from pushscope.telemetry.transfer import Rank, Transfer, rank_name
from pushscope.telemetry.why.account import Attempt
from pushscope.tui.bars import LETTERS
from pushscope.tui.severity import severity_cell
from pushscope.tui.tables import OUTCOME_TONES, attempt_mark, route, seen
from pushscope.tui.tones import Tones
from pushscope.tui.waterfall import axis_of, waterfall

_INDENT: Final = "  "
_BOLD: Final = Style(bold=True)


class Told(NamedTuple):
    """What a page is made of."""

    transfer: Transfer
    snapshot: Snapshot
    attempt: Attempt | None = None
    """Its events; None where they are not held any more, or not yet asked for."""
    note: str = ""
    """What must be known of the page as a whole: that it is not followed any more."""


class Id(NamedTuple):
    """One of the ids that a transfer is known by, and the key that copies it."""

    key: str
    what: str
    value: str


def ids_of(told: Told) -> tuple[Id, ...]:
    """Those that are known."""
    transfer, trace_id = told.transfer, told.attempt.trace_id if told.attempt else ""
    ids = (
        Id("y", "request", transfer.base_id),
        Id("D", "D's request", transfer.d_request or ""),
        Id("P", "P's request", transfer.p_request or ""),
        Id("u", "D's engine", transfer.d_engine or ""),
        Id("v", "P's engine", transfer.p_engine or ""),
        Id("t", "trace", trace_id),
    )
    return tuple(each for each in ids if each.value)


def diagnoses_of(transfer: Transfer, snapshot: Snapshot) -> list[Diagnosis]:
    """Its own, and those of engines at its cost; the worst first."""
    me = (transfer.base_id, transfer.attempt)
    return worst_first(d for d in snapshot.diagnoses if (d.subject, d.attempt) == me or me in d.costs)


def transfer_page(told: Told, width: int, tones: Tones) -> Iterator[Text]:
    """The lines of the page; long sentences wrap at ``width``."""
    page = _Page(told, width, tones)
    yield from page.head()
    yield from page.wrong()
    yield from page.missing()
    yield from page.times()
    yield from page.happened()
    yield from page.ids()


class _Page:
    def __init__(self, told: Told, width: int, tones: Tones) -> None:
        self._told = told
        self._transfer, self._snapshot, self._attempt, self._note = told
        self._width, self._tones = width, tones
        self._console = Console(width=width)

    def head(self) -> Iterator[Text]:
        t, s = self._transfer, self._snapshot
        yield Text(units.clean(t.base_id or t.d_request or t.p_request or "?") + attempt_mark(t), "bold")
        if self._note:
            yield Text(self._note, self._tones["warn"])
        stands = Text(t.outcome.value, self._tones[OUTCOME_TONES.get(t.outcome, "")] + _BOLD)
        if t.is_open:
            at = f" in {t.stage.value}" if t.stage else ""
            stands.append(f"{at} for {units.age((s.taken_ns - t.since_ns) / 1e9)}")
        elif t.closed_ns is not None:
            stands.append(f" {units.age((s.taken_ns - t.closed_ns) / 1e9)} ago")
        pieces = (
            route(t, s, self._width),
            t.mode,
            f"{t.ranks_done} of {t.ranks or '?'} parts",
            units.size(t.num_bytes) if t.num_bytes is not None else "",
            f"{units.count(t.num_blocks)} blocks" if t.num_blocks is not None else "",
            f"{units.count(t.num_tokens)} tokens" if t.num_tokens is not None else "",
            self._merged(),
            t.order,
            seen(t),
        )
        yield stands.append(units.clean("  " + " · ".join(filter(None, pieces))), "not bold")
        for words in (t.waits, t.error, t.pairing):
            if words:
                yield from self._wrapped(units.clean(words), "")
        if lease := self._lease():
            yield Text(lease)

    def _merged(self) -> str:
        t = self._transfer
        if t.descriptors is None:
            return ""
        after = f" merged to {units.count(t.descriptors_merged)}" if t.descriptors_merged is not None else ""
        return f"{units.count(t.descriptors)} descriptors{after}"

    def _lease(self) -> str:
        t = self._transfer
        if t.lease_until_ns is None or not t.is_open:
            return ""
        left_s = (t.lease_until_ns - self._snapshot.taken_ns) / 1e9
        return (
            f"P's lease {f'ends in {units.age(left_s)}' if left_s > 0 else f'ended {units.age(-left_s)} ago'}"
        )

    def wrong(self) -> Iterator[Text]:
        found = self._attempt.diagnoses if self._attempt else ()
        for d in diagnoses_of(self._transfer, self._snapshot) or found:
            cell = severity_cell(d.severity)
            yield Text()
            lasting = units.age(max(0, self._snapshot.taken_ns - d.since_ns) / 1e9)
            head = Text.assemble((cell.text, self._tones[cell.tone]), "  ", (d.code, "bold"))
            yield head.append(f"  since {lasting}")
            yield from self._wrapped(units.clean(d.sentence), _INDENT)
            if not d.certain:
                yield Text(f"{_INDENT}Likely, not certain.", "italic")
            rows = (
                (e.t_ns, self._place(e.engine, e.rank), e.what)
                for e in sorted(d.evidence, key=lambda e: e.t_ns)
            )
            for t_ns, place, what in rows:
                ago = units.age(max(0, self._snapshot.taken_ns - t_ns) / 1e9)
                yield from self._wrapped(units.clean(what), f"{_INDENT * 2}{ago + ' ago':>11}  {place}  ")
            if d.remedy:
                yield from self._wrapped(units.clean(f"-> {d.remedy}"), _INDENT, "italic")
            yield Text(f"{_INDENT}{d.runbook}", "dim")

    def missing(self) -> Iterator[Text]:
        if self._attempt is None or not self._attempt.missing:
            return
        yield from self._title("Expected, and did not come")
        for m in self._attempt.missing:
            engine = self._attempt.p_engine if m.side == "P" else self._attempt.d_engine
            yield from self._wrapped(units.clean(m.what), f"{_INDENT}{self._place(engine, m.rank)}  ")

    def times(self) -> Iterator[Text]:
        t = self._transfer
        if not t.stages:
            return
        names = self._snapshot.engine_name(t.p_engine), self._snapshot.engine_name(t.d_engine)
        axis = axis_of(t.stages, t.opened_ns, self._snapshot.taken_ns if t.is_open else None)
        yield from self._title("Where the time went")
        room = self._width - len(_INDENT)
        for line in waterfall(
            t.stages,
            axis,
            names,
            room,
            lambda stage: (LETTERS[stage], self._tones[stage.value]),
            window=exposed_window(t),
        ):
            yield Text(_INDENT) + line

    def happened(self) -> Iterator[Text]:
        yield from self._title("What happened")
        if self._attempt is None:
            yield Text(f"{_INDENT}its events are not held any more", "dim")
            return
        began = self._attempt.began_ns
        for h in self._attempt.happened:
            after = (h.t_ns - began) / 1e9
            when = f"{'-' if after < 0 else '+'}{units.duration(abs(after))}"
            whose = "engine: " if h.of_engine else ""
            head = f"{_INDENT}{when:>9}  {self._place(h.engine, h.rank)}  "
            yield from self._wrapped(units.clean(whose + h.what), head)

    def ids(self) -> Iterator[Text]:
        yield from self._title("Ids, and the key that copies each")
        for each in ids_of(self._told):
            yield Text(f"{_INDENT}{each.key}  {each.what:<12} {units.clean(each.value)}")

    def _place(self, engine: str | None, rank: Rank | None) -> str:
        name = units.clean(self._snapshot.engine_name(engine or None), 8)
        return f"{name + ' ' + ('sched.' if rank is None else rank_name(rank)):<10}"

    def _title(self, words: str) -> Iterator[Text]:
        yield Text()
        yield Text(words, "bold underline")

    def _wrapped(self, words: str, head: str, style: str = "") -> Iterator[Text]:
        room = max(20, self._width - len(head))
        for line in Text(words, style).wrap(self._console, room):
            yield Text(head) + line
            head = " " * len(head)
