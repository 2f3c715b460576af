"""Jobs over HTTP: submit, idempotently or in batches, list, look, cancel, retry, answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from doors import Api
from lab import Lab

from cograil.store import idempotency as store_idempotency
from cograil.store import reading
from cograil.verbs.idempotency import Key

HELLO = """
workflow_id: hello
inputs: {name: {type: string, default: World}}
nodes:
  greet: {handler: hello_world, params: {name: "{{ inputs.name }}"}}
"""
FAILING = "workflow_id: failing\nnodes: {a: {handler: fail, retry: {max_attempts: 1}}}"
ASKING = """
workflow_id: asking
nodes:
  ask: {type: approval, approval: {message: may it?}, next: done}
  done: {handler: hello_world}
"""
JOBS = "/api/v1/jobs"


@pytest.fixture
async def shop(api: Api) -> Api:
    for text in (HELLO, FAILING, ASKING):
        answer = await api.post("/api/v1/workflows", {"source": text})
        assert answer.status == 201, answer.raw
    return api


async def test_a_submitted_job_is_told_as_it_is(shop: Api) -> None:
    answer = await shop.post(JOBS, {"workflow_id": "hello", "labels": {"a": "b"}, "priority": 3})
    job = answer.body
    assert answer.status == 202
    assert answer.headers["location"] == f"{JOBS}/{job['job_id']}"
    assert (job["status"], job["input_params"], job["priority"]) == ("running", {"name": "World"}, 3)
    shown = (await shop.get(f"{JOBS}/{job['job_id']}")).body
    assert shown["job"] == job
    assert [node["node_id"] for node in shown["nodes"]] == ["greet"]
    assert shown["node_summary"] == {"dispatched": 1}


async def test_who_prefers_to_wait_gets_the_result(shop: Api) -> None:
    async with shop.lab.running():
        answer = await shop.post(JOBS, {"workflow_id": "hello"}, headers={"prefer": "respond-async, wait=20"})
    assert answer.status == 202
    assert answer.body["status"] == "completed"
    assert answer.body["result"]["greet"] == {"message": "Hello, World!"}


@pytest.mark.parametrize("prefer", ["Wait=20", "respond-async, WAIT = 20", 'wait="20"', "wait=20; foo"])
async def test_capitals_do_not_matter_to_who_prefers_to_wait(shop: Api, prefer: str) -> None:
    async with shop.lab.running():
        answer = await shop.post(JOBS, {"workflow_id": "hello"}, headers={"prefer": prefer})
    assert (answer.body["status"], answer.headers["preference-applied"]) == ("completed", "wait=20")


async def test_a_wait_that_is_too_long_is_cut_and_said_to_be(shop: Api) -> None:
    async with shop.lab.running():
        answer = await shop.post(JOBS, {"workflow_id": "hello"}, headers={"prefer": "wait=9999"})
    assert answer.headers["preference-applied"] == "wait=60"
    assert "preference-applied" not in (await shop.post(JOBS, {"workflow_id": "hello"})).headers


async def test_a_wait_ends_though_the_job_does_not(shop: Api) -> None:
    answer = await shop.post(JOBS, {"workflow_id": "hello"}, headers={"prefer": "wait=1"})
    assert (answer.status, answer.body["status"]) == (202, "running")


# -- idempotency


async def test_the_same_key_and_request_are_answered_as_the_first_time(shop: Api) -> None:
    given = {"workflow_id": "hello", "input_params": {"name": "Ada"}}
    first = await shop.post(JOBS, given, headers={"idempotency-key": "k1"})
    again = await shop.post(JOBS, dict(reversed(given.items())), headers={"idempotency-key": "k1"})
    in_body = await shop.post(JOBS, given | {"idempotency_key": "k1"})
    assert (first.status, again.status, in_body.status) == (202, 200, 200)
    assert first.body == again.body == in_body.body


async def test_a_request_as_large_as_may_be_is_taken_with_a_key_too(api: Api) -> None:
    """The answer that is kept has the input in it, and more."""
    await api.lab.publish("workflow_id: any\nnodes: {greet: {handler: elsewhere}}")
    begin, end = '{"workflow_id": "any", "input_params": {"values": [', "]}}"
    left = 1024 * 1024 - len(begin) - len(end)
    texts = f'"{"x" * 200_000}",' * 5
    body = f'{begin}{texts}"{"x" * (left - len(texts) - 2)}"{end}'.encode()
    head = f"POST {JOBS} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nidempotency-key: k\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    first, again = [await api.raw(head.encode() + body) for _ in range(2)]
    assert (first.status, again.status, again.raw == first.raw) == (202, 200, True), first.raw[:300]


async def test_another_request_under_the_key_is_refused(shop: Api) -> None:
    await shop.post(JOBS, {"workflow_id": "hello"}, headers={"idempotency-key": "k1"})
    other = {"workflow_id": "hello", "input_params": {"name": "Bob"}}
    answer = await shop.post(JOBS, other, headers={"idempotency-key": "k1"})
    assert (answer.status, answer.code) == (409, "idempotency_conflict")


async def test_two_tenants_may_have_the_same_key(shop: Api) -> None:
    keys = [await shop.make_key("operator", tenant) for tenant in ("acme", "globex")]
    for key in keys:
        await shop.post("/api/v1/workflows", {"source": HELLO}, key=key)
    given = {"workflow_id": "hello", "idempotency_key": "k"}
    answers = [await shop.post(JOBS, given, key=key) for key in keys]
    assert [answer.status for answer in answers] == [202, 202]


async def test_who_comes_while_the_first_is_at_it_waits_and_is_told(
    shop: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B55: and who has waited for long enough is told to come again."""
    monkeypatch.setattr("cograil.intake.http.turns.IN_PROGRESS_SECONDS", 0.2)
    headers = {"idempotency-key": "slow"}
    async with shop.lab.db.transaction("test") as tx:  # as the first request does
        await store_idempotency.lock_key(tx, Key("default", f"POST {JOBS}", "slow"))
        answer = await shop.post(JOBS, {"workflow_id": "hello"}, headers=headers)
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (409, "in_progress", "1")
        monkeypatch.setattr("cograil.intake.http.turns.IN_PROGRESS_SECONDS", 20.0)
        waiting = asyncio.create_task(shop.post(JOBS, {"workflow_id": "hello"}, headers=headers))
    assert (await waiting).status == 202
    assert (await shop.post(JOBS, {"workflow_id": "hello"}, headers=headers)).status == 200


