"""An instance with keys of two tenants, and gateways before it, as real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import psycopg
from tests.acceptance.instances import QUICK
from tests.support.openapi_check import gateway_checker

from cograil.embedded.data_directory import read_instance
from cograil.model.roles import ROLES
from cograil.settings import DatabaseSettings
from cograil.store.database import Database
from cograil.verbs.key_management import create_key

JSON = {"content-type": "application/json"}
SUBMIT = {"workflow_id": "greet", "submitted_by": "shop"}
# One for all: making a client takes longer than most requests.
CLIENT = httpx2.Client(trust_env=False, timeout=30)

FLOWS = {
    "greet": """
workflow_id: greet
inputs: {name: {type: string, required: false, default: Ada}}
nodes:
  zz_inner_greeter: {handler: hello_world, params: {name: "{{ inputs.name }}"}, next: zz_inner_echo}
  zz_inner_echo: {handler: echo, params: {from: upstream}}
""",
    "doomed": """
workflow_id: doomed
nodes:
  zz_inner_split:
    type: fan_out
    source: "{{ [1, 2, 3] }}"
    task: {handler: fail, params: {error_message: "no blob for zz_inner_gather"}, retry: {max_attempts: 1}}
    next: zz_inner_gather
  zz_inner_gather: {type: fan_in, aggregation: collect}
""",
    "outer": """
workflow_id: outer
nodes:
  zz_outer_call: {type: subworkflow, subworkflow: {workflow_id: greet}}
""",
    "outer_doomed": """
workflow_id: outer_doomed
nodes:
  zz_outer_split:
    type: fan_out
    source: "{{ [1, 2] }}"
    task: {handler: echo}
    next: zz_outer_tell
  zz_outer_tell: {handler: echo, params: {from: "{{ nodes.zz_outer_split.output }}"}, next: zz_outer_doomed}
  zz_outer_doomed: {type: subworkflow, subworkflow: {workflow_id: doomed}, retry: {max_attempts: 1}}
""",
    "spread": """
workflow_id: spread
nodes:
  zz_inner_spread:
    type: fan_out
    source: "{{ [1, 2] }}"
    task: {handler: echo}
    next: zz_inner_tell
  zz_inner_tell: {handler: echo, params: {from: "{{ nodes.zz_inner_spread.output }}"}}
""",
    "lost": """
workflow_id: lost
nodes:
  zz_inner_lost: {handler: zz_elsewhere, retry: {max_attempts: 1}}
""",
    "outer_lost": """
workflow_id: outer_lost
nodes:
  zz_outer_lost: {type: subworkflow, subworkflow: {workflow_id: lost}, retry: {max_attempts: 1}}
""",
    "asking": """
workflow_id: asking
nodes:
  zz_inner_question: {type: approval, approval: {message: may I}}
  zz_inner_doubt: {type: approval, approval: {message: really}}
""",
    "long": "workflow_id: long\nnodes:\n  zz_inner_sleeper: {handler: sleep, params: {seconds: 120}}\n",
}


def until(condition: Callable[[], Any], seconds: float = 90.0) -> Any:
    """The first value of this that is true."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds} s; the last value was {value!r}"
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


@dataclass
class Caller:
    """A caller of a gateway or the API, with one key. Every answer is kept."""

    url: str
    key: str = ""
    heard: list[httpx2.Response] = field(default_factory=list)

    def call(self, method: str, path: str, body: Any = None, **more: Any) -> httpx2.Response:
        headers = dict(more.pop("headers", {}))
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        content = more.pop("content", None)
        if body is not None:
            headers, content = JSON | headers, json.dumps(body).encode()
        answer = CLIENT.request(method, self.url + path, headers=headers, content=content, **more)
        self.heard.append(answer)
        self._check_described(answer, path)
        return answer

    def _check_described(self, answer: httpx2.Response, path: str) -> None:
        """What the gateway answers is as its OpenAPI document says; the probes of the API are others."""
        plain, kind = path.removeprefix("/api"), answer.headers.get("content-type", "")
        if plain not in ("/livez", "/readyz", "/metrics"):
            method = answer.request.method
            assert gateway_checker().wrong(method, plain, answer.status_code, kind, answer.content) == []

    def get(self, path: str, **more: Any) -> httpx2.Response:
        return self.call("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> httpx2.Response:
        return self.call("POST", path, body, **more)

    def submit(self, workflow_id: str, **facts: Any) -> str:
        """A request through /platform, by its id."""
        answer = self.post("/platform/submit", {"workflow_id": workflow_id, "submitted_by": "shop", **facts})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["request_id"])

    def status(self, request_id: str) -> dict[str, Any]:
        status: dict[str, Any] = self.get(f"/platform/status/{request_id}").json()
        return status

    def ended(self, request_id: str) -> dict[str, Any]:
        until(lambda: self.status(request_id)["status"] in ("completed", "failed"))
        return self.status(request_id)


