"""Documents: what was dropped in the watch folder and how far it is, and what waits for a decision."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field
from starlette.responses import Response

from cograil.app_registry import NavigationEntry
from cograil.apps.documents import atomic_files, file_claiming, jobs, routes
from cograil.apps.documents.admission import ENDINGS
from cograil.apps.documents.duplicates import DISCARD, FORCE, USE_EXISTING
from cograil.apps.documents.folder_id import place_of
from cograil.apps.documents.jobs import Document
from cograil.apps.documents.layout import Folder, folders_of
from cograil.apps.documents.status_files import state_of
from cograil.apps.documents.workflow import WORKFLOW_ID
from cograil.errors import NotFound
from cograil.http.server.request_parsing import Body, Query, as_model
from cograil.ui.page_context import HTML, PageRequest, as_call, pages
from cograil.ui.pages.action_forms import Action, Form, add_actions
from cograil.ui.rendering import page

documents = pages("documents")
ENTRY = NavigationEntry(
    "documents",
    "/ui/documents",
    "Documents",
    "M6 3h8l4 4v14H6zM14 3v4h4M9 13h6M9 17h6",
    lambda caller: caller.tenant == "default",  # whose the folder is
)
SHOWN = 100


class OfUser(Query):
    """Whose folder; without it the common one."""

    user: Annotated[str, Field(max_length=64)] = ""


class Seen(NamedTuple):
    """What is in a folder."""

    place: str
    users: list[str]
    held: list[dict[str, Any]]
    ignored: list[str]


@documents.get("/documents", "viewer", query=OfUser, media_type=HTML)
async def list_documents(request: PageRequest) -> Response:
    """The documents of a folder, newest first, and what is held there."""
    user, tenant = request.query.user.strip(), request.caller.tenant
    folder = routes.folder_for(as_call(request), user)
    seen = await asyncio.to_thread(_look, folder.root, user)
    async with request.transaction("documents_show") as tx:
        counts = await jobs.count_documents(tx, seen.place, tenant)
        busy = (await jobs.busy_folders(tx, tenant)).get(seen.place, 0)
        found = await jobs.list_documents(tx, seen.place, tenant, limit=SHOWN)
    return page(
        request,
        "documents.html",
        user=user,
        users=seen.users,
        held=seen.held,
        ignored=seen.ignored[:SHOWN],
        why_ignored=file_claiming.WHY_IGNORED,
        documents=[_shown(one) for one in found],
        counts=counts | {"busy": busy},
        most=SHOWN,
        workflow=WORKFLOW_ID,
        decisions=DECISIONS,
        endings=sorted(ENDINGS),
    )


def _look(root: Path, user: str) -> Seen:
    """What the folder of this user has. Raises NotFound for a user who has none."""
    folders = {folder.user: folder for folder in folders_of(root)}
    if user not in folders:
        raise NotFound("there is no such user")
    own = folders.pop(user)
    return Seen(place_of(own), sorted({*folders, user} - {""}), routes.held_of(own), _ignored(own))


def _ignored(folder: Folder) -> list[str]:
    return sorted(atomic_files.cleaned(name) for name in file_claiming.ignored(folder))


def _shown(document: Document) -> dict[str, Any]:
    """A document, where it is, and its pages while somebody works on them."""
    told = state_of(document)
    at_work = [one for one in document.nodes.values() if one["status"] == "running" and one.get("total")]
    return {
        "name": document.name,
        "key": document.key,
        "job_id": document.job_id,
        "state": told["state"],
        "colour": _colour(told["state"]),
        "message": told["message"],
        "pages": document.pages,
        "progress": at_work[-1] if at_work else None,
        "out_pdf": document.out_pdf,
        "created_at": document.created_at,
        "changed_at": document.changed_at,
    }


def _colour(state: str) -> str:
    if state == "DONE":
        return "completed"
    if state.startswith("ERROR"):
        return "failed"
    if state.endswith(("_ERROR", "_TIMEOUT")):
        return "waiting"
    return "running" if state.endswith("_RUNNING") else "pending"


# -- decisions ---------------------------------------------------------------------------------------------


def _decided(action: str) -> Callable[[Form], Body]:
    def read(form: Form) -> Body:
        said = {"action": action, "file": form.get("file", ""), "user": form.get("user", "")}
        return as_model(said, routes.Decision)

    return read


class Choice(NamedTuple):
    """A decision as the page offers it."""

    action: str
    word: str
    label: str
    question: str
    done: str


DECISIONS = (
    Choice(
        USE_EXISTING,
        "use-existing",
        "Use existing",
        "Copy the existing PDF under the name of this file, and archive the file?",
        "the existing PDF will be used",
    ),
    Choice(
        FORCE,
        "force",
        "Run again",
        "Process this file again, as a document of its own?",
        "the file will be processed again",
    ),
    Choice(DISCARD, "discard", "Discard", "Delete this file?", "the file will be deleted"),
)

add_actions(
    documents,
    *(
        Action(
            f"/documents/{{key}}/{one.word}",
            "operator",
            routes.decide,
            _decided(one.action),
            one.question,
            one.done,
            is_destructive=one.action == DISCARD,
        )
        for one in DECISIONS
    ),
)
