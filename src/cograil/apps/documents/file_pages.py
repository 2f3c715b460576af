"""Files of documents: upload one to the watch folder, download the PDF that was made of it."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from pydantic import Field
from starlette.responses import FileResponse, Response

from cograil.app_registry import AppPages
from cograil.apps.documents import atomic_files, jobs, routes
from cograil.apps.documents.admission import ENDINGS
from cograil.apps.documents.folder_id import folder_id_of
from cograil.apps.documents.layout import IS_KEY, Folder
from cograil.apps.documents.pages import ENTRY, FolderQuery, documents
from cograil.apps.documents.settings import DocumentSettings
from cograil.errors import NotFound
from cograil.http.server.dispatcher import reply
from cograil.http.server.problem_details import Refusal
from cograil.http.server.request_limits import BODY_SECONDS
from cograil.http.server.request_parsing import Query
from cograil.ui.browser_sessions import reject_other_sites
from cograil.ui.page_context import PageRequest, as_call, require_token

MEGABYTE = 1024 * 1024
PDF = "application/pdf"
TOKEN = "x-form-token"


class UploadQuery(Query):
    """The name of the uploaded file, and the user whose folder it goes to."""

    name: Annotated[str, Field(min_length=1, max_length=255)]
    user: Annotated[str, Field(max_length=64)] = ""


@documents.get("/documents/{key}/pdf", "viewer", query=FolderQuery, media_type=PDF)
async def download_pdf(request: PageRequest) -> Response:
    """Download the PDF of a completed document."""
    key = request.path["key"]
    folder = routes.folder_for(as_call(request), request.query.user.strip())
    async with request.transaction("documents_show") as tx:
        found_documents = (
            await jobs.list_documents(tx, folder_id_of(folder), request.caller.tenant, key=key)
            if IS_KEY(key)
            else []
        )
    name = found_documents[0].out_pdf if found_documents else None
    path = folder.out / Path(name).name if name else None
    if path is None or not await asyncio.to_thread(_is_file, path):
        raise NotFound("this document has no PDF")
    file_name = quote(Path(found_documents[0].name).stem + ".pdf", safe="")
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{file_name}",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return FileResponse(path, media_type=PDF, headers=headers)


def _is_file(path: Path) -> bool:
    """Whether this is a regular file, not a link."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


@documents.post(
    "/documents/upload", "submitter", query=UploadQuery, responses={201: "the file is in the folder"}
)
async def upload(request: PageRequest) -> Response:
    """Store the body of the request in the watch folder under this name."""
    reject_other_sites(request.headers)
    require_token(request, request.headers.get(TOKEN, ""))
    name = _checked(request.query.name)
    folder = routes.folder_for(as_call(request), request.query.user.strip())
    max_bytes = request.context.settings.section(DocumentSettings).max_input_size_mb * MEGABYTE
    saved = await _save(request, folder, name, max_bytes)
    async with request.transaction("documents_upload") as tx:
        await request.audit(tx, "upload document", saved)
    return reply({"name": saved}, 201)


def _checked(text: str) -> str:
    """A valid file name. Raises Refusal for a name that is not plain or has an unsupported suffix."""
    name = atomic_files.cleaned(text)
    is_plain = name == text and "/" not in text and text not in (".", "..") and not text.startswith(".")
    if not is_plain or len(text.encode()) > atomic_files.MAX_INPUT:
        raise Refusal(422, "invalid_value", "the file needs a plain name of at most 200 bytes")
    if Path(text).suffix.lower() not in ENDINGS:
        raise Refusal(422, "invalid_value", f"a document is one of {', '.join(sorted(ENDINGS))}")
    return text


async def _save(request: PageRequest, folder: Folder, name: str, max_bytes: int) -> str:
    """Write the body to a hidden file and rename it once it is complete; return its name."""
    hidden = folder.arrivals / atomic_files.hidden_name()
    try:
        with await asyncio.to_thread(hidden.open, "xb") as file:
            size = 0
            async for chunk in _chunks(request):
                size += len(chunk)
                if size > max_bytes:
                    raise Refusal(413, "too_large", f"a document has at most {max_bytes // MEGABYTE:,} MB")
                await asyncio.to_thread(file.write, chunk)
            await asyncio.to_thread(file.flush)
            await asyncio.to_thread(os.fsync, file.fileno())
        if size == 0:
            raise Refusal(422, "invalid_value", "the file is empty")
        return (await asyncio.to_thread(atomic_files.move_to_free, hidden, folder.arrivals / name)).name
    finally:
        await asyncio.to_thread(hidden.unlink, missing_ok=True)


async def _chunks(request: PageRequest) -> AsyncIterator[bytes]:
    """The chunks of the body. Raises Refusal when the client stops sending."""
    while True:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                message = await request.receive()
        except TimeoutError:
            raise Refusal(408, "body_timeout", "the upload stopped") from None
        if message["type"] != "http.request":
            raise Refusal(400, "cut_off", "the upload was cut off")
        yield message.get("body", b"")
        if not message.get("more_body"):
            return


def app_pages() -> AppPages:
    """The pages of this app."""
    return AppPages(ENTRY, documents)
