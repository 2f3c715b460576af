"""Jobs of an instance, read and changed over HTTP."""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from typing import Any, cast

from cograil.cli.backends.interface import EndOfJob, JobRequest, RetryOptions
from cograil.cli.backends.server_client import ServerClient, revive
from cograil.client.models import BulkOptions, JobFacts, SignalFacts
from cograil.definitions import load_workflow
from cograil.errors import NotFound, UsageError
from cograil.model.job import Signalled
from cograil.model.states import JOB_TERMINAL
from cograil.model.workflow import Json, Workflow
from cograil.processes.invocation import program
from cograil.store.job_filter_queries import LATE_SECONDS, JobSearch
from cograil.store.job_progress_queries import JobProgressSnapshot, NodeProgressSnapshot, read_prefix
from cograil.store.job_queries import Traceback, View
from cograil.verbs.blockers import JobBlocker
from cograil.verbs.bulk import BulkForecast, JobFilter
from cograil.verbs.explain import JobExplanation
from cograil.verbs.retry import RetryForecast

COMPLETE_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PAGE_SIZE = 1_000
FOLLOW_SECONDS = 0.3
MAX_POLL_SECONDS = 0.3
MAX_INPUT_BYTES = 64 * 1024 * 1024  # the server has the limit; this one only bounds the memory of the command


class ServerConnection:
    """A client of the API of one server."""

    subject = "server"
    max_input_bytes = MAX_INPUT_BYTES

    def __init__(self, client: ServerClient, options: str = "") -> None:
        self.client = client
        self._options = options  # that address this server: `--profile prod`

    def command(self, arguments: str) -> str:
        options = self._options or f"--server {shlex.quote(self.client.url)}"
        return f"`{program()} {arguments} {options}`"

    def next_steps(self, job_id: str) -> str:
        show, explain = self.command(f"show {job_id}"), self.command(f"explain {job_id}")
        return f"job {job_id} continues; see {show} and {explain}"


class ServerJobReads(ServerConnection):
    """Jobs and their nodes, events and logs."""

    async def resolve_job(self, text: str) -> str:
        if COMPLETE_ID.fullmatch(text):
            return await self._existing(text)
        read_prefix(text)
        return await self.client.resolve_job(text.strip())

    async def _existing(self, job_id: str) -> str:
        return str((await self.client.job(job_id, nodes="none"))["job"]["job_id"])

    async def find_job(self, text: str) -> View:
        if COMPLETE_ID.fullmatch(text) is None:
            text = await self.resolve_job(text)
        view: View = revive((await self.client.job(text, nodes="none"))["job"])
        return view

    async def job_workflow(self, job_id: str) -> Workflow:
        workflow = await self.client.job_workflow(job_id)
        return load_workflow(workflow["definition"], workflow["app"])

    async def list_jobs(self, criteria: JobSearch, *, before: str | None, limit: int) -> list[View]:
        body: dict[str, Any] = {
            "statuses": list(criteria.statuses),
            "workflow_id": criteria.workflow,
            "labels": dict(criteria.labels),
            "since": _text(criteria.since),
            "until": _text(criteria.until),
            "text": criteria.text,
            "error": criteria.error,
            "before": None if before is None else await self.resolve_job(before),
            "limit": limit,
        }
        jobs: list[View] = revive(await self.client.search_jobs(**_set_only(body)))
        return jobs

    async def list_nodes(self, job_id: str, workflow: Workflow, *, children: bool) -> list[View]:
        job = await self.client.job(job_id, nodes="all" if children else "top")
        nodes: list[View] = revive(job["nodes"])
        return nodes

    async def has_node(self, job_id: str, node_id: str) -> bool:
        try:
            return bool(await self.client.nodes(job_id, node_id))
        except NotFound:
            return False

    async def list_failures(self, job_id: str) -> list[View]:
        return cast("list[View]", await self.client.failures(job_id))

    async def find_traceback(self, job_id: str, node_id: str) -> Traceback | None:
        traceback = await self.client.traceback(job_id, node_id)
        return None if traceback is None else Traceback(**traceback)

    async def event_pages(
        self, job_id: str, *, after: int, node: str | None, follow: bool
    ) -> AsyncIterator[list[View]]:
        if follow:
            async for event in self.client.follow_job(job_id, after):
                if node in (None, event["node_id"]):
                    yield [event]
            return
        while True:
            page = revive(await self.client.events(job_id, node, after=after, limit=PAGE_SIZE))
            yield page
            if len(page) < PAGE_SIZE:
                return
            after = page[-1]["seq"]

    async def log_lines(self, job_id: str, *, node: str | None, follow: bool) -> AsyncIterator[View]:
        tail = ServerLogTail(self.client, job_id, node)
        while True:
            is_last = not follow or (await self.client.watch(job_id))["status"] in JOB_TERMINAL
            async for line in tail.read():
                yield line
            if is_last:
                return
            await asyncio.sleep(FOLLOW_SECONDS)

    async def explain(self, job_id: str) -> JobExplanation:
        explanation = await self.client.explain(job_id)
        blockers = tuple(JobBlocker(**cast("dict[str, Any]", blocker)) for blocker in explanation["blockers"])
        return JobExplanation(explanation["job_id"], explanation["status"], blockers)

    async def watch(self, job_id: str, after: int | None) -> tuple[JobProgressSnapshot, list[View]]:
        watched = revive(await self.client.watch(job_id, after=after))
        events: list[View] = watched.pop("events")
        nodes = {node["node_id"]: NodeProgressSnapshot(**node) for node in watched.pop("nodes")}
        return JobProgressSnapshot(**watched, nodes=nodes), events

    def job_ends(self) -> AbstractAsyncContextManager[EndOfJob]:
        return nullcontext(PollInterval())


