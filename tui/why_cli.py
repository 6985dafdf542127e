"""The command ``pushscope why``."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from pushscope.telemetry.cli import (
    Connect,
    Replay,
    RingFolder,
    Token,
    print_out,
    say,
    sentences,
    where,
    write_out,
)
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.units import clean, count
from pushscope.telemetry.why.account import Answer, answer
from pushscope.tui.why_view import candidate_lines, render_account

NOT_ONE = 2
"""Exit status: no such request is known, or it may be one of several, or nothing can be read."""
MAX_CANDIDATES = 20


def why(
    request_id: Annotated[
        str,
        typer.Argument(
            metavar="REQUEST_ID",
            help="Any id of it: P's or D's own, the client's X-Request-Id, cmpl-… or chatcmpl-…, a transfer_id, a "
            "trace id, the beginning of one.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    replay: Replay = None,
    rings: RingFolder = None,
    connect: Connect = None,
    token: Token = None,
) -> None:
    """Tell one request's whole story: what is wrong with it, what did not come, where its time went, all its events.

    Exit status 2 if there is no such request, or several.
    """
    with sentences():
        told = where(replay, rings, connect, token)
        told.check()
        with closing(told.open()) as source:
            found = answer(source, request_id)
        for notice in found.snapshot.notices:
            say(notice)
        if as_json:
            write_out(msgspec.json.encode(found.account or found.candidates) + b"\n")
        elif found.account is not None:
            account = found.account
            print_out(lambda console: render_account(account, console))
        elif found.candidates:
            print_out(lambda console: _print_candidates(found, console))
        if found.damage:
            raise PushscopeError(found.damage)
        if found.account is None:
            raise PushscopeError(_no_single_one(found))


def _print_candidates(found: Answer, console: Console) -> None:
    for line in list(candidate_lines(found, found.snapshot))[:MAX_CANDIDATES]:
        console.print(line, soft_wrap=True, highlight=False, emoji=False)
    if (more := len(found.candidates) - MAX_CANDIDATES) > 0:
        console.print(f"… and {count(more)} more")


def _no_single_one(found: Answer) -> str:
    asked = clean(found.asked, 120)
    if found.candidates:
        return f"'{asked}' may be any of {count(len(found.candidates))} requests: give more of the id"
    known = (
        f"{count(found.requests)} requests are known there"
        if found.requests
        else "it knows no request at all"
    )
    return (
        f"no request '{asked}' in {found.snapshot.source}, as far as it reaches back; {known}. It may be older, or "
        f"its engines don't record here"
    )
