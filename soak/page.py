"""A soak as a page for people."""

from __future__ import annotations

from bench.machine import Machine
from faults.page import table

from pushscope.telemetry.diagnosis.catalogue import CATALOGUE
from pushscope.telemetry.diagnosis.model import WORST_FIRST
from pushscope.telemetry.units import count
from soak.result import Part, Relayed, Result

_HEAD = """\
<!-- Written by `make soak`; what it says comes from soak.json and soak/page.py. -->
# No false alarm

Engines that are well, watched without a break by the watcher that `top`, `stuck` and `why` have. Whatever of severity
error is said of them is a false alarm: {transfers} transfers, {errors} errors.

*Real* engines are vLLM's, with real NIXL between them, under full load on this machine: as many requests at once as
keep them busy, some of which D needs nothing of P for, and (one leg after the other) clients that go away. A snapshot
with all diagnoses is taken four times a second. *Simulated* engines (`lab/simulator`) write the same events in virtual
time; a snapshot is taken every second of it. They have heavy-tailed times of prefill, link and wake-up (Pareto and
lognormal), bursts and idle gaps, ranks that are slow for a while, preemption on both sides, prompts of equal length,
full prefix hits, clients that go away at any stage, heartbeats that name what P never gave, and 1 to 4 ranks on either
side.

What does go wrong for good is kept out of the mix, since to name it is right: it is listed in `lab/simulator/mix.py`. A
link stalls for up to 12 s, as one that tries again does; one that is silent for longer than 15 s is called an error.

Warnings and infos are meant to be said: engines that leak a little (`notify_only_entries_leak`,
`stale_registrations_pile_up`), blocks held for a client that has gone (`prefill_unclaimed`), a router that sends one
leg after the other (`serial_router`), links that stall."""
_RELAY = """\
## Far away, over a hard network

`python -m soak relay`: simulated engines write real rings on one host; an agent has those of all P, another one those
of all D. A session as `top` has it follows both over connections that come {delay} ms late in each direction, stall,
and are reset in the middle of what they bring. A watcher on the engines' own host counts beside it.

{resets} resets and {stalls} stalls: {reconnects} times a new connection, {cuts} times it was said that an agent is out
of reach. The longest time without news of an engine was {silent} s. {written} events were written; {twice} were counted
twice, {lost} lost, and {same}. Memory is that of the process of the session, with the engines
and the other watcher in it too; it has all rings mapped, twice, which are of 32 MiB each and fill meanwhile."""
_REPLAY = """\
## Played: {name}

`python -m soak replay`: a recording of simulated engines with a few transfers a second, played on the screen of
`pushscope top`, without a terminal, while its five views are visited in turn. Memory is that of the whole process."""
_PART = """\
{machine}

{transfers} transfers ({outcomes}), {events} events, {lost} of them lost. {snapshots} snapshots over {watched} s of the
engines' time, taken in {wall} s. The watching process had {memory} MiB in memory{after_each}.
{wrong}"""


def page_of(result: Result) -> str:
    """Markdown, all of it from the result."""
    parts = [part for _, part in result.parts]
    head = _HEAD.format(
        transfers=count(sum(part.transfers for part in parts)),
        errors=sum(part.error_count for part in parts),
    )
    sections = [head]
    for machine, part in result.parts:
        kind = "Simulated" if part.simulated else "Real"
        sections += [f"## {kind}: {part.name}", *_sections(part, machine)]
    for simulated, kind in ((False, "real"), (True, "simulated")):
        if not result.of_kind(simulated=simulated):
            sections.append(f"Of {kind} engines no run of the whole length is committed yet.")
    if result.relay is not None:
        machine, relayed = result.relay
        sections += [_relay(relayed), *_sections(relayed.watched, machine)]
    if result.replay is not None:
        machine, replayed = result.replay
        sections += [_REPLAY.format(name=replayed.name), *_sections(replayed, machine)]
    return "\n\n".join(sections) + "\n"


def _relay(relayed: Relayed) -> str:
    same = "the transfers are those that were counted there"
    return _RELAY.format(
        delay=f"{relayed.delay_s * 1e3:g}",
        resets=count(relayed.resets),
        stalls=count(relayed.stalls),
        reconnects=count(relayed.reconnects),
        cuts=count(relayed.cuts_told),
        silent=f"{relayed.silent_s:g}",
        written=count(relayed.written),
        twice=count(relayed.events_twice),
        lost=count(relayed.watched.events_lost),
        same=same if relayed.is_whole else f"there {_outcomes(relayed.at_home)} were counted",
    )


def _outcomes(counts: dict[str, int]) -> str:
    return ", ".join(f"{count(number)} {outcome}" for outcome, number in counts.items())


def _sections(part: Part, machine: Machine) -> list[str]:
    return [_section(part, machine.line()), _table(part), *(f"* {said}" for said in part.errors)]


def _section(part: Part, machine: str) -> str:
    several = len(part.resident_mib) > 1
    wrong = "; ".join(f"{what}: {number}" for what, number in part.wrong.items())
    return _PART.format(
        machine=machine,
        transfers=count(part.transfers),
        outcomes=_outcomes(part.outcomes),
        events=count(part.events),
        lost=count(part.events_lost),
        snapshots=count(part.snapshots),
        watched=count(round(part.watched_s)),
        wall=count(round(part.wall_s)),
        memory=", ".join(f"{mib:.0f}" for mib in part.resident_mib),
        after_each=" after each tenth, and at the end" if several else "",
        wrong=f"Truly wrong: {wrong}." if wrong else "Nothing was truly wrong.",
    ).rstrip()


def _table(part: Part) -> str:
    named = sorted(part.named, key=lambda n: (WORST_FIRST.index(n.severity), n.code))
    return table(
        ("severity", "named", "times", "what it is"),
        ((n.severity, f"`{n.code}`", count(n.count), CATALOGUE[n.code].title) for n in named),
    )
