"""Every method of the client, awaited and waited for, on a served API: each calls the route that it is for.

Every answer is held against the OpenAPI document, so the shapes that it names are those that are served.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from tests.support.api_client import ApiClient
from tests.support.client_methods import METHODS
from tests.support.harness import quick_settings
from tests.support.openapi_check import api_checker
from tests.support.webhook_receiver import ALLOW_LOOPBACK

from cograil.client import ApiError, AsyncClient, Client
from cograil.delivery.outbox_fan_out import fan_out
from cograil.settings import Settings

HELLO = "workflow_id: hello\nnodes: {greet: {handler: hello_world}}"
ELSEWHERE = "workflow_id: far\nnodes: {a: {handler: elsewhere, retry: {max_attempts: 1}}}"
ASK = "workflow_id: ask\nnodes: {ask: {type: approval, approval: {message: May I}}}"
HOOK = "http://127.0.0.1:9/hook"


@pytest.fixture
def harness_settings() -> Settings:
    """Nobody dies here for being slow."""
    lease = {"seconds": 60.0, "heartbeat_seconds": 5.0, "scan_seconds": 0.2}
    return quick_settings(outbound=ALLOW_LOOPBACK, lease=lease)


@pytest.fixture(autouse=True)
def testing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGRAIL_TESTING", "1")


class Heard:
    """Which operations answered, and what the document does not say of an answer."""

    def __init__(self) -> None:
        self.operations: set[str] = set()
        self.wrong: list[str] = []

    async def hear_awaited(self, answer: httpx2.Response) -> None:
        if not self._is_stream(answer):
            await answer.aread()
        self._note(answer)

    def hear(self, answer: httpx2.Response) -> None:
        if not self._is_stream(answer):
            answer.read()
        self._note(answer)

    def _is_stream(self, answer: httpx2.Response) -> bool:
        return answer.headers.get("content-type", "").startswith("text/event-stream")

    def _note(self, answer: httpx2.Response) -> None:
        method, path = answer.request.method, answer.request.url.path
        if answer.status_code < 300:
            self.operations.add(api_checker().find(method, path)["operationId"])
        body = b"" if self._is_stream(answer) else answer.content
        kind = answer.headers.get("content-type", "")
        self.wrong += api_checker().wrong(method, path, answer.status_code, kind, body)


class Threaded:
    """The client that waits, each call in a thread, so that one walk serves for both."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        if name.startswith(("follow", "all_jobs")):
            return lambda *arguments, **more: _iterated(method(*arguments, **more))

        async def call(*arguments: Any, **more: Any) -> Any:
            return await asyncio.to_thread(method, *arguments, **more)

        return call


async def _iterated(iterator: Any) -> AsyncIterator[Any]:
    try:
        while (item := await asyncio.to_thread(next, iterator, None)) is not None:
            yield item
    finally:
        iterator.close()


@asynccontextmanager
async def opened(kind: str, url: str, heard: Heard) -> AsyncIterator[Any]:
    """A client of this kind whose answers are heard."""
    if kind == "awaited":
        async with AsyncClient(url) as client:
            client._http.event_hooks = {"response": [heard.hear_awaited]}
            yield client
    else:
        with Client(url) as waiting:
            waiting._http.event_hooks = {"response": [heard.hear]}
            yield Threaded(waiting)


@pytest.mark.parametrize("kind", ["awaited", "waited for"])
async def test_every_method_calls_the_route_it_is_for(api: ApiClient, kind: str) -> None:
    heard = Heard()
    api.harness.engine_context.outbound = api.harness.settings.outbound
    async with opened(kind, f"http://127.0.0.1:{api.port}", heard) as cograil, api.harness.orchestrator():
        for part in PARTS:
            await part(cograil, api)
        await follow(cograil)
    assert heard.wrong == []
    assert heard.operations == METHODS.keys()


