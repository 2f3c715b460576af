"""What the gateway never tells, never takes and never writes."""

from __future__ import annotations

import base64
import hmac
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.acceptance.gateway_endpoints import ENDPOINTS, UNKNOWN
from tests.acceptance.gateway_site import SUBMIT, Caller, Scripted, Site, cograil, until
from tests.support.access_matrix import fill_path

from cograil.settings import DatabaseSettings
from cograil.store.database import Database

# -- what leaks -------------------------------------------------------------------------------------------

FORBIDDEN_KEYS = {
    *("job_id", "jobs", "node_id", "nodes", "node_summary", "task_id", "owner_id", "owner", "worker"),
    *("correlation_id", "failed_nodes", "_provenance", "workflow_version", "definition_id", "tenant"),
}


def internal_ids(site: Site) -> set[str]:
    """Every id and name in the database that is nobody's business outside."""
    queries = (
        "select id::text from cograil.jobs",
        "select distinct node_id from cograil.nodes",
        "select distinct task_id::text from cograil.nodes where task_id is not null",
        "select id::text from cograil.tasks",
        "select name from cograil.processes",
        "select id from cograil.keys",
        "select value from cograil.door_secrets",
    )
    return {value for query in queries for (value,) in site.rows(query)}


def names_in(value: Any) -> Iterator[str]:
    """Every key of an answer."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from names_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from names_in(item)


def body_of(answer: Any) -> Any:
    """As JSON, but for what is told to Prometheus."""
    return answer.text if answer.headers["content-type"].startswith("text/plain") else answer.json()


def text_of(answer: Any) -> str:
    """The answer with its headers, without the names of nodes under which its result has their outputs."""
    body = body_of(answer)
    if isinstance(body, dict) and isinstance(body.get("result"), dict):
        body = body | {"result": _unnamed(body["result"])}
    return f"{dict(answer.headers)} {body}"


def _unnamed(result: Any) -> Any:
    """At every depth: a node may be a whole job, and its output the result of that one."""
    if isinstance(result, list):
        return [_unnamed(value) for value in result]
    if not isinstance(result, dict):
        return result
    return [("" if key.startswith("zz_") else key, _unnamed(value)) for key, value in result.items()]


# A task inside, a fan-out, jobs inside jobs, and workers that are lost; those that fail too.
FLOWS = ("greet", "doomed", "outer", "outer_doomed", "spread", "lost", "outer_lost")
LOST_WORKER = "zz_internal_worker_7"


def lose_tasks(site: Site, count: int) -> None:
    """A worker over HTTP takes `count` tasks that are only for it, and is never heard of again."""
    worker, taken = site.caller("worker", url=site.api), 0
    claim = {"worker_id": LOST_WORKER, "handlers": ["zz_elsewhere"], "max": 10, "wait_seconds": 10}
    while taken < count:
        taken += len(worker.post("/api/v1/tasks/claim", claim).json()["tasks"])


def leaks(inside: set[str], text: str, body: Any) -> list[str]:
    """What of the inside is in an answer or a callback."""
    leaked = [word for word in inside if word in text]
    return leaked + sorted(FORBIDDEN_KEYS & set(names_in(body)))


# What is wrong with a body, or about the thing that it is for.
BODIES: tuple[Any, ...] = (
    None,
    {},
    [],
    {"zz": 1},
    {"name": "approve"},
    {"name": "zz_nothing"},
    {"name": "approve", "node_id": "zz"},
    {"node_id": "zz_inner_question", "reason": 5},
    {"from": ["zz"], "inputs": {"zz": 1}},
)


def refusals(site: Site, operator: Caller, request: str) -> list[Any]:
    """All refusals of the gateway's routes for this request, whatever the question and for every caller."""
    job = site.job_of(request)
    until(lambda: operator.status(request)["status"] == "running")
    (node,) = site.rows(f"select min(node_id) from cograil.nodes where job_id = '{job}'")[0]
    known = UNKNOWN | {"job_id": job, "node_id": node, "request_id": request, "workflow_id": "asking"}
    heard: list[Any] = []
    routes = [
        endpoint for endpoint in ENDPOINTS if not endpoint.path.startswith("/api/")
    ]  # their twins are served alike
    for endpoint in sorted(routes, key=lambda route: route.path.endswith("/cancel")):
        for things in (known, known | {"node_id": "zz"}, UNKNOWN):
            path = fill_path(endpoint, things)
            bodies = BODIES if endpoint.method == "POST" and things is known else (None,)
            heard += [operator.call(endpoint.method, path, body) for body in bodies]
        path = fill_path(endpoint, known)
        heard.append(operator.call(endpoint.method, f"{path}?limit=zz&status=zz&cursor=zz&zz=1"))
        heard.append(operator.call("POST" if endpoint.method == "GET" else "GET", path))
        heard.append(site.caller("worker").call(endpoint.method, path))
        heard.append(Caller(site.gateway).call(endpoint.method, path))
    return [answer for answer in heard if answer.status_code >= 400]


