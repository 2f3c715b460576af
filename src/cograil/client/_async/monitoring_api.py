"""How all of it is doing."""

from __future__ import annotations

from typing import Any, Literal

from cograil.client._async.transport import Calling
from cograil.client.errors import refuse_problem
from cograil.client.models import (
    AuditPage,
    FailureMetrics,
    Health,
    Json,
    Key,
    NamedCheck,
    NodeMetrics,
    NodePage,
    NodeStatus,
    Orchestrators,
    Overview,
    Process,
    Queue,
    Ready,
    TaskPage,
    Throughput,
    WorkflowMetrics,
    step,
)

UNHEALTHY = (503,)


class Observing(Calling):
    """Nodes, tasks, queues, processes, what became of jobs, who did what, and whether it is well."""

    async def all_nodes(
        self,
        *,
        status: NodeStatus | None = None,
        workflow_id: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> NodePage:
        """A page of nodes across jobs, newest jobs first; it may be short while `next_cursor` leads on."""
        params = {"status": status, "workflow_id": workflow_id, "limit": limit, "cursor": cursor}
        page: NodePage = await self._ask("GET", "/nodes", params=params)
        return page

    async def tasks(
        self,
        *,
        state: Literal["ready", "held", "running", "ended"] | None = None,
        queue: str | None = None,
        handler: str | None = None,
        worker: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TaskPage:
        """A page of attempts that are queued or running, newest first; with state `ended`, of ended ones."""
        asked = {"state": state, "queue": queue, "handler": handler, "worker": worker}
        params = asked | {"limit": limit, "cursor": cursor}
        page: TaskPage = await self._ask("GET", "/tasks", params=params)
        return page

    async def workers(self) -> list[Process]:
        """The workers that have not said good-bye."""
        found: list[Process] = (await self._ask("GET", "/workers"))["workers"]
        return found

    async def orchestrators(self) -> Orchestrators:
        """Who advances jobs, and for how long news wait."""
        found: Orchestrators = await self._ask("GET", "/orchestrator/status")
        return found

    async def queues(self) -> list[Queue]:
        """Each queue: what waits and since when, what runs, who serves it."""
        found: list[Queue] = (await self._ask("GET", "/queues/status"))["queues"]
        return found

    async def overview(self) -> Overview:
        """Return jobs by status, throughput, queues, processes, waiting jobs with reasons, and failures."""
        overview: Overview = await self._ask("GET", "/overview")
        return overview

    async def keys(self) -> list[Key]:
        """Return the API keys of this tenant without the keys themselves, newest first."""
        keys: list[Key] = (await self._ask("GET", "/keys"))["keys"]
        return keys

    async def audit(self, *, limit: int = 100, cursor: str | None = None) -> AuditPage:
        """A page of who changed what, newest first."""
        page: AuditPage = await self._ask("GET", "/audit", params={"limit": limit, "cursor": cursor})
        return page

    # -- what became of jobs --------------------------------------------------------------------------

    async def workflow_metrics(self, workflow_id: str | None = None, *, days: int = 7) -> WorkflowMetrics:
        """For each workflow how many jobs, how many of them well, how long they took, what they died of."""
        params = {"workflow_id": workflow_id, "days": days}
        found: WorkflowMetrics = await self._ask("GET", "/metrics/workflows", params=params)
        return found

    async def node_metrics(self, workflow_id: str, *, days: int = 7) -> NodeMetrics:
        """The nodes of a workflow in its newest jobs."""
        path = f"/metrics/workflows/{step(workflow_id)}/nodes"
        found: NodeMetrics = await self._ask("GET", path, params={"days": days})
        return found

    async def failure_metrics(
        self, workflow_id: str | None = None, *, days: int = 7, limit: int = 20
    ) -> FailureMetrics:
        """What nodes of failed jobs died of, the most common first."""
        params = {"workflow_id": workflow_id, "days": days, "limit": limit}
        found: FailureMetrics = await self._ask("GET", "/metrics/failures", params=params)
        return found

    async def throughput(
        self, workflow_id: str | None = None, *, hours: int = 24, bucket_minutes: int = 60
    ) -> Throughput:
        """Jobs submitted and ended in each stretch of time, and how long they took."""
        params = {"workflow_id": workflow_id, "hours": hours, "bucket_minutes": bucket_minutes}
        found: Throughput = await self._ask("GET", "/metrics/throughput", params=params)
        return found

    # -- whether it is well ---------------------------------------------------------------------------

    async def health(self) -> Health:
        """Everything that can be looked at, in tiers. An unhealthy instance is no error here."""
        found: Health = await self._look("/health")
        return found

    async def check(self, name: str) -> NamedCheck:
        """One thing that can be looked at."""
        found: NamedCheck = await self._look(f"/health/{step(name)}")
        return found

    async def is_alive(self) -> bool:
        """Whether the process answers, whatever becomes of its database."""
        alive: bool = (await self._look("/livez"))["alive"]
        return alive

    async def readiness(self) -> Ready:
        """Whether it can serve, and what is wrong with what it needs."""
        found: Ready = await self._look("/readyz")
        return found

    async def prometheus(self) -> str:
        """What Prometheus is told."""
        return (await self._send("GET", "/metrics", headers={})).text

    async def description(self) -> dict[str, Json]:
        """The OpenAPI document of this instance."""
        found: dict[str, Json] = await self._ask("GET", "/openapi.json")
        return found

    async def _look(self, path: str) -> Any:
        """What is told with 503 is an answer, unless it is a problem."""
        answer = await self._send("GET", path, headers={}, also=UNHEALTHY)
        refuse_problem(answer.status_code, answer.headers.get("content-type", ""), answer.content)
        return answer.json()
