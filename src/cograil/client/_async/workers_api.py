"""The worker protocol, and handler tests."""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import Unpack

from cograil.client._async.transport import Transport
from cograil.client.models import ClaimFacts, HandlerName, HandlerTrial, Json, Task, step


class WorkersApi(Transport):
    """The methods for workers."""

    async def claim(
        self, worker_id: str, *, wait_seconds: float = 0, **facts: Unpack[ClaimFacts]
    ) -> list[Task]:
        """Claim tasks, waiting for some if there are none."""
        body = {"worker_id": worker_id, "wait_seconds": wait_seconds, **facts}
        tasks: list[Task] = (await self._ask("POST", "/tasks/claim", body, wait=wait_seconds))["tasks"]
        return tasks

    async def heartbeat(self, task: Task) -> bool:
        """Extend the lease of a task. Returns False when its job was cancelled."""
        answer = await self._ask("POST", f"/tasks/{step(task['task_id'])}/pulse", {"fence": task["fence"]})
        return not answer["cancelled"]

    async def complete(self, task: Task, output: Mapping[str, Json]) -> None:
        """Report that the task has completed with this output."""
        await self._report("task-result", task, {"status": "completed", "output": dict(output)})

    async def fail(
        self, task: Task, message: str, *, code: str = "handler_error", retryable: bool = True
    ) -> None:
        """Report that the task has failed."""
        report = {"status": "failed", "error_message": message, "error_code": code, "retryable": retryable}
        await self._report("task-result", task, report)

    async def tell_progress(self, task: Task, current: float, total: float, message: str = "") -> None:
        """Report the progress of the task."""
        report = {"progress_current": current, "progress_total": total, "progress_message": message}
        await self._report("task-progress", task, report)

    async def checkpoint(self, task: Task, state: Json, phase: str = "") -> None:
        """Store the state that the next attempt gets."""
        await self._report("checkpoint", task, {"state_data": state, "phase_name": phase})

    async def _report(self, kind: str, task: Task, report: dict[str, Json]) -> None:
        ids = {
            "task_id": task["task_id"],
            "fence": task["fence"],
            "job_id": task["job_id"],
            "node_id": task["node_id"],
        }
        await self._ask("POST", f"/callbacks/{kind}", ids | report)

    # -- handler tests -------------------------------------------------------------------------------------

    async def handlers(self) -> list[HandlerName]:
        """Return the handlers of live workers, on a test server."""
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
        """Run a handler once, on a test server. Returns its result, or its state after the timeout."""
        body = {"params": dict(params or {}), "queue": queue, "timeout_seconds": timeout_seconds}
        trial: HandlerTrial = await self._ask(
            "POST", f"/test/handler/{step(name)}", body, wait=timeout_seconds
        )
        return trial
