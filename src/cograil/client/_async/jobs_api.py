"""Jobs: submit, read, act on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

from typing_extensions import Unpack

from cograil.client._async.transport import Transport
from cograil.client.models import (
    Answered,
    BatchResult,
    BulkOptions,
    BulkPreview,
    BulkProgress,
    Event,
    Explanation,
    Failure,
    Job,
    JobCriteria,
    JobFacts,
    JobPage,
    JobProgress,
    JobStatus,
    JobWithNodes,
    JobWorkflow,
    Json,
    LogLines,
    NewJob,
    Node,
    NodeTraceback,
    ProgressOfNode,
    Request,
    RequestFacts,
    RetryPreview,
    SignalFacts,
    Timeline,
    WatchedJob,
    step,
)
from cograil.client.trace_context import current_parent

PAGE = 1000
SUBMIT = (
    "select cograil.submit(%s, %s::jsonb, version => %s, priority => %s, correlation_id => %s,"
    " submitted_by => %s, labels => %s::jsonb, callback => %s::jsonb, not_before => %s,"
    " idempotency_key => %s, tenant => %s{more})"
)


class JobsApi(Transport):
    """The methods for jobs."""

    async def submit(
        self,
        workflow_id: str,
        input_params: Mapping[str, Json] | None = None,
        *,
        wait: float = 0,
        connection: Any = None,
        tenant: str | None = None,
        **facts: Unpack[JobFacts],
    ) -> Job:
        """Submit a job and return it, with `wait` after its end or after that many seconds.

        With a `connection` (of psycopg) the job is created in its open transaction, and exists when that commits.
        Then only its id and status are returned, `wait` is not possible, and `tenant` names its tenant (over
        HTTP the key does). Raises TypeError for an argument that does not fit.
        """
        if connection is not None:
            if wait or (unknown := ", ".join(sorted(facts.keys() - JobFacts.__annotations__.keys()))):
                raise TypeError("with a connection, submit takes no " + ("wait" if wait else unknown))
            return await self._submit_in(connection, workflow_id, input_params, tenant, facts)
        if tenant is not None:
            raise TypeError("without a connection, submit takes no tenant: it is that of the key")
        body = {"workflow_id": workflow_id, "input_params": dict(input_params or {})} | dict(facts)
        headers = {"prefer": f"wait={int(wait)}"} if wait else {}
        job: Job = await self._ask("POST", "/jobs", body, headers=headers, wait=wait)
        return job

    async def _submit_in(
        self,
        connection: Any,
        workflow_id: str,
        input_params: Mapping[str, Json] | None,
        tenant: str | None,
        facts: JobFacts,
    ) -> Job:
        labels, callback = facts.get("labels"), facts.get("callback")
        arguments = [
            workflow_id,
            json.dumps(dict(input_params or {})),
            facts.get("version"),
            facts.get("priority", 0),
            facts.get("correlation_id"),
            facts.get("submitted_by"),
            None if labels is None else json.dumps(dict(labels)),
            None if callback is None else json.dumps(dict(callback)),
            facts.get("not_before"),
            facts.get("idempotency_key"),
            tenant,
        ]
        trace_parent = current_parent()  # only if set: an older database has no such parameter
        more = "" if trace_parent is None else ", trace_parent => %s"
        parameters = arguments if trace_parent is None else [*arguments, trace_parent]
        cursor = await connection.execute(SUBMIT.format(more=more), parameters)
        (job_id,) = await cursor.fetchone()
        return {"job_id": str(job_id), "workflow_id": workflow_id, "status": "pending"}  # type: ignore[typeddict-item]

    async def submit_many(
        self, jobs: Sequence[NewJob], *, idempotency_key: str | None = None
    ) -> list[BatchResult]:
        """Submit up to 1,000 jobs; return for each its id or its error.

        With a key, a repeated batch gets the first response again.
        """
        headers = {} if idempotency_key is None else {"idempotency-key": idempotency_key}
        answer = await self._ask("POST", "/jobs/batch", {"jobs": list(jobs)}, headers=headers)
        results: list[BatchResult] = answer["results"]
        return results

    async def submit_request(
        self,
        request_id: str,
        workflow_id: str,
        input_params: Mapping[str, Json] | None = None,
        *,
        submitted_by: str,
        **facts: Unpack[RequestFacts],
    ) -> Request:
        """Submit a job for an external request with this id (a UUID); repeating it creates no second job."""
        required = {"request_id": request_id, "workflow_id": workflow_id, "submitted_by": submitted_by}
        body = {"input_params": dict(input_params or {}), **required, **facts}
        request: Request = await self._ask("POST", "/submit", body)
        return request

    # -- reading ------------------------------------------------------------------------------------

    async def job(self, job_id: str, *, nodes: Literal["all", "top", "none"] = "all") -> JobWithNodes:
        """Return a job with its nodes; `top` leaves out the children of fan-outs."""
        params = None if nodes == "all" else {"nodes": nodes}
        job: JobWithNodes = await self._ask("GET", f"/jobs/{step(job_id)}", params=params)
        return job

    async def resolve_job(self, prefix: str) -> str:
        """Return the complete id of the job whose id begins with this prefix of at least 8 characters."""
        job_id: str = (await self._ask("GET", f"/jobs/{step(prefix)}/id"))["job_id"]
        return job_id

    async def search_jobs(self, **criteria: Unpack[JobCriteria]) -> list[Job]:
        """Return the newest jobs that meet all criteria; `before` is the last id of the previous page."""
        jobs: list[Job] = (await self._ask("POST", "/jobs/search", dict(criteria)))["jobs"]
        return jobs

    async def job_workflow(self, job_id: str) -> JobWorkflow:
        """Return the workflow that a job runs, as it was when the job was created."""
        workflow: JobWorkflow = await self._ask("GET", f"/jobs/{step(job_id)}/workflow")
        return workflow

    async def failures(self, job_id: str) -> list[Failure]:
        """Return the failed nodes of a job and the failed children of its fan-outs, the first to fail first."""
        failures: list[Failure] = (await self._ask("GET", f"/jobs/{step(job_id)}/failures"))["failures"]
        return failures

    async def traceback(self, job_id: str, node_id: str) -> NodeTraceback | None:
        """Return the traceback of the last failed attempt of a node; None if it did not raise."""
        path = f"/jobs/{step(job_id)}/nodes/{step(node_id)}/traceback"
        traceback: NodeTraceback | None = (await self._ask("GET", path))["traceback"]
        return traceback

    async def watch(self, job_id: str, *, after: int | None = None) -> WatchedJob:
        """Return the progress of a job and its nodes for polling; with `after`, also the later events."""
        watched: WatchedJob = await self._ask("GET", f"/jobs/{step(job_id)}/watch", params={"after": after})
        return watched

    async def jobs(
        self,
        *,
        status: JobStatus | None = None,
        workflow_id: str | None = None,
        correlation_id: str | None = None,
        label: str | None = None,
        search: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> JobPage:
        """Return a page of jobs, newest first; `label` is `customer=acme,urgent`, `search` a text in the input.

        With `label` or `search` a page may be short although `next_cursor` is set.
        """
        filters = {"status": status, "workflow_id": workflow_id, "correlation_id": correlation_id}
        search_and_page = {"label": label, "search": search, "limit": limit, "cursor": cursor}
        page: JobPage = await self._ask("GET", "/jobs", params={**filters, **search_and_page})
        return page

    async def all_jobs(
        self,
        *,
        status: JobStatus | None = None,
        workflow_id: str | None = None,
        correlation_id: str | None = None,
        label: str | None = None,
        search: str | None = None,
    ) -> AsyncIterator[Job]:
        """Yield all jobs, newest first, page by page."""
        cursor: str | None = None
        while True:
            page = await self.jobs(
                status=status,
                workflow_id=workflow_id,
                correlation_id=correlation_id,
                label=label,
                search=search,
                limit=PAGE,
                cursor=cursor,
            )
            for job in page["jobs"]:
                yield job
            cursor = page["next_cursor"]
            if cursor is None:
                return

    async def nodes(self, job_id: str, node_id: str | None = None) -> list[Node]:
        """Return the nodes of a job, or one node with its full input and output."""
        path, params = f"/jobs/{step(job_id)}/nodes", {"node_id": node_id}
        nodes: list[Node] = (await self._ask("GET", path, params=params))["nodes"]
        return nodes

    async def events(
        self, job_id: str, node_id: str | None = None, *, after: int = 0, limit: int = 1000
    ) -> list[Event]:
        """Return the events of a job, or of one of its nodes, after a number."""
        path = f"/jobs/{step(job_id)}{_of_node(node_id)}/events"
        answer = await self._ask("GET", path, params={"after": after, "limit": limit})
        events: list[Event] = answer["events"]
        return events

    async def logs(
        self,
        job_id: str,
        node_id: str | None = None,
        *,
        level: str | None = None,
        search: str | None = None,
        after: str | None = None,
        limit: int = 1000,
    ) -> LogLines:
        """Return a page of log lines; to follow a job, repeat this after the cursor of the last line."""
        query = {"node_id": node_id, "level": level, "search": search, "after": after, "limit": limit}
        lines: LogLines = await self._ask("GET", f"/jobs/{step(job_id)}/logs", params=query)
        return lines

    async def timeline(self, job_id: str) -> Timeline:
        """Return when each node ran."""
        timeline: Timeline = await self._ask("GET", f"/jobs/{step(job_id)}/timeline")
        return timeline

    async def progress(self, job_id: str) -> JobProgress:
        """Return the progress of a job."""
        progress: JobProgress = await self._ask("GET", f"/jobs/{step(job_id)}/progress")
        return progress

    async def node_progress(self, job_id: str, node_id: str) -> ProgressOfNode:
        """Return the progress of a node."""
        path = f"/jobs/{step(job_id)}{_of_node(node_id)}/progress"
        progress: ProgressOfNode = await self._ask("GET", path)
        return progress

    async def explain(self, job_id: str) -> Explanation:
        """Explain why a job waits."""
        explanation: Explanation = await self._ask("GET", f"/jobs/{step(job_id)}/explain")
        return explanation

    # -- actions ------------------------------------------------------------------------------------

    async def cancel(self, job_id: str, reason: str = "") -> Job:
        """Cancel a job."""
        job: Job = await self._ask("POST", f"/jobs/{step(job_id)}/cancel", {"reason": reason})
        return job

    async def retry(
        self,
        job_id: str,
        *,
        node_id: str | None = None,
        from_node: str | None = None,
        input_params: Mapping[str, Json] | None = None,
        new_keys: bool = False,
    ) -> Job:
        """Retry a job that has ended, or one of its nodes. Returns the job that runs them again.

        Nodes that had not completed keep their idempotency keys, unless `new_keys` is true.
        """
        body = _retry_body(from_node, input_params, new_keys)
        job: Job = await self._ask("POST", f"/jobs/{step(job_id)}{_of_node(node_id)}/retry", body)
        return job

    async def preview_retry(
        self,
        job_id: str,
        *,
        node_id: str | None = None,
        from_node: str | None = None,
        input_params: Mapping[str, Json] | None = None,
        new_keys: bool = False,
    ) -> RetryPreview:
        """Return which nodes a retry would run again, with which idempotency keys, and which it would keep."""
        body = _retry_body(from_node, input_params, new_keys) | {"preview": True}
        path = f"/jobs/{step(job_id)}{_of_node(node_id)}/retry"
        preview: RetryPreview = await self._ask("POST", path, body)
        return preview

    async def signal(self, job_id: str, name: str, **facts: Unpack[SignalFacts]) -> Answered:
        """Send a signal to an approval node of a job."""
        answered: Answered = await self._ask("POST", f"/jobs/{step(job_id)}/signals", {"name": name, **facts})
        return answered

    async def approve(self, job_id: str, **facts: Unpack[SignalFacts]) -> Answered:
        """Approve an approval node of a job."""
        if facts:
            return await self.signal(job_id, "approve", **facts)
        answered: Answered = await self._ask("POST", f"/jobs/{step(job_id)}/approve")
        return answered

    async def reject(self, job_id: str, **facts: Unpack[SignalFacts]) -> Answered:
        """Reject an approval node of a job."""
        if facts:
            return await self.signal(job_id, "reject", **facts)
        answered: Answered = await self._ask("POST", f"/jobs/{step(job_id)}/reject")
        return answered

    async def bulk_cancel(self, **options: Unpack[BulkOptions]) -> Job:
        """Cancel the pending and running jobs that match; return the job that does it."""
        job: Job = await self._ask("POST", "/bulk/cancel", dict(options))
        return job

    async def bulk_retry(self, **options: Unpack[BulkOptions]) -> Job:
        """Retry the failed jobs that match; return the job that does it."""
        job: Job = await self._ask("POST", "/bulk/retry", dict(options))
        return job

    async def preview_bulk(
        self, verb: Literal["cancel", "retry"], **options: Unpack[BulkOptions]
    ) -> BulkPreview:
        """Return how many jobs a bulk operation would change, and the first of them."""
        preview: BulkPreview = await self._ask("POST", f"/bulk/{verb}", {**options, "preview": True})
        return preview

    async def bulk(self, job_id: str) -> BulkProgress:
        """Return the progress of a bulk operation."""
        progress: BulkProgress = await self._ask("GET", f"/bulk/{step(job_id)}")
        return progress

    async def pause_job(self, job_id: str, reason: str = "") -> Job:
        """Pause a job: running nodes continue, no new ones start."""
        job: Job = await self._ask("POST", f"/jobs/{step(job_id)}/pause", {"reason": reason})
        return job

    async def resume_job(self, job_id: str) -> Job:
        """Resume a paused job."""
        job: Job = await self._ask("POST", f"/jobs/{step(job_id)}/resume")
        return job


def _of_node(node_id: str | None) -> str:
    return "" if node_id is None else f"/nodes/{step(node_id)}"


def _retry_body(
    from_node: str | None, input_params: Mapping[str, Json] | None, new_keys: bool
) -> dict[str, Json]:
    inputs = None if input_params is None else dict(input_params)
    body: dict[str, Json] = {"from_node": from_node, "input_params": inputs}
    return body | {"new_keys": True} if new_keys else body