async def test_a_key_is_free_again_when_its_time_is_over(shop: Api) -> None:
    """B56."""
    headers = {"idempotency-key": "old"}
    async with shop.lab.running():
        first = await shop.post(JOBS, {"workflow_id": "hello"}, headers=headers)
        await shop.lab.ended(first.body["job_id"])
    assert (await shop.post(JOBS, {"workflow_id": "hello"}, headers=headers)).status == 200
    await shop.lab.rows("update cograil.idempotency set expires_at = now()")
    again = await shop.post(JOBS, {"workflow_id": "hello"}, headers=headers)
    assert (again.status, again.body["job_id"] != first.body["job_id"]) == (202, True)


async def test_a_refused_submit_leaves_its_key_free(shop: Api) -> None:
    bad = await shop.post(JOBS, {"workflow_id": "hello", "input_params": {"nam": 1}, "idempotency_key": "k"})
    good = await shop.post(JOBS, {"workflow_id": "hello", "idempotency_key": "k"})
    assert (bad.status, good.status) == (422, 202)


async def test_identical_submits_at_once_make_one_job(shop: Api) -> None:
    given = {"workflow_id": "hello", "idempotency_key": "once"}
    answers = await asyncio.gather(*(shop.post(JOBS, given) for _ in range(60)))
    assert sorted(answer.status for answer in answers) == [200] * 59 + [202]
    assert len({answer.body["job_id"] for answer in answers}) == 1
    assert await shop.lab.rows("select count(*) from cograil.jobs") == [(1,)]


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        ({"idempotency-key": "a b"}, {}, 400, "invalid_idempotency_key"),
        ({"idempotency-key": ""}, {}, 400, "invalid_idempotency_key"),
        ({"idempotency-key": "x" * 129}, {}, 400, "invalid_idempotency_key"),
        ({"idempotency-key": "a"}, {"idempotency_key": "b"}, 422, "idempotency_key_differs"),
        ({}, {"idempotency_key": "a b"}, 400, "invalid_idempotency_key"),
    ],
)
async def test_an_odd_key_is_refused(
    shop: Api, headers: dict[str, str], body: dict[str, Any], status: int, code: str
) -> None:
    answer = await shop.post(JOBS, {"workflow_id": "hello"} | body, headers=headers)
    assert (answer.status, answer.code) == (status, code)


