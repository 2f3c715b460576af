"""`POST /api/v1/submit`: a job under the id of a request, and never two under one id."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from doors import Api
from lab import Lab

from cograil.model.outcome import Failed
from cograil.model.requests import Hidden, outside_error, outside_result, outside_status
from cograil.store.insides import find_insides
from cograil.store.requests import find_request, orphaned_jobs
from cograil.store.retention import delete_jobs

FLOW = "workflow_id: w\nnodes:\n  inner: {handler: echo, retry: {max_attempts: 1}}\n"


def asked(**facts: Any) -> dict[str, Any]:
    return {"workflow_id": "w", "submitted_by": "shop", "request_id": str(uuid4())} | facts


async def requested(lab: Lab, request_id: str, tenant: str = "default") -> Any:
    """The job of a request, as the gateway finds it."""
    async with lab.db.transaction("test") as tx:
        found = await find_request(tx, tenant, request_id)
    return None if found is None else found.job


async def jobs(lab: Lab) -> int:
    ((count,),) = await lab.rows("select count(*) from cograil.jobs")
    return int(count)


async def test_the_request_id_is_the_correlation_id_of_the_job(api: Api) -> None:
    await api.lab.publish(FLOW)
    body = asked(priority=3, input_params={"a": 1})
    answer = await api.post("/api/v1/submit", body)
    assert answer.status == 202
    assert answer.body["request_id"] == answer.body["correlation_id"] == body["request_id"]
    job = await requested(api.lab, body["request_id"])
    assert job["job_id"] == answer.body["job_id"]
    assert (job["submitted_by"], job["priority"]) == ("shop", 3)
    assert await requested(api.lab, body["request_id"], "other") is None


async def test_the_same_request_again_is_no_second_one_and_another_is_refused(api: Api) -> None:
    await api.lab.publish(FLOW)
    body = asked()
    answers = await asyncio.gather(*(api.post("/api/v1/submit", body) for _ in range(20)))
    assert sorted(answer.status for answer in answers) == [200] * 19 + [202]
    assert len({answer.body["job_id"] for answer in answers}) == await jobs(api.lab) == 1
    other = await api.post("/api/v1/submit", body | {"priority": 1})
    assert (other.status, other.code) == (409, "request_conflict")


async def test_a_request_id_is_not_taken_while_a_job_has_it_though_its_record_is_gone(api: Api) -> None:
    await api.lab.publish(FLOW)
    body = asked()
    assert (await api.post("/api/v1/submit", body)).status == 202
    await api.lab.rows("delete from cograil.idempotency")
    again = await api.post("/api/v1/submit", body | {"priority": 1})
    assert (again.status, again.code) == (409, "request_conflict")
    assert await jobs(api.lab) == 1


async def test_a_job_that_was_never_a_request_is_not_found_as_one(api: Api) -> None:
    """Whatever its correlation id says; also when the request's own job is gone."""
    await api.lab.publish(FLOW)
    body = asked()
    plain = await api.submit("w", correlation_id=(never := str(uuid4())))
    assert await requested(api.lab, never) is None
    async with api.lab.db.transaction("test") as tx:
        found = await find_request(tx, "default", never, is_any=True)
    assert found is not None
    assert found.job["job_id"] == plain, "operators look it up by what it was given"
    answer = await api.post("/api/v1/submit", body)
    await api.submit("w", correlation_id=body["request_id"])
    assert (await requested(api.lab, body["request_id"]))["job_id"] == answer.body["job_id"]
    await api.lab.rows("delete from cograil.idempotency")
    assert (await requested(api.lab, body["request_id"]))["job_id"] == answer.body["job_id"]
    await api.lab.cancel(answer.body["job_id"])
    async with api.lab.db.transaction("test") as tx:
        assert await delete_jobs(tx, [answer.body["job_id"]])
    assert await requested(api.lab, body["request_id"]) is None


async def test_a_request_of_an_older_server_is_found_by_its_record(api: Api) -> None:
    await api.lab.publish(FLOW)
    body = asked()
    answer = await api.post("/api/v1/submit", body)
    await api.lab.rows("update cograil.jobs set is_request = false")
    assert (await requested(api.lab, body["request_id"]))["job_id"] == answer.body["job_id"]


