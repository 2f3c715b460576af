"""A circle of events and jobs: what is told names its hop, and the third one is refused (B138)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from doors import Api
from receivers import OK, Receiver, Request, receiving, relay_settings, relaying

from cograil.settings import Settings

HELLO = "workflow_id: hello\nnodes: {greet: {handler: hello_world}}"


@pytest.fixture
def lab_settings() -> Settings:
    return relay_settings()


async def submitted(api: Api, receiver: Receiver, hop: str | None = None) -> tuple[int, dict[str, Any]]:
    """Status and answer to a job whose end is told to this receiver."""
    body = {"workflow_id": "hello", "callback": receiver.callback(events=["job.completed"])}
    headers = {} if hop is None else {"cograil-hop": hop}
    answer = await api.post("/api/v1/jobs", body, headers=headers)
    return answer.status, answer.body


async def test_a_receiver_that_answers_every_event_with_a_job_comes_to_an_end(
    api: Api, eventually: Any
) -> None:
    """It hands the header on, as a gateway does. Without the hop it would go on for ever."""
    await api.post("/api/v1/workflows", {"source": HELLO})
    answers: list[tuple[int, dict[str, Any]]] = []
    tasks = []

    def react(request: Request) -> bytes:
        tasks.append(asyncio.create_task(answer_with_a_job(request)))
        return OK

    async def answer_with_a_job(request: Request) -> None:
        answers.append(await submitted(api, receiver, request.headers["cograil-hop"]))

    async with receiving(react) as receiver, api.lab.running(), relaying(api.lab):
        await submitted(api, receiver)
        await eventually(lambda: len(answers) == 3)
        await asyncio.gather(*tasks)
    assert [status for status, _ in answers] == [202, 202, 508]
    assert answers[-1][1]["code"] == "loop_detected"
    assert [one.headers["cograil-hop"] for one in receiver.requests] == ["1", "2", "3"]
    assert all(one.is_signed() for one in receiver.requests)


@pytest.mark.parametrize(
    ("hop", "status"),
    [("0", 200), ("2", 200), ("3", 508), ("99", 508), ("100", 400), ("-1", 400), ("x", 400), ("", 400)],
)
async def test_a_hop_is_a_small_number(api: Api, hop: str, status: int) -> None:
    answer = await api.get("/api/v1/jobs", headers={"cograil-hop": hop})
    assert answer.status == status
