"""Workflows: publish and read them; pause and resume jobs, queues and workflows.

Written by `make docs` from _async/workflows_api.py; do not edit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from cograil.client._sync.transport import Transport
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


class WorkflowsApi(Transport):
    """The methods for workflows and queues."""

    def publish(self, source: str) -> Published:
        """Publish the source of a workflow file."""
        published: Published = self._ask("POST", "/workflows", {"source": source})
        return published

    def publish_all(self, sources: Sequence[str]) -> list[PublishedFile]:
        """Publish the texts of several workflow files, all or none."""
        answer = self._ask("POST", "/workflows/batch", {"sources": list(sources)})
        published: list[PublishedFile] = answer["workflows"]
        return published

    def workflows(self) -> list[WorkflowVersion]:
        """Return the published workflows."""
        workflows: list[WorkflowVersion] = (self._ask("GET", "/workflows"))["workflows"]
        return workflows

    def workflow(self, workflow_id: str, version: int | None = None) -> Workflow:
        """Return a version of a workflow, by default the newest."""
        path = f"/workflows/{step(workflow_id)}"
        workflow: Workflow = self._ask("GET", path, params={"version": version})
        return workflow

    def versions(self, workflow_id: str) -> list[WorkflowVersion]:
        """Return the versions of a workflow."""
        answer = self._ask("GET", f"/workflows/{step(workflow_id)}/versions")
        versions: list[WorkflowVersion] = answer["versions"]
        return versions

    def pauses(self) -> list[Pause]:
        """Return everything that is paused."""
        pauses: list[Pause] = (self._ask("GET", "/pauses"))["pauses"]
        return pauses

    def pause_workflow(self, workflow_id: str, reason: str = "") -> PausedWorkflow:
        """Pause a workflow: its jobs start no new nodes."""
        paused: PausedWorkflow = self._ask(
            "POST", f"/workflows/{step(workflow_id)}/pause", {"reason": reason}
        )
        return paused

    def resume_workflow(self, workflow_id: str) -> PausedWorkflow:
        """Resume a paused workflow."""
        paused: PausedWorkflow = self._ask("POST", f"/workflows/{step(workflow_id)}/resume")
        return paused

    def pause_queue(self, name: str, reason: str = "") -> PausedQueue:
        """Pause a queue: workers get no tasks from it."""
        paused: PausedQueue = self._ask("POST", f"/queues/{step(name)}/pause", {"reason": reason})
        return paused

    def resume_queue(self, name: str) -> PausedQueue:
        """Resume a paused queue."""
        paused: PausedQueue = self._ask("POST", f"/queues/{step(name)}/resume")
        return paused

    def pause(
        self, kind: Literal["job", "queue", "workflow"], name: str, reason: str = ""
    ) -> dict[str, Json]:
        """Pause a job, a queue or a workflow."""
        paused: dict[str, Json] = self._ask("POST", f"/{kind}s/{step(name)}/pause", {"reason": reason})
        return paused

    def resume(self, kind: Literal["job", "queue", "workflow"], name: str) -> dict[str, Json]:
        """Resume a job, a queue or a workflow."""
        resumed: dict[str, Json] = self._ask("POST", f"/{kind}s/{step(name)}/resume")
        return resumed
