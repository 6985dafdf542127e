"""One completion request to a vLLM server, and what came back when."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from pushscope.lab.spec import SERVED_MODEL_NAME

PATH = "/v1/completions"
ID_PREFIX = "cmpl-"


class RequestError(Exception):
    """A server refused or broke off a request, or its answer is of no use. The message is one line."""


@dataclass(slots=True)
class Answer:
    """What a server has answered so far. Times are time.perf_counter() seconds."""

    response_id: str = ""
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    first_token_at: float | None = None
    last_token_at: float | None = None
    kv_transfer_params: dict[str, Any] | None = None

    def take(self, message: Mapping[str, Any]) -> None:
        """Add a response, or one chunk of a streamed one.

        Raises RequestError if the server sent an error in its place.
        """
        if error := message.get("error"):
            text = error.get("message", error) if isinstance(error, dict) else error
            raise RequestError(_one_line(f"error in the answer: {text}"))
        self.response_id = message.get("id", self.response_id)
        self.kv_transfer_params = message.get("kv_transfer_params") or self.kv_transfer_params
        for choice in message.get("choices", ()):
            tokens = choice.get("token_ids") or ()
            self.text += choice.get("text", "")
            self.token_ids += tokens
            if tokens:
                self.last_token_at = time.perf_counter()
                self.first_token_at = self.first_token_at or self.last_token_at

    @property
    def request_id(self) -> str:
        """The response's id without ``cmpl-``: the X-Request-Id that the engine got, or a random one."""
        return self.response_id.removeprefix(ID_PREFIX)

    @property
    def tpot_s(self) -> float | None:
        """Mean seconds between two output tokens of a streamed answer."""
        if self.first_token_at is None or self.last_token_at is None or len(self.token_ids) < 2:
            return None
        return (self.last_token_at - self.first_token_at) / (len(self.token_ids) - 1)


def completion_body(prompt: list[int], max_tokens: int, *, stream: bool) -> dict[str, Any]:
    """A greedy request for exactly ``max_tokens`` tokens, with their ids in the answer."""
    return {
        "model": SERVED_MODEL_NAME,
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
        "stream": stream,
    }


async def complete(
    client: httpx.AsyncClient,
    url: str,
    body: Mapping[str, Any],
    *,
    headers: Mapping[str, str] | None = None,
    answer: Answer | None = None,
) -> Answer:
    """Send a request and read its answer to the end. ``answer`` is filled as tokens arrive, so that a caller
    who gives up still has them.

    Raises RequestError or httpx.HTTPError.
    """
    answer = Answer() if answer is None else answer
    async with client.stream("POST", url + PATH, json=dict(body), headers=dict(headers or {})) as response:
        if response.status_code != httpx.codes.OK:
            text = (await response.aread()).decode("utf-8", "replace")
            raise RequestError(_one_line(f"HTTP {response.status_code}: {_error_message(text)}"))
        if not body.get("stream"):
            answer.take(json.loads(await response.aread()))
            return answer
        async for line in response.aiter_lines():
            data = line.removeprefix("data: ")
            if data == "[DONE]":
                return answer
            if data:
                answer.take(json.loads(data))
    raise RequestError("the stream ended before it was complete")


def describe(error: BaseException) -> str:
    """An error of a request as one line."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, RequestError):
        return str(error)
    return _one_line(f"{type(error).__name__}: {error}".removesuffix(": "))


def _error_message(text: str) -> str:
    try:
        message = json.loads(text)
    except ValueError:
        return text
    error = message.get("error", message) if isinstance(message, dict) else message
    return str(error.get("message", error) if isinstance(error, dict) else error)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
