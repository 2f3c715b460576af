"""A circle of events and jobs: what is told names its hop, and the third one is refused (B138)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.api_client import ApiClient
from tests.support.webhook_receiver import (
    OK,
    ReceivedRequest,
    WebhookReceiver,
    open_receiver,
    relay_settings,
    run_relay,
)

from cograil.settings import Settings

HELLO = "workflow_id: hello\nnodes: {greet: {handler: hello_world}}"

BROKEN = "workflow_id: broken\nnodes: {wrong: {handler: fail, retry: {max_attempts: 1}}}"


@pytest.fixture
def harness_settings() -> Settings:
    return relay_settings()


async def submitted(
    api: ApiClient, receiver: WebhookReceiver, hop: str | None = None
) -> tuple[int, dict[str, Any]]:
    """Status and answer to a job whose end is told to this receiver."""
    body = {"workflow_id": "hello", "callback": receiver.callback(events=["job.completed"])}
    headers = {} if hop is None else {"cograil-hop": hop}
    answer = await api.post("/api/v1/jobs", body, headers=headers)
    return answer.status, answer.body


async def test_a_receiver_that_answers_every_event_with_a_job_comes_to_an_end(
    api: ApiClient, eventually: Any
) -> None:
    """It hands the header on, as a gateway does. Without the hop it would go on for ever."""
    await api.post("/api/v1/workflows", {"source": HELLO})
    answers: list[tuple[int, dict[str, Any]]] = []
    tasks = []

    def react(request: ReceivedRequest) -> bytes:
        tasks.append(asyncio.create_task(answer_with_a_job(request)))
        return OK

    async def answer_with_a_job(request: ReceivedRequest) -> None:
        answers.append(await submitted(api, receiver, request.headers["cograil-hop"]))

    async with open_receiver(react) as receiver, api.harness.running(), run_relay(api.harness):
        await submitted(api, receiver)
        await eventually(lambda: len(answers) == 3)
        await asyncio.gather(*tasks)
    assert [status for status, _ in answers] == [202, 202, 508]
    assert answers[-1][1]["code"] == "loop_detected"
    assert [request.headers["cograil-hop"] for request in receiver.requests] == ["1", "2", "3"]
    assert all(request.is_signed() for request in receiver.requests)


async def test_a_receiver_that_retries_whatever_failed_comes_to_an_end(
    api: ApiClient, eventually: Any
) -> None:
    """Without the hop it would go on for ever: each new job has the callback of the old one."""
    await api.post("/api/v1/workflows", {"source": BROKEN})
    answers: list[int] = []
    tasks = []

    def react(request: ReceivedRequest) -> bytes:
        tasks.append(asyncio.create_task(retry_it(request)))
        return OK

    async def retry_it(request: ReceivedRequest) -> None:
        hop = {"cograil-hop": request.headers["cograil-hop"]}
        path = f"/api/v1/jobs/{request.event['data']['job_id']}/retry"
        answers.append((await api.post(path, headers=hop)).status)

    async with open_receiver(react) as receiver, api.harness.running(), run_relay(api.harness):
        callback = receiver.callback(events=["job.failed"])
        body = {"workflow_id": "broken", "callback": callback, "labels": {"of": "acme"}}
        assert (await api.post("/api/v1/jobs", body)).status == 202
        await eventually(lambda: len(answers) == 3)
        await asyncio.gather(*tasks)
    assert answers == [202, 202, 508]
    labels = [job["labels"] for job in (await api.get("/api/v1/jobs")).body["jobs"]]
    assert labels == [{"of": "acme", "cograil-hop": "2"}, {"of": "acme", "cograil-hop": "1"}, {"of": "acme"}]


async def test_the_hop_is_none_of_the_labels_that_a_job_may_have(api: ApiClient) -> None:
    await api.post("/api/v1/workflows", {"source": HELLO})
    body = {"workflow_id": "hello", "labels": {str(n): "x" for n in range(64)}}
    answer = await api.post("/api/v1/jobs", body, headers={"cograil-hop": "1"})
    assert (answer.status, len(answer.body["labels"])) == (202, 65)


@pytest.mark.parametrize(
    ("hop", "status"),
    [("0", 200), ("2", 200), ("3", 508), ("99", 508), ("100", 400), ("-1", 400), ("x", 400), ("", 400)],
)
async def test_a_hop_is_a_small_number(api: ApiClient, hop: str, status: int) -> None:
    answer = await api.get("/api/v1/jobs", headers={"cograil-hop": hop})
    assert answer.status == status
