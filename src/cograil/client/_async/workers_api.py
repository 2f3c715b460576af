"""The protocol of workers; and handlers that are tried."""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import Unpack

from cograil.client._async.transport import Calling
from cograil.client.models import ClaimFacts, HandlerName, HandlerTrial, Json, Task, step


class Working(Calling):
    """What a worker does."""

    async def claim(
        self, worker_id: str, *, wait_seconds: float = 0, **facts: Unpack[ClaimFacts]
    ) -> list[Task]:
        """Claim tasks, waiting for some if there are none."""
        body = {"worker_id": worker_id, "wait_seconds": wait_seconds, **facts}
        tasks: list[Task] = (await self._ask("POST", "/tasks/claim", body, wait=wait_seconds))["tasks"]
        return tasks

    async def heartbeat(self, task: Task) -> bool:
        """Keep a task. False: its job was cancelled."""
        answer = await self._ask("POST", f"/tasks/{step(task['task_id'])}/pulse", {"fence": task["fence"]})
        return not answer["cancelled"]

    async def complete(self, task: Task, output: Mapping[str, Json]) -> None:
        """The task is done, with this output."""
        await self._tell("task-result", task, {"status": "completed", "output": dict(output)})

    async def fail(
        self, task: Task, message: str, *, code: str = "handler_error", retryable: bool = True
    ) -> None:
        """The task has failed."""
        report = {"status": "failed", "error_message": message, "error_code": code, "retryable": retryable}
        await self._tell("task-result", task, report)

    async def tell_progress(self, task: Task, current: float, total: float, message: str = "") -> None:
        """How far the task is."""
        report = {"progress_current": current, "progress_total": total, "progress_message": message}
        await self._tell("task-progress", task, report)

    async def checkpoint(self, task: Task, state: Json, phase: str = "") -> None:
        """What the next attempt gets back."""
        await self._tell("checkpoint", task, {"state_data": state, "phase_name": phase})

    async def _tell(self, kind: str, task: Task, report: dict[str, Json]) -> None:
        named = {
            "task_id": task["task_id"],
            "fence": task["fence"],
            "job_id": task["job_id"],
            "node_id": task["node_id"],
        }
        await self._ask("POST", f"/callbacks/{kind}", named | report)

    # -- trying -------------------------------------------------------------------------------------

    async def handlers(self) -> list[HandlerName]:
        """The handlers that can be tried, on a server that is there for tests."""
        handlers: list[HandlerName] = (await self._ask("GET", "/test/handlers"))["handlers"]
        return handlers

    async def try_handler(
        self,
        name: str,
        params: Mapping[str, Json] | None = None,
        *,
        queue: str | None = None,
        timeout_seconds: int = 30,
    ) -> HandlerTrial:
        """Run a handler once, on a server that is there for tests; how it ended, or how far it is."""
        body = {"params": dict(params or {}), "queue": queue, "timeout_seconds": timeout_seconds}
        trial: HandlerTrial = await self._ask(
            "POST", f"/test/handler/{step(name)}", body, wait=timeout_seconds
        )
        return trial
