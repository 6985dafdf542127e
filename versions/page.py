"""The result as a page for people."""

from __future__ import annotations

from collections.abc import Iterable

from versions.needs import PULL_SCHEDULER, PULL_WORKER, PUSH_SCHEDULER, PUSH_WORKER
from versions.verdict import Result, Verdict

_GROUPS = {
    "push scheduler": PUSH_SCHEDULER,
    "pull scheduler": PULL_SCHEDULER,
    "push worker": PUSH_WORKER,
    "pull worker": PULL_WORKER,
}

MEANINGS = {
    "get_transfer_results": (
        "no event says that blocks reached D or failed to, and what was open for them stays open on the worker. Its "
        "recorder is never stepped either: no table sizes, no times of the engine's loop, nothing open is said again, "
        "and the switch `recording-off` does not reach it. `get_finished` had this part then. The scheduler still "
        "says that a receive finished."
    ),
    "_reap_expired_send_leases": (
        "P's worker does not say that a lease expired; that it was set or extended it does. "
        "`get_finished`, later `get_transfer_results`, did it inline then."
    ),
    "_TRANSFER_MODE": (
        "a pull connector is taken for a push connector: the seams of pull alone are not woven in, those of push are "
        "reported as off."
    ),
    "pp_size": "these releases know one pipeline stage, and one is what is assumed.",
    "KVConnectorTransferResults": "nothing more: only the seam `get_transfer_results` reads it, and is off as well.",
}
"""What is lost, for each name that some release lacks. Written by hand: the reader knows names, not meanings."""
_UNEXPLAINED = "what is lost is not written down yet."


def page_of(result: Result) -> str:
    """Markdown, all of it from the result, but for what a missing name means and what is known besides."""
    sections = [
        _HEAD.format(date=result.read_on, releases=len(result.releases)),
        _table(
            ["release", "connector version", *_GROUPS, "side channel", "attributes"],
            [_row(result, verdict) for verdict in result.releases],
        ),
        "## What it means\n\n" + "\n".join(_explained(result)),
        _NOTES,
    ]
    if result.left_out:
        lines = [f"* {each.distribution} {each.version}: {each.why}." for each in result.left_out]
        sections.insert(2, "Not read:\n\n" + "\n".join(lines))
    sections.append("## The seams\n\n" + "\n".join(_seams(result)))
    return "\n\n".join(sections) + "\n"


_HEAD = """\
<!-- Written by `make versions`; what it says comes from versions.json and versions/page.py. -->
# Which seams fit which vLLM

Made on {date} by reading the wheels of {releases} releases, not by running them; 0.24.0 is the first with a push
connector. A cell says `all`, or what is off; a seam that is off is named once in the engine's log. Attributes are
private names of vLLM that observers read past the seams."""

_NOTES = """\
## What this does not say

Reading finds a name that is missing. It does not find a method that is called at another time, or a name that means
something else. One such case is known: up to 0.25.1 a peer's ranks are plain numbers, not pairs of pipeline and tensor
rank, so that registrations sent and look-ups in the side channel are counted as failed to record. Tests run real
engines of the release in `requirements/cpu.lock`, and of no other."""


def _row(result: Result, verdict: Verdict) -> list[str]:
    return [
        f"{verdict.distribution} {verdict.version}",
        str(verdict.connector_version or "not found"),
        *(_seams_off(verdict, cls) for cls in _GROUPS.values()),
        _off(sorted(set(verdict.listener_off.values()))),
        _missing(result, verdict),
    ]


def _seams_off(verdict: Verdict, cls: str) -> str:
    off = _off(verdict.seams_off.get(cls, []))
    # The seam tables would fit, but the facade takes another one.
    mistaken = cls == PULL_WORKER and "_TRANSFER_MODE" in verdict.missing.get(cls, ())
    return f"taken for a push worker; {off}" if mistaken else off


def _off(reasons: Iterable[str]) -> str:
    """Names without the words that all of them share; the whole sentence where it says more."""
    short = [f"`{why.removesuffix(' does not exist')}`" if _is_absent(why) else why for why in reasons]
    return f"off: {', '.join(short)}" if short else "all"


def _is_absent(why: str) -> bool:
    return why.endswith(" does not exist")


def _missing(result: Result, verdict: Verdict) -> str:
    names = dict.fromkeys([*verdict.constants_missing, *_missing_names(result, verdict)])
    unread = f"; not read: {', '.join(verdict.unread_bases)}" if verdict.unread_bases else ""
    return (f"missing: {', '.join(f'`{name}`' for name in names)}" if names else "all") + unread


def _missing_names(result: Result, verdict: Verdict) -> Iterable[str]:
    """Attributes, or the class where it lacks all that is wanted of it."""
    for cls, names in verdict.missing.items():
        yield from [cls] if names == result.attributes[cls] else names


def _explained(result: Result) -> list[str]:
    """One line for each name that some release lacks, with the releases."""
    lacking: dict[str, list[str]] = {}
    for verdict in result.releases:
        seams = [why.split(" ", 1)[0] for reasons in verdict.seams_off.values() for why in reasons]
        for name in dict.fromkeys([*seams, *verdict.constants_missing, *_missing_names(result, verdict)]):
            lacking.setdefault(name, []).append(verdict.version)
    return [
        f"* `{name}`, not in {_span(result, versions)}: {MEANINGS.get(name, _UNEXPLAINED)}"
        for name, versions in lacking.items()
    ] or ["Every seam fits every release."]


def _span(result: Result, versions: list[str]) -> str:
    """``a to z`` where that leaves out no release that was read."""
    known = [verdict.version for verdict in result.releases]
    first, last = known.index(versions[0]), known.index(versions[-1])
    if len(versions) > 1 and known[first : last + 1] == versions:
        return f"{versions[0]} to {versions[-1]}"
    return ", ".join(versions)


def _seams(result: Result) -> list[str]:
    return [
        f"* **{group}** (`{cls}`): {', '.join(f'`{form}`' for form in result.seams[cls])}"
        for group, cls in _GROUPS.items()
    ]


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