async def test_an_idempotency_key_brings_back_the_first_request_id(api: Api) -> None:
    await api.lab.publish(FLOW)
    bodies = [asked(idempotency_key="order-1") for _ in range(10)]
    answers = await asyncio.gather(*(api.post("/api/v1/submit", body) for body in bodies))
    assert sorted(answer.status for answer in answers) == [200] * 9 + [202]
    assert len({answer.body["request_id"] for answer in answers}) == await jobs(api.lab) == 1
    other = await api.post("/api/v1/submit", asked(idempotency_key="order-1", priority=5))
    assert (other.status, other.code) == (409, "idempotency_conflict")
    # What was refused has taken neither its key nor its id.
    refused = asked(idempotency_key="order-2", workflow_id="nope")
    assert (await api.post("/api/v1/submit", refused)).status == 404
    assert (await api.post("/api/v1/submit", refused | {"workflow_id": "w"})).status == 202


@pytest.mark.parametrize("wrong", ["", "1", "5F64BBF0-6C3F-4F0E-9D0A-0C9B8B3C2A11", "{uuid}", 7, None])
async def test_a_request_id_is_a_uuid_in_one_spelling(api: Api, wrong: Any) -> None:
    answer = await api.post("/api/v1/submit", asked(request_id=wrong))
    assert answer.status == 422
    assert answer.body["pointer"] == "/request_id"


async def test_a_callback_knows_the_request_and_not_the_job(api: Api) -> None:
    await api.lab.publish(FLOW)
    body = asked(callback_url="https://receiver.example/hook")
    assert (await api.post("/api/v1/submit", body)).status == 202
    kept = await api.lab.rows("select callback ->> 'url', callback ->> 'style' from cograil.jobs")
    assert kept == [("https://receiver.example/hook", "platform")]
    refused = await api.post("/api/v1/submit", asked(callback_url="http://127.0.0.1/hook"))
    assert (refused.status, refused.body["pointer"]) == (422, "/callback_url")


async def test_a_gateway_key_may_submit_requests_and_nothing_else(api: Api) -> None:
    await api.lab.publish(FLOW)
    key = await api.make_key("gateway")
    assert (await api.post("/api/v1/submit", asked(), key=key)).status == 202
    assert (await api.post("/api/v1/jobs", {"workflow_id": "w"}, key=key)).status == 403
    assert (await api.get("/api/v1/jobs", key=key)).status == 403
    viewer = await api.make_key("viewer")
    assert (await api.post("/api/v1/submit", asked(), key=viewer)).status == 403


async def test_a_retried_request_is_shown_as_its_retry_until_one_has_completed(api: Api) -> None:
    lab = api.lab
    await lab.publish(FLOW)
    body = asked()
    first = (await api.post("/api/v1/submit", body)).body["job_id"]
    # Another job that has the same correlation id is not the request.
    await api.submit("w", correlation_id=body["request_id"])
    assert (await requested(lab, body["request_id"]))["job_id"] == first
    await api.post(f"/api/v1/jobs/{first}/cancel", {})
    again = (await api.post(f"/api/v1/jobs/{first}/retry", {})).body["job_id"]
    assert (await requested(lab, body["request_id"]))["job_id"] == again
    async with lab.running():
        await lab.ended(again)
    third = (await api.post(f"/api/v1/jobs/{again}/retry", {"from_node": "inner"})).body["job_id"]
    assert third != again
    assert (await requested(lab, body["request_id"]))["job_id"] == again


async def test_a_job_whose_news_or_hour_nobody_looks_after_is_an_orphan(lab: Lab) -> None:
    async def orphans(tenant: str = "default") -> list[str]:
        async with lab.db.transaction("test") as tx:
            return [one["job_id"] for one in await orphaned_jobs(tx, tenant, 30, 10)]

    left, due, fresh = [await lab.submit(FLOW) for _ in range(3)]
    hand = await lab.hand()
    for item in await hand.claim(3):
        await hand.report(item, {})
    assert await orphans() == []
    await lab.rows("update cograil.inbox set at = at - interval '1 h' where job_id = %(job)s", job=left)
    await lab.rows("update cograil.jobs set wake_at = now() - interval '1 h' where id = %(job)s", job=due)
    assert sorted(await orphans()) == sorted([left, due])
    assert await orphans("other") == []
    await lab.advance()
    assert await orphans() == []
    assert (await lab.job(fresh))["status"] == "completed"


RETRIED = """
workflow_id: retried
nodes:
  say: {handler: echo, next: call}
  call: {type: subworkflow, subworkflow: {workflow_id: w}, next: flip}
  flip: {handler: flip, retry: {max_attempts: 1}}
"""


