"""/apps/documents: what the orchestrator of old answered, and decisions on duplicates.

The same routes are at the root of a port of their own for `cograil documents watch`. Every refusal is
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
from cograil.apps.documents import atomic_files, config, duplicates, file_claiming, jobs
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


class OfUser(Query):
    """Whose documents; without it those of all."""

    user: str = ""


class NewConfig(Body):
    """What is posted; whether it can be is said by `config`."""

    change: Any = None

    @classmethod
    def of_bytes(cls, raw: bytes, max_bytes: int) -> Self:
        made = cls.model_construct(change=config.read_change(strict_json.read(raw, max_bytes=max_bytes)))
        return cast("Self", made)


class Decision(Body):
    """What becomes of what is held."""

    action: str
    nonce: str = Field("", max_length=64)
    file: str = Field("", max_length=255)
    user: str = ""


async def list_jobs(call: Call) -> Response:
    """List the documents that were taken, newest first."""
    return reply([entry_of(document) for document in await _documents(call)])


async def show_job(call: Call) -> Response:
    """Show one document, as its state.json does."""
    found = await _documents(call, call.path["key"])
    if not found:
        raise Refusal(404, "not_found", "there is no document of this key")
    return reply(details_of(found[0], _folder_of(call, found[0])))


async def no_job(call: Call) -> Response:
    """Refuse an empty key."""
    raise Refusal(400, "no_key", "the key is empty")


async def show_metrics(call: Call) -> Response:
    """Show what was counted, and how many are queued and running."""
    async with call.transaction("documents_show") as tx:
        counts = await jobs.count_documents(tx, _place(call), call.caller.tenant)
    gauges = gauges_of([entry_of(document) for document in await _documents(call, is_open=True)])
    ignored = 0
    with suppress(NotFound):  # a server may not have the folder
        ignored = len(await asyncio.to_thread(file_claiming.ignored, folder_for(call, call.query.user)))
    return reply(make_empty_metrics() | counts | gauges | {"ignored": ignored, "updatedAt": now_text()})


async def show_config(call: Call) -> Response:
    """Show what is configured."""
    async with call.transaction("documents_show") as tx:
        settings = await config.load_config(
            tx, call.context.settings.section(DocumentSettings), call.caller.tenant
        )
    return reply(config.view_of(settings))


async def change_config(call: Call) -> Response:
    """Change what is configured; it counts for documents that are taken from now on."""
    async with call.transaction("documents_config") as tx:
        await config.save_config(tx, call.body.change, call.caller.tenant)
        await call.audit(tx, "documents_config", **call.body.change)
    return reply({"applied": call.body.change})


async def list_duplicates(call: Call) -> Response:
    """List what is held until somebody decides."""
    folder = folder_for(call, call.query.user)
    return reply(await asyncio.to_thread(held_of, folder))


async def decide(call: Call) -> Response:
    """Decide what becomes of the files that are held of a key."""
    key, wish = call.path["key"], call.body
    folder = folder_for(call, wish.user)
    if not IS_KEY(key):
        raise NotFound("nothing is held of this key")
    await asyncio.to_thread(duplicates.decide, folder, key, wish.action, wish.nonce, wish.file)
    async with call.transaction("documents_decide") as tx:
        await call.audit(tx, "documents_decide", key, decision=wish.action)
    return reply({"jobKey": key, "action": wish.action}, 202)


def held_of(folder: Folder) -> list[dict[str, Any]]:
    """What is held in this folder: its reports, with the status of each."""
    shown = [_held(folder, key) for key in filter(IS_KEY, duplicates.held_keys(folder))]
    return [one for one in shown if one["held"]]


def _held(folder: Folder, key: str) -> dict[str, Any]:
    """What is held of a key. Its files may be anybody's by now: what is no object is left out."""
    place, wishes = folder.held / key, duplicates.decisions(folder, key)
    names = [
        {
            "file": atomic_files.cleaned(name),
            **facts,
            "decision": (duplicates.decision_on(wishes, name) or {}).get("action"),
        }
        for name, facts in duplicates.held_facts(folder, key)
    ]
    return (_object(folder.reports / f"{key}.json") or {}) | {
        "jobKey": key,
        "held": names,
        "status": _object(place / duplicates.STATUS) or {},
        "decision": _object(place / duplicates.DECISION),
    }


