"""Transfer files between a workspace and URLs: download, upload, pack, unpack, read, list.

Everything is streamed, and blocking calls run in threads. A file appears complete or not at all. The guard decides
which destinations are allowed, the workspace which paths.
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
MAX_SKIPPED = 100  # reported by name
SENT_PIECE = 256 * 1024  # each has to pass in time
ReportActivity = Callable[[float | None], None]
LONG = ThreadPoolExecutor(8, "moving")  # separate: DNS lookups must not wait for archives
T = TypeVar("T")


class TransferFailed(Exception):
    """A file could not be transferred; `code` says why. `is_passing`: a retry may help."""

    def __init__(self, code: str, message: str, *, is_passing: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_passing = is_passing


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """Size limits and timeouts of transfers."""

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
        """Download a file; return its length. Only a 200 counts; redirects are followed.

        At most five redirects, never from https to http, each checked by the guard; no header is passed on.
        """
        return await self._again(lambda: self._fetch(url, path))

    async def upload(self, path: str, url: str) -> int:
        """Upload a file to a URL; return its length."""
        return await self._again(lambda: self._put(path, url))

    async def write(self, text: str, path: str) -> int:
        """Write a file with this text; return its length."""
        content = text.encode()

        def work(workspace: Workspace) -> int:
            with workspace.writing(path) as file:
                return file.write(content)

        return await self._in_thread(work)

    async def read(self, path: str) -> bytes:
        """The content of a file."""

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
        """Pack a file or directory into an archive; return the number of files. `left_out` gets skipped names."""
        max_bytes, names = self._limits.file_bytes, [] if left_out is None else left_out

        def skipped(name: str) -> None:
            if len(names) < MAX_SKIPPED:
                names.append(os.fsencode(name).decode("utf-8", "replace"))

        return await self._in_thread(
            lambda room: write_archive(room, source, target, most_bytes=max_bytes, on_skipped=skipped), LONG
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
        """Download once; return the length of the file, or the location of a redirect."""
        with _translate_errors(destination):
            async with (
                _stall_timeout(self._limits.stall_seconds) as report_activity,
                open_request(destination, "GET", [(b"accept-encoding", b"identity")], b"") as answer,
            ):
                location = answer.headers.get("location") if answer.status_code in REDIRECTS else None
                if location:
                    return str(location)
                _expect(answer, destination, is_good=answer.status_code == 200)
                return await self._keep(answer, report_activity, destination, path)

    async def _keep(
        self, answer: httpx2.Response, report_activity: ReportActivity, destination: Destination, path: str
    ) -> int:
        size = 0
        with Workspace(self._room) as workspace, workspace.writing(path) as file:
            async for piece in _pieces(answer, report_activity):
                size += len(piece)
                if size > self._limits.file_bytes:
                    raise TransferFailed("too_large", f"{destination.host} sends more than may be fetched")
                await asyncio.to_thread(file.write, piece)
        return size

    async def _redirected(self, url: str, before: Destination, location: str) -> tuple[str, Destination]:
        """The next URL and its checked destination."""
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
        with (
            _translate_errors(destination),
            Workspace(self._room) as workspace,
            workspace.reading(path) as file,
        ):
            size = os.fstat(file.fileno()).st_size
            if size > limits.file_bytes:
                raise TransferFailed(
                    "too_large", f"{path!r} has {size:,} bytes, which is more than may be sent"
                )
            headers: Headers = [
                (b"content-type", b"application/octet-stream"),
                (b"content-length", str(size).encode()),
            ]
            async with _stall_timeout(limits.stall_seconds) as report_activity:

                def content() -> AsyncIterator[bytes]:
                    return _file_pieces(file, size, report_activity, limits.answer_seconds)

                async with open_request(destination, "PUT", headers, content) as answer:
                    _expect(answer, destination, is_good=200 <= answer.status_code < 300)
        return size

    # -- around it --------------------------------------------------------------------------------------

    async def _again(self, once: Callable[[], Awaitable[T]]) -> T:
        """Call `once` up to TRIES times, while the error may pass."""
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
def _translate_errors(destination: Destination) -> Iterator[None]:
    """Turn errors into TransferFailed. A URL may hold secrets, so only its host is named."""
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
async def _stall_timeout(seconds: float) -> AsyncIterator[ReportActivity]:
    """Raise TransferFailed after `seconds` without activity; yields the function that reports activity.

    That function takes the timeout of the next step, if it differs.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds) as limit:

            def report_activity(patience: float | None = None) -> None:
                if not limit.expired():
                    limit.reschedule(loop.time() + (patience or seconds))

            yield report_activity
    except TimeoutError:
        raise TransferFailed("stalled", "nothing more comes", is_passing=True) from None


async def _pieces(answer: httpx2.Response, report_activity: ReportActivity) -> AsyncIterator[bytes]:
    """The body in large chunks."""
    gathered: list[bytes] = []
    size = 0
    async for piece in answer.aiter_raw():
        report_activity(None)
        gathered.append(piece)
        size += len(piece)
        if size >= PIECE:
            yield b"".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)


async def _file_pieces(
    file: BinaryIO, size: int, report_activity: ReportActivity, answer_seconds: float
) -> AsyncIterator[bytes]:
    """The first `size` bytes of the file."""
    file.seek(0)
    while size:
        piece = await asyncio.to_thread(file.read, min(SENT_PIECE, size))
        if not piece:
            raise TransferFailed("workspace_changed", "the file became shorter while it was sent")
        size -= len(piece)
        report_activity(None)
        yield piece
    report_activity(answer_seconds)
