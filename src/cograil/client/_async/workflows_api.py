"""Workflows: publish them, look at them; and all that can be paused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from cograil.client._async.transport import Calling
from cograil.client.models import (
    Json,
    Pause,
    PausedQueue,
    PausedWorkflow,
    Published,
    PublishedFile,
    Workflow,
    WorkflowVersion,
    step,
)


class Workflows(Calling):
    """What there is to do with workflows and queues."""

    async def publish(self, source: str) -> Published:
        """Publish the text of a workflow file."""
        published: Published = await self._ask("POST", "/workflows", {"source": source})
        return published

    async def publish_all(self, sources: Sequence[str]) -> list[PublishedFile]:
        """Publish the texts of several workflow files, all or none."""
        answer = await self._ask("POST", "/workflows/batch", {"sources": list(sources)})
        published: list[PublishedFile] = answer["workflows"]
        return published

    async def workflows(self) -> list[WorkflowVersion]:
        """The published workflows."""
        found: list[WorkflowVersion] = (await self._ask("GET", "/workflows"))["workflows"]
        return found

    async def workflow(self, workflow_id: str, version: int | None = None) -> Workflow:
        """A version of a workflow, the newest when none is named."""
        path = f"/workflows/{step(workflow_id)}"
        found: Workflow = await self._ask("GET", path, params={"version": version})
        return found

    async def versions(self, workflow_id: str) -> list[WorkflowVersion]:
        """The versions of a workflow."""
        answer = await self._ask("GET", f"/workflows/{step(workflow_id)}/versions")
        found: list[WorkflowVersion] = answer["versions"]
        return found

    async def pauses(self) -> list[Pause]:
        """Return everything that is paused."""
        pauses: list[Pause] = (await self._ask("GET", "/pauses"))["pauses"]
        return pauses

    async def pause_workflow(self, workflow_id: str, reason: str = "") -> PausedWorkflow:
        """Pause a workflow: none of its jobs begins anything new."""
        paused: PausedWorkflow = await self._ask(
            "POST", f"/workflows/{step(workflow_id)}/pause", {"reason": reason}
        )
        return paused

    async def resume_workflow(self, workflow_id: str) -> PausedWorkflow:
        """Let a paused workflow go on."""
        paused: PausedWorkflow = await self._ask("POST", f"/workflows/{step(workflow_id)}/resume")
        return paused

    async def pause_queue(self, name: str, reason: str = "") -> PausedQueue:
        """Pause a queue: no worker gets a task of it."""
        paused: PausedQueue = await self._ask("POST", f"/queues/{step(name)}/pause", {"reason": reason})
        return paused

    async def resume_queue(self, name: str) -> PausedQueue:
        """Let a paused queue go on."""
        paused: PausedQueue = await self._ask("POST", f"/queues/{step(name)}/resume")
        return paused

    async def pause(
        self, kind: Literal["job", "queue", "workflow"], name: str, reason: str = ""
    ) -> dict[str, Json]:
        """Pause a job, a queue or a workflow, whichever it is."""
        paused: dict[str, Json] = await self._ask("POST", f"/{kind}s/{step(name)}/pause", {"reason": reason})
        return paused

    async def resume(self, kind: Literal["job", "queue", "workflow"], name: str) -> dict[str, Json]:
        """Let a job, a queue or a workflow go on, whichever it is."""
        resumed: dict[str, Json] = await self._ask("POST", f"/{kind}s/{step(name)}/resume")
        return resumed