class PollInterval:
    """The pause between two requests of a command that waits: a server does not call back."""

    async def wait(self, seconds: float) -> None:
        """Return after this many seconds, or sooner."""
        await asyncio.sleep(min(seconds, MAX_POLL_SECONDS))


class ServerLogTail:
    """Reads the log lines of a job from the first one on; each call yields the new ones.

    Workers may store lines in another order than that of their cursors, so lines are read again until they were
    first seen `LATE_SECONDS` ago.
    """

    def __init__(self, client: ServerClient, job_id: str, node: str | None) -> None:
        self._client, self._job_id, self._node = client, job_id, node
        self._after: str | None = None
        self._seen: dict[str, float] = {}  # cursor -> when it was first seen

    async def read(self) -> AsyncIterator[View]:
        """Yield the lines since the last call, in the order of their cursors."""
        now, after = time.monotonic(), self._after
        while True:
            page = await self._client.logs(self._job_id, self._node, after=after, limit=PAGE_SIZE)
            for line in page["logs"]:
                if line["cursor"] not in self._seen:
                    self._seen[line["cursor"]] = now
                    yield {name: value for name, value in line.items() if name != "cursor"}
            after = page["next_cursor"]
            if after is None:
                break
        settled = [cursor for cursor, seen_at in self._seen.items() if now - seen_at > LATE_SECONDS]
        self._after = max(settled, key=_position, default=self._after)
        self._seen = {
            cursor: seen_at
            for cursor, seen_at in self._seen.items()
            if self._after is None or _position(cursor) > _position(self._after)
        }


def _position(cursor: str) -> tuple[int, int]:
    row, line = cursor.split(".")
    return int(row), int(line)


class ServerJobActions(ServerConnection):
    """Changes of jobs. The server records them under the name of the API key."""

    async def submit(self, request: JobRequest) -> str:
        fields: dict[str, Any] = {**request.attributes, "version": request.version}
        fields["not_before"] = _text(fields.get("not_before"))
        fields["idempotency_key"] = request.idempotency_key
        facts = cast("JobFacts", _set_only(fields))
        return str((await self.client.submit(request.workflow_id, request.inputs, **facts))["job_id"])

    async def cancel(self, job_id: str, reason: str) -> str:
        return str((await self.client.cancel(job_id, reason))["status"])

    async def preview_retry(self, job_id: str, options: RetryOptions) -> RetryForecast:
        preview = await self.client.preview_retry(
            job_id, from_node=options.node_id, input_params=options.inputs, new_keys=options.new_keys
        )
        return _retry_preview(cast("Mapping[str, Any]", preview))

    async def retry(self, job_id: str, options: RetryOptions) -> tuple[str, RetryForecast]:
        preview = await self.preview_retry(job_id, options)
        job = await self.client.retry(
            job_id, from_node=options.node_id, input_params=options.inputs, new_keys=options.new_keys
        )
        return str(job["job_id"]), preview

    async def answer(self, job_id: str, answer: Signalled) -> View:
        fields = {"node_id": answer.node_id or None, "by": answer.by or None, "reason": answer.reason}
        facts = cast("SignalFacts", _set_only({**fields, "data": answer.data}))
        answered = await self.client.signal(job_id, answer.name, **facts)
        names = ("node_id", "by", "decision", "job_status")
        return {name: cast("Mapping[str, Any]", answered)[name] for name in names}

    async def preview_bulk(self, verb: str, job_filter: JobFilter) -> BulkForecast:
        preview = await self.client.preview_bulk(cast("Any", verb), **_bulk_options(job_filter))
        return BulkForecast(preview["verb"], preview["filter"], preview["count"], tuple(preview["ids"]))

    async def begin_bulk(self, verb: str, job_filter: JobFilter, reason: str) -> str:
        begin = self.client.bulk_cancel if verb == "cancel" else self.client.bulk_retry
        options = _bulk_options(job_filter)
        options["reason"] = reason
        return str((await begin(**options))["job_id"])

    async def bulk_progress(self, text: str) -> View:
        if COMPLETE_ID.fullmatch(text) is None:
            read_prefix(text)
        return cast("View", await self.client.bulk(text.strip()))

    async def pause(self, kind: str, name: str, reason: str) -> str:
        name = await self._full_name(kind, name)
        await self.client.pause(cast("Any", kind), name, reason)
        return name

    async def resume(self, kind: str, name: str) -> str:
        name = await self._full_name(kind, name)
        await self.client.resume(cast("Any", kind), name)
        return name

    async def _full_name(self, kind: str, name: str) -> str:
        if kind == "job" and COMPLETE_ID.fullmatch(name) is None:
            read_prefix(name)
            return await self.client.resolve_job(name.strip())
        if not name:
            raise UsageError(f"a {kind} has a name; '' is not one")
        return name

    async def list_pauses(self) -> list[View]:
        pauses: list[View] = revive(await self.client.pauses(), "at")
        return pauses


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _set_only(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value; None is the default of all of them."""
    return {name: value for name, value in fields.items() if value is not None}


def _retry_preview(preview: Mapping[str, Any]) -> RetryForecast:
    fields: dict[str, Json] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in preview.items()
    }
    fields["outdated"] = {name: tuple(inputs) for name, inputs in preview["outdated"].items()}
    return RetryForecast(**fields)


def _bulk_options(job_filter: JobFilter) -> BulkOptions:
    fields: dict[str, Any] = {
        "statuses": list(job_filter.statuses),
        "workflow_id": job_filter.workflow,
        "labels": job_filter.labels,
        "correlation_id": job_filter.correlation_id,
        "created_before": _text(job_filter.created_before),
        "created_after": _text(job_filter.created_after),
    }
    return cast("BulkOptions", _set_only(fields))