async def publish_and_pause(cograil: Any, api: ApiClient) -> None:
    for source in (HELLO, ELSEWHERE, ASK):
        assert (await cograil.publish(source))["is_new"]
    assert {workflow["workflow_id"] for workflow in await cograil.workflows()} == {"hello", "far", "ask"}
    assert (await cograil.workflow("hello", 1))["source"] == HELLO
    assert [version["version"] for version in await cograil.versions("hello")] == [1]
    assert (await cograil.pause_workflow("hello", "tea"))["is_paused"]
    assert not (await cograil.resume_workflow("hello"))["is_paused"]
    assert (await cograil.pause_queue("slow"))["is_paused"]
    assert [queue["is_paused"] for queue in await cograil.queues() if queue["queue"] == "slow"] == [True]
    assert not (await cograil.resume_queue("slow"))["is_paused"]
    assert (await cograil.pause("queue", "slow"))["is_paused"]
    assert not (await cograil.resume("queue", "slow"))["is_paused"]


async def submit_and_look(cograil: Any, api: ApiClient) -> None:
    job_id = (await cograil.submit("hello", labels={"a": "b"}))["job_id"]
    (many,) = await cograil.submit_many([{"workflow_id": "hello"}])
    assert many["status"] == 202
    request = str(uuid4())
    requests = [await cograil.submit_request(request, "hello", submitted_by="shop") for _ in range(2)]
    assert requests[0]["job_id"] == requests[1]["job_id"]
    assert (await cograil.jobs(correlation_id=request))["jobs"][0]["job_id"] == requests[0]["job_id"]
    assert [job["job_id"] async for job in cograil.all_jobs(status="running")][-1] == job_id
    assert (await cograil.job(job_id))["job"]["labels"] == {"a": "b"}
    assert [node["node_id"] for node in await cograil.nodes(job_id)] == ["greet"]
    assert (await cograil.events(job_id))[0]["event_type"] == "job_created"
    assert {event["node_id"] for event in await cograil.events(job_id, "greet")} == {"greet"}
    assert (await cograil.logs(job_id, "greet", level="info"))["logs"] == []
    assert (await cograil.timeline(job_id))["status"] == "running"
    assert (await cograil.progress(job_id))["nodes"]["total"] == 1
    assert (await cograil.node_progress(job_id, "greet"))["node_id"] == "greet"
    assert (await cograil.explain(job_id))["blockers"]


async def look_up(cograil: Any, api: ApiClient) -> None:
    job_id = (await cograil.submit("hello", labels={"look": "up"}))["job_id"]
    assert await cograil.resolve_job(job_id) == job_id
    assert [job["job_id"] for job in await cograil.search_jobs(labels={"look": "up"})] == [job_id]
    assert (await cograil.job(job_id, nodes="none"))["nodes"] == []
    assert (await cograil.job_workflow(job_id))["workflow_id"] == "hello"
    assert await cograil.failures(job_id) == []
    assert await cograil.traceback(job_id, "greet") is None
    watched = await cograil.watch(job_id, after=0)
    assert watched["events"][0]["event_type"] == "job_created"
    assert [row["is_new"] for row in await cograil.publish_all([HELLO, ASK])] == [False, False]
    await cograil.pause_queue("idle", "tea")
    assert [(pause["name"], pause["reason"]) for pause in await cograil.pauses()] == [("idle", "tea")]
    await cograil.resume_queue("idle")
    assert await cograil.keys() == []
    assert (await cograil.overview())["jobs"]["running"]
    assert (await cograil.preview_bulk("cancel", labels={"look": "up"}))["ids"] == [job_id]
    bulk_id = (await cograil.bulk_cancel(workflow_id="no_such"))["job_id"]
    assert (await cograil.bulk(bulk_id))["total"] == 0
    assert (await cograil.bulk_retry(workflow_id="no_such"))["workflow_id"] == "cograil.bulk"


