"""What the diagnosis of engines looks at: every engine's story and state, the transfers, and the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from pushscope.telemetry import units
from pushscope.telemetry.diagnosis.catalogue import CATALOGUE
from pushscope.telemetry.diagnosis.model import Diagnosis, Evidence, Severity
from pushscope.telemetry.diagnosis.thresholds import Thresholds
from pushscope.telemetry.snapshot import Engine
from pushscope.telemetry.story import EngineStory, InstanceStory
from pushscope.telemetry.transfer import Outcome, Rank, Transfer, rank_name


class Scene(NamedTuple):
    """Everything at one moment."""

    stories: Mapping[str, EngineStory]
    """By engine id."""
    engines: Mapping[str, Engine]
    """By engine id: their names, and what of them is gone."""
    followed: Sequence[Transfer]
    """Transfers that are open, or ended so lately that they are still followed."""
    closed: Sequence[Transfer]
    """The newest that are over."""
    now_ns: int
    thresholds: Thresholds

    def name(self, engine_id: str) -> str:
        """The short name of an engine; of one that is not observed, the begin of its id."""
        engine = self.engines.get(engine_id)
        return engine.name if engine else f"engine {engine_id[:8]}" if engine_id else "an unknown engine"

    def lasts(self, t_ns: int) -> str:
        """How long since then, in words."""
        return units.age(max(0, self.now_ns - t_ns) / 1e9)

    def ago(self, t_ns: int) -> str:
        return f"{self.lasts(t_ns)} ago"

    def stands(self, t_ns: int) -> bool:
        """Whether what happened then is recent enough to be named."""
        return self.now_ns - t_ns <= self.thresholds.stands_s * 1e9

    def late(self, t_ns: int) -> bool:
        """Whether what began then has lasted longer than the floor."""
        return self.now_ns - t_ns >= self.thresholds.late_after_ns(None)

    def hurt(self, transfers: Iterable[Transfer]) -> list[Transfer]:
        """Those whose request waits for blocks, or failed just now for want of them."""
        return [
            t for t in transfers if t.is_open or t.d_waits or (self._failed_just_now(t) and not t.recomputed)
        ]

    def spared(self, transfers: Iterable[Transfer]) -> list[Transfer]:
        """Those that failed just now, and whose prompts D computed itself."""
        return [t for t in transfers if t.recomputed and self._failed_just_now(t)]

    def _failed_just_now(self, t: Transfer) -> bool:
        return t.outcome is Outcome.FAILED and self.stands(t.closed_ns or 0)

    @property
    def alive(self) -> Iterable[tuple[EngineStory, InstanceStory]]:
        """Each instance that is there, with its engine."""
        for story in self.stories.values():
            for instance in story.current:
                if instance.alive:
                    yield story, instance

    def with_engine(self, engine_id: str) -> Iterable[Transfer]:
        return (t for t in self.followed if engine_id in (t.p_engine, t.d_engine))

    def between(self, one: str, other: str) -> Iterable[Transfer]:
        return (t for t in self.followed if {t.p_engine, t.d_engine} == {one, other})


MAX_COSTS: Final = 1_000
EngineRule = Callable[[Scene], Iterable[Diagnosis]]
"""One cause: a diagnosis for each engine, or pair of engines, that it holds for."""


def hanging(transfers: Iterable[Transfer]) -> list[Transfer]:
    """Those whose request waits for blocks."""
    return [t for t in transfers if t.is_open or t.d_waits]


def victims(transfers: Sequence[Transfer]) -> str:
    """``; it costs 3 requests``: they failed, or wait for what will not come. Nothing if there are none."""
    return f"; it costs {counted(len(transfers), 'request')}" if transfers else ""


def counted(count: int, what: str) -> str:
    return f"{units.count(count)} {what}" if count == 1 else f"{units.count(count)} {what}s"


def where(rank: Rank | None) -> str:
    """`` (tp0)`` after an engine's name; nothing for its scheduler."""
    return f" ({rank_name(rank)})" if rank is not None else ""


def evidence(story: EngineStory, instance: InstanceStory | None, t_ns: int, what: str) -> Evidence:
    return Evidence(t_ns, story.engine_id, what, instance.rank if instance else None)


def found(
    code: str,
    subject: str,
    sentence: str,
    *,
    since_ns: int,
    severity: Severity | None = None,
    certain: bool = True,
    seen: Iterable[Evidence] = (),
    costs: Iterable[Transfer] = (),
) -> Diagnosis:
    """A diagnosis with what the catalogue says of its code."""
    entry = CATALOGUE[code]
    return Diagnosis(
        code=code,
        severity=severity or entry.severity,
        subject=subject,
        sentence=sentence,
        evidence=tuple(sorted(seen, key=lambda e: e.t_ns)),
        since_ns=since_ns,
        certain=certain,
        remedy=entry.remedy,
        costs=tuple((t.base_id, t.attempt) for t in islice(costs, MAX_COSTS)),
    )


def shown(error: str) -> str:
    """An exception's recorded text in a sentence."""
    return units.clean(error, 120) or "no reason given"
