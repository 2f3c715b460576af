"""Static files: read once, known by what is in them, so that browsers may keep them for good."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from starlette.datastructures import Headers
from starlette.responses import Response

PREFIX = "/ui/static/"
FOR_GOOD = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain"}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file and the same compressed."""

    content: bytes
    packed: bytes
    media_type: str


@cache
def static_files() -> dict[str, StaticFile]:
    """All of them, by their paths below `static`."""
    return dict(_read(resources.files("cograil.ui").joinpath("static"), ""))


def _read(folder: Traversable, before: str) -> list[tuple[str, StaticFile]]:
    found = []
    for one in sorted(folder.iterdir(), key=lambda one: one.name):
        name = before + one.name
        if one.is_dir():
            found += _read(one, f"{name}/")
        else:
            content = one.read_bytes()
            kind = TYPES.get("." + name.rpartition(".")[2]) or mimetypes.guess_type(name)[0] or "text/plain"
            found.append((name, StaticFile(content, gzip.compress(content, 9, mtime=0), kind)))
    return found


@cache
def edition() -> str:
    """A name for all of them as they are: modules import each other by paths without one of their own."""
    digest = hashlib.sha256()
    for name, file in sorted(static_files().items()):
        digest.update(name.encode() + file.content)
    return digest.hexdigest()[:12]


def address_of_file(name: str) -> str:
    """Where a file is. Raises KeyError for one that is not there."""
    static_files()[name]
    return f"{PREFIX}{edition()}/{name}"


def serve_file(path: str, headers: Headers) -> Response | None:
    """The file of this path, or None."""
    _, _, name = path.removeprefix(PREFIX).partition("/")
    file = static_files().get(name)
    if file is None:
        return None
    told = {**FOR_GOOD, "Vary": "Accept-Encoding"}
    if "gzip" in headers.get("accept-encoding", ""):
        return Response(file.packed, media_type=file.media_type, headers={**told, "Content-Encoding": "gzip"})
    return Response(file.content, media_type=file.media_type, headers=told)
