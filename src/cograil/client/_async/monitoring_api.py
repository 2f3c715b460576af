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
    NamedCheck,
    NodeMetrics,
    NodePage,
    NodeStatus,
    Orchestrators,
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
        filters = {"state": state, "queue": queue, "handler": handler, "worker": worker}
        params = filters | {"limit": limit, "cursor": cursor}
        page: TaskPage = await self._ask("GET", "/tasks", params=params)
        return page

    async def workers(self) -> list[Process]:
        """The workers that have not said good-bye."""
        workers: list[Process] = (await self._ask("GET", "/workers"))["workers"]
        return workers

    async def orchestrators(self) -> Orchestrators:
        """Who advances jobs, and for how long news wait."""
        orchestrators: Orchestrators = await self._ask("GET", "/orchestrator/status")
        return orchestrators

    async def queues(self) -> list[Queue]:
        """Each queue: what waits and since when, what runs, who serves it."""
        queues: list[Queue] = (await self._ask("GET", "/queues/status"))["queues"]
        return queues

    async def audit(self, *, limit: int = 100, cursor: str | None = None) -> AuditPage:
        """A page of who changed what, newest first."""
        page: AuditPage = await self._ask("GET", "/audit", params={"limit": limit, "cursor": cursor})
        return page

    # -- what became of jobs --------------------------------------------------------------------------

    async def workflow_metrics(self, workflow_id: str | None = None, *, days: int = 7) -> WorkflowMetrics:
        """For each workflow how many jobs, how many of them well, how long they took, what they died of."""
        params = {"workflow_id": workflow_id, "days": days}
        metrics: WorkflowMetrics = await self._ask("GET", "/metrics/workflows", params=params)
        return metrics

    async def node_metrics(self, workflow_id: str, *, days: int = 7) -> NodeMetrics:
        """The nodes of a workflow in its newest jobs."""
        path = f"/metrics/workflows/{step(workflow_id)}/nodes"
        metrics: NodeMetrics = await self._ask("GET", path, params={"days": days})
        return metrics

    async def failure_metrics(
        self, workflow_id: str | None = None, *, days: int = 7, limit: int = 20
    ) -> FailureMetrics:
        """What nodes of failed jobs died of, the most common first."""
        params = {"workflow_id": workflow_id, "days": days, "limit": limit}
        metrics: FailureMetrics = await self._ask("GET", "/metrics/failures", params=params)
        return metrics

    async def throughput(
        self, workflow_id: str | None = None, *, hours: int = 24, bucket_minutes: int = 60
    ) -> Throughput:
        """Jobs submitted and ended in each stretch of time, and how long they took."""
        params = {"workflow_id": workflow_id, "hours": hours, "bucket_minutes": bucket_minutes}
        throughput: Throughput = await self._ask("GET", "/metrics/throughput", params=params)
        return throughput

    # -- whether it is well ---------------------------------------------------------------------------

    async def health(self) -> Health:
        """Everything that can be looked at, in tiers. An unhealthy instance is no error here."""
        health: Health = await self._look("/health")
        return health

    async def check(self, name: str) -> NamedCheck:
        """One thing that can be looked at."""
        check: NamedCheck = await self._look(f"/health/{step(name)}")
        return check

    async def is_alive(self) -> bool:
        """Whether the process answers, whatever becomes of its database."""
        alive: bool = (await self._look("/livez"))["alive"]
        return alive

    async def readiness(self) -> Ready:
        """Whether it can serve, and what is wrong with what it needs."""
        readiness: Ready = await self._look("/readyz")
        return readiness

    async def prometheus(self) -> str:
        """What Prometheus is told."""
        return (await self._send("GET", "/metrics", headers={})).text

    async def description(self) -> dict[str, Json]:
        """The OpenAPI document of this instance."""
        document: dict[str, Json] = await self._ask("GET", "/openapi.json")
        return document

    async def _look(self, path: str) -> Any:
        """What is told with 503 is an answer, unless it is a problem."""
        answer = await self._send("GET", path, headers={}, also=UNHEALTHY)
        refuse_problem(answer.status_code, answer.headers.get("content-type", ""), answer.content)
        return answer.json()
