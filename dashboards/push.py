"""Boards into a running Grafana, by its HTTP API: a folder, then each board over what has its uid."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import httpx

from pushscope.dashboards.boards import boards
from pushscope.dashboards.grafana_json import GRAFANA, dashboard, with_runbooks
from pushscope.dashboards.names import TOKEN_VARIABLE, USER_VARIABLE
from pushscope.dashboards.panel import Board
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.units import clean

TIMEOUT_S: Final = 30.0
_EXAMPLE: Final = "a Grafana's URL, such as http://grafana:3000"
_HOW_TO: Final = (
    f"give a service account's token (--token or ${TOKEN_VARIABLE}), "
    f"or --user NAME:PASSWORD (or ${USER_VARIABLE})"
)


class Pushed(NamedTuple):
    """A board that is in Grafana now."""

    board: Board
    url: str
    version: int
    """1: it was not there before."""


class Grafana:
    """A Grafana, and who we are to it. Every method raises PushscopeError, in a sentence for who called the command."""

    def __init__(self, url: str, *, token: str | None = None, user: str | None = None):
        self.url = grafana_url(url)
        if token and user:
            raise PushscopeError(f"expected one of a token and a user, found both; {_HOW_TO}")
        if user and ":" not in user:
            raise PushscopeError("--user has no password; expected NAME:PASSWORD")
        for secret in (token or "", user or ""):
            if not secret.isascii() or not secret.isprintable():
                raise PushscopeError(
                    "the token or user has characters that no header can carry; copy it anew"
                )
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        name, _, password = (user or "").partition(":")
        self._http = httpx.Client(
            base_url=self.url, headers=headers, auth=(name, password) if user else None, timeout=TIMEOUT_S
        )

    def __enter__(self) -> Grafana:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def check(self) -> str:
        """Its version; raises if it is no Grafana, or one that is too old for these boards."""
        health = _json(self._answer("GET", "/api/health"))
        if not isinstance(health, dict) or "database" not in health:
            raise PushscopeError(f"{self.url} answers, but not as a Grafana does; expected {_EXAMPLE}")
        version = str(health.get("version") or "")  # may be hidden from who is not signed in
        if version and _number(version) < _number(GRAFANA):
            raise PushscopeError(
                f"{self.url} is Grafana {clean(version)}; these boards need {GRAFANA} or newer: upgrade it"
            )
        return version

    def folder(self, title: str) -> str:
        """The uid of the folder with this title, made if there is none."""
        known = self._asked("GET", "/api/folders", params={"limit": 1000})
        for each in known if isinstance(known, list) else ():
            if isinstance(each, dict) and each.get("title") == title:
                return str(each["uid"])
        made = self._asked("POST", "/api/folders", json={"title": title}, about=f"the folder {title!r}")
        if not isinstance(made, dict) or "uid" not in made:
            raise PushscopeError(
                f"{self.url} made the folder {title!r} and did not say its uid; look at its log"
            )
        return str(made["uid"])

    def push(self, board: Board, folder_uid: str, runbooks: str) -> Pushed:
        """Put a board there, over what has its uid."""
        answer = self._asked(
            "POST",
            "/api/dashboards/db",
            json={
                "dashboard": with_runbooks(dashboard(board), runbooks),
                "folderUid": folder_uid,
                "overwrite": True,
                "message": "pushscope dashboards push",
            },
            about=f"the board {board.title!r}",
        )
        if not isinstance(answer, dict) or answer.get("uid") != board.uid:
            raise PushscopeError(
                f"{self.url} took the board {board.title!r} under another uid; look at its log"
            )
        return Pushed(board, f"{self._root}{answer.get('url', '')}", int(answer.get("version") or 0))

    @property
    def _root(self) -> str:
        """What Grafana's own paths begin after: a sub-path is in them already."""
        parts = httpx.URL(self.url)
        return str(parts.copy_with(path="/")).rstrip("/")

    def _asked(self, method: str, path: str, *, about: str = "", **request: Any) -> Any:
        response = self._answer(method, path, **request)
        if response.status_code not in (200, 201):
            raise PushscopeError(_refusal(self.url, response, about))
        return _json(response)

    def _answer(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path.lstrip("/"), **request)
        except httpx.TimeoutException as e:
            raise PushscopeError(f"{self.url} did not answer within {TIMEOUT_S:g} s; is it there?") from e
        except httpx.HTTPError as e:
            raise PushscopeError(
                f"{self.url} can't be reached ({clean(str(e)) or type(e).__name__}); {_CHECK}"
            ) from e
        if response.is_redirect:
            to = clean(response.headers.get("location", "elsewhere"))
            raise PushscopeError(f"{self.url} sends us on to {to}; give the URL that it has in the end")
        return response


_CHECK: Final = "check the URL, and that Grafana runs"


def push_all(grafana: Grafana, folder: str, runbooks: str) -> Iterator[Pushed]:
    """Every board, into one folder."""
    grafana.check()
    uid = grafana.folder(folder)
    for board in boards():
        yield grafana.push(board, uid, runbooks)


def grafana_url(given: str) -> str:
    """The URL of a Grafana, which may lie below a path. Raises PushscopeError if it is none."""
    try:
        url = httpx.URL(given if "://" in given else f"http://{given}")
    except httpx.InvalidURL as e:
        raise PushscopeError(f"--url is {clean(given)!r}, which is no URL ({e}); expected {_EXAMPLE}") from e
    if url.userinfo:
        raise PushscopeError(f"--url holds a user and a password; {_HOW_TO}")
    is_address = bool(url.host) and " " not in given and (url.port or 0) < 1 << 16
    if url.scheme not in ("http", "https") or not is_address or url.query or url.fragment:
        raise PushscopeError(f"--url is {clean(given)!r}; expected {_EXAMPLE}")
    return str(url).rstrip("/")


def _refusal(url: str, response: httpx.Response, about: str) -> str:
    said = _message(response)
    what = about or "a look at its folders"
    match response.status_code:
        case 401:
            return f"{url} does not know us (401{said}); {_HOW_TO}"
        case 403:
            return (
                f"{url} does not allow {what} (403{said}); the token or user needs the role Editor, or the permissions "
                "dashboards:write and folders:create"
            )
        case 404:
            return f"{url} has no such API (404{said}); expected {_EXAMPLE}, with its sub-path if it has one"
        case 412:
            return (
                f"{url} refused {what} (412{said}): what is there belongs to a plugin, or has another version"
            )
        case 400 if "provisioned" in said:
            return f"{url} refused {what} (400{said}); change the files that it is provisioned from instead"
    return f"{url} refused {what} ({response.status_code}{said}); look at Grafana's log"


def _message(response: httpx.Response) -> str:
    answer = _json(response)
    said = answer.get("message") if isinstance(answer, dict) else None
    return f": {clean(str(said))}" if said else ""


def _json(response: httpx.Response) -> Any:
    """What it says, None if that is not JSON."""
    try:
        return response.json()
    except ValueError:
        return None


def _number(version: str) -> tuple[int, ...]:
    """Of ``10.4.0-pre``: 10, 4, 0."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    return tuple(int(part or 0) for part in found.groups()) if found else _number(GRAFANA)