# -- many


async def test_each_of_a_batch_is_made_or_refused_by_itself(shop: Api) -> None:
    given = [
        {"workflow_id": "hello"},
        {"workflow_id": "nobody"},
        {"workflow_id": "hello", "odd": 1},
        {"workflow_id": "hello", "idempotency_key": "k"},
        {"workflow_id": "hello", "idempotency_key": "k"},
        {"workflow_id": "hello", "input_params": {"name": 5}},
    ]
    results = (await shop.post(f"{JOBS}/batch", {"jobs": given})).body["results"]
    assert [one["status"] for one in results] == [202, 404, 422, 202, 200, 422]
    assert results[3]["job_id"] == results[4]["job_id"]
    assert results[2]["error"] == {
        "code": "unknown_field",
        "detail": "there is no field 'odd'",
        "pointer": "/odd",
    }
    assert results[5]["error"]["pointer"] == "/input_params/name"


@pytest.mark.parametrize("name", ["input", "inputs", "params", "input_parms"])
async def test_an_unknown_field_comes_with_the_field_that_was_probably_meant(shop: Api, name: str) -> None:
    body = {"workflow_id": "hello", name: {"name": "Ada"}}
    answer = await shop.post(JOBS, body)
    assert (answer.status, answer.code) == (422, "unknown_field")
    assert answer.body["detail"] == f"there is no field {name!r}; did you mean 'input_params'?"
    (result,) = (await shop.post(f"{JOBS}/batch", {"jobs": [body]})).body["results"]
    assert result["error"]["detail"] == answer.body["detail"]


async def test_a_batch_has_at_most_a_thousand(shop: Api) -> None:
    answer = await shop.post(f"{JOBS}/batch", {"jobs": [{"workflow_id": "hello"}] * 1001})
    assert (answer.status, answer.code) == (422, "too_large")


async def test_submits_at_the_same_time_share_transactions_and_not_each_others_faults(shop: Api) -> None:
    given = [{"workflow_id": "hello"}, {"workflow_id": "nobody"}] * 50
    answers = await asyncio.gather(*(shop.post(JOBS, one) for one in given))
    assert [answer.status for answer in answers] == [202, 404] * 50
    transactions = await shop.lab.rows("select count(distinct created_at), count(*) from cograil.jobs")
    assert transactions[0][0] < transactions[0][1] == 50


async def test_a_list_is_walked_page_by_page_without_gaps(shop: Api) -> None:
    ids = [await shop.submit("hello") for _ in range(7)]
    seen: list[str] = []
    path: str | None = f"{JOBS}?limit=3"
    while path is not None:
        page = (await shop.get(path)).body
        seen += [job["job_id"] for job in page["jobs"]]
        path = None if page["next_cursor"] is None else f"{JOBS}?limit=3&cursor={page['next_cursor']}"
    assert seen == ids[::-1]


async def test_a_cursor_of_another_list_is_refused(shop: Api) -> None:
    for _ in range(3):
        await shop.submit("hello")
    cursor = (await shop.get(f"{JOBS}?limit=2")).body["next_cursor"]
    for query in (f"status=running&cursor={cursor}", f"cursor={cursor[:-3]}AAA", "cursor=%21", "cursor="):
        answer = await shop.get(f"{JOBS}?limit=2&{query}")
        assert (answer.status, answer.code) == (422, "invalid_cursor"), query
    other = await shop.make_key("viewer", "acme")
    answer = await shop.get(f"{JOBS}?limit=2&cursor={cursor}", key=other)
    assert answer.code == "invalid_cursor"


# -- deeds


async def test_a_job_is_cancelled_once(shop: Api) -> None:
    job_id = await shop.submit("hello")
    done = await shop.post(f"{JOBS}/{job_id}/cancel", {"reason": "no more"})
    again = await shop.post(f"{JOBS}/{job_id}/cancel")
    assert (done.status, done.body["status"]) == (200, "cancelled")
    assert (again.status, again.code) == (409, "already_terminal")


