"""Two matrices from the table that also makes the OpenAPI document: roles x routes, and tenants x routes.

All cells: routes, streams and sockets. A route with a new kind of name in its path, or a new body, has to be
placed here, or a test fails.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from doors import Api
from matrices import NOBODYS, Reply, asked, filled, plain
from streams import listening, socket_to

from cograil.intake.http.app import TABLES
from cograil.intake.http.openapi import PROBES
from cograil.intake.http.table import SOCKET, Endpoint
from cograil.model.callers import ROLES, Caller, Role
from cograil.outlets.spreading import spread

ENDPOINTS = [endpoint for table in TABLES for endpoint in [*table.endpoints, *table.sockets]]
HELLO = "workflow_id: hello\nnodes: {greet: {handler: elsewhere}}"
OURS = "workflow_id: acme_only\nnodes: {greet: {handler: elsewhere, queue: acme_queue}}"
HOOK = "https://acme.example/hook"

# Where a tenant that has one of everything sees some of it without naming anything.
LISTS = (
    *("/jobs", "/workflows", "/subscriptions", "/deliveries", "/nodes", "/tasks"),
    *("/schedules", "/workers", "/queues/status", "/audit", "/metrics/workflows"),
)


@dataclass
class Tenant:
    """A tenant with one of everything, and the words by which its things are known."""

    key: str
    things: dict[str, str]
    words: set[str] = field(default_factory=set)


def body_of(endpoint: Endpoint, things: dict[str, str]) -> dict[str, Any] | None:
    """A body that gets as far as asking for these things."""
    if endpoint.body is None:
        return None
    task = {"task_id": things["task_id"], "fence": 1}
    job = {"workflow_id": things["workflow_id"]}
    bodies: dict[str, dict[str, Any]] = {
        "NewJob": job,
        "NewJobs": {"jobs": [job]},
        "NewRequest": job | {"submitted_by": "me", "request_id": str(uuid4())},
        "Source": {"source": HELLO},
        "Signal": {"name": "approve"},
        "Claim": {"worker_id": "globex-worker", "max": 100},
        "PulseBody": {"fence": 1},
        "TaskResult": task | {"status": "completed", "output": {}},
        "TaskProgress": task | {"progress_percent": 50},
        "Checkpoint": task,
        "Resumption": {},
        "NewSchedule": job | {"name": "nightly", "cron": "0 0 * * *"},
        "Calendar": job | {"cron": "0 0 * * *"},
        "CalendarChange": job,
        "Range": {"first": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"},
        "NewSubscription": {"url": "https://globex.example/hook"},
        "Rotation": {},
        "WithReason": {},
        "Again": {},
        "Body": {},
        "HandlerTest": {},
    }
    return bodies[endpoint.body.__name__]


async def reply_to(api: Api, endpoint: Endpoint, things: dict[str, str], key: str, query: str = "") -> Reply:
    """What is answered; of a stream that begins, that it does."""
    path = filled(endpoint, things) + (f"?{query}" if query else "")
    body = body_of(endpoint, things)
    if endpoint.method == SOCKET:
        async with socket_to(api.port, path, key) as socket:
            raw = await socket.reader.readexactly(int(socket.headers.get("content-length", "0")))
            status = socket.status
    elif endpoint.is_stream:
        async with listening(api.port, path, key) as stream:
            raw = await stream.reader.readexactly(int(stream.headers.get("content-length", "0")))
            status = stream.status
    else:
        answer = await api.call(endpoint.method, path, body, key=key)
        status, raw = answer.status, answer.raw
    sent = path + json.dumps(body)
    return plain(status, raw.decode(), [thing for thing in things.values() if thing in sent])


@pytest.fixture(autouse=True)
def testing(api: Api, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Without this some routes are closed to everybody; and no stream outlives its test."""
    monkeypatch.setenv("COGRAIL_TESTING", "1")
    yield
    api.instance.live.end()