def _object(path: Path) -> dict[str, Any] | None:
    found = atomic_files.read_json(path)
    return found if isinstance(found, dict) else None


async def _documents(call: Call, key: str | None = None, *, is_open: bool = False) -> list[Document]:
    """Those that are asked for: of a user, or of all; of this key, or of all; all that are not done."""
    async with call.transaction("documents_show") as tx:
        since, limit = (tx.now, jobs.ALL) if is_open else (None, MAX_LISTED)
        return await jobs.list_documents(
            tx, _place(call), call.caller.tenant, key=key, since=since, limit=limit
        )


def _place(call: Call) -> str | None:
    """Of a user, the folder as the database calls it, where the data directory is known."""
    if not call.query.user:
        return None
    from cograil.apps.documents.folder_id import place_of  # noqa: PLC0415

    return place_of(folder_for(call, call.query.user))


def _folder_of(call: Call, document: Document) -> Folder | None:
    """Where this document is, if that is a folder of this instance."""
    from cograil.apps.documents.folder_id import place_of  # noqa: PLC0415

    name = document.place.partition("/")[2]
    try:
        folder = folder_for(call, name.removeprefix("users/"))
    except NotFound:
        return None
    return folder if place_of(folder) == document.place else None


def folder_for(call: Call, user: str) -> Folder:
    """The folder of this user, or of the house. Raises NotFound, also for callers of another tenant."""
    root: Path | None = call.context.settings.section(DocumentSettings).data_dir
    if root is None or call.caller.tenant != "default":
        raise NotFound("there is no folder of documents here")
    try:
        return folder_of(root, f"users/{user}" if user else "")
    except UsageError:
        raise NotFound("there is no such user") from None


def table_of(prefix: str) -> Router:
    """The routes below this prefix."""
    table = Router("documents", prefix)
    of_user: dict[str, Any] = {"query": OfUser, "responses": {200: "done", 404: "there is no such user"}}
    table.get("/jobs", "viewer", response_model=DocumentEntries, **of_user)(list_jobs)
    table.get("/jobs/", "viewer", responses={400: "the key is empty"})(no_job)
    table.get("/jobs/{key}", "viewer", response_model=DocumentDetails, query=OfUser)(show_job)
    table.get("/metrics", "viewer", **of_user)(show_metrics)
    table.get("/config", "viewer", response_model=DocumentConfig)(show_config)
    post = partial(table.post, is_any_type=True)  # as the original, which did not ask for JSON by name
    post("/config", "operator", body=NewConfig, request_model=config.Change, response_model=AppliedConfig)(
        change_config
    )
    table.get("/duplicates", "viewer", response_model=HeldDocuments, **of_user)(list_duplicates)
    decided = {202: "it will be done at the next look"}
    post("/duplicates/{key}", "operator", body=Decision, response_model=Decided, responses=decided)(decide)
    return table


def answer(refusal: Refusal, request_id: str) -> Response:
    """A refusal as callers of this API know it."""
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
    (table_of(PREFIX),),
)


def document_door(instance: ApiContext, prefix: str = PREFIX) -> ASGIApp:
    """The application that serves these routes, to the callers of this instance."""
    return Dispatcher(replace(instance), [table_of(prefix)], answer)


def app_routes(instance: ApiContext) -> dict[str, ASGIApp]:
    """The routes of this app, by the prefix of their paths."""
    return {PREFIX: document_door(instance)}


def app_front(instance: ApiContext) -> ASGIApp:
    """The same routes at the root of a port of their own."""
    return document_door(instance, "")


def described() -> ApiDescription:
    """These routes, for the reference."""
    return DESCRIBED