async def test_a_failed_job_is_retried_as_a_new_one(shop: Api) -> None:
    job_id = await shop.submit("failing")
    async with shop.lab.running():
        await shop.lab.ended(job_id)
    seen = await shop.post(f"{JOBS}/{job_id}/retry", {"preview": True})
    again = await shop.post(f"{JOBS}/{job_id}/nodes/a/retry")
    assert (seen.status, seen.body["again"]) == (200, ["a"])
    assert (again.status, again.body["retry_of"]) == (202, job_id)


async def test_an_approval_is_answered(shop: Api) -> None:
    job_id = await shop.submit("asking")
    answer = await shop.post(f"{JOBS}/{job_id}/signals", {"name": "approve", "by": "ada", "reason": "fine"})
    again = await shop.post(f"{JOBS}/{job_id}/approve")
    assert (answer.status, answer.body["decision"]) == (200, "approved")
    assert (again.status, again.code) == (409, "conflict")
    async with shop.lab.running():
        await shop.lab.ended(job_id)
    late = await shop.post(f"{JOBS}/{job_id}/reject")
    assert (late.status, late.code) == (409, "already_terminal")


async def test_a_paused_job_says_so(shop: Api) -> None:
    job_id = await shop.submit("hello")
    await shop.post(f"{JOBS}/{job_id}/pause", {"reason": "lunch"})
    blockers = (await shop.get(f"{JOBS}/{job_id}/explain")).body["blockers"]
    assert "lunch" in str(blockers)
    assert (await shop.post(f"{JOBS}/{job_id}/resume")).status == 200


async def test_every_change_is_in_the_audit_log(shop: Api) -> None:
    job_id = await shop.submit("hello")
    await shop.post(f"{JOBS}/{job_id}/cancel", {"reason": "x"}, headers={"x-request-id": "r-1"})
    rows = await shop.lab.rows("select action, target, request_id from cograil.audit_log order by id")
    assert rows[-2][:2] == ("submit", job_id)
    assert rows[-1] == ("cancel", job_id, "r-1")
    refused = await shop.post(f"{JOBS}/{job_id}/cancel")
    assert refused.status == 409
    assert len(await shop.lab.rows("select 1 from cograil.audit_log")) == len(rows)


async def test_events_and_progress_are_those_of_the_job(shop: Api, lab: Lab) -> None:
    job_id = await shop.submit("hello")
    async with lab.running():
        await lab.ended(job_id)
    events = (await shop.get(f"{JOBS}/{job_id}/events?limit=2")).body
    rest = (await shop.get(f"{JOBS}/{job_id}/events?after={events['next_after']}")).body
    numbers = [event["seq"] for event in events["events"] + rest["events"]]
    assert numbers == list(range(1, len(numbers) + 1))
    progress = (await shop.get(f"{JOBS}/{job_id}/progress")).body
    assert (progress["overall_percent"], progress["nodes"]["completed"]) == (100.0, 1)
    assert (await shop.get(f"{JOBS}/{job_id}/nodes/greet/progress")).body["progress_percent"] == 100.0
    assert (await shop.get(f"{JOBS}/{job_id}/nodes/nobody/progress")).code == "not_found"
    assert (await shop.get(f"{JOBS}/{job_id}/timeline")).body["bars"][0]["node_id"] == "greet"
    assert len((await shop.get(f"{JOBS}/{job_id}/nodes/greet/events")).body["events"]) == 4
    assert (await shop.get(f"{JOBS}/{job_id}/nodes/greet/events?after=99")).body["events"] == []
    nobody = await shop.get(f"{JOBS}/{job_id}/nodes/nobody/events")
    assert (nobody.status, nobody.code) == (404, "not_found")


async def test_a_workflow_is_published_once_and_listed(shop: Api) -> None:
    again = await shop.post("/api/v1/workflows", {"source": HELLO})
    other = await shop.post("/api/v1/workflows", {"source": HELLO.replace("World", "Moon")})
    broken = await shop.post("/api/v1/workflows", {"source": "workflow_id: x\nnodes: {a: {handlr: b}}"})
    assert (again.status, other.status, other.code) == (200, 409, "version_taken")
    assert broken.status == 422
    assert broken.body["pointer"].startswith("/nodes/a")
    shown = (await shop.get("/api/v1/workflows/hello")).body
    assert (shown["version"], shown["source"]) == (1, HELLO)
    assert [
        one["version"] for one in (await shop.get("/api/v1/workflows/hello/versions")).body["versions"]
    ] == [1]
    assert (await shop.get("/api/v1/workflows/nobody")).status == 404


