"""The documents page: the documents of a folder with their progress, and duplicates to decide on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field
from starlette.responses import Response

from cograil.app_registry import NavigationEntry
from cograil.apps.documents import atomic_files, file_claims, jobs, routes
from cograil.apps.documents.admission import ENDINGS
from cograil.apps.documents.duplicates import DISCARD, FORCE, USE_EXISTING
from cograil.apps.documents.folder_id import folder_id_of
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
    lambda caller: caller.tenant == "default",  # the folder belongs to the default tenant
)
SHOWN = 100


class FolderQuery(Query):
    """The user whose folder is shown; by default the common one."""

    user: Annotated[str, Field(max_length=64)] = ""


class FolderContents(NamedTuple):
    """The held and ignored files of a folder."""

    folder_id: str
    users: list[str]
    held: list[dict[str, Any]]
    ignored: list[str]


@documents.get("/documents", "viewer", query=FolderQuery, media_type=HTML)
async def list_documents(request: PageRequest) -> Response:
    """Show the documents of a folder, newest first, and its held files."""
    user, tenant = request.query.user.strip(), request.caller.tenant
    folder = routes.folder_for(as_call(request), user)
    contents = await asyncio.to_thread(_look, folder.root, user)
    async with request.transaction("documents_show") as tx:
        counts = await jobs.count_documents(tx, contents.folder_id, tenant)
        busy = (await jobs.busy_folders(tx, tenant)).get(contents.folder_id, 0)
        found_documents = await jobs.list_documents(tx, contents.folder_id, tenant, limit=SHOWN)
    return page(
        request,
        "documents.html",
        user=user,
        users=contents.users,
        held=contents.held,
        ignored=contents.ignored[:SHOWN],
        why_ignored=file_claims.WHY_IGNORED,
        documents=[_shown(document) for document in found_documents],
        counts=counts | {"busy": busy},
        most=SHOWN,
        workflow=WORKFLOW_ID,
        decisions=DECISIONS,
        endings=sorted(ENDINGS),
    )


def _look(root: Path, user: str) -> FolderContents:
    """The contents of the folder of this user. Raises NotFound for a user without one."""
    folders = {folder.user: folder for folder in folders_of(root)}
    if user not in folders:
        raise NotFound("no user with this id has a folder")
    own = folders.pop(user)
    return FolderContents(
        folder_id_of(own), sorted({*folders, user} - {""}), routes.held_of(own), _ignored(own)
    )


def _ignored(folder: Folder) -> list[str]:
    return sorted(atomic_files.cleaned(name) for name in file_claims.ignored(folder))


def _shown(document: Document) -> dict[str, Any]:
    """A row of the page: a document, its state, and its progress while a stage runs."""
    status = state_of(document)
    running_nodes = [
        node for node in document.nodes.values() if node["status"] == "running" and node.get("total")
    ]
    return {
        "name": document.name,
        "key": document.key,
        "job_id": document.job_id,
        "state": status["state"],
        "colour": _colour(status["state"]),
        "message": status["message"],
        "pages": document.pages,
        "progress": running_nodes[-1] if running_nodes else None,
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
        fields = {"action": action, "file": form.get("file", ""), "user": form.get("user", "")}
        return as_model(fields, routes.Decision)

    return read


class Choice(NamedTuple):
    """A decision as the page offers it."""

    action: str
    path_segment: str
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
            f"/documents/{{key}}/{choice.path_segment}",
            "operator",
            routes.decide,
            _decided(choice.action),
            choice.question,
            choice.done,
            is_destructive=choice.action == DISCARD,
        )
        for choice in DECISIONS
    ),
)
