"""Workspaces: directories whose content is not trusted. No path in a workspace leads out of it."""

from cograil.workspace.confined_tree import Workspace
from cograil.workspace.file_list import list_files
from cograil.workspace.tar_create import write_archive
from cograil.workspace.tar_extract import ArchiveBounds, Extracted, extract
from cograil.workspace.workspace_paths import PathParts, WorkspaceError, split_path

__all__ = [
    "ArchiveBounds",
    "Extracted",
    "PathParts",
    "Workspace",
    "WorkspaceError",
    "extract",
    "list_files",
    "split_path",
    "write_archive",
]