async def test_jobs_are_found_by_label_and_by_what_is_in_their_input(api: Api) -> None:
    await api.lab.publish("workflow_id: any\nnodes: {greet: {handler: echo}}\n")
    maps = await api.submit("any", input_params={"city": "Paris"}, labels={"team": "maps", "urgent": ""})
    plain = await api.submit("any", input_params={"city": "paris"}, submitted_by="ada")
    await api.submit("any", labels={"team": "other"})

    async def found(query: str) -> list[str]:
        answer = await api.get(f"/api/v1/jobs?{query}")
        assert answer.status == 200, answer.raw
        return [job["job_id"] for job in answer.body["jobs"]]

    assert await found("label=team%3Dmaps") == [maps]
    assert await found("label=urgent,team") == [maps]
    assert await found("search=PARIS") == [plain, maps]
    assert await found("search=paris&label=team") == [maps]
    assert await found("search=ada") == [plain]
    assert await found(f"search={maps[:23]}") == [maps]
    assert await found("search=paris&status=failed") == []
    first = (await api.get("/api/v1/jobs?search=paris&limit=1")).body
    assert await found(f"search=paris&limit=1&cursor={first['next_cursor']}") == [maps]
    other = await api.get(f"/api/v1/jobs?search=other&limit=1&cursor={first['next_cursor']}")
    assert (other.status, other.code) == (422, "invalid_cursor")
    both = await api.get("/api/v1/jobs?search=paris&correlation_id=one")
    assert (both.status, both.code) == (422, "invalid_parameter")


WIDE = """
workflow_id: wide
inputs: {large: {type: string}}
nodes:
  one: {handler: elsewhere, params: {it: "{{ inputs.large }}"}, next: split}
  split: {type: fan_out, source: [1, 2, 3, 4], task: {handler: elsewhere, params: {it: "{{ inputs.large }}"}}}
"""


async def test_what_is_too_much_for_one_list_is_left_out_and_can_be_asked_for(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small request may have thousands of children that each take a large one."""
    monkeypatch.setattr(reading, "MOST_NODE_BYTES", 25_000)
    await api.post("/api/v1/workflows", {"source": WIDE})
    job_id = await api.submit("wide", input_params={"large": "x" * 10_000})
    (task,) = (await api.post("/api/v1/tasks/claim", {"worker_id": "w"})).body["tasks"]
    done = {"task_id": task["task_id"], "fence": task["fence"], "status": "completed", "output": {}}
    await api.post("/api/v1/callbacks/task-result", done)
    await api.lab.advance()
    for path in (f"{JOBS}/{job_id}", f"{JOBS}/{job_id}/nodes", f"/api/dag/jobs/{job_id}/nodes"):
        nodes = {one["node_id"]: one for one in (await api.get(path)).body["nodes"]}
        assert [name for name in nodes if nodes[name]["is_left_out"]] == ["split__1", "split__2", "split__3"]
        assert nodes["split__0"]["input"] == {"it": "x" * 10_000}
        assert (nodes["split__3"]["input"], nodes["split__3"]["status"]) == (None, "dispatched")
    (alone,) = (await api.get(f"{JOBS}/{job_id}/nodes?node_id=split__3")).body["nodes"]
    assert (alone["is_left_out"], alone["input"]) == (False, {"it": "x" * 10_000})
    unknown = await api.get(f"{JOBS}/{job_id}/nodes?node_id=split__9")
    assert (unknown.status, unknown.code) == (404, "not_found")


async def test_a_page_of_large_jobs_is_short_and_leads_on(shop: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is left out and none comes twice; one at least is on each page."""
    made = [await shop.submit("hello", input_params={"name": "x" * size}) for size in (9_000, 9_000, 40_000)]
    made += [await shop.submit("hello") for _ in range(3)]
    monkeypatch.setattr(reading, "MOST_PAGE_BYTES", 10_000)
    pages, cursor = [], ""
    while cursor is not None:
        page = (await shop.get(f"{JOBS}?limit=5{cursor and '&cursor='}{cursor}")).body
        pages.append([job["job_id"] for job in page["jobs"]])
        cursor = page["next_cursor"]
    assert [len(page) for page in pages] == [4, 2]
    assert [job_id for page in pages for job_id in page] == made[::-1]
    assert (await shop.get(f"{JOBS}?limit=2")).body["next_cursor"] is not None
