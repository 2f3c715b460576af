"""The requests of a worker that works over HTTP alone."""

from __future__ import annotations

from typing import Any

from tests.support.api_client import ApiClient

TWO = """
workflow_id: two
nodes:
  first: {handler: elsewhere, params: {n: 1}, next: second}
  second: {handler: elsewhere, params: {seen: "{{ nodes.first.output.made }}"}}
"""
CLAIM, RESULT = "/api/v1/tasks/claim", "/api/v1/callbacks/task-result"


async def claim_tasks(api: ApiClient, worker: str = "w1", **facts: Any) -> list[dict[str, Any]]:
    answer = await api.post(CLAIM, {"worker_id": worker, "max": 10} | facts)
    assert answer.status == 200, answer.raw
    tasks: list[dict[str, Any]] = answer.body["tasks"]
    return tasks


def result_body(task: dict[str, Any], **facts: Any) -> dict[str, Any]:
    fields = {
        "task_id": task["task_id"],
        "fence": task["fence"],
        "job_id": task["job_id"],
        "node_id": task["node_id"],
    }
    return fields | {"status": "completed", "output": {"made": 7}} | facts
