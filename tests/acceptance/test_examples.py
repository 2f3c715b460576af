"""Every example in examples/ runs to its end on a real instance, with the handlers that are beside it."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.shell import Shell, shell_in

from cograil.definitions import read_workflow

EXAMPLES = Path(__file__).parents[2] / "examples"
APPS = ("examples.shop", "examples.handlers", "examples.primitives")
# By file: what is given, and what becomes of its nodes. `HERE` is a server of this machine.
RUNS: dict[str, list[tuple[dict[str, Any], dict[str, str]]]] = {
    "approval.yaml": [
        ({}, {"ask": "completed", "pay": "completed", "say_no": "skipped"}),
        ({"amount": 5}, {"ask": "skipped", "pay": "completed", "say_no": "skipped"}),
    ],
    "demo.yaml": [
        ({"parts": ["a", "b"], "failure_rate": 0}, {"split__1": "completed", "report": "completed"})
    ],
    "failures.yaml": [
        ({}, {"tell": "failed", "verify": "skipped", "upload": "completed", "close": "completed"}),
        ({"is_broken": True}, {"verify": "failed", "upload": "cancelled", "close": "cancelled"}),
    ],
    "hello.yaml": [({"name": "Ada"}, {"greet": "completed", "shout": "completed"})],
    "http.yaml": [
        ({"url": "HERE/there"}, {"ask": "completed", "found": "completed", "missing": "skipped"}),
        ({"url": "HERE/missing"}, {"ask": "completed", "found": "skipped", "missing": "completed"}),
    ],
    "legacy.yaml": [
        ({"file_size": 7}, {"light": "completed", "split": "skipped", "report": "completed"}),
        ({"file_size": 10**9}, {"light": "skipped", "split__2": "completed", "report": "completed"}),
    ],
    "limits.yaml": [({"parts": [1, 2]}, {"work__1": "completed", "report": "completed"})] * 3,
    "orders.yaml": [({"order_id": 7}, {"pay": "completed", "pack": "completed"})],
    "primitives.yaml": [({"symbol": "ONE"}, {"reserve": "completed", "quote": "completed"})],
    "steps.yaml": [({}, {"collect": "completed", "digest": "completed", "book": "completed"})],
    "subworkflow.yaml": [({}, {"pack": "completed", "greet": "completed"})],
    "subworkflow_child.yaml": [({}, {"wrap__0": "completed", "box": "completed"})],
}
SCRIPTS = {"examples.captures", "examples.test_shop"}  # test_captures_example.py and test_testing_kit.py
ELSEWHERE = {"container.yaml"}  # tests/apps/containers/test_container_ends.py has an engine for it
FAILING = {"failures.yaml": 1}  # the run that is to fail


class Site(http.server.BaseHTTPRequestHandler):
    """Has one page."""

    def do_GET(self) -> None:
        body = b"{}"
        self.send_response(404 if self.path == "/missing" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Keep the output of the tests clean."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell beside an instance that has read all examples."""
    networks = {"COGRAIL_OUTBOUND__ALLOW_NETWORKS": "127.0.0.0/8"}
    shell = shell_in(tmp_path_factory.mktemp("examples"), **networks)
    (shell.directory / "examples").symlink_to(EXAMPLES)
    apps = [word for app in APPS for word in ("--app", app)]
    up = shell.start("up", "--port", "0", "--workflows", "examples", *apps)
    try:
        until = time.monotonic() + 60
        while shell.run("workflows").code != 0:
            assert up.poll() is None, up.communicate()
            assert time.monotonic() < until
        yield shell
    finally:
        up.terminate()
        up.communicate(timeout=60)


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.yaml")} == RUNS.keys() | ELSEWHERE
    modules = {f"examples.{path.stem}" for path in EXAMPLES.glob("*.py")}
    assert modules == {*APPS, *SCRIPTS}


def test_operator_examples_run_as_they_say(shell: Shell) -> None:
    """examples/operations.sh as it stands: whatever it does not expect ends it."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", str(EXAMPLES / "operations.sh")],
        env=shell.environment | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for words in ("the bank is down", "pay   kept", "order 8", '"done": 3', "events gapless"):
        assert words in done.stdout


def submit(shell: Shell, name: str, inputs: dict[str, Any], site: str) -> str:
    workflow = read_workflow((EXAMPLES / name).read_text("utf-8"))
    (shell.directory / "given.json").write_text(json.dumps(inputs).replace("HERE", site))
    return shell.submit(workflow.workflow_id, "--input-file", "given.json")


def ended(shell: Shell, job: str) -> dict[str, Any]:
    """The job with its nodes, when it has ended; questions are answered."""
    until = time.monotonic() + 60
    while True:
        shown: dict[str, Any] = shell.run("show", job, "--json").json
        if shown["job"]["completed_at"]:
            return shown
        assert time.monotonic() < until, shell.run("explain", job).out
        for node in shown["nodes"]:
            if node["type"] == "approval" and node["status"] == "waiting":
                form = ("--by", "ada", "--data", '{"method": "voucher"}')
                shell.run("approve", job, node["node_id"], *form)


def test_every_example_runs_as_it_says(shell: Shell, site: str) -> None:
    """All at once; then each is looked at."""
    jobs = [
        (name, number, submit(shell, name, inputs, site))
        for name, runs in RUNS.items()
        for number, (inputs, _) in enumerate(runs)
    ]
    wrong = {}
    for name, number, job in jobs:
        shown = ended(shell, job)
        expected = RUNS[name][number][1]
        statuses = {node["node_id"]: node["status"] for node in shown["nodes"]}
        status = "failed" if FAILING.get(name) == number else "completed"
        if shown["job"]["status"] != status or not expected.items() <= statuses.items():
            wrong[name, number] = (shown["job"]["status"], shown["job"]["error"], statuses)
    assert wrong == {}


def test_a_quote_requested_twice_is_made_once_and_kept(shell: Shell) -> None:
    """The example of the primitives: one job has the turn, the others its answer or its id."""
    jobs = [submit(shell, "primitives.yaml", {"symbol": "TWICE"}, "") for _ in range(4)]
    shown = [ended(shell, job) for job in jobs]
    outputs = [{node["node_id"]: node["output"] for node in job["nodes"]} for job in shown]
    mine = [output for output in outputs if output["reserve"]["is_mine"]]
    assert [output["quote"] for output in mine] == [{"symbol": "TWICE", "cents": 105}]
    for output in outputs:
        reserved = output["reserve"]
        assert reserved["is_mine"] or reserved.get("quote") == mine[0]["quote"] or reserved["watch"] in jobs
    again = ended(shell, submit(shell, "primitives.yaml", {"symbol": "TWICE"}, ""))
    reserve = next(node for node in again["nodes"] if node["node_id"] == "reserve")
    assert reserve["output"] == {"is_mine": False, "quote": mine[0]["quote"]}
