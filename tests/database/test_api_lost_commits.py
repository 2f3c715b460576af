"""The database goes away while it commits: nobody knows, so nobody repeats it in the caller's name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.support.api_client import ApiClient

from cograil import fault_injection

JOBS = "/api/v1/jobs"
HELLO = "workflow_id: hello\nnodes: {greet: {handler: hello_world}}"


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    fault_injection.arm(None)


@pytest.fixture
async def shop(api: ApiClient) -> ApiClient:
    assert (await api.post("/api/v1/workflows", {"source": HELLO})).status == 201
    await api.submit("hello")
    return api


async def test_submits_that_were_committed_unheard_are_not_made_again(shop: ApiClient) -> None:
    fault_injection.arm("submit.commit.after:1:raise")
    answers = await asyncio.gather(*(shop.post(JOBS, {"workflow_id": "hello"}) for _ in range(10)))
    assert 503 in {answer.status for answer in answers} <= {202, 503}
    assert {answer.code for answer in answers if answer.status == 503} == {"database_unavailable"}
    jobs = (await shop.get(JOBS)).body["jobs"]
    assert len(jobs) == 1 + len(answers), "all were made, each once, whatever their callers were told"


async def test_a_connection_that_breaks_before_the_commit_makes_nothing(shop: ApiClient) -> None:
    fault_injection.arm("submit.write_changes:1:raise")
    answer = await shop.post(JOBS, {"workflow_id": "hello"})
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "database_unavailable", "1")
    assert len((await shop.get(JOBS)).body["jobs"]) == 1


async def test_a_job_that_cannot_be_made_does_not_fail_the_others(shop: ApiClient) -> None:
    bodies = [{"workflow_id": "hello", "labels": {"a": "x"}} for _ in range(5)]
    bodies[2] = {"workflow_id": "hello", "labels": {"a": "\ud800"}}  # what no column can hold
    answers = await asyncio.gather(*(shop.post(JOBS, body) for body in bodies))
    assert [answer.status for answer in answers] == [202, 202, 400, 202, 202]
