"""Artifacts of a container: each is moved once; what became of it is a value, never an exception."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from cograil import strict_json
from cograil.apps.containers.runtime.artifact_transfer import ArtifactTransfer, TransferFailed
from cograil.model.container_spec import Archive, Artifact, Download, List, Read, Unarchive, Upload, Write
from cograil.model.workflow import Json

SUCCESS, FAILED = "success", "failed"
MAX_TEXT = 1_000
MAX_CONTENT = 3 * 1024 * 1024  # as JSON, for an event holds no more

Done = dict[str, Json]
Note = Callable[..., None]  # takes a message and fields


async def move(artifact: Artifact, mover: ArtifactTransfer, note: Note) -> Done:
    """What became of it: `{status, content?, error?}`. What was left out of it is noted."""
    try:
        content = await _moved(artifact, mover, note)
        if content is not None:
            strict_json.write(content, max_bytes=MAX_CONTENT)
    except TransferFailed as error:
        return _failed(f"{error.code}: {error}")
    except strict_json.InvalidJson as error:
        return _failed(f"too_large: what it holds cannot be told: {error}")
    except OSError as error:  # a full disk, or a file of a user that we are not
        return _failed(f"io_error: {error.strerror or error}")
    return {"status": SUCCESS} | ({} if content is None else {"content": content})


def _failed(why: str) -> Done:
    return {"status": FAILED, "error": why[:MAX_TEXT]}


def not_run(artifact: Artifact) -> Done:
    """Of one whose dependency failed."""
    return {"status": FAILED, "error": f"not run: {artifact.depends!r}, on which it depends, failed"}


def out_of_reach() -> Done:
    """Of one whose workspace is on a machine from which nothing was heard again."""
    return {"status": FAILED, "error": "workspace_lost: the machine that has the workspace is gone"}


async def _moved(artifact: Artifact, mover: ArtifactTransfer, note: Note) -> Json:
    """What there is to tell of it, if anything."""
    left_out: list[str] = []
    match artifact:
        case Download():
            await mover.download(artifact.source, artifact.target)
        case Write():
            await mover.write(artifact.content, artifact.target)
        case Unarchive():
            extracted = await mover.unpack(artifact.source, artifact.target, artifact.subdir or "")
            left_out = extracted.skipped
        case Upload():
            await mover.upload(artifact.source, artifact.target)
        case Archive():
            await mover.pack(artifact.source, artifact.target, left_out)
        case Read():
            return content_of(await mover.read(artifact.source))
        case List():
            return await mover.list(artifact.source, recursive=artifact.recursive, excludes=artifact.excludes)
    if left_out:
        note("links and devices were left out", artifact=artifact.id, names=left_out)
    return None


def content_of(raw: bytes) -> Any:
    """The value if it is JSON, else the text; invalid bytes are replaced."""
    try:
        value = json.loads(raw.decode())
        strict_json.write(value, max_bytes=MAX_CONTENT)  # which holds no number that others would round
    except (ValueError, RecursionError, strict_json.InvalidJson):
        return raw.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return value
