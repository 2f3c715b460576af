"""Static files: read once, with a content hash in their URL, so that browsers can cache them permanently."""

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
PERMANENT = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain"}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file and its compressed content."""

    content: bytes
    compressed: bytes
    media_type: str


@cache
def static_files() -> dict[str, StaticFile]:
    """Return all files, by their paths below `static`."""
    return dict(_read(resources.files("cograil.ui").joinpath("static"), ""))


def _read(folder: Traversable, before: str) -> list[tuple[str, StaticFile]]:
    files = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        name = before + entry.name
        if entry.is_dir():
            files += _read(entry, f"{name}/")
        else:
            content = entry.read_bytes()
            kind = TYPES.get("." + name.rpartition(".")[2]) or mimetypes.guess_type(name)[0] or "text/plain"
            files.append((name, StaticFile(content, gzip.compress(content, 9, mtime=0), kind)))
    return files


@cache
def edition() -> str:
    """Return a hash of all files: modules import each other by relative paths, so they share one version."""
    digest = hashlib.sha256()
    for name, file in sorted(static_files().items()):
        digest.update(name.encode() + file.content)
    return digest.hexdigest()[:12]


def address_of_file(name: str) -> str:
    """Return the URL of a file. Raises KeyError for an unknown file."""
    static_files()[name]
    return f"{PREFIX}{edition()}/{name}"


def serve_file(path: str, headers: Headers) -> Response | None:
    """Return the response for this path, or None."""
    _, _, name = path.removeprefix(PREFIX).partition("/")
    file = static_files().get(name)
    if file is None:
        return None
    cache_headers = {**PERMANENT, "Vary": "Accept-Encoding"}
    if "gzip" in headers.get("accept-encoding", ""):
        return Response(
            file.compressed, media_type=file.media_type, headers={**cache_headers, "Content-Encoding": "gzip"}
        )
    return Response(file.content, media_type=file.media_type, headers=cache_headers)
