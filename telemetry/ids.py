"""Request ids, as they are recorded, joined and looked up.

vLLM makes a request id unique by appending ``-<8 hex>`` (``input_processor.assign_request_id``); P and D
each do so by themselves, so only the *base id* in front of that suffix is the same on both sides
(``nixl/utils.py::get_base_request_id``). Everything here keeps that property: an id that is shortened or
hashed still has the suffix, and two ids with one base id still have one base id afterwards.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b

MAX_ID_BYTES = 96
"""A request id of up to this many UTF-8 bytes, its random suffix included, is recorded as it is."""

MAX_ENGINE_ID_BYTES = 40
"""Engine ids are UUIDs of 36 characters, sometimes with a ``_dp<n>`` suffix."""

_RANDOM_SUFFIX = re.compile(r"-[0-9a-f]{8}$", re.IGNORECASE)
_SUFFIX_BYTES = 9
_MAX_BASE_BYTES = MAX_ID_BYTES - _SUFFIX_BYTES
_HEAD_BYTES = 48


def base_id(request_id: str) -> str:
    """The part of a request id that P and D share."""
    return _RANDOM_SUFFIX.sub("", request_id)


def recorded_id(request_id: str, *, hashed: bool = False) -> str:
    """The form in which a request id is recorded and shown.

    Up to 96 bytes it is the id itself; a longer one becomes the first 48 bytes of its base id, ``~``, 16 hex
    digits of a digest of the base id, and its random suffix. The base id alone decides (up to 87 bytes), so
    that the ids of P and D never differ in form. A shortened id is a fixed point: a user may look up either.
    With ``hashed`` (the option ``hash_request_ids``) only digest and suffix are left.
    """
    if not hashed and len(request_id) <= _MAX_BASE_BYTES and request_id.isascii():
        return request_id  # the hot path
    return _recorded_long_id(request_id, hashed)


@lru_cache(maxsize=4096)  # a request's id passes many seams, and routers make long ones
def _recorded_long_id(request_id: str, hashed: bool) -> str:
    base = base_id(request_id)
    suffix = request_id[len(base) :]
    if hashed:
        return _digest(base) + suffix
    encoded = base.encode("utf-8", "replace")
    if len(encoded) <= _MAX_BASE_BYTES:
        return encoded.decode("utf-8") + suffix
    return _head(base, _HEAD_BYTES) + "~" + _digest(base) + suffix


def recorded_engine_id(engine_id: str) -> str:
    """The form in which an engine id is recorded: whole up to 40 bytes, else 23 bytes, ``~`` and a digest."""
    encoded = engine_id.encode("utf-8", "replace")
    if len(encoded) <= MAX_ENGINE_ID_BYTES:
        return encoded.decode("utf-8")
    return _head(engine_id, MAX_ENGINE_ID_BYTES - 17) + "~" + _digest(engine_id)


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _head(text: str, num_bytes: int) -> str:
    return text.encode("utf-8", "replace")[:num_bytes].decode("utf-8", "ignore")
