"""``pushscope dashboards``: files into a folder, boards into a Grafana, and a sentence for all that goes wrong."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest
from typer.testing import CliRunner, Result

from pushscope.dashboards import names
from pushscope.dashboards.boards import boards
from pushscope.dashboards.files import FOLDER
from pushscope.lab.main import app

from .grafana_server import READ_ONLY_TOKEN, TOKEN, USER, FakeGrafana, serving

MINE = "https://wiki.example.com/runbooks"


@pytest.fixture(autouse=True)
def no_secrets(monkeypatch):
    for name in (names.TOKEN_VARIABLE, names.USER_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(app, ["dashboards", *arguments], env=environment)


def said(done: Result) -> str:
    """The one sentence on stderr."""
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


@pytest.fixture
def grafana():
    with serving(FakeGrafana()) as served:
        yield served


# -- export -------------------------------------------------------------------------------------------


def test_export_writes_every_file_that_is_imported(tmp_path):
    target = tmp_path / "a" / "b"
    done = run("export", str(target))
    assert done.exit_code == 0, done.output
    for board in boards():
        for folder in ("grafana", "grafana-import"):
            written = target / folder / f"{board.uid}.json"
            assert written.read_bytes() == (FOLDER / folder / f"{board.uid}.json").read_bytes()
            assert str(written) in done.stdout.splitlines()
    assert sorted(map(str, (p for p in target.rglob("*") if p.is_file()))) == sorted(done.stdout.splitlines())


def test_export_leads_links_to_runbooks_where_one_says(tmp_path):
    assert run("export", str(tmp_path), "--runbooks", MINE).exit_code == 0
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert names.RUNBOOKS not in path.read_text()
    board = json.loads((tmp_path / "grafana" / "pushscope-overview.json").read_text())
    assert [v["query"] for v in board["templating"]["list"] if v["name"] == "runbooks"] == [MINE]


def test_export_twice_is_as_once_but_does_not_take_away_what_was_changed(tmp_path):
    assert run("export", str(tmp_path)).exit_code == 0
    assert run("export", str(tmp_path)).exit_code == 0
    changed = tmp_path / "grafana" / "pushscope-pair.json"
    changed.write_text("mine")
    (tmp_path / "grafana" / "pushscope-modes.json").unlink()
    assert f"{changed} is there already and differs; nothing was written" in said(
        run("export", str(tmp_path))
    )
    assert not (tmp_path / "grafana" / "pushscope-modes.json").exists()
    assert run("export", str(tmp_path), "--overwrite").exit_code == 0
    assert json.loads(changed.read_text())["uid"] == "pushscope-pair"


def test_export_to_where_no_folder_can_be(tmp_path):
    (tmp_path / "file").write_text("")
    assert "choose" in said(run("export", str(tmp_path / "file")))


@pytest.mark.parametrize(
    "url", ["wiki", "ftp://x/y", "https://x/runbooks.md#stuck", 'https://x/"', "https://"]
)
def test_a_place_for_runbooks_that_is_none(url, tmp_path):
    assert "expected the URL of a copy of docs/runbooks.md" in said(
        run("export", str(tmp_path), "--runbooks", url)
    )
    assert list(tmp_path.iterdir()) == []


# -- push ---------------------------------------------------------------------------------------------


def test_push_makes_the_folder_and_puts_every_board_there_and_again_over_it(grafana):
    for version in (1, 2):
        done = run("push", "--url", grafana.url, "--token", TOKEN)
        assert done.exit_code == 0, done.output
        assert {uid: board["version"] for uid, board in grafana.boards.items()} == {
            board.uid: version for board in boards()
        }
    assert [each["title"] for each in grafana.folders] == ["Other", "pushscope"]
    assert set(grafana.folder_of.values()) == {"f1"}
    lines = done.stdout.splitlines()
    assert (
        lines[0]
        == f"KV transfer overview: version 2, {grafana.url}/d/pushscope-overview/kv-transfer-overview"
    )
    assert len(lines) == len(boards())


def test_push_into_a_folder_that_is_there_as_a_user_with_runbooks_of_ones_own(grafana):
    done = run("push", "--url", grafana.url, "--user", USER, "--folder", "Other", "--runbooks", MINE)
    assert done.exit_code == 0, done.output
    assert set(grafana.folder_of.values()) == {"general-2"}
    for board in grafana.boards.values():
        assert names.RUNBOOKS not in json.dumps(board)
        assert MINE in json.dumps(board)


def test_secrets_come_from_the_environment_and_are_never_shown(grafana):
    assert run("push", "--url", grafana.url, GRAFANA_TOKEN=TOKEN).exit_code == 0
    assert run("push", "--url", grafana.url, GRAFANA_USER=USER).exit_code == 0
    for secret in ({"GRAFANA_TOKEN": "glsa_wrong"}, {"GRAFANA_USER": "admin:wr0ng"}):
        done = run("push", "--url", grafana.url, **secret)
        assert "does not know us (401" in said(done)
        assert not any(value in done.output for value in ("glsa_wrong", "wr0ng"))


def test_below_a_sub_path():
    with serving(FakeGrafana(path="/grafana")) as grafana:
        done = run("push", "--url", grafana.url + "/", "--token", TOKEN)
        assert done.exit_code == 0, done.output
        assert done.stdout.splitlines()[0].endswith(
            f"{grafana.url}/d/pushscope-overview/kv-transfer-overview"
        )
        root = grafana.url.removesuffix("/grafana")
        assert "not as a Grafana does" in said(run("push", "--url", root, "--token", TOKEN))


def test_without_a_token(grafana):
    words = said(run("push", "--url", grafana.url))
    assert "does not know us (401: Unauthorized)" in words
    assert "--token" in words
    assert grafana.boards == {}


def test_who_may_only_look(grafana):
    words = said(run("push", "--url", grafana.url, "--token", READ_ONLY_TOKEN))
    assert "does not allow the folder 'pushscope' (403: You'll need additional permissions)" in words
    assert "Editor" in words


@pytest.mark.parametrize(
    ("status", "answer", "words"),
    [
        (
            412,
            {"status": "plugin-dashboard", "message": "The dashboard belongs to plugin X."},
            "refused the board 'KV transfer overview' (412: The dashboard belongs to plugin X.)",
        ),
        (
            400,
            {"message": "Cannot save provisioned dashboard"},
            "change the files that it is provisioned from",
        ),
        (500, "<html>oops", "(500); look at Grafana's log"),
        (200, {"uid": "another", "status": "success"}, "under another uid"),
        (200, "welcome", "under another uid"),
    ],
)
def test_a_board_that_is_refused(grafana, status, answer, words):
    grafana.refuses[names.OVERVIEW] = (status, answer)
    assert words in said(run("push", "--url", grafana.url, "--token", TOKEN))


def test_a_grafana_that_is_too_old():
    with serving(FakeGrafana(version="9.5.2")) as grafana:
        assert "is Grafana 9.5.2; these boards need 10.4.0 or newer" in said(
            run("push", "--url", grafana.url, "--token", TOKEN)
        )


@pytest.mark.parametrize("version", ["10.4.0", "10.4.0-67429", "13.2.3", "12.0", "", "main"])
def test_a_grafana_that_is_new_enough_or_does_not_say(version):
    with serving(FakeGrafana(version=version)) as grafana:
        assert run("push", "--url", grafana.url, "--token", TOKEN).exit_code == 0


def test_nobody_there():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and no listen: it refuses
        url = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"http://{url} can't be reached" in said(run("push", "--url", url, "--token", TOKEN))


def test_something_else_is_there(grafana):
    grafana.answer = lambda *_: (200, "<html>hello")  # type: ignore[method-assign]
    assert "answers, but not as a Grafana does" in said(run("push", "--url", grafana.url, "--token", TOKEN))


def test_a_login_page_before_it(grafana):
    grafana.redirects = True
    assert "sends us on to https://sso.example.com/login" in said(
        run("push", "--url", grafana.url, "--token", TOKEN)
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--url", "ftp://grafana"), "expected a Grafana's URL"),
        (("--url", "http://"), "expected a Grafana's URL"),
        (("--url", "http://g:999999"), "expected a Grafana's URL"),
        (("--url", "http://g/?orgId=1"), "expected a Grafana's URL"),
        (("--url", "http://me:secret@g"), "holds a user and a password"),
        (("--url", "http://g", "--user", "admin"), "has no password"),
        (("--url", "http://g", "--user", "a:b", "--token", "t"), "expected one of a token and a user"),
        (("--url", "http://g", "--token", "tök\nen"), "characters that no header can carry"),
        (("--url", "http://g", "--runbooks", "wiki"), "expected the URL of a copy of docs/runbooks.md"),
    ],
)
def test_what_one_says_wrongly(options, words):
    done = run("push", *options)
    assert words in said(done)
    assert "secret" not in done.output


def test_the_command_line_starts_without_building_boards():
    code = "import sys, pushscope.lab.main; print('pushscope.dashboards.boards' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
