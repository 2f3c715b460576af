"""What commands print when the server does not answer, refuses the key, or is not one of cograil."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.acceptance.shell import Shell, shell_in


class Answers(BaseHTTPRequestHandler):
    """Answers by the first part of the path: /STATUS/KIND/..."""

    def do_GET(self) -> None:
        _, status, kind, *_ = self.path.split("/")
        body = PROBLEMS.get(kind, b"<html>hello</html>")
        self.send_response(int(status))
        self.send_header("content-type", "application/problem+json" if kind in PROBLEMS else "text/html")
        self.send_header("retry-after", "7")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


PROBLEMS = {
    "away": b'{"status": 503, "code": "database_unavailable", "detail": "the database does not answer"}',
    "busy": b'{"status": 429, "code": "too_many", "detail": "too many requests"}',
    "key": b'{"status": 401, "code": "unauthorized", "detail": "this key is not valid"}',
    "role": b'{"status": 403, "code": "forbidden", "detail": "the role viewer may not do this"}',
    "bug": b'{"status": 500, "code": "internal", "detail": "something went wrong", "request_id": "r1"}',
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that answers what its path says."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return shell_in(tmp_path, XDG_CONFIG_HOME=str(tmp_path / "config"))


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("503/away", 3, "cannot answer now: the database does not answer; try again in 7 s"),
        ("429/busy", 3, "cannot answer now: too many requests; try again in 7 s"),
        ("502/proxy", 3, "cannot answer now: it answered 502; try again in 7 s"),
        ("401/key", 2, "requires an API key; set COGRAIL_API_KEY, or use --api-key-file FILE"),
        ("403/role", 4, "the role viewer may not do this"),
        ("500/bug", 3, "something went wrong (request r1)"),
        ("404/html", 2, "is not the API of a cograil server: it answered 404"),
        ("200/html", 2, "is not the API of a cograil server: it answered 200 with text/html"),
    ],
)
def test_an_answer_that_is_an_error_is_one_line(
    shell: Shell, url: str, path: str, code: int, message: str
) -> None:
    answer = shell.run("workflows", "--server", f"{url}/{path}")
    assert answer.code == code
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert answer.err.endswith(f"{message}\n")
    assert answer.err.count("\n") == 1


def test_a_rejected_key_is_not_repeated(shell: Shell, url: str) -> None:
    with_key = shell.with_environment(COGRAIL_API_KEY="cog_abc_secret")
    answer = with_key.run("workflows", "--server", f"{url}/401/key")
    assert answer.code == 2
    assert "rejects the API key: this key is not valid" in answer.err
    assert "secret" not in answer.err


def test_a_server_that_does_not_answer_is_one_line(shell: Shell) -> None:
    answer = shell.run("--server", "http://127.0.0.1:1", "workflows")
    assert answer.code == 3
    assert "http://127.0.0.1:1 does not answer" in answer.err
    assert shell.run("--server", "http://127.0.0.1:1", "workflows", "--json").json["error"]["code"] == (
        "server_unavailable"
    )


def test_a_tenant_is_that_of_the_key(shell: Shell, url: str) -> None:
    answer = shell.run("jobs", "--server", url, "--tenant", "acme")
    assert answer.code == 2
    assert "use a key of that tenant" in answer.err