@contextmanager
def cograil(directory: Path, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """`cograil ARGUMENTS`; ends with SIGTERM and exit code 0, unless it has ended by itself."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COGRAIL_")}
    environment = kept | QUICK | {"COGRAIL_DATA_DIR": str(directory / "data"), "COGRAIL_LOG__FORMAT": "json"}
    log = directory / f"{arguments[0]}-{time.monotonic_ns()}.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cograil", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=directory,
            env=environment | variables,
        )
    try:
        yield process
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(40) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)


@dataclass
class Site:
    """An instance that runs, and how to reach it."""

    directory: Path
    dsn: str
    api: str
    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    gateway: str = ""

    def caller(self, role: str, tenant: str = "default", url: str = "") -> Caller:
        return Caller(url or self.gateway, self.keys[tenant, role])

    def job_of(self, request_id: str) -> str:
        """The job of a request, which only the database tells."""
        query = (
            f"select id::text from cograil.jobs where correlation_id = '{request_id}' and parent_job is null"
        )
        ((job_id,),) = self.rows(query)
        return str(job_id)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            cursor = conn.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    async def make_keys(self) -> None:
        async with Database(self.dsn, DatabaseSettings()) as db, db.transaction("keys") as tx:
            for tenant in ("default", "other"):
                for role in ROLES:
                    made = await create_key(tx, tenant=tenant, role=role, name=f"the {role}")
                    self.keys[tenant, role] = made.key

    @contextmanager
    def gateway_before(self, api: str, **variables: str) -> Iterator[Caller]:
        """One more gateway, with the names of seed 002 in its environment, when it is ready."""
        port = free_port()
        named = {"DATABASE_URL": self.dsn, "ORCHESTRATOR_URL": api} | variables
        with cograil(self.directory, "gateway", "--port", str(port), **named):
            url = f"http://127.0.0.1:{port}"
            until(lambda: answers(f"{url}/readyz") == 200)
            yield self.caller("operator", url=url)


def answers(url: str) -> int:
    """The status there, 0 for nobody."""
    try:
        return CLIENT.get(url).status_code
    except httpx2.TransportError:
        return 0


@contextmanager
def open_site(directory: Path) -> Iterator[Site]:
    """`cograil up` with the workflows above, keys for two tenants, and `cograil gateway` before it."""
    flows = directory / "flows"
    flows.mkdir()
    for name, text in FLOWS.items():
        (flows / f"{name}.yaml").write_text(text)
    here = {"COGRAIL_OUTBOUND__ALLOW_NETWORKS": "127.0.0.0/8"}
    with cograil(directory, "up", "--port", "0", "--workflows", str(flows), **here):
        instance = until(lambda: read_instance(directory / "data"))
        site = Site(directory, instance.conninfo, f"http://{instance.host}:{instance.port}")
        # Ids of tasks that can be told from other numbers.
        site.rows("select setval(pg_get_serial_sequence('cograil.tasks', 'id'), 770077007700)")
        asyncio.run(site.make_keys())
        with site.gateway_before(site.api) as gateway:
            site.gateway = gateway.url
            yield site


class Scripted:
    """An API that does what the test says: `answer` is (status, body), None closes without an answer."""

    def __init__(self) -> None:
        self.answer: tuple[int, Mapping[str, Any]] | None = (500, {"detail": "zz_inner secret"})
        self.waits = threading.Event()
        self.waits.set()
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Its URL."""
        script = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.do_POST()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if self.path == "/livez":
                    self.tell(200, {"alive": True})
                    return
                script.seen.append((self.command, self.path, dict(self.headers.items()), body))
                script.waits.wait(20)
                if script.answer is None:
                    self.connection.close()
                else:
                    self.tell(*script.answer)

            def tell(self, status: int, body: Mapping[str, Any]) -> None:
                raw = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/problem+json")
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: Any) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            server.handle_error = lambda *_: None  # type: ignore[method-assign]
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_address[1]}"
            self.waits.set()
            server.shutdown()