async def act(cograil: Any, api: ApiClient) -> None:
    job_id = (await cograil.submit("hello"))["job_id"]
    assert (await cograil.pause_job(job_id, "wait"))["job_id"] == job_id
    assert (await cograil.resume_job(job_id))["job_id"] == job_id
    assert (await cograil.cancel(job_id, "enough"))["status"] == "cancelled"
    assert (await cograil.preview_retry(job_id))["again"] == ["greet"]
    assert (await cograil.retry(job_id))["retry_of"] == job_id
    assert (await cograil.retry(job_id, node_id="greet"))["retry_of"] == job_id
    decided = []
    for answer in (cograil.approve, cograil.reject):
        job_id = (await cograil.submit("ask"))["job_id"]
        decided.append((await answer(job_id))["decision"])
        job_id = (await cograil.submit("ask"))["job_id"]
        decided.append((await answer(job_id, node_id="ask", reason="why not"))["decision"])
    assert decided == ["approved", "approved", "rejected", "rejected"]


async def work(cograil: Any, api: ApiClient) -> None:
    ids = [(await cograil.submit("far"))["job_id"] for _ in range(2)]
    first, second = await cograil.claim("w", wait_seconds=10, handlers=["elsewhere"], max=2)
    assert await cograil.heartbeat(first)
    assert (await cograil.tasks(state="running"))["tasks"][0]["worker"]
    await cograil.tell_progress(first, 1, 2, "half")
    await cograil.checkpoint(first, {"row": 1})
    await cograil.complete(first, {"done": True})
    await cograil.fail(second, "no luck", retryable=False)
    ended = [await api.harness.ended(job_id) for job_id in ids]
    assert {job["status"] for job in ended} == {"completed", "failed"}


async def tell(cograil: Any, api: ApiClient) -> None:
    made = await cograil.subscribe(HOOK, types=["job.created"], workflow_id="hello")
    name = made["subscription_id"]
    assert [subscription["subscription_id"] for subscription in await cograil.subscriptions()] == [name]
    assert (await cograil.subscription(name))["url"] == HOOK
    assert (await cograil.rotate_subscription(name, overlap_hours=1))["secret"] != made["secret"]
    assert (await cograil.enable_subscription(name))["disabled_at"] is None
    job_id = (await cograil.submit("hello"))["job_id"]
    async with api.harness.db.transaction("test") as tx:
        assert (await fan_out(tx, 10)).deliveries == 1
    (delivery,) = (await cograil.deliveries(job_id=job_id))["deliveries"]
    with pytest.raises(ApiError, match="still in progress"):
        await cograil.resend(delivery["delivery_id"])
    await api.harness.rows("update cograil.deliveries set state = 'dead', ended_at = now()")
    assert (await cograil.delivery(delivery["delivery_id"]))["state"] == "dead"
    assert (await cograil.resend(delivery["delivery_id"]))["state"] == "pending"
    assert (await cograil.unsubscribe(name))["is_removed"]


async def plan(cograil: Any, api: ApiClient) -> None:
    made = await cograil.create_schedule("nightly", "hello", "@daily", timezone="Europe/Paris")
    assert (made["overlap"], made["missed"]) == ("skip", "once")
    assert [schedule["name"] for schedule in await cograil.schedules()] == ["nightly"]
    assert (await cograil.change_schedule("nightly", "hello", "0 0 * * *", overlap="allow"))[
        "timezone"
    ] == "UTC"
    updated = await cograil.update_schedule("nightly", priority=2)
    assert (updated["priority"], updated["overlap"], updated["cron"]) == (2, "allow", "0 0 * * *")
    assert (await cograil.pause_schedule("nightly", reason="tea"))["paused_for"] == "tea"
    assert (await cograil.resume_schedule("nightly"))["paused_at"] is None
    days = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    assert (await cograil.backfill("nightly", *days, preview=True))["submitted"] == 2
    assert (await cograil.backfill("nightly", *days))["submitted"] == 2
    page = await cograil.firings("nightly", limit=1)
    rest = await cograil.firings("nightly", limit=1, cursor=page["next_cursor"])
    assert [firing["due_at"] for firing in (*page["firings"], *rest["firings"])] == list(reversed(days))
    assert (await cograil.schedule("nightly"))["last_outcome"] is None
    assert (await cograil.run_schedule("nightly"))["name"] == "nightly"
    assert (await cograil.remove_schedule("nightly"))["is_removed"]


