"""Lists the files below a path, in order, up to a limit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase

from cograil.workspace.confined_tree import Workspace, open_regular
from cograil.workspace.workspace_paths import OURS, PathParts, WorkspaceError, split_path

MAX_FILES = 100_000
MAX_SEEN = 2 * MAX_FILES  # includes directories and excluded entries
MAX_CHARACTERS = 32 * 1024**2  # total length of all paths: some thousand of the longest would fill the memory
DEEPEST_WALK = 256


def list_files(
    workspace: Workspace, path: str, *, recursive: bool = True, excludes: Sequence[str] = ()
) -> list[str]:
    """Return the files below this path, relative to it; for a file, its name. Raises WorkspaceError.

    A pattern excludes the entries that it matches by name or by path, and everything below them. Links
    count as files: they are listed and never followed.
    """
    steps = split_path(path, is_root_allowed=True)
    if steps and _is_file(workspace, steps):
        return [] if _is_excluded(steps[-1], steps[-1], excludes) else [steps[-1]]
    paths: list[str] = []
    for file in walk(workspace, steps, recursive=recursive, excludes=excludes):
        paths.append(os.fsencode(file).decode("utf-8", "replace"))
        if len(paths) > MAX_FILES:
            raise WorkspaceError("too_many_files", f"more than {MAX_FILES:,} files are below {path!r}")
    return sorted(paths)


def walk(
    workspace: Workspace, steps: PathParts, *, recursive: bool = True, excludes: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the paths of everything but directories, relative to this directory. Each is opened step by
    step.

    Raises WorkspaceError, also when a directory is removed or replaced during the walk.
    """
    pending, seen = [""], _Seen()
    while pending:
        relative = pending.pop()
        if relative.count("/") >= DEEPEST_WALK:
            raise WorkspaceError("too_deep", f"directories are nested more than {DEEPEST_WALK} levels deep")
        with _entered(workspace, steps, relative) as directory:
            for name, is_directory in _entries(directory, relative, seen):
                path_below = f"{relative}/{name}" if relative else name
                if name.startswith(OURS) or _is_excluded(name, path_below, excludes):
                    continue
                if not is_directory:
                    yield path_below
                elif recursive:
                    pending.append(path_below)


class _Seen:
    """The size of a walk, which is bounded because a tree may have more entries than fit into memory."""

    def __init__(self) -> None:
        self._count = self._characters = 0

    def add(self, characters: int) -> None:
        """Count an entry with a path of this length. Raises WorkspaceError beyond the limit."""
        self._count += 1
        self._characters += characters
        if self._count > MAX_SEEN or self._characters > MAX_CHARACTERS:
            raise WorkspaceError("too_many_files", "there are too many files and directories to list")


def changed(name: str) -> WorkspaceError:
    """Return the error for a concurrent change of the workspace."""
    return WorkspaceError("workspace_changed", f"{name!r} changed while it was read")


@contextmanager
def _entered(workspace: Workspace, steps: PathParts, relative: str) -> Iterator[int]:
    """Open a directory of the walk."""
    with ExitStack() as stack:
        try:
            at = stack.enter_context(workspace.directory((*steps, *filter(None, relative.split("/")))))
        except WorkspaceError:
            if not relative:  # the walk begins here
                raise
            raise changed(relative) from None
        yield at


def _entries(directory: int, relative: str, seen: _Seen) -> list[tuple[str, bool]]:
    """Return the entries of a directory and whether each is a directory; the last name first."""
    names = []
    with os.scandir(directory) as entries:
        for entry in entries:
            seen.add(len(relative) + 1 + len(entry.name))
            names.append((entry.name, entry.is_dir(follow_symlinks=False)))
    return sorted(names, reverse=True)


def _is_file(workspace: Workspace, steps: PathParts) -> bool:
    with workspace.directory(steps[:-1]) as directory:
        try:
            with open_regular(directory, steps[-1]):
                return True
        except WorkspaceError as error:
            if error.code == "file_not_found":
                raise
            return False


def _is_excluded(name: str, path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) or fnmatchcase(path, pattern) for pattern in patterns)
