"""/apps/documents: the API of the earlier orchestrator, and decisions on duplicates.

`cograil documents watch --port` serves the same routes at the root of a separate port. Every error is
`{"error": ..., "status": ...}`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

import orjson
from pydantic import Field
from starlette.responses import Response
from starlette.types import ASGIApp

from cograil import strict_json
from cograil.apps.documents import atomic_files, config, duplicates, file_claims, jobs
from cograil.apps.documents.core import make_empty_metrics, now_text
from cograil.apps.documents.jobs import Document
from cograil.apps.documents.layout import IS_KEY, Folder, folder_of
from cograil.apps.documents.schemas import (
    ERROR,
    AppliedConfig,
    Decided,
    DocumentConfig,
    DocumentDetails,
    DocumentEntries,
    HeldDocuments,
)
from cograil.apps.documents.settings import DocumentSettings
from cograil.apps.documents.status_files import details_of, entry_of, gauges_of
from cograil.errors import NotFound, UsageError
from cograil.http.server.dispatcher import ApiContext, Call, Dispatcher, reply
from cograil.http.server.openapi import JSON, ApiDescription, ApiInfo, operation_id_from_function
from cograil.http.server.problem_details import Refusal
from cograil.http.server.request_parsing import Body, Query
from cograil.http.server.routing import Router

PREFIX = "/apps/documents"
UNREADABLE = frozenset({413, 422})
MAX_LISTED = 10_000


class UserFilter(Query):
    """The user whose documents are meant; by default all."""

    user: str = ""


class NewConfig(Body):
    """A change of the configuration, validated by `config`."""

    change: Any = None

    @classmethod
    def of_bytes(cls, raw: bytes, max_bytes: int) -> Self:
        body = cls.model_construct(change=config.read_change(strict_json.read(raw, max_bytes=max_bytes)))
        return cast("Self", body)


class Decision(Body):
    """The decision on held files."""

    action: str
    nonce: str = Field("", max_length=64)
    file: str = Field("", max_length=255)
    user: str = ""


async def list_jobs(call: Call) -> Response:
    """List documents, newest first."""
    return reply([entry_of(document) for document in await _documents(call)])


async def show_job(call: Call) -> Response:
    """Show one document, as its state.json does."""
    documents = await _documents(call, call.path["key"])
    if not documents:
        raise Refusal(404, "not_found", f"document {call.path['key'][:200]} does not exist")
    return reply(details_of(documents[0], _folder_of(call, documents[0])))


async def no_job(call: Call) -> Response:
    """Refuse an empty key."""
    raise Refusal(400, "no_key", "the key is empty")


async def show_metrics(call: Call) -> Response:
    """Show the counters, and how many documents are queued and running."""
    async with call.transaction("documents_show") as tx:
        counts = await jobs.count_documents(tx, _folder_id(call), call.caller.tenant)
    gauges = gauges_of([entry_of(document) for document in await _documents(call, is_open=True)])
    ignored = 0
    with suppress(NotFound):  # a server may not have the folder
        ignored = len(await asyncio.to_thread(file_claims.ignored, folder_for(call, call.query.user)))
    return reply(make_empty_metrics() | counts | gauges | {"ignored": ignored, "updatedAt": now_text()})


async def show_config(call: Call) -> Response:
    """Show the configuration."""
    async with call.transaction("documents_show") as tx:
        settings = await config.load_config(
            tx, call.context.settings.section(DocumentSettings), call.caller.tenant
        )
    return reply(config.view_of(settings))


async def change_config(call: Call) -> Response:
    """Change the configuration of documents that are taken from now on."""
    async with call.transaction("documents_config") as tx:
        await config.save_config(tx, call.body.change, call.caller.tenant)
        await call.audit(tx, "documents_config", **call.body.change)
    return reply({"applied": call.body.change})


async def list_duplicates(call: Call) -> Response:
    """List held duplicates."""
    folder = folder_for(call, call.query.user)
    return reply(await asyncio.to_thread(held_of, folder))


async def decide(call: Call) -> Response:
    """Decide on the held files of a key."""
    key, decision = call.path["key"], call.body
    folder = folder_for(call, decision.user)
    if not IS_KEY(key):
        raise NotFound("nothing is held of this key")
    await asyncio.to_thread(duplicates.decide, folder, key, decision.action, decision.nonce, decision.file)
    async with call.transaction("documents_decide") as tx:
        await call.audit(tx, "documents_decide", key, decision=decision.action)
    return reply({"jobKey": key, "action": decision.action}, 202)


def held_of(folder: Folder) -> list[dict[str, Any]]:
    """The held duplicates of this folder: their reports, with the status of each."""
    groups = [_held(folder, key) for key in filter(IS_KEY, duplicates.held_keys(folder))]
    return [group for group in groups if group["held"]]


def _held(folder: Folder, key: str) -> dict[str, Any]:
    """The held files of a key. Its JSON files may have been edited: content that is not an object is left out."""
    directory, decided = folder.held / key, duplicates.decisions(folder, key)
    files = [
        {
            "file": atomic_files.cleaned(name),
            **facts,
            "decision": (duplicates.decision_on(decided, name) or {}).get("action"),
        }
        for name, facts in duplicates.held_facts(folder, key)
    ]
    return (_object(folder.reports / f"{key}.json") or {}) | {
        "jobKey": key,
        "held": files,
        "status": _object(directory / duplicates.STATUS) or {},
        "decision": _object(directory / duplicates.DECISION),
    }


def _object(path: Path) -> dict[str, Any] | None:
    content = atomic_files.read_json(path)
    return content if isinstance(content, dict) else None


async def _documents(call: Call, key: str | None = None, *, is_open: bool = False) -> list[Document]:
    """The documents of the requested user and key, or of all; with `is_open` only the open ones."""
    async with call.transaction("documents_show") as tx:
        since, limit = (tx.now, jobs.ALL) if is_open else (None, MAX_LISTED)
        return await jobs.list_documents(
            tx, _folder_id(call), call.caller.tenant, key=key, since=since, limit=limit
        )


def _folder_id(call: Call) -> str | None:
    """The folder id of the requested user; None for all folders."""
    if not call.query.user:
        return None
    from cograil.apps.documents.folder_id import folder_id_of  # noqa: PLC0415

    return folder_id_of(folder_for(call, call.query.user))


def _folder_of(call: Call, document: Document) -> Folder | None:
    """The folder of this document; None if this instance does not have it."""
    from cograil.apps.documents.folder_id import folder_id_of  # noqa: PLC0415

    name = document.folder_id.partition("/")[2]
    try:
        folder = folder_for(call, name.removeprefix("users/"))
    except NotFound:
        return None
    return folder if folder_id_of(folder) == document.folder_id else None


def folder_for(call: Call, user: str) -> Folder:
    """The folder of this user, or the common one. Raises NotFound, also for callers of another tenant."""
    root: Path | None = call.context.settings.section(DocumentSettings).data_dir
    if root is None or call.caller.tenant != "default":
        raise NotFound("this instance has no documents folder")
    try:
        return folder_of(root, f"users/{user}" if user else "")
    except UsageError:
        raise NotFound(f"{user[:64]!r} is not a valid user id") from None


def make_router(prefix: str) -> Router:
    """The routes below this prefix."""
    table = Router("documents", prefix)
    of_user: dict[str, Any] = {"query": UserFilter, "responses": {200: "done", 404: "the user has no folder"}}
    table.get("/jobs", "viewer", response_model=DocumentEntries, **of_user)(list_jobs)
    table.get("/jobs/", "viewer", responses={400: "the key is empty"})(no_job)
    table.get("/jobs/{key}", "viewer", response_model=DocumentDetails, query=UserFilter)(show_job)
    table.get("/metrics", "viewer", **of_user)(show_metrics)
    table.get("/config", "viewer", response_model=DocumentConfig)(show_config)
    post = partial(table.post, is_any_type=True)  # existing clients send no JSON content type
    post("/config", "operator", body=NewConfig, request_model=config.Change, response_model=AppliedConfig)(
        change_config
    )
    table.get("/duplicates", "viewer", response_model=HeldDocuments, **of_user)(list_duplicates)
    decided = {202: "a watcher carries it out at its next pass"}
    post("/duplicates/{key}", "operator", body=Decision, response_model=Decided, responses=decided)(decide)
    return table


def render_error(refusal: Refusal, request_id: str) -> Response:
    """The error response of this API."""
    status = 400 if refusal.status in UNREADABLE else refusal.status
    body = orjson.dumps({"error": refusal.detail, "status": status})
    return Response(body, status, media_type="application/json", headers={**refusal.headers})


DESCRIBED = ApiDescription(
    ApiInfo(
        "cograil documents",
        ("Error", ERROR),
        JSON,
        probes=(),
        operation_id=operation_id_from_function,
        statuses_sent_as_400=UNREADABLE,
    ),
    (make_router(PREFIX),),
)


def document_app(instance: ApiContext, prefix: str = PREFIX) -> ASGIApp:
    """The ASGI application of these routes."""
    return Dispatcher(replace(instance), [make_router(prefix)], render_error)


def app_routes(instance: ApiContext) -> dict[str, ASGIApp]:
    """The applications of this app by path prefix."""
    return {PREFIX: document_app(instance)}


def app_front(instance: ApiContext) -> ASGIApp:
    """The same routes at the root of a separate port."""
    return document_app(instance, "")


def described() -> ApiDescription:
    """The description of these routes, for the API reference."""
    return DESCRIBED
