"""Monitoring, metrics, health and the audit log.

Written by `make docs` from _async/monitoring_api.py; do not edit.
"""

from __future__ import annotations

from typing import Any, Literal

from cograil.client._sync.transport import Transport
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

    def all_nodes(
        self,
        *,
        status: NodeStatus | None = None,
        workflow_id: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> NodePage:
        """Return a page of nodes across jobs, newest jobs first; it may be short although `next_cursor` is set."""
        params = {"status": status, "workflow_id": workflow_id, "limit": limit, "cursor": cursor}
        page: NodePage = self._ask("GET", "/nodes", params=params)
        return page

    def tasks(
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
        page: TaskPage = self._ask("GET", "/tasks", params=params)
        return page

    def workers(self) -> list[Process]:
        """Return the workers that have not signed off."""
        workers: list[Process] = (self._ask("GET", "/workers"))["workers"]
        return workers

    def orchestrators(self) -> Orchestrators:
        """Return the orchestrators, and how long the oldest input of a job waits."""
        orchestrators: Orchestrators = self._ask("GET", "/orchestrator/status")
        return orchestrators

    def queues(self) -> list[Queue]:
        """Return each queue: its queued and running tasks, the oldest age, its workers."""
        queues: list[Queue] = (self._ask("GET", "/queues/status"))["queues"]
        return queues

    def overview(self) -> Overview:
        """Return jobs by status, throughput, queues, processes, waiting jobs with reasons, and failures."""
        overview: Overview = self._ask("GET", "/overview")
        return overview

    def keys(self) -> list[KeyEntry]:
        """Return the API keys of this tenant without the keys themselves, newest first."""
        keys: list[KeyEntry] = (self._ask("GET", "/keys"))["keys"]
        return keys

    def audit(self, *, limit: int = 100, cursor: str | None = None) -> AuditPage:
        """Return a page of the audit log, newest first."""
        page: AuditPage = self._ask("GET", "/audit", params={"limit": limit, "cursor": cursor})
        return page

    # -- job metrics ---------------------------------------------------------------------------------

    def workflow_metrics(self, workflow_id: str | None = None, *, days: int = 7) -> WorkflowMetrics:
        """Return the number of jobs, success rate, durations and failures of each workflow."""
        params = {"workflow_id": workflow_id, "days": days}
        metrics: WorkflowMetrics = self._ask("GET", "/metrics/workflows", params=params)
        return metrics

    def node_metrics(self, workflow_id: str, *, days: int = 7) -> NodeMetrics:
        """Return the metrics of the nodes of a workflow in its newest jobs."""
        path = f"/metrics/workflows/{step(workflow_id)}/nodes"
        metrics: NodeMetrics = self._ask("GET", path, params={"days": days})
        return metrics

    def failure_metrics(
        self, workflow_id: str | None = None, *, days: int = 7, limit: int = 20
    ) -> FailureMetrics:
        """Return the errors of nodes of failed jobs, the most common first."""
        params = {"workflow_id": workflow_id, "days": days, "limit": limit}
        metrics: FailureMetrics = self._ask("GET", "/metrics/failures", params=params)
        return metrics

    def throughput(
        self, workflow_id: str | None = None, *, hours: int = 24, bucket_minutes: int = 60
    ) -> Throughput:
        """Return the jobs submitted and ended in each bucket of time, and their durations."""
        params = {"workflow_id": workflow_id, "hours": hours, "bucket_minutes": bucket_minutes}
        throughput: Throughput = self._ask("GET", "/metrics/throughput", params=params)
        return throughput

    # -- health ---------------------------------------------------------------------------------------

    def health(self) -> HealthReport:
        """Return the results of all health checks. An unhealthy instance does not raise an error."""
        health: HealthReport = self._get_report("/health")
        return health

    def check(self, name: str) -> NamedCheck:
        """Return the result of one health check."""
        check: NamedCheck = self._get_report(f"/health/{step(name)}")
        return check

    def is_alive(self) -> bool:
        """Return whether the process responds, even without its database."""
        alive: bool = (self._get_report("/livez"))["alive"]
        return alive

    def readiness(self) -> Ready:
        """Return whether the server is ready, and the state of each dependency."""
        readiness: Ready = self._get_report("/readyz")
        return readiness

    def prometheus(self) -> str:
        """Return the metrics in the Prometheus text format."""
        return (self._send("GET", "/metrics", headers={})).text

    def description(self) -> dict[str, Json]:
        """Return the OpenAPI document of this instance."""
        document: dict[str, Json] = self._ask("GET", "/openapi.json")
        return document

    def _get_report(self, path: str) -> Any:
        """Return a report. Its 503 is a result; a problem with 503 raises ApiError."""
        answer = self._send("GET", path, headers={}, also=UNHEALTHY)
        refuse_problem(answer.status_code, answer.headers.get("content-type", ""), answer.content)
        return answer.json()
