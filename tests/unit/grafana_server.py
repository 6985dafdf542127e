"""An HTTP server that answers as Grafana's documentation of its HTTP API says, as far as boards are pushed.

https://grafana.com/docs/grafana/latest/developers/http_api/: health, folders, dashboards. It is no Grafana: it looks at
what is asked, and keeps what it is given.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "glsa_right"
READ_ONLY_TOKEN = "glsa_viewer"
USER = "admin:se:cret"


class FakeGrafana:
    """What it holds, and how it behaves."""

    def __init__(self, version: str = "11.6.1", path: str = ""):
        self.version = version
        self.path = path
        """The sub-path that it is served below."""
        self.folders: list[dict[str, Any]] = [{"uid": "general-2", "title": "Other"}]
        self.boards: dict[str, dict[str, Any]] = {}
        self.folder_of: dict[str, str] = {}
        self.refuses: dict[str, tuple[int, dict[str, Any]]] = {}
        """By a board's uid."""
        self.redirects = False
        self.url = ""

    def answer(self, method: str, path: str, auth: str, body: Any) -> tuple[int, Any]:
        """The status and the answer to one request."""
        if path == "/api/health" and method == "GET":
            return 200, {"database": "ok", "version": self.version, "commit": "abc"}
        who = self._who(auth)
        if who is None:
            return 401, {"message": "Invalid API key" if auth.startswith("Bearer") else "Unauthorized"}
        if path == "/api/folders" and method == "GET":
            return 200, self.folders
        if who == "viewer":
            return 403, {"message": "You'll need additional permissions", "title": "Access denied"}
        if path == "/api/folders" and method == "POST":
            made = {"id": 7, "uid": f"f{len(self.folders)}", "title": body["title"], "version": 1}
            self.folders.append(made)
            return 200, made
        if path == "/api/dashboards/db" and method == "POST":
            return self._save(body)
        return 404, {"message": "Not found"}

    def _save(self, body: dict[str, Any]) -> tuple[int, Any]:
        board = body["dashboard"]
        uid = board["uid"]
        if uid in self.refuses:
            return self.refuses[uid]
        if board.get("id") is not None:
            return 404, {"status": "not-found", "message": "Dashboard not found"}
        if body["folderUid"] not in {each["uid"] for each in self.folders}:
            return 400, {"message": "folder not found"}
        if uid in self.boards and not body.get("overwrite"):
            return 412, {
                "status": "version-mismatch",
                "message": "The dashboard has been changed by someone else",
            }
        version = self.boards.get(uid, {"version": 0})["version"] + 1
        self.boards[uid] = board | {"version": version}
        self.folder_of[uid] = body["folderUid"]
        url = f"{self.path}/d/{uid}/{board['title'].lower().replace(' ', '-')}"
        return 200, {"id": 1, "uid": uid, "url": url, "status": "success", "version": version, "slug": "x"}

    def _who(self, auth: str) -> str | None:
        return {
            f"Bearer {TOKEN}": "editor",
            f"Bearer {READ_ONLY_TOKEN}": "viewer",
            f"Basic {base64.b64encode(USER.encode()).decode()}": "editor",
        }.get(auth)


@contextmanager
def serving(grafana: FakeGrafana) -> Iterator[FakeGrafana]:
    """Serve it on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._do()

        def do_POST(self) -> None:
            self._do()

        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            path = self.path.split("?")[0]
            if grafana.redirects:
                self.send_response(302)
                self.send_header("Location", "https://sso.example.com/login")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if not path.startswith(f"{grafana.path}/"):
                self._send(404, {"message": "Not found"})
                return
            auth = self.headers.get("Authorization", "")
            self._send(*grafana.answer(self.command, path.removeprefix(grafana.path), auth, body))

        def _send(self, status: int, answer: Any) -> None:
            out = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(out)))
            self.end_headers()
            self.wfile.write(out)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    grafana.url = f"http://127.0.0.1:{server.server_port}{grafana.path}"
    try:
        yield grafana
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