def test_no_answer_to_partners_contains_internal_ids(site: Site) -> None:
    operator, partner = site.caller("operator"), site.caller("gateway")
    ends = [partner.submit(name) for name in FLOWS]
    lose_tasks(site, 2)
    live = partner.submit("long")
    until(lambda: partner.status(live)["status"] == "running")
    for request in ends:
        partner.ended(request)
    job = site.job_of(live)
    inside = internal_ids(site)
    assert len([word for word in inside if word.startswith("zz_")]) >= 12
    assert LOST_WORKER in inside
    # All paths of /platform and of the probes, right and wrong; then all that the other routes refuse.
    for request in (*ends, live, job, str(uuid4()), "x"):
        partner.get(f"/platform/status/{request}")
    bodies: list[Any] = [
        {},
        SUBMIT | {"workflow_id": "nope"},
        SUBMIT | {"callback_url": "http://10.0.0.1/"},
        [],
    ]
    for body in bodies:
        partner.post("/platform/submit", body)
    partner.post("/platform/submit", SUBMIT | {"input_params": {"zz": 1}})
    partner.call("POST", "/platform/submit", content=b"{", headers={"content-type": "application/json"})
    for path in (
        "/livez",
        "/readyz",
        "/api/livez",
        "/api/readyz",
        "/metrics",
        "/status/jobs",
        "/nothing",
        f"/status/job/{job}",
    ):
        partner.get(path)
    refused = [*refusals(site, operator, live), *refusals(site, operator, partner.submit("asking"))]
    crawled = [
        *partner.heard,
        *refused,
        operator.post("/gateway/submit/batch", {"jobs": [{"workflow_id": "no"}]}),
    ]
    assert len(crawled) > 300
    assert {401, 403, 404, 405, 409, 415, 422} <= {answer.status_code for answer in crawled}
    inside = internal_ids(site)
    for answer in crawled:
        assert leaks(inside, text_of(answer), body_of(answer)) == [], (answer.url, answer.text)
        if answer.status_code >= 400:
            assert {"error"} <= answer.json().keys() <= {"error", "code", "details"}, answer.text


def test_no_callback_to_partners_contains_internal_ids(site: Site) -> None:
    partner, receiver = site.caller("gateway"), Scripted()
    receiver.answer = (200, {})
    with receiver.serving() as url:
        ends = {partner.submit(name, callback_url=f"{url}/hook"): name for name in FLOWS}
        lose_tasks(site, 2)
        # Created, started and ended, of each.
        until(lambda: len(receiver.seen) >= 3 * len(FLOWS))
    callbacks, inside = {}, internal_ids(site)
    for _, _, headers, body in receiver.seen:
        event = json.loads(body)
        data = event["data"]
        result = data["result"]
        shown = event | {"data": data | {"result": _unnamed(result)}}
        assert leaks(inside, f"{headers} {shown}", event) == [], body
        callbacks[ends[data["request_id"]], data["status"]] = data
    failing = ("doomed", "outer_doomed", "lost", "outer_lost")
    for name in FLOWS:
        ended = callbacks[name, "failed" if name in failing else "completed"]
        (shown,) = [partner.status(request) for request, flow in ends.items() if flow == name]
        assert (ended["result"], ended["error"]) == (shown["result"], shown["error"]), name
    assert callbacks["lost", "failed"]["error"] == "a worker died during the attempt"
    assert callbacks["spread", "completed"]["result"]["zz_inner_spread"] == {"fan_out_count": 2}


