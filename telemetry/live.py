"""What a command watches: engines or a recording for as long as it likes, or all that is there by now, at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.session import Session
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.watch import Watcher
from pushscope.telemetry.where import Where


class Watched(NamedTuple):
    """Something that is watched."""

    snapshots: Callable[[], Snapshot]
    """Gives the present state each time it is called."""
    session: Session | None = None
    """What can be done with it; None if it was only looked at once."""


@contextmanager
def watched(where: Where, to_end: bool = False) -> Iterator[Watched]:
    """Watch it; a recording is played. With ``to_end`` a recording is read to its end at once, and of engines all that
    is there by now.

    Raises PushscopeError for a file that is no recording, and for agents none of which answers; for a recording that
    is damaged, with ``to_end``, only at the end of the context, so that what lies before the damage can be shown.
    """
    if to_end:
        with _at_the_end(where) as snapshot:
            yield Watched(lambda: snapshot)
        return
    with closing(Session(where)) as session:
        yield Watched(session.snapshot, session)


@contextmanager
def _at_the_end(where: Where) -> Iterator[Snapshot]:
    with closing(where.open()) as source:
        watcher = Watcher(source)
        damage: PushscopeError | None = None
        try:
            watcher.read_all()
        except PushscopeError as e:
            if where.is_live:
                raise
            damage = e
        yield watcher.snapshot()
        if damage is not None:
            raise damage
