"""What came of one test: the data that a run writes and the comparison reads."""

from __future__ import annotations

import msgspec


class Evidence(msgspec.Struct, frozen=True):
    """What pushscope did during one test."""

    instances: dict[str, int] = {}
    """Schedulers and workers instrumented, by how they were made."""
    events: dict[str, int] = {}
    """Events found in their rings, by kind."""
    lost: list[str] = []
    """Events that observers could not record, though their instance was whole."""
    lost_bare: list[str] = []
    """The same where ``__init__`` never ran, so that half of what an observer looks at is missing."""
    refused: list[str] = []
    """Schedulers, workers or connectors that could not be instrumented."""


class Outcome(msgspec.Struct, frozen=True):
    """One test in one run."""

    test: str
    """``file::Class::name[parameters]``, the file relative to the folder of tests."""
    result: str
    """``passed``, ``failed`` or ``skipped``; an error before or after the test is a failure."""
    message: str = ""
    """The first line of why it failed or was skipped."""
    evidence: Evidence | None = None
    """With pushscope in place."""

    @property
    def file(self) -> str:
        return self.test.partition("::")[0]