def test_a_callback_is_signed_with_the_secret_that_came_with_the_key(site: Site) -> None:
    made = json.loads(told_by(site, "keys", "create", "--role", "gateway", "--json"))
    again = json.loads(told_by(site, "keys", "callback-secret", made["key_id"], "--json"))
    secret = made["callback_secret"]
    assert again["callback_secret"] == secret
    assert "callback_secret" not in json.loads(told_by(site, "keys", "create", "--role", "viewer", "--json"))
    partner, receiver = Caller(site.gateway, made["key"]), Scripted()
    receiver.answer = (200, {})
    with receiver.serving() as url:
        partner.submit("greet", callback_url=f"{url}/hook")
        until(lambda: len(receiver.seen) >= 3)
    for _, _, headers, body in receiver.seen:
        sent = {name.lower(): value for name, value in headers.items()}
        signed = f"{sent['webhook-id']}.{sent['webhook-timestamp']}.".encode() + body
        key = base64.b64decode(secret.removeprefix("whsec_"))
        expected = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
        assert sent["webhook-signature"] == f"v1,{expected}"


def told_by(site: Site, *arguments: str) -> str:
    """What `cograil ARGUMENTS` prints."""
    environment = os.environ | {"COGRAIL_DATA_DIR": str(site.directory / "data")}
    command = [sys.executable, "-P", "-m", "cograil", *arguments]
    done = subprocess.run(command, env=environment, cwd=site.directory, capture_output=True, check=True)
    return done.stdout.decode()