async def observe(cograil: Any, api: ApiClient) -> None:
    assert (await cograil.all_nodes(status="failed"))["nodes"][0]["workflow_id"] == "far"
    page = await cograil.tasks(limit=1)
    assert (await cograil.tasks(limit=1, cursor=page["next_cursor"]))["tasks"] != page["tasks"]
    assert [worker["is_live"] for worker in await cograil.workers()] == [True]
    assert (await cograil.orchestrators())["status"] == "active"
    assert {queue["queue"] for queue in await cograil.queues()} == {"default"}
    entries = (await cograil.audit(limit=1000))["entries"]
    assert {"publish", "submit", "cancel", "subscribe"} <= {entry["action"] for entry in entries}
    assert (await cograil.workflow_metrics("far"))["workflows"][0]["failed"] == 1
    assert (await cograil.node_metrics("far"))["nodes"][0]["node_id"] == "a"
    assert (await cograil.failure_metrics())["failures"][0]["workflow_id"] == "far"
    assert len((await cograil.throughput(hours=1, bucket_minutes=30))["buckets"]) in (2, 3)


async def look_after(cograil: Any, api: ApiClient) -> None:
    assert (await cograil.health())["checks"]["database"]["status"] == "healthy"
    assert (await cograil.check("schema"))["status"] == "healthy"
    with pytest.raises(ApiError) as unknown:
        await cograil.check("weather")
    assert unknown.value.status == 404
    assert await cograil.is_alive()
    assert (await cograil.readiness())["ready"]
    assert "cograil_" in await cograil.prometheus()
    assert (await cograil.description())["openapi"] == "3.1.0"


async def try_handlers(cograil: Any, api: ApiClient) -> None:
    async with api.harness.worker():
        assert "echo" in [registered["name"] for registered in await cograil.handlers()]
        assert (await cograil.try_handler("echo", {"n": 1}))["status"] == "completed"


async def follow(cograil: Any) -> None:
    everything = cograil.follow_all(types=["job_created", "job_cancelled"])
    first = asyncio.ensure_future(anext(everything))
    while not first.done():  # it begins with what is committed once it listens
        job_id = (await cograil.submit("ask"))["job_id"]
        await cograil.cancel(job_id, "a\u2028b\x85c")  # what ends a line elsewhere, and not here
        await asyncio.wait({first}, timeout=0.2)
    events = [event async for event in cograil.follow(job_id)]
    assert [event["seq"] for event in events] == [*range(1, len(events) + 1)]
    assert events[-1]["event_type"] == "job_cancelled"
    assert events[-1]["data"]["reason"] == "a\u2028b\x85c"
    rest = [event["seq"] async for event in cograil.follow(job_id, after=events[0]["seq"])]
    assert rest == [event["seq"] for event in events[1:]]
    assert [event async for event in cograil.follow(job_id, after=events[-1]["seq"])] == []
    seen = await first
    await everything.aclose()
    again = cograil.follow_all(after=seen["place"], types=["job_created", "job_cancelled"])
    await cograil.submit("ask")  # what was seen may have been the last of them
    after = await asyncio.wait_for(anext(again), 20)
    assert (after["job_id"], after["event_id"]) != (seen["job_id"], seen["event_id"])
    await again.aclose()


async def test_an_unhealthy_instance_is_no_error(api: ApiClient) -> None:
    """Nobody advances jobs here, which is told with 503."""
    async with AsyncClient(f"http://127.0.0.1:{api.port}") as cograil:
        assert (await cograil.health())["status"] == "unhealthy"
        assert (await cograil.check("orchestrators"))["status"] == "unhealthy"


PARTS = (
    publish_and_pause,
    submit_and_look,
    look_up,
    act,
    work,
    tell,
    plan,
    observe,
    look_after,
    try_handlers,
)
