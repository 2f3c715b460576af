"""The log of a whole job: the lines of all its nodes, searched, filtered, followed and downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from urllib.parse import urlencode

import orjson
from pydantic import Field
from starlette.responses import Response

from cograil.http.routes.job_routes import find_job
from cograil.http.server.problem_details import Refusal
from cograil.http.server.request_parsing import Query
from cograil.store.job_queries import View
from cograil.store.log_queries import END, LEVELS, START, LogFilter, LogPosition, job_logs, newest_job_logs
from cograil.ui.event_text import log_fields
from cograil.ui.page_context import HTML, PageRequest, as_call, pages
from cograil.ui.rendering import page

log_pages = pages("logs")
LINES_SHOWN, LINES_AT_ONCE, MAX_DOWNLOAD = 500, 5_000, 200_000
PLACE = r"^[0-9]{1,18}\.[0-9]{1,18}$"


class LogView(Query):
    """The filter of the log; `before` is the cursor of older lines. An empty field does not filter."""

    node: Annotated[str, Field(max_length=80)] = ""
    level: Annotated[str, Field(max_length=20)] = ""
    search: Annotated[str, Field(max_length=300)] = ""
    before: Annotated[str, Field(pattern=PLACE)] | None = None

    def filter(self) -> LogFilter:
        """Return the filter for the store. Raises Refusal for an unknown level."""
        if self.level and self.level not in LEVELS:
            raise Refusal(422, "invalid_parameter", f"level is one of {', '.join(LEVELS)}")
        return LogFilter(self.node or None, self.level or None, self.search.strip() or None)

    def parameters(self, **more: str) -> str:
        """Return the filter as a query string."""
        chosen = {"node": self.node, "level": self.level, "search": self.search, **more}
        return urlencode({name: value for name, value in chosen.items() if value})


class LogDownload(LogView):
    """The log as a file: `text`, or `json` with one JSON object per line."""

    format: Annotated[str, Field(pattern="^(text|json)$")] = "text"


@log_pages.get("/jobs/{job_id}/logs", "viewer", query=LogView, media_type=HTML)
async def show_logs(request: PageRequest) -> Response:
    """Show the last lines of a job, or older ones."""
    query: LogView = request.query
    before = END if query.before is None else LogPosition.read(query.before)
    tenant, log_filter = request.caller.tenant, query.filter()
    async with request.transaction("show") as tx:
        job, workflow = await find_job(as_call(request), tx)
        log_page = await newest_job_logs(
            tx, job["job_id"], tenant, log_filter, before=before, limit=LINES_SHOWN
        )
    return page(
        request,
        "logs.html",
        job=job,
        workflow=workflow,
        lines=in_order(log_page.lines),
        filters=query,
        levels=LEVELS,
        query=query.parameters(),
        older=None if log_page.next is None else query.parameters(before=str(log_page.next)),
        is_newest=query.before is None,
        is_filtered=bool(query.node or query.level or query.search),
        address=f"/ui/jobs/{job['job_id']}",
    )


def in_order(lines: Sequence[View]) -> list[View]:
    """Return lines by the clock of the workers, with parsed times; workers store lines in batches."""
    timed = [line | {"at": _time(line.get("at"))} for line in lines]
    return sorted(timed, key=lambda line: line["at"].timestamp() if line["at"] else 0.0)


def _time(text: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


@log_pages.get("/jobs/{job_id}/logs/download", "viewer", query=LogDownload, media_type="text/plain")
async def download_logs(request: PageRequest) -> Response:
    """Download all lines as a file."""
    query: LogDownload = request.query
    log_filter, is_json = query.filter(), query.format == "json"
    text: list[str] = []
    cursor: LogPosition | None = START
    while cursor is not None and len(text) < MAX_DOWNLOAD:
        async with request.transaction("show") as tx:
            job, _ = await find_job(as_call(request), tx)
            log_page = await job_logs(
                tx, job["job_id"], request.caller.tenant, log_filter, after=cursor, limit=LINES_AT_ONCE
            )
        text += [_as_json(line) if is_json else _as_text(line) for line in log_page.lines]
        cursor = log_page.next
    name = f"{request.path['job_id']}.{'jsonl' if is_json else 'log'}"
    kind = "application/x-ndjson" if is_json else "text/plain; charset=utf-8"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response("".join(text), media_type=kind, headers=headers)


def _as_text(line: View) -> str:
    level, message, fields = line.get("level", ""), line.get("message", ""), log_fields(line)
    begin = f"{line.get('at') or '-'} {line['node_id']}#{line['attempt']} {level} {message}"
    return f"{begin} {fields}".rstrip() + "\n"


def _as_json(line: View) -> str:
    fields = {name: value for name, value in line.items() if name != "cursor"}
    return orjson.dumps(fields, default=str).decode() + "\n"
