"""Parse the log of an engine into whole lines. It comes in frames, each with a stamp, even within a line.

dockerd splits long lines; podman ends a frame wherever a program did not write a whole line at once.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import datetime
from typing import Protocol

from cograil.apps.containers.runtime.container_runtime import BEGINNING, ContainerLogCursor
from cograil.apps.containers.runtime.sandbox.supervisor import pieces_of

_HEADER = struct.Struct(">BxxxL")  # of a frame: which stream, and how long it is
_PARTS = re.compile(r"([^.Z+]+?)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")
_STAMPED = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) ?(.*)", re.DOTALL)


class Content(Protocol):
    """The streamed body of a response."""

    async def readexactly(self, count: int, /) -> bytes: ...


async def frames_of(content: Content) -> AsyncGenerator[bytes]:
    """The frames of a log, until it ends or is cut off, which look the same."""
    while True:
        try:
            _, length = _HEADER.unpack(await content.readexactly(_HEADER.size))
            frame = await content.readexactly(length)
        except asyncio.IncompleteReadError:
            return
        if frame:
            yield frame


async def lines_behind(
    frames: AsyncIterator[bytes], after: ContainerLogCursor = BEGINNING
) -> AsyncGenerator[tuple[ContainerLogCursor, str]]:
    """The lines after this cursor, each with its own: the stamp of its last frame, and how many lines had it.

    All lines after the first such line count, even if the engine's clock was set back.
    """
    place, is_behind = ContainerLogCursor(), not after.stamp
    async for stamp, line in _whole_lines(frames):
        place = ContainerLogCursor(stamp, place.lines + 1 if stamp == place.stamp else 1)
        is_behind = is_behind or (_moment(stamp), place.lines) > (_moment(after.stamp), after.lines)
        if is_behind:
            yield place, line.decode(errors="replace").rstrip("\r")


async def _whole_lines(frames: AsyncIterator[bytes]) -> AsyncGenerator[tuple[str, bytes]]:
    """Lines, each with the stamp of its last frame; an overlong line comes in pieces."""
    rest, stamp = b"", ""
    async for frame in frames:
        if match := _STAMPED.fullmatch(frame):
            stamp, frame = match[1].decode(), match[2]  # noqa: PLW2901  what is in it
        *lines, rest = (rest + frame).split(b"\n")
        for line in lines:
            for piece in pieces_of(line):
                yield stamp, piece
        *pieces, rest = pieces_of(rest)
        for piece in pieces:
            yield stamp, piece
    if rest:
        yield stamp, rest


def seconds_of(stamp: str) -> str:
    """A stamp in the format of the engine's `since`: seconds and their full fraction."""
    seconds, fraction = _moment(stamp)
    return f"{seconds}.{fraction or '0'}"


def _moment(stamp: str) -> tuple[int, str]:
    """A comparable form of a stamp: podman omits zeros, and its zone may change with the season."""
    if not stamp:
        return 0, ""
    whole, fraction, zone = _PARTS.fullmatch(stamp).groups()  # type: ignore[union-attr]
    return int(datetime.fromisoformat(whole + zone).timestamp()), fraction or ""