async def test_what_is_inside_the_runs_before_a_retry_is_inside_the_retry_too(lab: Lab) -> None:
    """Outputs that a retry keeps have ids of the tasks and jobs that made them."""
    await lab.publish(FLOW)
    first = await lab.submit(RETRIED)
    hand = await lab.hand()

    async def work(**outputs: dict[str, Any] | Failed) -> None:
        while items := await hand.claim(9):
            for item in items:
                await hand.report(item, outputs.get(item.node_id, {"task_id": str(item.task_id)}))
            await lab.advance()

    await work(flip=Failed("no", "no", retryable=False))
    again = await lab.retry(first)
    await work()
    result = (await lab.job(again))["result"]
    inner = result["call"]["job_id"]
    async with lab.db.transaction("test") as tx:
        inside = (await find_insides(tx, [first, again]))[again]
    assert {first, inner} <= set(inside.jobs)
    assert set(inside.nodes) == {"say", "call", "flip", "inner"}
    assert len(inside.task_ids) == 4
    shown = outside_result(result, Hidden(again, str(uuid4()), *inside))
    assert shown["say"] == {}
    assert shown["call"]["result"] == {"inner": {}}
    assert not [one for one in (first, again, inner) if one in str(shown)]


def test_those_outside_see_neither_jobs_nor_nodes_nor_tasks() -> None:
    job, request = str(uuid4()), str(uuid4())
    inner = str(uuid4())
    hidden = Hidden(job, request, [inner], {"17"}, ["split"])
    made = {"_provenance": {"job_id": job}}
    result = {"a": {"task_id": "17", "said": [f"done by {job}", {"x": inner} | made]}} | made
    assert outside_result(result, hidden) == {"a": {"said": [f"done by {request}", {"x": request}]}}
    named = {"task_id": f"17.{job}", "said": f"task 19.{inner} of 3.{uuid4()}"}
    shown = outside_result({"a": named}, hidden)
    assert shown == {"a": {"said": named["said"].replace(f"19.{inner}", request)}}
    child = {"job_id": str(uuid4()), "result": {}}
    child["result"] = {"c": 1, "_provenance": {"job_id": child["job_id"]}}
    assert outside_result({"b": child}, hidden) == {"b": {"result": {"c": 1}}}
    theirs = {"job_id": "4711", "task_id": "18"}
    assert outside_result({"b": theirs}, hidden) == {"b": theirs}
    assert outside_result(None, hidden) is None
    error = {"message": "2 of split failed: split__1, split-2", "failed_nodes": ["gather"], "code": "x"}
    assert outside_error("failed", error, hidden) == "2 of a step failed: a step, split-2"
    assert outside_error("failed", {"code": "boom"}, hidden) == "boom"
    assert outside_error("cancelled", {"message": "by Ada"}, hidden) == "cancelled"
    assert outside_error("completed", None, hidden) is None
    states = ("pending", "running", "completed", "failed", "cancelled")
    assert [outside_status(one) for one in states] == [*states[:4], "failed"]


def test_those_outside_see_no_children_of_a_fan_out_wherever_they_are_named() -> None:
    hidden = Hidden(str(uuid4()), str(uuid4()), nodes=["split", "again"])
    made = {"fan_out_count": 2, "child_node_ids": ["split__0", "split__1"]}
    assert outside_result({"split": made, "say": {"it": made}}, hidden) == {
        "split": {"fan_out_count": 2},
        "say": {"it": {"fan_out_count": 2}},
    }
    said = {"node_id": "again__7", "text": "split__3 and splits__3", "child_node_ids": ["theirs__0"]}
    assert outside_result({"say": said}, hidden) == {
        "say": {"text": "a step and splits__3", "child_node_ids": ["theirs__0"]}
    }
    assert outside_result({"say": {"node_id": "theirs"}}, hidden) == {"say": {"node_id": "theirs"}}


def test_those_outside_see_of_an_error_neither_workers_nor_jobs_inside_though_those_are_gone() -> None:
    """The error says itself what it names: the rows of the job inside may have been removed."""
    inner, hidden = str(uuid4()), Hidden(str(uuid4()), str(uuid4()))
    lost = {"code": "worker_lost", "message": "worker host:7 died during the attempt"}
    lost |= {"details": {"worker": "host:7"}, "node_id": "cut", "failed_nodes": ["cut"]}
    assert outside_error("failed", lost, hidden) == "a worker died during the attempt"
    error = {"code": "child_failed", "message": f"child job {inner} failed: worker host:7 died in cut"}
    error |= {"details": {"job_id": inner, "error": lost}}
    assert (
        outside_error("failed", error, hidden) == f"job {hidden.request_id} failed: a worker died in a step"
    )


def test_ids_of_jobs_in_the_names_of_an_object_are_those_of_the_request_and_nothing_is_lost() -> None:
    job, inner, request = (str(uuid4()) for _ in range(3))
    result = outside_result({job: 1, inner: 2, "other": 3}, Hidden(job, request, [inner]))
    assert sorted(result.values()) == [1, 2, 3]
    assert job not in str(result)
    assert inner not in str(result)