# -- roles ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
async def test_every_route_is_open_to_its_roles_and_no_others(api: Api, role: Role) -> None:
    key, caller = await api.make_key(role), Caller("default", role)
    for endpoint in ENDPOINTS:
        reply = await reply_to(api, endpoint, NOBODYS, key)
        is_refused = reply.status == 403
        assert is_refused == (not caller.may(*endpoint.requires)), (endpoint.path, reply)
        is_told = endpoint.path.startswith("/health") and reply.status == 503  # nobody advances jobs here
        assert reply.status < 500 or is_told, (endpoint.path, reply)


async def test_without_a_key_nothing_is_open_but_the_probes(api: Api) -> None:
    await api.make_key("viewer")
    for endpoint in ENDPOINTS:
        assert (await reply_to(api, endpoint, NOBODYS, "")).status == 401, endpoint.path
    for probe in PROBES:
        assert (await api.get(probe.path)).status == 200, probe.path


# -- tenants --------------------------------------------------------------------------------------------


async def settled(api: Api) -> Tenant:
    """A tenant with one of everything that has an id or a name."""
    key = await api.make_key("admin", "acme", name="acme-key")
    assert (await api.post("/api/v1/workflows", {"source": OURS}, key=key)).status == 201
    subscription = await api.post("/api/v1/subscriptions", {"url": HOOK}, key=key)
    given = {"workflow_id": "acme_only", "correlation_id": "acme-order", "labels": {"of": "acme-label"}}
    job_id = (await api.post("/api/v1/jobs", given, key=key)).body["job_id"]
    async with api.lab.db.transaction("test") as tx:
        assert (await spread(tx, 10)).deliveries
    claimed = await api.post("/api/v1/tasks/claim", {"worker_id": "acme-worker"}, key=key)
    await api.post("/api/v1/queues/acme_queue/pause", {"reason": "acme-reason"}, key=key)
    deliveries = (await api.get("/api/v1/deliveries", key=key)).body["deliveries"]
    planned = {"name": "acme_nightly", "workflow_id": "acme_only", "cron": "0 0 * * *"}
    assert (await api.post("/api/v1/schedules", planned, key=key)).status == 201
    days = {"first": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"}
    await api.post("/api/v1/schedules/acme_nightly/backfill", days, key=key)
    things = NOBODYS | {
        "job_id": job_id,
        "workflow_id": "acme_only",
        "subscription_id": subscription.body["subscription_id"],
        "delivery_id": deliveries[0]["delivery_id"],
        "task_id": claimed.body["tasks"][0]["task_id"],
        "name": "acme_queue",
        "schedule": "acme_nightly",
        "correlation_id": "acme-order",
        "queue": "acme_queue",
    }
    words = {job_id, *(one["delivery_id"] for one in deliveries), things["subscription_id"]}
    return Tenant(key, things, words | {"acme", HOOK})


async def test_what_is_another_tenants_looks_exactly_like_what_nobody_has(api: Api) -> None:
    """B40: for every route, stream and socket, byte by byte but for the ids; nothing of theirs is told."""
    acme, stranger = await settled(api), await api.make_key("admin", "globex")
    await api.post("/api/v1/workflows", {"source": HELLO}, key=stranger)
    nobodys = NOBODYS | {"correlation_id": "no-order", "queue": "other_queue"}
    for endpoint in sorted(ENDPOINTS, key=lambda one: "audit" not in one.path):  # it tells what they did
        for is_asked in (False, True):
            for _ in range(3):  # what changes by itself, such as an age, may change in between
                replies = []
                for things in (acme.things, nobodys):
                    query = asked(endpoint, things) if is_asked else ""
                    replies.append(await reply_to(api, endpoint, things, stranger, query))
                if replies[0] == replies[1] or endpoint.method != "GET":
                    break
            assert replies[0] == replies[1], endpoint.path
            assert not [word for word in acme.words if word in replies[0].told], (endpoint.path, replies[0])
            if re.search(r"\{(job|subscription|delivery|workflow|task)_id\}", endpoint.path):
                assert replies[0].status in (404, 409, 422), (endpoint.path, replies[0])
    await _nothing_was_touched(api, acme)


async def test_every_list_shows_its_own_tenant_what_it_has(api: Api) -> None:
    """Else it would mean nothing that others do not see it there."""
    acme = await settled(api)
    for path in LISTS:
        told = (await api.get(f"/api/v1{path}", key=acme.key)).raw.decode()
        assert [word for word in acme.words if word in told], path
    listed = {one.path for one in ENDPOINTS if one.method == "GET" and "{" not in one.path}
    others = {path for path in listed if path.removeprefix("/api/v1") not in LISTS}
    assert others == {
        "/api/v1/events/stream",  # below
        "/api/v1/metrics/failures",  # of jobs that failed
        "/api/v1/metrics/throughput",  # numbers alone
        "/api/v1/orchestrator/status",  # who serves all tenants
        "/api/v1/test/handlers",
        "/api/v1/openapi.json",
        "/health",
    }


async def _nothing_was_touched(api: Api, acme: Tenant) -> None:
    things, key = acme.things, acme.key
    shown = (await api.get(f"/api/v1/jobs/{things['job_id']}", key=key)).body
    assert (shown["job"]["status"], shown["nodes"][0]["status"]) == ("running", "running")
    subscription = (await api.get(f"/api/v1/subscriptions/{things['subscription_id']}", key=key)).body
    assert subscription["disabled_at"] is None
    delivery = (await api.get(f"/api/v1/deliveries/{things['delivery_id']}", key=key)).body
    assert delivery["state"] == "pending"
    kept = await api.post(f"/api/v1/tasks/{things['task_id']}/pulse", {"fence": 1}, key=key)
    assert (kept.status, kept.body["cancelled"]) == (200, False)
    queues = (await api.get("/api/v1/queues/status", key=key)).body["queues"]
    assert [one["is_paused"] for one in queues if one["queue"] == "acme_queue"] == [True]


async def test_a_cursor_of_another_tenant_is_none(api: Api) -> None:
    acme, stranger = await settled(api), await api.make_key("admin", "globex")
    await api.post("/api/v1/jobs", {"workflow_id": "acme_only"}, key=acme.key)
    tried = 0
    for endpoint in ENDPOINTS:
        if endpoint.query is None or "cursor" not in endpoint.query.model_fields:
            continue
        path = filled(endpoint, acme.things)
        page = (await api.get(f"{path}?limit=1", key=acme.key)).body
        theirs = await api.get(f"{path}?limit=1&cursor={page['next_cursor']}", key=stranger)
        nobodys = await api.get(f"{path}?limit=1&cursor=nobodys", key=stranger)
        assert (theirs.status, theirs.code) == (nobodys.status, nobodys.code) == (422, "invalid_cursor")
        tried += 1
    assert tried == 6


async def test_a_feed_tells_nothing_of_another_tenant(api: Api) -> None:
    acme, stranger = await settled(api), await api.make_key("admin", "globex")
    await api.post("/api/v1/workflows", {"source": HELLO}, key=stranger)
    for endpoint in (one for one in ENDPOINTS if one.is_stream and "{" not in one.path):
        async with listening(api.port, endpoint.path, stranger) as stream:
            assert await stream.next() is not None  # where it begins
            await api.post("/api/v1/jobs", {"workflow_id": "acme_only"}, key=acme.key)
            mine = (await api.post("/api/v1/jobs", {"workflow_id": "hello"}, key=stranger)).body["job_id"]
            (event,) = await stream.take(1)
        assert event["job_id"] == mine
        async with listening(api.port, endpoint.path, acme.key) as stream:
            told = await stream.next()
        assert told is not None
        async with listening(api.port, f"{endpoint.path}?after={told.id}", stranger) as stream:
            assert stream.status == 422


async def test_the_id_of_a_key_tells_a_stranger_nothing(api: Api) -> None:
    """No route takes one; with another secret it is as good as none."""
    acme, stranger = await settled(api), await api.make_key("admin", "globex")
    ids = [key.split("_", 2)[1] for key in (acme.key, "cog_aaaaaaaaaaaaaaaa_x")]
    replies = [await api.get("/api/v1/jobs", key=f"cog_{one}_{stranger.split('_', 2)[2]}") for one in ids]
    assert [reply.status for reply in replies] == [401, 401]
    assert json.dumps(replies[0].body | {"request_id": ""}) == json.dumps(
        replies[1].body | {"request_id": ""}
    )
    assert not [one for one in ENDPOINTS if "key" in one.path]
