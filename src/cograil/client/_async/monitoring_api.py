"""Monitoring, metrics, health and the audit log."""

from __future__ import annotations

from typing import Any, Literal

from cograil.client._async.transport import Transport
from cograil.client.errors import refuse_problem
from cograil.client.models import (
    AuditPage,
    FailureMetrics,
    HealthReport,
    Json,
    KeyEntry,
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


class MonitoringApi(Transport):
    """The methods for nodes, tasks, queues, processes, job metrics, the audit log and health."""

    async def all_nodes(
        self,
        *,
        status: NodeStatus | None = None,
        workflow_id: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> NodePage:
        """Return a page of nodes across jobs, newest jobs first; it may be short although `next_cursor` is set."""
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
        """Return a page of queued or running attempts, newest first; with state `ended`, of ended ones."""
        filters = {"state": state, "queue": queue, "handler": handler, "worker": worker}
        params = filters | {"limit": limit, "cursor": cursor}
        page: TaskPage = await self._ask("GET", "/tasks", params=params)
        return page

    async def workers(self) -> list[Process]:
        """Return the workers that have not signed off."""
        workers: list[Process] = (await self._ask("GET", "/workers"))["workers"]
        return workers

    async def orchestrators(self) -> Orchestrators:
        """Return the orchestrators, and how long the oldest input of a job waits."""
        orchestrators: Orchestrators = await self._ask("GET", "/orchestrator/status")
        return orchestrators

    async def queues(self) -> list[Queue]:
        """Return each queue: its queued and running tasks, the oldest age, its workers."""
        queues: list[Queue] = (await self._ask("GET", "/queues/status"))["queues"]
        return queues

    async def overview(self) -> Overview:
        """Return jobs by status, throughput, queues, processes, waiting jobs with reasons, and failures."""
        overview: Overview = await self._ask("GET", "/overview")
        return overview

    async def keys(self) -> list[KeyEntry]:
        """Return the API keys of this tenant without the keys themselves, newest first."""
        keys: list[KeyEntry] = (await self._ask("GET", "/keys"))["keys"]
        return keys

    async def audit(self, *, limit: int = 100, cursor: str | None = None) -> AuditPage:
        """Return a page of the audit log, newest first."""
        page: AuditPage = await self._ask("GET", "/audit", params={"limit": limit, "cursor": cursor})
        return page

    # -- job metrics ---------------------------------------------------------------------------------

    async def workflow_metrics(self, workflow_id: str | None = None, *, days: int = 7) -> WorkflowMetrics:
        """Return the number of jobs, success rate, durations and failures of each workflow."""
        params = {"workflow_id": workflow_id, "days": days}
        metrics: WorkflowMetrics = await self._ask("GET", "/metrics/workflows", params=params)
        return metrics

    async def node_metrics(self, workflow_id: str, *, days: int = 7) -> NodeMetrics:
        """Return the metrics of the nodes of a workflow in its newest jobs."""
        path = f"/metrics/workflows/{step(workflow_id)}/nodes"
        metrics: NodeMetrics = await self._ask("GET", path, params={"days": days})
        return metrics

    async def failure_metrics(
        self, workflow_id: str | None = None, *, days: int = 7, limit: int = 20
    ) -> FailureMetrics:
        """Return the errors of nodes of failed jobs, the most common first."""
        params = {"workflow_id": workflow_id, "days": days, "limit": limit}
        metrics: FailureMetrics = await self._ask("GET", "/metrics/failures", params=params)
        return metrics

    async def throughput(
        self, workflow_id: str | None = None, *, hours: int = 24, bucket_minutes: int = 60
    ) -> Throughput:
        """Return the jobs submitted and ended in each bucket of time, and their durations."""
        params = {"workflow_id": workflow_id, "hours": hours, "bucket_minutes": bucket_minutes}
        throughput: Throughput = await self._ask("GET", "/metrics/throughput", params=params)
        return throughput

    # -- health ---------------------------------------------------------------------------------------

    async def health(self) -> HealthReport:
        """Return the results of all health checks. An unhealthy instance does not raise an error."""
        health: HealthReport = await self._get_report("/health")
        return health

    async def check(self, name: str) -> NamedCheck:
        """Return the result of one health check."""
        check: NamedCheck = await self._get_report(f"/health/{step(name)}")
        return check

    async def is_alive(self) -> bool:
        """Return whether the process responds, even without its database."""
        alive: bool = (await self._get_report("/livez"))["alive"]
        return alive

    async def readiness(self) -> Ready:
        """Return whether the server is ready, and the state of each dependency."""
        readiness: Ready = await self._get_report("/readyz")
        return readiness

    async def prometheus(self) -> str:
        """Return the metrics in the Prometheus text format."""
        return (await self._send("GET", "/metrics", headers={})).text

    async def description(self) -> dict[str, Json]:
        """Return the OpenAPI document of this instance."""
        document: dict[str, Json] = await self._ask("GET", "/openapi.json")
        return document

    async def _get_report(self, path: str) -> Any:
        """Return a report. Its 503 is a result; a problem with 503 raises ApiError."""
        answer = await self._send("GET", path, headers={}, also=UNHEALTHY)
        refuse_problem(answer.status_code, answer.headers.get("content-type", ""), answer.content)
        return answer.json()
