"""Every fault, by name."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from pushscope.lab.faults import clients, ends, engines, routing, stops
from pushscope.lab.faults.fault import Fault

_ALL: Final[tuple[Fault, ...]] = (
    *routing.FAULTS,
    *clients.FAULTS,
    *ends.FAULTS,
    *stops.FAULTS,
    *engines.FAULTS,
)

FAULTS: Final = MappingProxyType({fault.name: fault for fault in _ALL})
