"""`cograil up --reload` and `--dev`: what is edited is used at once.

Files are looked at twice a second, by their times: that needs no library and works on every file system. A
handler module that changed restarts the worker child, and nothing else; a workflow file that changed is
published again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path

import structlog

log = structlog.get_logger("up")

LOOK_SECONDS = 0.5
MAX_FILES = 5_000
IGNORED = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})

Stamp = tuple[int, int]  # time and size


class FileWatch:
    """Which of some files were changed, made or removed since the last look."""

    def __init__(self) -> None:
        self._stamps: dict[Path, Stamp] | None = None

    def changed(self, paths: Iterable[Path], *, with_new: bool = True) -> list[Path]:
        """The files that differ from what the last call saw; the first call sees no difference."""
        before, now = self._stamps, {path: stamp for path in paths if (stamp := _stamp(path))}
        self._stamps = now
        if before is None:
            return []
        looked_at = before.keys() | now.keys() if with_new else before.keys()
        return sorted(path for path in looked_at if before.get(path) != now.get(path))


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def python_files(directory: Path) -> Iterator[Path]:
    """The Python files below this directory, without hidden directories and installed packages."""
    count, places = 0, [directory]
    while places and count < MAX_FILES:
        try:
            entries = sorted(places.pop().iterdir())
        except OSError:
            continue
        for entry in entries:
            if entry.suffix == ".py":
                count += 1
                yield entry
            elif entry.name not in IGNORED and not entry.name.startswith(".") and _is_real_directory(entry):
                places.append(entry)


def _is_real_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not (path / "pyvenv.cfg").exists()


class Reloader:
    """Looks for edits until cancelled, and calls what they are for."""

    def __init__(
        self,
        directory: Path,
        handler_files: Callable[[], Iterable[Path] | None],
        restart_worker: Callable[[], None],
        workflow_files: Callable[[], list[Path]],
        publish: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """`handler_files` are the modules that the worker has loaded; None after a start that failed.

        What is edited from now on counts, also before the first look.
        """
        self._directory = directory
        self._handler_files = handler_files
        self._restart_worker = restart_worker
        self._workflow_files = workflow_files
        self._publish = publish
        self._code, self._workflows = FileWatch(), FileWatch()
        self._code.changed(python_files(directory))
        self._workflows.changed(workflow_files())

    async def run(self) -> None:
        """Look, again and again."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Restart or publish, if something was edited since the last look."""
        loaded = self._handler_files()
        files = {*python_files(self._directory), *(loaded or ())}
        edited = self._code.changed(files, with_new=loaded is None)
        wanted = edited if loaded is None else [path for path in edited if path in set(loaded)]
        if wanted:
            log.info("handlers changed, restarting the worker", files=[path.name for path in wanted])
            self._restart_worker()
        if self._publish is not None and self._workflows.changed(self._workflow_files()):
            await self._publish()
