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
        "On D's worker no event says that blocks arrived or failed to (`get_finished` had that part then), and the "
        "worker's steps are not counted. The scheduler still says that a receive finished."
    ),
    "_reap_expired_send_leases": "P's worker does not say that a lease expired; that it was set and extended it does.",
    "_TRANSFER_MODE": "A pull connector is taken for a push connector: the seams of pull are not woven in.",
    "pp_size": "D's worker expects notifications as from one pipeline stage.",
    "KVConnectorTransferResults": "Read only by the seam `get_transfer_results`, which is off as well.",
}
"""What is lost, for each name that some release lacks. Written by hand: the reader knows names, not meanings."""


def page_of(result: Result) -> str:
    """Markdown, all of it from the result, but for what a missing name means."""
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

Made {date} by reading the wheels of {releases} releases, not by running them. 0.24.0 is the first release with a push
connector. A cell says `all`, or which seams are off; a seam that is off is named in the engine's log and costs only
its own events. Attributes are private names of vLLM that observers read past the seams."""

_NOTES = """\
What reading cannot find: a method that is called at another time, or a name that means something else. Tests run real
engines of the release that is pinned in `requirements/cpu.lock`, and of no other."""


def _row(result: Result, verdict: Verdict) -> list[str]:
    return [
        f"{verdict.distribution} {verdict.version}",
        str(verdict.connector_version or "not found"),
        *(_off(verdict.seams_off.get(cls, [])) for cls in _GROUPS.values()),
        _off(sorted(set(verdict.listener_off.values()))),
        _missing(result, verdict),
    ]


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
        f"* `{name}` ({_span(versions)}): {MEANINGS.get(name, 'what is lost is not written down yet.')}"
        for name, versions in lacking.items()
    ] or ["Every seam fits every release."]


def _span(versions: list[str]) -> str:
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"


def _seams(result: Result) -> list[str]:
    return [
        f"* **{group}** (`{cls}`): {', '.join(f'`{form}`' for form in result.seams[cls])}"
        for group, cls in _GROUPS.items()
    ]


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
