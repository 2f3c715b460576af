"""Moving files between a workspace and the world: fetch, put, pack, unpack, read, list.

Everything is streamed, and what blocks runs in a thread. A file is there whole or not at all. Where a request
may go is the guard's business; where a file may be, the workspace's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar
from urllib.parse import urljoin

from cograil.egress import (
    Destination,
    ForbiddenDestination,
    Headers,
    OutboundGuard,
    UnknownHost,
    open_request,
)
from cograil.workspace import (
    ArchiveBounds,
    Extracted,
    Workspace,
    WorkspaceError,
    extract,
    list_files,
    write_archive,
)

if TYPE_CHECKING:
    import httpx2

TRIES = 4
MAX_REDIRECTS = 5
REDIRECTS = frozenset({301, 302, 303, 307, 308})
FIRST_PAUSE, MAX_PAUSE = 0.1, 5.0
PIECE = 1024 * 1024
MAX_SKIPPED = 100  # that are told by name
SENT_PIECE = 256 * 1024  # each has to pass in time
Heard = Callable[[float | None], None]
LONG = ThreadPoolExecutor(8, "moving")  # apart: who looks up a name must not wait for archives
T = TypeVar("T")


class TransferFailed(Exception):
    """A file could not be moved; `code` says why. It may be worth another try."""

    def __init__(self, code: str, message: str, *, is_passing: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_passing = is_passing


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """How much may be moved, and how long nothing may come."""

    file_bytes: int = 64 * 1024**3
    read_bytes: int = 1024 * 1024
    stall_seconds: float = 60.0
    answer_seconds: float = 300.0  # for the answer to a file that was sent: it may be stored first
    archive: ArchiveBounds = field(default_factory=ArchiveBounds)


class ArtifactTransfer:
    """Moves files for one workspace."""

    def __init__(self, room: Path, guard: OutboundGuard, limits: TransferLimits | None = None) -> None:
        self._room = room
        self._guard = guard
        self._limits = limits or TransferLimits()

    async def download(self, url: str, path: str) -> int:
        """Fetch a file; its length. Only an answer of 200 is one; redirects are followed to it.

        At most five, never from https to http, and each only where the guard allows a request. No hop is
        sent anything of the one before.
        """
        return await self._again(lambda: self._fetch(url, path))

    async def upload(self, path: str, url: str) -> int:
        """Put a file to a URL; its length."""
        return await self._again(lambda: self._put(path, url))

    async def write(self, text: str, path: str) -> int:
        """A file with this text; its length."""
        content = text.encode()

        def work(workspace: Workspace) -> int:
            with workspace.writing(path) as file:
                return file.write(content)

        return await self._in_thread(work)

    async def read(self, path: str) -> bytes:
        """What is in a file."""

        def work(workspace: Workspace) -> bytes:
            with workspace.reading(path) as file:
                content = file.read(self._limits.read_bytes + 1)
            if len(content) > self._limits.read_bytes:
                raise TransferFailed("too_large", f"{path!r} has more than {self._limits.read_bytes:,} bytes")
            return content

        return await self._in_thread(work)

    async def unpack(self, source: str, target: str, subdir: str = "") -> Extracted:
        """Unpack an archive into a directory."""
        bounds = self._limits.archive
        return await self._in_thread(
            lambda room: extract(room, source, target, subdir=subdir, bounds=bounds), LONG
        )

    async def pack(self, source: str, target: str, left_out: list[str] | None = None) -> int:
        """Pack a file or directory into an archive; how many files. `left_out` gets the names of the rest."""
        most, names = self._limits.file_bytes, [] if left_out is None else left_out

        def skipped(name: str) -> None:
            if len(names) < MAX_SKIPPED:
                names.append(os.fsencode(name).decode("utf-8", "replace"))

        return await self._in_thread(
            lambda room: write_archive(room, source, target, most_bytes=most, on_skipped=skipped), LONG
        )

    async def list(self, path: str, *, recursive: bool = True, excludes: Sequence[str] = ()) -> list[str]:
        """The files below a path."""
        return await self._in_thread(
            lambda room: list_files(room, path, recursive=recursive, excludes=excludes)
        )

    # -- once -------------------------------------------------------------------------------------------

    async def _fetch(self, url: str, path: str) -> int:
        destination = await self._checked(url)
        for _ in range(MAX_REDIRECTS + 1):
            answered = await self._fetch_from(destination, path)
            if isinstance(answered, int):
                return answered
            url, destination = await self._redirected(url, destination, answered)
        raise TransferFailed("too_many_redirects", f"there are more than {MAX_REDIRECTS} redirects")

    async def _fetch_from(self, destination: Destination, path: str) -> int | str:
        """The length of the file, which is there now; or where the answer says it is."""
        with _told(destination):
            async with (
                _going_on(self._limits.stall_seconds) as heard,
                open_request(destination, "GET", [(b"accept-encoding", b"identity")], b"") as answer,
            ):
                location = answer.headers.get("location") if answer.status_code in REDIRECTS else None
                if location:
                    return str(location)
                _expect(answer, destination, is_good=answer.status_code == 200)
                return await self._keep(answer, heard, destination, path)

    async def _keep(self, answer: httpx2.Response, heard: Heard, destination: Destination, path: str) -> int:
        size = 0
        with Workspace(self._room) as workspace, workspace.writing(path) as file:
            async for piece in _pieces(answer, heard):
                size += len(piece)
                if size > self._limits.file_bytes:
                    raise TransferFailed("too_large", f"{destination.host} sends more than may be fetched")
                await asyncio.to_thread(file.write, piece)
        return size

    async def _redirected(self, url: str, before: Destination, location: str) -> tuple[str, Destination]:
        """The next URL and where it leads, checked as the first one was."""
        try:
            target = urljoin(url, location).partition("#")[0]
        except ValueError:
            raise TransferFailed("outbound_refused", f"{before.host} redirects to no URL") from None
        try:
            destination = await self._checked(target)
        except TransferFailed as error:
            message = f"{before.host} redirects: {error}"
            raise TransferFailed(error.code, message, is_passing=error.is_passing) from error
        if before.scheme == "https" and destination.scheme != "https":
            message = f"{before.host} redirects from https to http, which is not followed"
            raise TransferFailed("outbound_refused", message)
        return target, destination

    async def _put(self, path: str, url: str) -> int:
        destination = await self._checked(url)
        limits = self._limits
        with _told(destination), Workspace(self._room) as workspace, workspace.reading(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > limits.file_bytes:
                raise TransferFailed(
                    "too_large", f"{path!r} has {size:,} bytes, which is more than may be sent"
                )
            headers: Headers = [
                (b"content-type", b"application/octet-stream"),
                (b"content-length", str(size).encode()),
            ]
            async with _going_on(limits.stall_seconds) as heard:

                def content() -> AsyncIterator[bytes]:
                    return _file_pieces(file, size, heard, limits.answer_seconds)

                async with open_request(destination, "PUT", headers, content) as answer:
                    _expect(answer, destination, is_good=200 <= answer.status_code < 300)
        return size

    # -- around it --------------------------------------------------------------------------------------

    async def _again(self, once: Callable[[], Awaitable[T]]) -> T:
        """Try it a few times, as long as that may help."""
        pause = FIRST_PAUSE
        for _ in range(TRIES - 1):
            try:
                return await once()
            except TransferFailed as error:
                if not error.is_passing:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE)
        return await once()

    async def _checked(self, url: str) -> Destination:
        try:
            return await self._guard.check(url)
        except ForbiddenDestination as error:
            raise TransferFailed("outbound_refused", str(error)) from error
        except UnknownHost as error:
            raise TransferFailed("unknown_host", str(error), is_passing=True) from error

    async def _in_thread(
        self, work: Callable[[Workspace], T], threads: ThreadPoolExecutor | None = None
    ) -> T:
        def run() -> T:
            with Workspace(self._room) as workspace:
                return work(workspace)

        try:
            return await asyncio.get_running_loop().run_in_executor(threads, run)
        except WorkspaceError as error:
            raise TransferFailed(error.code, str(error)) from error


@contextmanager
def _told(destination: Destination) -> Iterator[None]:
    """What may go wrong on the way, in our words. A URL may hold secrets: only its host is named."""
    import httpx2  # noqa: PLC0415  most workers never send a request

    try:
        yield
    except WorkspaceError as error:
        raise TransferFailed(error.code, str(error)) from error
    except ForbiddenDestination as error:  # the other end was not the one that was checked
        raise TransferFailed("outbound_refused", str(error)) from error
    except httpx2.RequestError as error:
        why = str(error) or type(error).__name__
        raise TransferFailed("unreachable", f"{destination.host}: {why}", is_passing=True) from error


def _expect(answer: httpx2.Response, destination: Destination, *, is_good: bool) -> None:
    status = answer.status_code
    if not is_good:
        raise TransferFailed("http_status", f"{destination.host} answered {status}", is_passing=status >= 500)


@asynccontextmanager
async def _going_on(seconds: float) -> AsyncIterator[Heard]:
    """Raises TransferFailed when nothing was heard for so long; what is given is called when something was.

    It takes how long the next thing may take, if that is not the usual.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds) as limit:

            def heard(patience: float | None = None) -> None:
                if not limit.expired():
                    limit.reschedule(loop.time() + (patience or seconds))

            yield heard
    except TimeoutError:
        raise TransferFailed("stalled", "nothing more comes", is_passing=True) from None


async def _pieces(answer: httpx2.Response, heard: Heard) -> AsyncIterator[bytes]:
    """The body in large pieces."""
    gathered: list[bytes] = []
    size = 0
    async for piece in answer.aiter_raw():
        heard(None)
        gathered.append(piece)
        size += len(piece)
        if size >= PIECE:
            yield b"".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)


async def _file_pieces(
    file: BinaryIO, size: int, heard: Heard, answer_seconds: float
) -> AsyncIterator[bytes]:
    """So many bytes of the file, from its beginning."""
    file.seek(0)
    while size:
        piece = await asyncio.to_thread(file.read, min(SENT_PIECE, size))
        if not piece:
            raise TransferFailed("workspace_changed", "the file became shorter while it was sent")
        size -= len(piece)
        heard(None)
        yield piece
    heard(answer_seconds)
