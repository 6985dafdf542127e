"""Which recorded requests a text may mean: any id that a user holds.

A client holds its ``X-Request-Id`` or vLLM's answer (``cmpl-…``, ``chatcmpl-…``), a log holds P's or D's internal
id, a router its ``transfer_id``, a trace its id, a screen a shortened id. What was recorded is in the form of
:func:`pushscope.telemetry.ids.recorded_id`: too long an id is cut and has a digest, or there is only a digest. Then the
text can't be looked for in it; the ids that vLLM may have made of the text are brought into that form instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import product
from typing import Final

from pushscope.telemetry.ids import base_id, recorded_id

_ENDPOINTS: Final = ("", "cmpl-", "chatcmpl-", "resp_")
"""What the API server puts before the client's id (``entrypoints/openai/*/serving.py``)."""
_PROMPTS: Final = ("", *(f"-{number}" for number in range(16)))
"""What ``/v1/completions`` puts behind it: the number of the prompt."""
_CHOICES: Final = ("", *(f"{number}_" for number in range(8)))
"""What a request for several choices puts before it all (``v1/engine/parallel_sampling.py``)."""
_MADE_BY_VLLM: Final = re.compile(r"(?:\d+_)?(?:cmpl-|chatcmpl-|resp_)")
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_GAP: Final = re.compile(r"…|\.\.\.")


class Closeness(IntEnum):
    """How a text fits a request; only the best fits count."""

    NONE = 0
    PART = 1
    """The text is the beginning of an id, or what a screen shows of a shortened one."""
    BASE = 2
    """The text is the request's id without what vLLM added, or another attempt's."""
    EXACT = 3


class Held:
    """A text that a user holds."""

    def __init__(self, text: str):
        self.text = text.strip()
        self._exact = {recorded_id(self.text), recorded_id(self.text, hashed=True)}
        self._bases = frozenset(_forms(self.text))
        traceparent = _TRACEPARENT.fullmatch(self.text.lower())
        self._traces = {self.text.lower(), *(traceparent.groups() if traceparent else ())}
        head, *rest = _GAP.split(self.text)
        self._gap = (head, rest[-1]) if rest else None

    def request(self, request_id: str) -> Closeness:
        """How it fits the recorded id of a request."""
        base = base_id(request_id)
        if request_id in self._exact or base in self._exact:
            return Closeness.EXACT
        if base in self._bases:
            return Closeness.BASE
        return Closeness.PART if self._is_part(request_id, base) else Closeness.NONE

    def trace(self, traceparent: str, transfer_id: str) -> Closeness:
        """How it fits what else a request is known by."""
        trace = _TRACEPARENT.fullmatch(traceparent.lower())
        if transfer_id == self.text or (trace and self._traces & {traceparent.lower(), *trace.groups()}):
            return Closeness.EXACT
        part = bool(transfer_id) and transfer_id.startswith(self.text)
        return (
            Closeness.PART if part or (trace and trace[1].startswith(self.text.lower())) else Closeness.NONE
        )

    def _is_part(self, request_id: str, base: str) -> bool:
        bare = _MADE_BY_VLLM.sub("", request_id, count=1)
        if any(name.startswith(self.text) for name in (request_id, bare)):
            return True
        if self._gap is not None:
            head, tail = self._gap
            return any(i.startswith(head) and i.endswith(tail) for i in (request_id, base))
        # Of an id that was cut when it was recorded only the head can be compared with a part of it.
        cut, *digest = base.rsplit("~", 1)
        heads = (cut, _MADE_BY_VLLM.sub("", cut, count=1))
        return bool(digest) and any(head and self.text.startswith(head) for head in heads)


def closest(held: Held, request_ids: Iterable[str], traces: Iterable[tuple[str, str]] = ()) -> Closeness:
    """How a text fits a request that has these ids, and these (traceparent, transfer_id)."""
    found = (*(held.request(i) for i in request_ids if i), *(held.trace(*trace) for trace in traces))
    return max(found, default=Closeness.NONE)


def _forms(text: str) -> Iterator[str]:
    """The base ids that vLLM makes of a client's id or of an answer's id, as they are recorded."""
    base = base_id(text)
    for name, hashed in product((text, base), (False, True)):
        for choice, endpoint, prompt in product(_CHOICES, _ENDPOINTS, _PROMPTS):
            yield recorded_id(f"{choice}{endpoint}{name}{prompt}", hashed=hashed)
