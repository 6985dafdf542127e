"""Readings, metered: a watcher with a meter in it, and the page as a scraper reads it."""

from __future__ import annotations

from collections.abc import Callable, Container

from pushscope.telemetry.clocks import ClockOffset
from pushscope.telemetry.metrics.meter import Meter, Trace, Traces
from pushscope.telemetry.metrics.page import Own, gathered, rendered
from pushscope.telemetry.metrics.state import State
from pushscope.telemetry.source import Reading
from pushscope.telemetry.transfer import Transfer
from pushscope.telemetry.watch import Watcher

from .scenario import START_NS, ListSource

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
UNIX_NS = 1_700_000_000_000_000_000


def to_unix(t_ns: int) -> int:
    return t_ns - START_NS + UNIX_NS


def traces_of(transfer: Transfer) -> Traces:
    return {
        side: Trace(transfer.opened_ns, transfer.opened_ns % 1000 + number)
        for number, side in enumerate("PD", 1)
    }


class Metered:
    """What a watcher and its meter made of some readings."""

    def __init__(
        self,
        *readings: Reading,
        local: Container[str] | None = None,
        state: State | None = None,
        traces: Callable[[Transfer], Traces] = traces_of,
    ):
        self.meter = Meter(local=local, to_unix=to_unix, state=state)
        self.source = ListSource(list(readings))
        self.watcher = Watcher(
            self.source,
            on_closed=lambda transfer: self.meter.on_closed(transfer, traces(transfer)),
            on_event=self.meter.on_event,
        )
        self.watcher.run_to_end()

    def read(self, *readings: Reading) -> None:
        self.source.readings += readings
        self.watcher.run_to_end()

    def page(self, accept: str = OPEN_METRICS, *, clocks: tuple[ClockOffset, ...] = ()) -> str:
        """``clocks``: as if there were such hosts."""
        self.watcher.clocks = lambda: clocks  # type: ignore[method-assign]
        return rendered(gathered(self.watcher, self.meter, own=Own()), accept)[0].decode()

    def values(self, name: str, **labels: str) -> dict[tuple[str, ...], float]:
        """The series of that name whose labels have these values: by the values of their other labels."""
        return {
            tuple(v for k, v in sorted(sample.labels.items()) if k not in labels): sample.value
            for family in gathered(self.watcher, self.meter, own=Own())
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        }

    def value(self, name: str, **labels: str) -> float | None:
        """The sum of these series; None if there is none."""
        found = self.values(name, **labels)
        return sum(found.values()) if found else None

    def state(self) -> State:
        return self.meter.state(self.watcher)
