"""Administration: the API keys of the tenant, and the settings of this server."""

from __future__ import annotations

from datetime import datetime
from itertools import groupby
from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from cograil.http.server.request_parsing import Query
from cograil.settings import describe, variable_of
from cograil.store.api_keys import list_keys
from cograil.store.job_queries import View
from cograil.ui.page_context import HTML, PageRequest, pages
from cograil.ui.rendering import page

administration = pages("administration")
ROLES = (
    ("viewer", "reads everything of the tenant"),
    ("submitter", "also submits, cancels and retries jobs"),
    ("operator", "also publishes, pauses, answers approvals and sees workers"),
    ("admin", "everything of the tenant, and the audit log"),
    ("worker", "claims tasks and reports their results"),
)


class SettingFilter(Query):
    """The filter of the settings."""

    changed: Annotated[str, Field(max_length=10)] = ""


@administration.get("/keys", "admin", media_type=HTML)
async def show_keys(request: PageRequest) -> Response:
    """Show the keys of the tenant, without their secrets."""
    async with request.transaction("show") as tx:
        records = await list_keys(tx, request.caller.tenant)
        now = tx.now
    keys = [record | {"state": _state(record, now)} for record in records]
    return page(request, "keys.html", keys=keys, roles=ROLES)


def _state(key: View, now: datetime) -> str:
    if key["revoked_at"] is not None:
        return "revoked"
    return "expired" if key["expires_at"] is not None and key["expires_at"] <= now else "alive"


@administration.get("/settings", "admin", query=SettingFilter, media_type=HTML)
async def show_settings(request: PageRequest) -> Response:
    """Show every setting of this server with its value and origin."""
    listed = [
        setting._asdict() | {"variable": variable_of(setting.name)}
        for setting in describe(request.context.settings)
    ]
    if request.query.changed == "yes":
        listed = [setting for setting in listed if setting["origin"] != "default"]
    parts = [
        (part, list(settings))
        for part, settings in groupby(listed, key=lambda setting: _part(setting["name"]))
    ]
    return page(request, "settings.html", parts=parts, filters=request.query)


def _part(name: str) -> str:
    part, dot, _ = name.partition(".")
    return part if dot else "general"
