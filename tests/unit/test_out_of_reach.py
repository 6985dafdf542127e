"""An engine whose agent is out of reach for a while: what it did meanwhile is not known, and comes later."""

from __future__ import annotations

import msgspec
import pytest

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.model import Severity
from pushscope.telemetry.source import Reading
from pushscope.telemetry.transfer import Outcome, Transfer
from pushscope.telemetry.watch import Watcher

from .failures import D_SIDE, P_SIDE, S, stepping
from .scenario import D_ENGINE, P_ENGINE, ListSource, Said, delivered, only, reading

COMPLETED = next(e.t for _, e in delivered() if isinstance(e, ev.NotificationDrained))
KNOWN: Said = [(o, e) for o, e in delivered() if o in P_SIDE or e.t < COMPLETED]
LATE: Said = [(o, e) for o, e in delivered() if o in D_SIDE and e.t >= COMPLETED]
"""D's end of it."""


def away(given: Reading, engine: str) -> Reading:
    """A reading whose reader has nothing new of an engine."""
    rings = (msgspec.structs.replace(r, unheard=r.origin.engine_id == engine) for r in given.rings)
    return msgspec.structs.replace(given, rings=tuple(rings))


def watched(*readings: Reading) -> tuple[Watcher, list[Transfer]]:
    """A watcher that has read these, with the transfers that it closed."""
    closed: list[Transfer] = []
    watcher = Watcher(ListSource(list(readings)), on_closed=closed.append)
    watcher.run_to_end()
    return watcher, closed


def errors(*readings: Reading) -> set[str]:
    diagnoses = watched(*readings)[0].snapshot().diagnoses
    return {d.code for d in diagnoses if d.severity is Severity.ERROR}


def test_what_cannot_have_been_heard_is_not_missing() -> None:
    before, after = reading(KNOWN, 100), reading(stepping(32), 32 * S)
    assert errors(before, after) == {"notifications_missing"}
    assert not errors(before, away(after, D_ENGINE))


def test_what_was_wrong_before_stays_so_and_is_told_again_when_it_is_heard() -> None:
    late = reading(stepping(32), 32 * S), reading(stepping(40), 40 * S)
    assert errors(reading(KNOWN, 100), *late, away(reading([], 60 * S), D_ENGINE)) == {
        "notifications_missing"
    }
    heard_again = reading(stepping(62), 62 * S)
    assert errors(reading(KNOWN, 100), away(late[0], D_ENGINE), heard_again) == {"notifications_missing"}


@pytest.mark.parametrize(
    ("engine", "late"),
    [(D_ENGINE, LATE), (P_ENGINE, [(o, e) for o, e in delivered() if o in P_SIDE])],
    ids=["D", "P"],
)
def test_it_is_not_over_until_the_other_side_was_heard(engine: str, late: Said) -> None:
    (whole,) = watched(reading(delivered(), 1 * S))[1]
    known = [each for each in delivered() if each not in late]
    watcher, closed = watched(
        reading(known, 100),
        *(away(reading([], at_s * S), engine) for at_s in range(1, 120, 10)),
        reading(late, 121 * S),
        reading([], 122 * S),
    )
    assert closed == [whole]
    assert watcher.snapshot().totals.outcomes == {"delivered": 1}


def test_one_that_is_heard_again_with_nothing_to_say_is_not_waited_for() -> None:
    known = only(delivered(), *D_SIDE)
    out_of_reach = reading(known, 100), away(reading([], 60 * S), P_ENGINE)
    assert not watched(*out_of_reach)[1]
    (closed,) = watched(*out_of_reach, reading([], 61 * S))[1]
    assert closed.outcome is Outcome.DELIVERED
