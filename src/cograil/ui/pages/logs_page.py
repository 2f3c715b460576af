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
    """Which lines; `before` is where older ones are. What is empty is not asked for."""

    node: Annotated[str, Field(max_length=80)] = ""
    level: Annotated[str, Field(max_length=20)] = ""
    search: Annotated[str, Field(max_length=300)] = ""
    before: Annotated[str, Field(pattern=PLACE)] | None = None

    def filter(self) -> LogFilter:
        """The same for the store. Raises Refusal for a level that does not exist."""
        if self.level and self.level not in LEVELS:
            raise Refusal(422, "invalid_parameter", f"level is one of {', '.join(LEVELS)}")
        return LogFilter(self.node or None, self.level or None, self.search.strip() or None)

    def parameters(self, **more: str) -> str:
        """The same as a query."""
        chosen = {"node": self.node, "level": self.level, "search": self.search, **more}
        return urlencode({name: value for name, value in chosen.items() if value})


class LogDownload(LogView):
    """The same as a file: `text`, or `json` for a JSON object in each line."""

    format: Annotated[str, Field(pattern="^(text|json)$")] = "text"


@log_pages.get("/jobs/{job_id}/logs", "viewer", query=LogView, media_type=HTML)
async def show_logs(request: PageRequest) -> Response:
    """The last lines of a job, or older ones."""
    asked: LogView = request.query
    before = END if asked.before is None else LogPosition.read(asked.before)
    tenant, wanted = request.caller.tenant, asked.filter()
    async with request.transaction("show") as tx:
        job, workflow = await find_job(as_call(request), tx)
        found = await newest_job_logs(tx, job["job_id"], tenant, wanted, before=before, limit=LINES_SHOWN)
    return page(
        request,
        "logs.html",
        job=job,
        workflow=workflow,
        lines=in_order(found.lines),
        asked=asked,
        levels=LEVELS,
        query=asked.parameters(),
        older=None if found.next is None else asked.parameters(before=str(found.next)),
        is_newest=asked.before is None,
        is_filtered=bool(asked.node or asked.level or asked.search),
        address=f"/ui/jobs/{job['job_id']}",
    )


def in_order(lines: Sequence[View]) -> list[View]:
    """Lines by the clock of the workers, with their times as times; workers store theirs some at a time."""
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
    """All lines as a file."""
    asked: LogDownload = request.query
    wanted, is_json = asked.filter(), asked.format == "json"
    text: list[str] = []
    place: LogPosition | None = START
    while place is not None and len(text) < MAX_DOWNLOAD:
        async with request.transaction("show") as tx:
            job, _ = await find_job(as_call(request), tx)
            found = await job_logs(
                tx, job["job_id"], request.caller.tenant, wanted, after=place, limit=LINES_AT_ONCE
            )
        text += [_as_json(line) if is_json else _as_text(line) for line in found.lines]
        place = found.next
    name = f"{request.path['job_id']}.{'jsonl' if is_json else 'log'}"
    kind = "application/x-ndjson" if is_json else "text/plain; charset=utf-8"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response("".join(text), media_type=kind, headers=headers)


def _as_text(line: View) -> str:
    level, message, fields = line.get("level", ""), line.get("message", ""), log_fields(line)
    begin = f"{line.get('at') or '-'} {line['node_id']}#{line['attempt']} {level} {message}"
    return f"{begin} {fields}".rstrip() + "\n"


def _as_json(line: View) -> str:
    kept = {name: value for name, value in line.items() if name != "cursor"}
    return orjson.dumps(kept, default=str).decode() + "\n"
