"""One request's story as text: what is wrong first, then what did not come, where the time went, what happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.text import Text

from pushscope.telemetry import units
from pushscope.telemetry.diagnosis.model import Diagnosis
from pushscope.telemetry.snapshot import Engine, Snapshot
from pushscope.telemetry.transfer import Outcome, Rank, StageTime, rank_name
from pushscope.telemetry.why.account import Account, Answer, Attempt
from pushscope.tui.columns import put
from pushscope.tui.severity import severity_cell
from pushscope.tui.stuck_view import wall_time
from pushscope.tui.tables import OUTCOME_TONES
from pushscope.tui.tones import COLOURED
from pushscope.tui.waterfall import axis_of, waterfall

_INDENT = "  "
_MAX_BAR = 60


def render_account(account: Account, console: Console) -> None:
    """Print the story, attempt by attempt."""
    page = _Page(account, console)
    for line in page.lines():
        console.print(line, soft_wrap=True, highlight=False, emoji=False)


def candidate_lines(answer: Answer, snapshot: Snapshot) -> Iterator[Text]:
    """The requests that a text may mean, the newest first."""
    names = [units.clean(c.base_id) for c in answer.candidates]
    width = max(map(cell_len, names), default=0)
    for name, c in zip(names, answer.candidates, strict=True):
        ago = units.age(max(0, snapshot.taken_ns - c.began_ns) / 1e9)
        engines = f"{snapshot.engine_name(c.p_engine)} -> {snapshot.engine_name(c.d_engine)}"
        tries = f", {c.attempts} attempts" if c.attempts > 1 else ""
        yield Text(f"{put(name, width)}  {units.clean(engines)}  {c.outcome}{tries}, began {ago} ago")


class _Page:
    """The lines of one account."""

    def __init__(self, account: Account, console: Console):
        self._account = account
        self._console = console
        self._engines = {engine.engine_id: engine for engine in account.engines}
        self._width = console.width if console.is_terminal else max(80, console.width)
        self._bar = "-" if console.options.ascii_only else "━"

    def lines(self) -> Iterator[Text]:
        account = self._account
        attempts = account.attempts
        yield Text(units.clean(account.base_id), "bold")
        if len(attempts) > 1:
            yield Text(f"{len(attempts)} attempts; the last one: ").append_text(self._state(attempts[-1]))
        for attempt in attempts:
            yield Text()
            yield from self._attempt(attempt, numbered=len(attempts) > 1)

    # -- an attempt

    def _attempt(self, attempt: Attempt, *, numbered: bool) -> Iterator[Text]:
        number = f"attempt {attempt.number}: " if numbered else ""
        yield Text(number, "bold").append_text(self._state(attempt))
        began = self._account.taken_unix_s - (self._account.taken_ns - attempt.began_ns) / 1e9
        yield self._fact("began", f"{wall_time(began)}, {self._ago(attempt.began_ns)} ago")
        yield self._fact("P", self._p_leg(attempt))
        yield self._fact("D", self._leg(attempt.d_engine, attempt.d_request))
        if (transfer := attempt.transfer) is not None:
            if transfer.error:
                yield self._fact("error", transfer.error)
            if transfer.pairing:
                yield self._fact("pairing", transfer.pairing)
            yield self._fact("moved", _moved(attempt))
        for diagnosis in attempt.diagnoses:
            yield Text()
            yield from self._diagnosis(diagnosis, attempt)
        if attempt.missing:
            yield from self._missing(attempt)
        if attempt.transfer is not None and attempt.transfer.stages:
            yield from self._stages(attempt, attempt.transfer.stages)
        yield from self._happened(attempt)

    def _state(self, attempt: Attempt) -> Text:
        transfer = attempt.transfer
        if transfer is None:
            return Text("no transfer yet: no blocks and no registration were seen")
        words = Text(transfer.outcome.value, COLOURED[OUTCOME_TONES.get(transfer.outcome, "")])
        if transfer.is_open:
            at = f" in {transfer.stage.value}" if transfer.stage else ""
            words.append(f" for {self._ago(transfer.since_ns)}{at}")
        elif transfer.outcome is Outcome.LOST:
            words.append(f", last seen {self._ago(attempt.last_ns)} ago")
        elif transfer.closed_ns is not None:
            words.append(f" after {units.duration((transfer.closed_ns - attempt.began_ns) / 1e9)}")
        if transfer.exposed_ns is not None:
            words.append(f", the first token waited {units.duration(transfer.exposed_ns / 1e9)} for it")
        return words.append(units.clean(f": {transfer.waits}") if transfer.waits else "")

    def _p_leg(self, attempt: Attempt) -> str:
        if attempt.taken_by and attempt.p_request is None:
            return f"{self._name(attempt.p_engine)} gave its blocks to attempt {attempt.taken_by}"
        return self._leg(attempt.p_engine, attempt.p_request)

    def _leg(self, engine_id: str | None, request_id: str | None) -> str:
        if engine_id is None:
            return "not known"
        engine = self._engines.get(engine_id)
        if engine is None:
            return f"{request_id or 'request not known'} on {engine_id}, which is not observed"
        pid = f" pid {engine.processes[0].pid}" if engine.processes else ""
        end = f"; {engine.name} {engine.end}" if engine.end else ""
        here = f"{engine.name} ({engine.host}{pid})"
        return f"{f'{request_id} on {here}' if request_id else f'{here} has never had it'}{end}"

    # -- what is wrong

    def _diagnosis(self, diagnosis: Diagnosis, attempt: Attempt) -> Iterator[Text]:
        cell = severity_cell(diagnosis.severity)
        head = Text(_INDENT).append(cell.text, COLOURED[cell.tone]).append(f"  {diagnosis.code}", "bold")
        about = "" if diagnosis.attempt else f"  on {self._name(diagnosis.subject)}"
        lasting, ended = self._lasting(diagnosis.since_ns, attempt)
        yield head.append(units.clean(f"{about}  for {lasting}" + ", until it ended" * ended))
        yield from self._wrapped(diagnosis.sentence)
        if not diagnosis.certain:
            yield from self._wrapped("Likely, not certain.")
        rows = [
            (self._offset(e.t_ns, attempt), f"{self._name(e.engine)} {_place(e.rank)}", e.what)
            for e in diagnosis.evidence
        ]
        yield from self._rows(rows, _INDENT * 2)
        if diagnosis.remedy:
            yield from self._wrapped(f"-> {diagnosis.remedy}", "italic")
        yield from self._wrapped(f"   {diagnosis.runbook}", "dim")

    def _lasting(self, since_ns: int, attempt: Attempt) -> tuple[str, bool]:
        """For how long something was so, and whether it was until the attempt ended."""
        transfer = attempt.transfer
        # Of a lost one the survivor waits on.
        closed_ns = transfer.closed_ns if transfer and transfer.outcome is not Outcome.LOST else None
        ended = closed_ns is not None and closed_ns >= since_ns
        until_ns = closed_ns if closed_ns is not None and ended else self._account.taken_ns
        return units.age(max(0, until_ns - since_ns) / 1e9), ended

    def _missing(self, attempt: Attempt) -> Iterator[Text]:
        yield from self._title("expected, and did not come")
        rows = [
            (
                self._lasting(m.since_ns, attempt)[0] if m.since_ns else units.UNKNOWN,
                self._where(m.side, m.rank, attempt),
                m.what,
            )
            for m in attempt.missing
        ]
        yield from self._rows(rows, _INDENT * 2)

    # -- where the time went

    def _stages(self, attempt: Attempt, stages: Sequence[StageTime]) -> Iterator[Text]:
        is_open = attempt.transfer is not None and attempt.transfer.is_open
        axis = axis_of(stages, attempt.began_ns, self._account.taken_ns if is_open else None)
        names = self._name(attempt.p_engine), self._name(attempt.d_engine)
        room = self._width - len(_INDENT) * 2
        yield from self._title("where the time went")
        for line in waterfall(stages, axis, names, room, lambda _: (self._bar, Style()), most=_MAX_BAR):
            yield Text(_INDENT * 2) + line

    # -- what happened

    def _happened(self, attempt: Attempt) -> Iterator[Text]:
        yield from self._title("what happened")
        rows = [
            (
                self._offset(h.t_ns, attempt),
                self._where(h.side, h.rank, attempt),
                f"{'engine: ' if h.of_engine else ''}{h.what}",
            )
            for h in attempt.happened
        ]
        yield from self._rows(rows, _INDENT * 2)

    # -- pieces

    def _ago(self, t_ns: int) -> str:
        return units.age(max(0, self._account.taken_ns - t_ns) / 1e9)

    def _offset(self, t_ns: int, attempt: Attempt) -> str:
        after = (t_ns - attempt.began_ns) / 1e9
        return f"{'-' if after < 0 else '+'}{units.age(abs(after))}"

    def _name(self, engine_id: str | None) -> str:
        engine: Engine | None = self._engines.get(engine_id or "")
        return units.clean(engine.name if engine else (engine_id or "?")[:8])

    def _where(self, side: str, rank: Rank | None, attempt: Attempt) -> str:
        engine = attempt.p_engine if side == "P" else attempt.d_engine
        return f"{self._name(engine) if engine else side} {_place(rank)}"

    def _title(self, words: str) -> Iterator[Text]:
        yield Text()
        yield Text(_INDENT + words, "bold")

    def _fact(self, name: str, words: str) -> Text:
        return Text(f"{_INDENT}{name:<8}", "dim").append(units.clean(words), "not dim")

    def _rows(self, rows: Sequence[tuple[str, str, str]], indent: str) -> Iterator[Text]:
        """Time, place, words: the words wrap below their column on a terminal."""
        time, place = (max((cell_len(row[column]) for row in rows), default=0) for column in (0, 1))
        for row in rows:
            head = f"{indent}{row[0]:>{time}}  {put(row[1], place)}  "
            yield from self._wrapped(row[2], head=head)

    def _wrapped(self, words: str, style: str = "", head: str = _INDENT * 2) -> Iterator[Text]:
        text = Text(units.clean(words), style)
        room = max(20, self._console.width - cell_len(head))
        for line in text.wrap(self._console, room) if self._console.is_terminal else (text,):
            yield Text(head) + line
            head = " " * cell_len(head)


def _place(rank: Rank | None) -> str:
    return "scheduler" if rank is None else rank_name(rank)


def _moved(attempt: Attempt) -> str:
    transfer = attempt.transfer
    assert transfer is not None
    tokens = f"{units.count(transfer.num_tokens)} tokens" if transfer.num_tokens is not None else ""
    blocks = f"{units.count(transfer.num_blocks)} blocks" if transfer.num_blocks is not None else ""
    size = units.size(transfer.num_bytes) if transfer.num_bytes is not None else ""
    ranks = f"{transfer.ranks_done} of {transfer.ranks} parts" if transfer.ranks else ""
    only = f"only {transfer.sides[0]} is observed" if len(transfer.sides) == 1 else ""
    tentative = "paired by the base id alone" if transfer.tentative else ""
    return (
        ", ".join(filter(None, (ranks, size, blocks, tokens, transfer.order, tentative, only))) or "not known"
    )
