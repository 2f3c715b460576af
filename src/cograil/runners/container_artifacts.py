"""Artifacts of a container: each is moved once; what became of it is a value, never an exception."""

from __future__ import annotations

from typing import Any

from cograil import jsontext
from cograil.model.containers import (
    Archive,
    Artifact,
    Download,
    List,
    Read,
    Unarchive,
    Upload,
    Write,
)
from cograil.model.workflow import Json
from cograil.runners.moving import Mover, MovingFailed

SUCCESS, FAILED = "success", "failed"
MOST_TEXT = 1_000

Done = dict[str, Json]


async def move(artifact: Artifact, mover: Mover) -> Done:
    """What became of it: `{status, content?, error?}`."""
    try:
        content = await _moved(artifact, mover)
    except MovingFailed as error:
        return {"status": FAILED, "error": f"{error.code}: {error}"[:MOST_TEXT]}
    return {"status": SUCCESS} | ({} if content is None else {"content": content})


def not_run(artifact: Artifact) -> Done:
    """Of one whose dependency failed."""
    return {"status": FAILED, "error": f"not run: {artifact.depends!r}, on which it depends, failed"}


async def _moved(artifact: Artifact, mover: Mover) -> Json:
    """What there is to tell of it, if anything."""
    match artifact:
        case Download():
            await mover.download(artifact.source, artifact.target)
        case Write():
            await mover.write(artifact.content, artifact.target)
        case Unarchive():
            await mover.unpack(artifact.source, artifact.target, artifact.subdir or "")
        case Upload():
            await mover.upload(artifact.source, artifact.target)
        case Archive():
            await mover.pack(artifact.source, artifact.target)
        case Read():
            return content_of(await mover.read(artifact.source))
        case List():
            return await mover.list(artifact.source, recursive=artifact.recursive, excludes=artifact.excludes)
    return None


def content_of(raw: bytes) -> Any:
    """The value if it is JSON, else the text; what is no text is shown as far as it is one."""
    try:
        return jsontext.read(raw, max_bytes=len(raw))
    except jsontext.InvalidJson:
        return raw.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
