"""A directory that others may have tampered with: nothing in it leads out of it."""

from cograil.workspace.archiving import write_archive
from cograil.workspace.extracting import Bounds, Extracted, extract
from cograil.workspace.listing import list_files
from cograil.workspace.paths import Steps, WorkspaceError, split_path
from cograil.workspace.tree import Workspace

__all__ = [
    "Bounds",
    "Extracted",
    "Steps",
    "Workspace",
    "WorkspaceError",
    "extract",
    "list_files",
    "split_path",
    "write_archive",
]