# -- what comes in ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b'{"workflow_id": "greet", "workflow_id": "long", "submitted_by": "x"}', 400),
        (b'{"workflow_id": NaN}', 400),
        (b"[" * 50_000, 400),
        (b"[]", 422),
        (b'{"workflow_id": "greet"}', 422),
        (b'{"workflow_id": "greet", "submitted_by": ""}', 422),
        (b'{"workflow_id": "' + b"x" * 65 + b'", "submitted_by": "x"}', 422),
        (b'{"workflow_id": "greet", "submitted_by": "x", "job_id": "1"}', 422),
        (b'{"workflow_id": "greet", "submitted_by": "x", "request_id": "1"}', 422),
        (b'{"workflow_id": "greet", "submitted_by": "x", "tenant": "other"}', 422),
        (b'{"workflow_id": "greet", "submitted_by": "x", "priority": 11}', 422),
        (b'{"workflow_id": "greet", "submitted_by": "x", "priority": "1"}', 422),
        (b'{"workflow_id": "greet", "submitted_by": "x", "input_params": []}', 422),
        (b'{"workflow_id": "greet", "submitted_by": "x", "input_params": {"unknown": 1}}', 422),
        (b'{"workflow_id": "greet", "submitted_by": "x", "callback_url": "http://10.0.0.1/x"}', 422),
        (b'{"workflow_id": "greet", "submitted_by": "x", "idempotency_key": "\xc3\xa4"}', 400),
        (b'{"workflow_id": "greet", "submitted_by": "x", "idempotency_key": "' + b"k" * 129 + b'"}', 400),
        (b'{"x": "' + b"x" * 2_000_000 + b'"}', 413),
    ],
    ids=lambda value: str(value)[:50],
)
def test_invalid_requests_are_refused_in_the_error_shape(
    partner: Caller, content: bytes, status: int
) -> None:
    answer = partner.post("/platform/submit", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert {"error", "code"} <= answer.json().keys() <= {"error", "code", "details"}


def test_the_gateway_takes_no_other_methods_and_no_method_in_a_header(site: Site, operator: Caller) -> None:
    job = str(uuid4())
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        for path in (
            "/status/jobs",
            f"/status/job/{job}",
            f"/platform/status/{job}",
            "/admin/config",
            "/livez",
        ):
            answer = operator.call(method, path)
            assert (answer.status_code, "GET" in answer.headers["allow"]) == (405, True), (method, path)
    for header in ("X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method"):
        for method in ("GET", "POST"):
            answer = operator.call(method, "/status/jobs", headers={header: "DELETE"})
            assert answer.status_code == 405, header
    for path in (
        "/status/jobs?limit=501",
        "/status/jobs?limit=x",
        "/status/jobs?offset=-1",
        "/status/jobs?a=1",
    ):
        assert operator.get(path).status_code == 422, path
    assert operator.get("/status/jobs?limit=1&limit=2").status_code == 422
    assert operator.get("/status/lookup").status_code == 400
    assert operator.get("/status/lookup?correlation_id=a&idempotency_key=b").status_code == 400


def test_malformed_http_is_refused_in_the_error_shape(site: Site, partner: Caller) -> None:
    for path in ("/platform/status/a%0ab", "/a%0d%0ab", "/livez/a%0a", "/"):
        answer = partner.get(path)
        assert (answer.status_code, answer.json()["code"]) in ((404, "not_found"), (422, "invalid_value")), (
            path
        )
    for raw, status in (
        (b"FOO / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),
        (b"GET /api/readyz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /" + b"a" * 90_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    ):
        with socket.create_connection(("127.0.0.1", urlsplit(site.gateway).port or 0), timeout=10) as line:
            line.sendall(raw)
            response = b""
            while not response.endswith(b"}"):  # head and body may come in two pieces
                piece = line.recv(65536)
                assert piece, response
                response += piece
        assert response.startswith(f"HTTP/1.1 {status} ".encode()), response
        assert json.loads(response.partition(b"\r\n\r\n")[2]).keys() == {"error", "code"}


# -- reading only -----------------------------------------------------------------------------------------


async def test_the_database_role_of_the_gateway_can_write_nothing(site: Site) -> None:
    may = site.rows("""
        select c.relname from pg_class c
        where c.relnamespace = 'cograil'::regnamespace and c.relkind in ('r', 'p', 'S')
          and case when c.relkind = 'S' then has_sequence_privilege('cograil_gateway', c.oid, 'usage, update')
              else has_table_privilege('cograil_gateway', c.oid, 'insert, update, delete, truncate')
                or has_any_column_privilege('cograil_gateway', c.oid, 'insert, update') end""")
    assert may == []
    with psycopg.connect(make_conninfo(site.dsn, options="-c role=cograil_gateway"), autocommit=True) as conn:
        for statement in (
            "insert into cograil.jobs (id) values (gen_random_uuid())",
            "update cograil.keys set role = 'admin'",
            "delete from cograil.events",
            "truncate cograil.audit_log",
            "create table cograil.mine (x int)",
            "delete from cograil.idempotency",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(statement.encode())
        assert conn.execute("select count(*) from cograil.jobs").fetchone() == (0,)  # no tenant, no rows
    async with Database(site.dsn, DatabaseSettings(), role="cograil_gateway") as db:
        async with db.transaction("test", tenant="default") as tx:
            run = tx.connection.execute
            assert await (await run("show transaction_read_only")).fetchone() == ("on",)
            assert await (await run("select current_user")).fetchone() == ("cograil_gateway",)
        async with db.single("test") as tx:
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                await tx.connection.execute("create temporary table t (x int)")
    ((written,),) = site.rows(
        "select count(*) from cograil.keys where last_used_at is not null and role = 'viewer'"
    )
    assert written == 0  # viewers have called the gateway only, and it noted nothing


def test_a_role_that_may_too_much_is_refused(site: Site) -> None:
    site.rows("alter role cograil_gateway bypassrls")
    try:
        named = {"DATABASE_URL": site.dsn, "ORCHESTRATOR_URL": site.api}
        with cograil(site.directory, "gateway", "--port", "0", **named) as process:
            assert process.wait(60) == 2
    finally:
        site.rows("alter role cograil_gateway nobypassrls")


def test_a_user_who_is_in_its_role_and_nothing_else_will_do(site: Site, partner: Caller) -> None:
    request = partner.submit("greet")
    partner.ended(request)
    site.rows("create user plain_reader")
    site.rows("grant cograil_gateway to plain_reader")
    try:
        url = make_conninfo(site.dsn, user="plain_reader")
        with site.gateway_before(site.api, DATABASE_URL=url) as caller:
            assert caller.status(request)["status"] == "completed"
            assert caller.post("/platform/submit", SUBMIT).status_code == 202
    finally:
        site.rows("drop user plain_reader")
