"""Every change that is asked for is in the audit log: each route that changes something, and once."""

from __future__ import annotations

from uuid import uuid4

import pytest
from tests.support.access_matrix import UNKNOWN_ID
from tests.support.api_client import ApiClient
from tests.support.audit_clerk import V1, Clerk

from cograil.delivery.outbox_fan_out import fan_out
from cograil.http.server.application import ROUTERS

HELLO = "workflow_id: hello\nnodes: {greet: {handler: elsewhere}}"
BYE = "workflow_id: bye\nnodes: {part: {handler: elsewhere}}"
ASKS = "workflow_id: asks\nnodes: {ask: {type: approval, approval: {message: may I}}}"
JOB, DAILY = {"workflow_id": "hello"}, {"workflow_id": "hello", "cron": "0 0 * * *"}
DAYS = {"first": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"}

# What workers say is told by the events of the job: docs/how-to/keys.md.
OF_WORKERS = {
    f"POST {V1}/tasks/claim",
    f"POST {V1}/tasks/{{task_id}}/pulse",
    *(f"POST {V1}/callbacks/{name}" for name in ("task-result", "task-progress", "checkpoint")),
}
CHANGING = {
    f"{endpoint.method} {endpoint.path}"
    for router in ROUTERS
    for endpoint in router.endpoints
    if endpoint.method != "GET"
}


@pytest.fixture
async def clerk(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> Clerk:
    monkeypatch.setenv("COGRAIL_TESTING", "1")
    return Clerk(api, await api.make_key("admin", "acme"))


async def test_audit_log_has_each_change_and_nothing_else(api: ApiClient, clerk: Clerk) -> None:
    for text in (HELLO, ASKS):
        await clerk.ask(f"POST {V1}/workflows", {"source": text})
    await clerk.ask(f"POST {V1}/workflows", {"source": HELLO}, entries=0)  # it was there
    await clerk.ask(f"POST {V1}/workflows/batch", {"sources": [HELLO, BYE]})  # the first was there
    await _jobs(clerk)
    await _bulk(clerk)
    await _pauses(clerk)
    await _subscriptions(api, clerk)
    await _schedules(clerk)
    claim = {"worker_id": "w", "handlers": ["elsewhere"]}
    assert (await api.post(f"{V1}/tasks/claim", claim, key=clerk.key)).status == 200
    await clerk.ask(f"POST {V1}/test/handler/{{name}}", {"timeout_seconds": 1}, name="elsewhere")
    assert clerk.done == CHANGING - OF_WORKERS
    refused = [
        await api.post(f"{V1}/jobs/{UNKNOWN_ID}/cancel", key=clerk.key),
        await api.post(f"{V1}/jobs", {"workflow_id": "nobody_has_it"}, key=clerk.key),
    ]
    assert [answer.status for answer in refused] == [404, 404]
    await clerk.job()  # and of what was refused there is nothing before it


async def _jobs(clerk: Clerk) -> None:
    await clerk.ask(
        f"POST {V1}/jobs/batch", {"jobs": [JOB, JOB, {"workflow_id": "nobody_has_it"}]}, entries=2
    )
    request = JOB | {"submitted_by": "me", "request_id": str(uuid4())}
    await clerk.ask(f"POST {V1}/submit", request)
    await clerk.ask(f"POST {V1}/submit", request, entries=0)  # the same one
    other = (await clerk.ask("POST /api/dag/submit", JOB))["job_id"]
    await clerk.ask("POST /api/dag/jobs/{job_id}/cancel", job_id=other)
    job_id = await clerk.job()
    for deed in ("pause", "resume", "cancel"):
        await clerk.ask(f"POST {V1}/jobs/{{job_id}}/{deed}", job_id=job_id)
    await clerk.ask(f"POST {V1}/jobs/{{job_id}}/retry", {"preview": True}, entries=0, job_id=job_id)
    await clerk.ask(f"POST {V1}/jobs/{{job_id}}/retry", job_id=job_id)
    await clerk.ask(f"POST {V1}/jobs/{{job_id}}/nodes/{{node_id}}/retry", job_id=job_id, node_id="greet")
    for deed, body in (("approve", None), ("reject", None), ("signals", {"name": "approve"})):
        await clerk.ask(f"POST {V1}/jobs/{{job_id}}/{deed}", body, job_id=await clerk.job("asks"))


async def _bulk(clerk: Clerk) -> None:
    await clerk.ask(f"POST {V1}/jobs/search", {}, entries=0)  # it only reads
    for verb in ("cancel", "retry"):
        await clerk.ask(f"POST {V1}/bulk/{verb}", {"workflow_id": "bye", "preview": True}, entries=0)
        await clerk.ask(f"POST {V1}/bulk/{verb}", {"workflow_id": "bye"})


async def _pauses(clerk: Clerk) -> None:
    for deed in ("pause", "resume"):
        await clerk.ask(f"POST {V1}/workflows/{{workflow_id}}/{deed}", workflow_id="hello")
        await clerk.ask(f"POST {V1}/queues/{{name}}/{deed}", name="default")


async def _subscriptions(api: ApiClient, clerk: Clerk) -> None:
    made = await clerk.ask(f"POST {V1}/subscriptions", {"url": "https://acme.example/hook"})
    name = made["subscription_id"]
    for deed in ("enable", "rotate"):
        await clerk.ask(f"POST {V1}/subscriptions/{{subscription_id}}/{deed}", subscription_id=name)
    await clerk.job()
    async with api.harness.db.transaction("test") as tx:
        assert (await fan_out(tx, 10)).deliveries
    await api.harness.rows("update cograil.deliveries set state = 'dead', ended_at = now()")
    ((delivery,), *_) = await api.harness.rows("select id::text from cograil.deliveries")
    await clerk.ask(f"POST {V1}/deliveries/{{delivery_id}}/resend", delivery_id=delivery)
    await clerk.ask(f"DELETE {V1}/subscriptions/{{subscription_id}}", subscription_id=name)


async def _schedules(clerk: Clerk) -> None:
    await clerk.ask(f"POST {V1}/schedules", DAILY | {"name": "nightly"})
    schedule = f"{V1}/schedules/{{schedule}}"
    await clerk.ask(f"POST {schedule}", DAILY, schedule="nightly")
    await clerk.ask(f"PATCH {schedule}", {"priority": 1}, schedule="nightly")
    for deed, body in (("pause", None), ("resume", None), ("run", None), ("backfill", DAYS)):
        await clerk.ask(f"POST {schedule}/{deed}", body, schedule="nightly")
    await clerk.ask(f"DELETE {schedule}", schedule="nightly")
