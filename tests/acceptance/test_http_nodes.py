"""A node of `type: http` from the file to a server, by the settings of the one who runs it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.acceptance.shell import shell_in

WORKFLOW = """\
workflow_id: ask
nodes:
  a: {{type: http, http: {{url: "http://localhost:{port}/x"}}, retry: {{max_attempts: 1}}}}
"""


class Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"n": 1}')

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.usefixtures("used_data_dir")
def test_a_node_reaches_this_machine_only_when_the_settings_allow_it(tmp_path: Path, port: int) -> None:
    shell = shell_in(tmp_path)
    (tmp_path / "ask.yaml").write_text(WORKFLOW.format(port=port))
    refused = shell.run_process("run", "ask.yaml")
    assert refused.code == 1
    assert "outbound_refused" in refused.out + refused.err
    allowed = shell.with_environment(COGRAIL_OUTBOUND__ALLOW="localhost").run_process("run", "ask.yaml")
    assert allowed.code == 0
    assert '"n": 1' in allowed.out
