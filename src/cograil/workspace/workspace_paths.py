"""What a path inside a workspace may be, before any file system is asked."""

from __future__ import annotations

import re

from cograil.errors import UsageError

MAX_NAME, MAX_PATH, DEEPEST = 255, 1024, 32
OURS = ".cograil"  # names that begin so are not for others

# What would be obeyed where a name is shown: control characters, ends of lines, changes of direction. And
# halves of characters. Spaces of all kinds and joiners are in names that people give.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

PathParts = tuple[str, ...]


class WorkspaceError(UsageError):
    """Something in or about a workspace is not as it has to be; `code` says what."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def split_path(path: str, *, is_root_allowed: bool = False) -> PathParts:
    """The names that lead from the workspace to this path. Raises WorkspaceError.

    A path is relative and goes nowhere but down. `.` and a slash at the end mean nothing; the workspace
    itself is a path only where that is allowed.
    """
    if path.startswith("/") or "\\" in path:
        raise WorkspaceError("unsafe_path", f"{_shown(path)} is not a relative path with slashes")
    steps = tuple(step for step in path.split("/") if step not in ("", "."))
    for step in steps:
        check_name(step)
    if not steps and not (is_root_allowed and path):
        raise WorkspaceError("unsafe_path", f"{_shown(path)} names nothing")
    if len(steps) > DEEPEST or len(path.encode()) > MAX_PATH:
        raise WorkspaceError("unsafe_path", f"{_shown(path)} is too long, or too deep")
    return steps


def check_name(name: str) -> None:
    """Raises WorkspaceError for a name that no file of ours may have."""
    if _UNSAFE.search(name):
        raise WorkspaceError("unsafe_name", f"{_shown(name)} holds characters that no name should")
    if name in ("", ".", "..") or "/" in name:
        raise WorkspaceError("unsafe_path", f"{_shown(name)} leads somewhere else")
    if len(name.encode()) > MAX_NAME:
        raise WorkspaceError("unsafe_path", f"{_shown(name)} is longer than a name may be")
    if name.startswith(OURS):
        raise WorkspaceError("reserved_name", f"names that begin with {OURS} are not yours to give")


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 80 else text[:77] + "...")
