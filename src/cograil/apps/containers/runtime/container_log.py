"""Follow the log of a container to its end: whole lines, in batches, each stream separately.

A batch is reported when it has many lines, or when its first line has waited for a moment. Lines and cursor are
stored together, so a later attempt neither repeats nor skips a line.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from cograil.apps.containers.runtime.container_runtime import (
    ContainerLogCursor,
    EngineError,
    LogStream,
    Runtime,
)

STREAMS: tuple[LogStream, ...] = ("stdout", "stderr")
MAX_LINES = 500
MAX_CHARACTERS = 64 * 1024
WAIT_SECONDS = 0.3
AHEAD = 256  # lines that are read before they are told; each may be long
RETRY_SECONDS = 0.5
SILENT_SECONDS = 5.0  # after the end of a container, until its log is taken for broken off
QUIET_SECONDS = 300.0  # before its end, until it is asked for anew: who tells it may have died without a word

Line = tuple[ContainerLogCursor, str]
ReportLines = Callable[[LogStream, list[str], ContainerLogCursor], Awaitable[None]]


async def follow_log(
    engine: Runtime,
    container: str,
    places: Callable[[LogStream], ContainerLogCursor],
    report: ReportLines,
    ended: asyncio.Event,
) -> None:
    """Return when the container has ended and its log is reported; an unavailable engine is waited for.

    `ended` is set when the container has ended: some engines do not always end the log then.
    """
    telling = asyncio.Lock()

    async def tell(stream: LogStream, lines: list[str], place: ContainerLogCursor) -> None:
        async with telling:
            await report(stream, lines, place)

    async with asyncio.TaskGroup() as group:
        for stream in STREAMS:
            lines: asyncio.Queue[Line | None] = asyncio.Queue(AHEAD)
            group.create_task(_read(engine, container, stream, places(stream), lines, ended))
            group.create_task(_tell_batches(stream, lines, tell))


async def _read(
    engine: Runtime,
    container: str,
    stream: LogStream,
    place: ContainerLogCursor,
    lines: asyncio.Queue[Line | None],
    ended: asyncio.Event,
) -> None:
    """Put all lines, then None. A broken log looks like one that ends, so it is read once more after the end.

    A log that is silent for too long counts as broken; the limit is longer while the container runs.
    """
    was_over = False
    while True:
        try:
            async with (
                _patience(ended) as patience,
                contextlib.aclosing(engine.lines(container, stream, place)) as log_lines,
            ):
                async for place, text in log_lines:  # noqa: PLR1704  where it is read on
                    with patience.kept():
                        await lines.put((place, _storable(text)))
        except TimeoutError:
            pass
        except EngineError as error:
            if error.code == "not_found":
                break
        if was_over:
            break
        was_over = await _is_over(engine, container)
        if not was_over:
            await asyncio.sleep(RETRY_SECONDS)
    await lines.put(None)


class _Patience:
    """The timeout of a log: long while its container runs, short after its end, none while a line is stored."""

    def __init__(self, limit: asyncio.Timeout, ended: asyncio.Event) -> None:
        self._limit = limit
        self._ended = ended
        self._is_kept = False

    def begin(self) -> None:
        seconds = SILENT_SECONDS if self._ended.is_set() else QUIET_SECONDS
        self._limit.reschedule(None if self._is_kept else asyncio.get_running_loop().time() + seconds)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        self._is_kept = True
        self.begin()
        yield
        self._is_kept = False
        self.begin()


@contextlib.asynccontextmanager
async def _patience(ended: asyncio.Event) -> AsyncIterator[_Patience]:
    """Raises TimeoutError in this block when nothing more is told for a while."""
    async with asyncio.timeout(None) as limit:
        patience = _Patience(limit, ended)
        patience.begin()

        async def wait() -> None:
            await ended.wait()
            patience.begin()

        waiting = asyncio.create_task(wait())
        try:
            yield patience
        finally:
            waiting.cancel()


def _storable(text: str) -> str:
    """PostgreSQL holds no NUL, and no half of a character."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


async def _is_over(engine: Runtime, container: str) -> bool:
    """Whether it has ended, as far as anybody can say."""
    try:
        return not (await engine.state(container)).is_running
    except EngineError as error:
        return error.code == "not_found"


async def _tell_batches(stream: LogStream, lines: asyncio.Queue[Line | None], report: ReportLines) -> None:
    while (line := await lines.get()) is not None:
        batch = [line]
        is_more = await _gather(batch, lines)
        await report(stream, [text for _, text in batch], batch[-1][0])
        if not is_more:
            return


async def _gather(batch: list[Line], lines: asyncio.Queue[Line | None]) -> bool:
    """Add what comes within a moment, until it is much; whether there may be more."""
    size = len(batch[0][1])
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WAIT_SECONDS):
            while len(batch) < MAX_LINES and size < MAX_CHARACTERS:
                line = await lines.get()
                if line is None:
                    return False
                batch.append(line)
                size += len(line[1])
    return True
